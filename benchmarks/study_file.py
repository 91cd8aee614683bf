"""Cost of a trial in the study's file: the file with one writer that sweeps have, and Optuna's own for several writers.

    python benchmarks/study_file.py

Trials are sampled at random and report nine values each, on the disk of the working folder. Prints milliseconds a
trial: of the processor, and of the clock with the waits for the disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table

REPORTS = 9


@click.command()
@click.option("--trials", default=300, show_default=True, help="Trials of each study.")
@click.option("--repeats", default=3, show_default=True, help="Studies of each kind, in turns; the fastest counts.")
def main(trials: int, repeats: int) -> None:
    """Compare the two files."""
    from optuna.storages.journal import JournalFileBackend

    from sweeps.search.study_file import StudyFile

    files: dict[str, Callable[[Path], Any]] = {
        "Optuna's file": lambda path: JournalFileBackend(str(path)),
        "one writer": StudyFile,
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in files}
    for _ in range(repeats):
        for name, make in files.items():
            taken[name].append(_search(make, trials))
    rows = [
        [name, *(f"{min(each) * 1e3:.1f} ms" for each in zip(*seconds, strict=True))] for name, seconds in taken.items()
    ]
    click.echo(markdown_table(["file of the study", "processor, per trial", "clock, per trial"], rows))


def _search(make: Callable[[Path], Any], trials: int) -> tuple[float, float]:
    """Seconds of the processor and of the clock for each trial."""
    import optuna
    from optuna.storages import JournalStorage
    from pydantic import TypeAdapter

    from sweeps.config.samplers import Sampler
    from sweeps.config.space import Distribution
    from sweeps.search import OptunaSearcher, Space, build_sampler

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {name: {"type": "float", "low": 0.0, "high": 1.0} for name in ("lr", "dropout", "momentum", "decay")}
    space = Space(TypeAdapter(dict[str, Distribution]).validate_python(ranges))
    sampler = build_sampler(TypeAdapter[Sampler](Sampler).validate_python({"kind": "random"}), 0, space)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        storage = JournalStorage(make(Path(folder) / "optuna.log"))
        searcher = OptunaSearcher(
            space, metric="loss", mode="min", sampler=sampler, storage=storage, study_name="study", num_trials=trials
        )
        clock, processor = time.perf_counter(), time.process_time()
        for index in range(trials):
            point = searcher.suggest(str(index))
            assert point is not None
            for step in range(1, REPORTS + 1):
                done = step == REPORTS
                result = {"loss": point["lr"] + 1 / step, "training_iteration": step, "step": step}
                result["sweeps_completed"] = done
                if done:
                    searcher.on_trial_complete(str(index), result)
                else:
                    searcher.on_trial_result(str(index), result)
        return (time.process_time() - processor) / trials, (time.perf_counter() - clock) / trials


if __name__ == "__main__":
    main()
