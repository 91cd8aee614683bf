"""Snapshots of workers that are on several nodes, whose parts travel to the first one while the training goes on.

A worker takes itself for one of another node if it does not find the holder's identity in shared memory; here the last
worker does not look for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from training_runs import IMAGES as SMALL_IMAGES
from training_runs import (
    TEXT,
    after_each_step,
    configured,
    exits_of_workers,
    kill_in_step_5,
    losses_and_reads,
    on_two_workers,
    on_workers,
    run,
    write_prompts,
)

from sweeps_train.checkpoints import resumption
from sweeps_train.checkpoints.checkpoint import complete_checkpoints
from sweeps_train.checkpoints.integrity import SEAL_FILE, find_damage
from sweeps_train.checkpoints.training_state import STATE_FILE, TENSORS_FILE
from sweeps_train.lanes.lane import Lane
from sweeps_train.snapshots import connection, link, snapshot
from sweeps_train.snapshots.connection import holder_folder
from sweeps_train.snapshots.link import Link

pytestmark = pytest.mark.skipif(not connection.SHARED_MEMORY.is_dir(), reason="there is no shared memory")

EVERY_STEP = {"max_steps": 3, "eval_every": 1, "lr": 1e-3}
LONGER = {"max_steps": 8, "eval_every": 2, "lr": 1e-3}
IMAGES = {**SMALL_IMAGES, "train": {**SMALL_IMAGES["train"], "global_batch_size": 300}}  # for two and three workers
WHOLE_MODEL = {**TEXT, "model": {**TEXT["model"], "lora": None}}


@contextmanager
def nodes_apart() -> Iterator[pytest.MonkeyPatch]:
    """The last worker is on another node than the first one."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("MASTER_ADDR", "127.0.0.1")
        if dist.get_rank() == dist.get_world_size() - 1:
            for module in (snapshot, resumption):
                patches.setattr(module, "read_identity", lambda folder: "")
        yield patches


def trained(base: dict[str, Any], folder: str, kind: str, *, background: bool = True, **train: Any) -> Any:
    """Train with a strategy; returns the recorder."""
    changes = {"strategy": {"kind": kind}, "checkpoint": {"background": background}, "train": train}
    return run(configured(base, **changes), Path(folder).absolute())


def apart_and_at_once(base: dict[str, Any], kind: str) -> int:
    """Train with a worker on another node, and with checkpoints that are written at once; returns the number of parts
    that this worker has sent."""
    sent: list[torch.Tensor] = []
    send = Link.send_tensor

    def counted(self: Link, part: torch.Tensor) -> None:
        sent.append(part)
        send(self, part)

    with nodes_apart() as patches:
        patches.setattr(Link, "send_tensor", counted)
        trained(base, "apart", kind, **EVERY_STEP)
    trained(base, "at once", kind, background=False, **EVERY_STEP)
    return len(sent)


def assert_same_bytes(one: Path, other: Path) -> None:
    """Two checkpoints are intact and have the same files, with the same bytes where no times are measured."""
    names = {file.name for file in one.iterdir()}
    assert names == {file.name for file in other.iterdir()}
    assert find_damage(one) is None
    for name in names - {STATE_FILE, SEAL_FILE, "training.json", "metrics.json"}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize(
    ("base", "kind", "sends"),
    [
        (IMAGES, "fsdp", [False, False, True]),
        pytest.param(WHOLE_MODEL, "tensor_parallel", [False, True], marks=pytest.mark.slow),
        pytest.param(WHOLE_MODEL, "pipeline", [False, True], marks=pytest.mark.slow),
        (IMAGES, "ddp", [False, False]),
    ],
)
def test_a_checkpoint_of_workers_on_two_nodes_has_the_bytes_of_one_that_is_written_at_once(
    base: dict[str, Any], kind: str, sends: list[bool], tmp_path: Path
) -> None:
    write_prompts(tmp_path)
    sent = on_workers(len(sends), partial(apart_and_at_once, base, kind), tmp_path)
    assert [each > 0 for each in sent] == sends
    assert_same_bytes(tmp_path / "apart" / "step-00000003", tmp_path / "at once" / "step-00000003")
    assert not holder_folder(tmp_path / "apart").exists()


def parts_that_wait() -> list[str]:
    """Send no part of the first checkpoint before this worker has made another step."""
    events: list[str] = []
    step_made = threading.Event()
    send = Link.send_tensor

    def slow(self: Link, part: torch.Tensor) -> None:
        assert step_made.wait(60)
        events.append("sent")
        send(self, part)

    def after_step(of: Lane) -> None:
        events.append(f"step {of.progress.step}")
        if of.progress.step == 2:
            step_made.set()

    with nodes_apart() as patches:
        patches.setattr(Link, "send_tensor", slow)
        after_each_step(patches, after_step)
        trained(IMAGES, "apart", "fsdp", **EVERY_STEP)
    return events


def test_training_goes_on_while_the_parts_of_another_node_travel(tmp_path: Path) -> None:
    _, events = on_two_workers(parts_that_wait, tmp_path)
    assert events[:3] == ["step 1", "step 2", "sent"]
    assert find_damage(tmp_path / "apart" / "step-00000003") is None


