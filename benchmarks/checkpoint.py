"""Time for which training stands still while its state is saved, and time to load it again after a worker's death.

    python benchmarks/checkpoint.py --write docs/checkpoint_speed.md

takes about twelve minutes on two idle cores; ``--merge`` puts together runs of parts of it. Each way of saving is
called several times, with a pause until what it does in the background has ended; the time is that of the slowest
worker, from a barrier to the return of the call, and the table has the median without the first call, which allocates.
Workers are processes that communicate over gloo, with one thread each. The state is that of square matrices with Adam,
whole with one worker and sharded by FSDP with several. The object store is an S3 server on this machine.

``gpu/snapshots.py`` measures the same with a state on a GPU.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import psutil
import torch
import torch.distributed as dist
from results_document import markdown_table, write_between_marks
from saved.arms import APART, ARMS, IN_PROCESS, UNLOCKED, Arm, clear, ours
from saved.ray_report import RAY_REPORT, RAY_SAVES, measure_ray_report
from saved.state import State, build_state
from trained.tables import machine

from sweeps.storage.committed_folder import commit, fetch
from sweeps.storage.object_store import ObjectStore
from sweeps_train.checkpoints.checkpoint import prepare_resume
from sweeps_train.checkpoints.training_state import load_state
from sweeps_train.devices.device_operations import pins_memory, synchronize
from sweeps_train.files.tensor_file import mapped
from sweeps_train.models.weights import WEIGHTS_FILE
from sweeps_train.snapshots.connection import HolderConnection
from sweeps_train.workers.distributed import Workers

Numbers = dict[str, dict[str, Any]]
STEP = "step-00000001"
OURS, COPY, SYNCHRONOUS = "Sweeps", "a plain copy in memory", "`torch.save`"


def timed(work: Callable[[], object]) -> float:
    """Seconds of the slowest worker; all begin together, and a GPU has done its part."""
    workers = Workers.current()
    if workers.size > 1:
        dist.barrier()
    synchronize(workers.device)
    began = time.perf_counter()
    work()
    synchronize(workers.device)
    return workers.max([time.perf_counter() - began])[0]


def measure_saving(state: State, folder: Path, saves: int) -> Numbers:
    """Seconds for which each way of saving blocks the first time, and each further time."""
    found: Numbers = {}
    for name, build in ARMS.items():
        workers = state.strategy.workers
        if (name == APART and workers.size == 1) or (name == UNLOCKED and not pins_memory(workers.device)):
            continue
        clear(folder)
        try:
            seconds = seconds_of(build(state, folder), saves)
        except (KeyError, ImportError) as error:
            if name != IN_PROCESS:
                raise
            click.echo(f"{name} fails with torch {torch.__version__}: {error!r}", err=True)
        else:
            found[name] = {"first": seconds[0], "next": seconds[1:]}
    return found


def seconds_of(arm: Arm, saves: int) -> list[float]:
    """Seconds for which each save blocks."""
    seconds = []
    try:
        for number in range(saves):
            seconds.append(timed(lambda: arm.save(number)))  # noqa: B023 - called at once
            arm.wait()
            timed(lambda: None)
    finally:
        arm.close()
    return seconds


def measure_recovery(state: State, folder: Path, rounds: int, store: str | None) -> dict[str, Any]:
    """Seconds to find the newest checkpoint and to load it, from memory, from a disk that has to read it, and from an
    object store, if one is given; and the memory of a snapshot. The state is overwritten with itself."""
    is_main = state.strategy.workers.rank == 0
    clear(folder)
    roots = {kind: folder / kind for kind in ("memory", "storage", "object store")}
    arm = ours(state, roots["memory"])
    arm.save(1)
    arm.wait()
    stored = None if store is None else ObjectStore(store) / STEP
    if is_main:
        shutil.copytree(roots["memory"], roots["storage"])
        if stored is not None:
            commit(stored, roots["memory"] / STEP)
    kinds = [kind for kind in roots if kind != "object store" or stored is not None]
    found: dict[str, Any] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            root = roots[kind]
            if is_main:
                forget_pages(root)
            if kind == "object store":
                found[kind].append(timed(lambda: _recover(state, root, stored)))  # noqa: B023 - called at once
                if is_main:
                    shutil.rmtree(root)
            else:
                found[kind].append(timed(lambda: _recover(state, root, None)))  # noqa: B023
    if is_main:
        connection = HolderConnection.to_existing(roots["memory"])
        assert connection is not None
        files = [file for file in connection.files.rglob("*") if file.is_file()]
        found["snapshot_bytes"] = sum(file.stat().st_size for file in files)
        found["state_bytes"] = 12 * sum(each.numel() for each in state.strategy.parameters.values())
        processes = [each for each in psutil.process_iter(["cmdline"]) if str(connection.folder) in _words(each)]
        found["holder_bytes"] = sum(each.memory_info().rss for each in processes)
        connection.forget()
    timed(lambda: None)
    return found


def _recover(state: State, root: Path, stored: ObjectStore | None) -> None:
    """Load the newest checkpoint of a folder, which is brought from an object store if one is given."""
    workers = state.strategy.workers
    source = None
    if workers.rank == 0:
        if stored is not None:
            fetch(stored, root / STEP)
        connection = HolderConnection.to_existing(root)
        held = connection.state.written if connection is not None and connection.state.is_stored else None
        found = prepare_resume(root, print, held)
        source = connection.files if connection is not None and held is not None else found
        if connection is not None:
            connection.close()
    source = workers.broadcast(source)
    assert source is not None
    load_state(source, state.optimizer, state.strategy)
    weights = mapped(source / WEIGHTS_FILE, shared=False)
    with torch.no_grad():
        for name, each in state.strategy.parameters.items():
            each.copy_(state.strategy.shard_like(name, weights[name]))


def _words(process: psutil.Process) -> list[str]:
    return process.info["cmdline"] or []


def forget_pages(folder: Path) -> None:
    """Make the kernel forget the content of files, so that it is read from the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def worker(rank: int, ranks: int, meeting: str, sizes: list[int], saves: int, store: str | None, found: Any) -> None:
    """Measure on one worker."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dist.init_process_group("gloo", init_method=f"file://{meeting}/rendezvous", rank=rank, world_size=ranks)
    results = {}
    for mib in sizes:
        state = build_state(mib, Workers.current())
        folder = Path(meeting) / "files"
        results[mib] = {
            "saving": measure_saving(state, folder, saves),
            "recovery": measure_recovery(state, folder, saves - 1, store and f"{store}/{mib}"),
        }
    if rank == 0:
        found.put(results)
    dist.destroy_process_group()


def measure(ranks: int, sizes: list[int], saves: int, folder: Path, *, stores: bool) -> dict[int, Any]:
    """Numbers of all sizes with a number of workers."""
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    served = contextlib.nullcontext()
    if stores:
        from saved.object_store import served_store

        served = served_store()
    with tempfile.TemporaryDirectory(dir=folder) as meeting, served as store:
        arguments = [(rank, ranks, meeting, sizes, saves, store, found) for rank in range(ranks)]
        processes = [context.Process(target=worker, args=each) for each in arguments]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise click.ClickException(f"{ranks} workers ended with {[process.exitcode for process in processes]}")
    results: dict[int, Any] = found.get()
    return results


def saving_table(numbers: dict[int, dict[int, Any]]) -> str:
    """Median time of each way, with the factor to a plain copy."""
    columns = [(ranks, mib) for ranks, sizes in numbers.items() for mib in sizes]
    headers = ["blocked for", *[f"{mib} MiB, {ranks} worker{'s' * (ranks > 1)}" for ranks, mib in columns]]
    names = [name for name in (*ARMS, RAY_REPORT) if any(name in numbers[r][m]["saving"] for r, m in columns)]
    rows = []
    for name in names:
        cells = []
        for ranks, mib in columns:
            each = numbers[ranks][mib]["saving"].get(name)
            cells.append("" if each is None else f"{_milliseconds(median(each))} ms ({_milliseconds(each['first'])})")
        rows.append([name, *cells])
    for text, other in (("Sweeps, times a plain copy", COPY), ("Sweeps, part of `torch.save`", SYNCHRONOUS)):
        ratios = [median(numbers[r][m]["saving"][OURS]) / median(numbers[r][m]["saving"][other]) for r, m in columns]
        rows.append([f"**{text}**", *[f"{each:.2f}" for each in ratios]])
    return markdown_table(headers, rows)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.{1 if seconds < 0.01 else 0}f}"


def recovery_table(numbers: dict[int, dict[int, Any]]) -> str:
    """Times to load a state, and the memory that a snapshot takes."""
    kinds = ("memory", "storage", "object store")
    headers = ["state", "workers", "from memory", "from a disk", "times faster", "from an object store", "times faster"]
    headers += ["snapshot / state", "holder"]
    rows = []
    for ranks, sizes in numbers.items():
        for mib, each in sizes.items():
            recovery = each["recovery"]
            memory, *others = (statistics.median(recovery[kind]) if kind in recovery else None for kind in kinds)
            assert memory is not None
            times = [f"{1000 * memory:,.0f} ms"]
            for other in others:
                times += ["", ""] if other is None else [f"{1000 * other:,.0f} ms", f"{other / memory:.1f}"]
            share = recovery["snapshot_bytes"] / recovery["state_bytes"]
            holder = f"{recovery['holder_bytes'] / 2**20:.0f} MiB"
            rows.append([f"{mib} MiB", str(ranks), *times, f"{share:.2f}", holder])
    return markdown_table(headers, rows)


def median(each: dict[str, Any]) -> float:
    """Median seconds of the saves after the first."""
    return statistics.median(each["next"])


@click.command()
@click.option("--sizes", default="25,250,1000", show_default=True, help="Sizes of the state in MiB.")
@click.option("--workers", default="1,2,4", show_default=True, help="Numbers of workers; may be empty with --merge.")
@click.option(
    "--merge", type=click.Path(path_type=Path, exists=True), multiple=True, help="Add the numbers of an earlier run."
)
@click.option("--store/--no-store", default=True, show_default=True, help="Also load from an object store.")
@click.option("--saves", type=click.IntRange(2), default=6, show_default=True, help="Saves of each kind.")
@click.option(
    "--ray/--no-ray", default=True, show_default=True, help="Also measure Ray Train's report, where it is missing."
)
@click.option("--folder", type=click.Path(path_type=Path, exists=True), default=Path.cwd, help="Where to write.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE.json", help="Write all numbers.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    sizes: str,
    workers: str,
    merge: tuple[Path, ...],
    store: bool,
    saves: int,
    ray: bool,
    folder: Path,
    json_file: Path | None,
    write: Path | None,
) -> None:
    """Measure how long saving blocks a training."""
    here = machine(("torch", "ray") if ray else ("torch",))
    in_mib = [int(each) for each in sizes.split(",")]
    numbers: dict[int, dict[int, Any]] = {}
    for file in merge:
        earlier = json.loads(file.read_text(encoding="utf-8"))
        here = earlier["machine"]
        for ranks, measured in earlier["numbers"].items():
            numbers.setdefault(int(ranks), {}).update({int(mib): each for mib, each in measured.items()})
    for ranks in map(int, filter(None, workers.split(","))):
        click.echo(f"{ranks} workers ...", err=True)
        numbers.setdefault(ranks, {}).update(measure(ranks, in_mib, saves, folder, stores=store))
    for ranks, by_size in numbers.items() if ray else ():
        missing = [mib for mib, each in by_size.items() if RAY_REPORT not in each["saving"]]
        for mib, each in measure_ray_report(ranks, missing, min(saves, RAY_SAVES), folder).items():
            by_size[mib]["saving"][RAY_REPORT] = each
    saving, recovery = saving_table(numbers), recovery_table(numbers)
    click.echo(f"{saving}\n\n{recovery}\n\n{here}")
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": here, "numbers": numbers}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"machine": here, "saving": saving, "recovery": recovery})


if __name__ == "__main__":
    main()