def recorded(folder: str) -> tuple[dict[int, float], list[str]]:
    with nodes_apart():
        return losses_and_reads(lambda: trained(IMAGES, folder, "fsdp", **LONGER))


def killed_while_its_parts_travel() -> None:
    """Kill the worker on the other node when it has sent one part of the second checkpoint."""
    sent: list[int] = []
    send = Link.send_tensor

    def killed(self: Link, part: torch.Tensor) -> None:
        if (Path("killed") / "step-00000002").exists():
            if sent:
                os.kill(os.getpid(), signal.SIGKILL)
            sent.append(1)
        send(self, part)

    Link.send_tensor = killed  # type: ignore[method-assign] # in a process of its own
    recorded("killed")


def killed_in_a_step() -> None:
    """Kill the worker on the other node when the second checkpoint is complete."""
    kill_in_step_5(1, Path("killed") / "step-00000004")
    recorded("killed")


@pytest.mark.slow
def test_a_worker_that_dies_while_its_parts_travel_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    (expected, _), _ = on_two_workers(partial(recorded, "undisturbed"), tmp_path)
    statuses, _ = exits_of_workers(2, killed_while_its_parts_travel, tmp_path)
    assert statuses[1] == -signal.SIGKILL
    assert statuses[0] != 0
    root = tmp_path / "killed"
    assert [path.name for path in complete_checkpoints(root)] == ["step-00000002"]
    results = on_two_workers(partial(recorded, "killed"), tmp_path)
    assert [read for _, read in results] == [[str(root / "step-00000002")]] * 2, "not the half snapshot in memory"
    assert results[0][0] == {step: loss for step, loss in expected.items() if step >= 2}
    assert not holder_folder(root).exists()


@pytest.mark.slow
def test_workers_on_the_node_of_the_snapshot_continue_from_memory_and_others_from_storage(tmp_path: Path) -> None:
    (expected, _), _ = on_two_workers(partial(recorded, "undisturbed"), tmp_path)
    statuses, _ = exits_of_workers(2, killed_in_a_step, tmp_path)
    assert statuses[1] == -signal.SIGKILL
    root = tmp_path / "killed"
    (losses, in_memory), (_, on_storage) = on_two_workers(partial(recorded, "killed"), tmp_path)
    assert in_memory == [str(holder_folder(root) / "files")]
    assert on_storage == [str(root / "step-00000004")]
    assert losses == {step: loss for step, loss in expected.items() if step >= 4}


def unreachable() -> tuple[list[str], list[str]]:
    with nodes_apart() as patches:
        patches.setenv("MASTER_ADDR", "invalid.invalid")
        recorder = trained(IMAGES, "apart", "fsdp", **EVERY_STEP)
    return recorder.notes, [Path(str(path)).name for *_, path, _ in recorder.reports]


def test_checkpoints_are_written_at_once_if_a_node_does_not_reach_the_first_one(tmp_path: Path) -> None:
    (notes, reported), _ = on_two_workers(unreachable, tmp_path)
    assert notes == [
        "checkpoints are saved without a snapshot in memory: some workers cannot reach the machine of the first one"
    ]
    assert reported == ["step-00000001", "step-00000002", "step-00000003"]


def grown_state() -> None:
    """The optimizer of the first worker has another tensor from the second step on."""

    def after_step(of: Lane) -> None:
        if of.progress.step == 2 and of.workers.rank == 0:
            parameter = next(iter(of.strategy.parameters.values()))
            of.optimizer.state[parameter]["extra"] = torch.full((3,), 7.0)

    with pytest.MonkeyPatch.context() as patches:
        after_each_step(patches, after_step)
        trained(IMAGES, "grown", "ddp", **EVERY_STEP)


@pytest.mark.slow
def test_a_snapshot_is_laid_out_again_when_the_optimizer_of_any_worker_has_more_tensors(tmp_path: Path) -> None:
    on_two_workers(grown_state, tmp_path)
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "grown" / "step-00000003" / TENSORS_FILE)
    assert [each.tolist() for name, each in saved.items() if name.startswith("extra:")] == [[7.0, 7.0, 7.0]]
    assert find_damage(tmp_path / "grown" / "step-00000003") is None


def stranger_first() -> int:
    """Somebody else connects before the workers do."""
    from sweeps_train.workers.distributed import Workers

    workers = Workers.current()
    connect = link._connected

    def after_another(host: str, port: int, secret: bytes, rank: int) -> Any:
        assert connect(host, port, b"x" * len(secret), rank) is not None
        return connect(host, port, secret, rank)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(link, "_connected", after_another)
        links = link.link_workers(workers, is_here=True)
    assert links is not None
    if workers.rank == 0:
        return int(links[0].receive())
    links[0].send(17)
    return 0


def test_only_workers_that_know_the_secret_are_linked(tmp_path: Path) -> None:
    assert on_two_workers(stranger_first, tmp_path) == [17, 0]
