"""Trainings whose workers are killed go on from the snapshot that is held outside them."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import process_with
from training_runs import IMAGES as SMALL_IMAGES
from training_runs import (
    configured,
    exits_of_workers,
    kill_in_step_5,
    losses_and_reads,
    on_two_workers,
    on_workers,
    run,
)
from waiting import wait_until

from sweeps_train.checkpoints.checkpoint import complete_checkpoints
from sweeps_train.checkpoints.integrity import find_damage
from sweeps_train.snapshots import connection
from sweeps_train.snapshots.connection import HolderConnection, holder_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not connection.SHARED_MEMORY.is_dir(), reason="there is no shared memory"),
]

IMAGES = {**SMALL_IMAGES, "checkpoint": {"background": True}}
LONGER = {"max_steps": 8, "eval_every": 2, "lr": 1e-3}


def recorded_run(folder: str, strategy: str) -> tuple[dict[int, float], list[str]]:
    config = configured(IMAGES, train=LONGER, strategy={"kind": strategy})
    return losses_and_reads(lambda: run(config, Path(folder).absolute()))


def killed_in_step(rank: int, strategy: str) -> None:
    """Kill a worker in the step after that of the second checkpoint, which is complete by then."""
    kill_in_step_5(rank, Path("killed") / "step-00000004")
    recorded_run("killed", strategy)


def killed_in_write() -> None:
    """Kill the first worker when the holder has been told to write, but has not begun."""
    send = HolderConnection._send

    def killed(self: HolderConnection, message: dict[str, Any]) -> None:
        if str(message.get("write", "")).endswith("step-00000004"):
            holder = process_with(str(self.folder))
            os.kill(holder, signal.SIGSTOP)
            Path("holder").write_text(str(holder))
            send(self, message)
            os.kill(os.getpid(), signal.SIGKILL)
        send(self, message)

    HolderConnection._send = killed  # type: ignore[method-assign]
    recorded_run("killed", "fsdp")


@pytest.mark.parametrize(("rank", "strategy"), [(0, "ddp"), (1, "fsdp")])
def test_after_a_kill_workers_continue_from_memory_with_the_same_losses(
    rank: int, strategy: str, tmp_path: Path
) -> None:
    (expected, _), _ = on_two_workers(partial(recorded_run, "undisturbed", strategy), tmp_path)
    statuses, _ = exits_of_workers(2, partial(killed_in_step, rank, strategy), tmp_path)
    assert -signal.SIGKILL in statuses
    assert 0 not in statuses
    results = on_two_workers(partial(recorded_run, "killed", strategy), tmp_path)
    folder = holder_folder(tmp_path / "killed")
    assert [read for _, read in results] == [[str(folder / "files")]] * 2
    assert results[0][0] == {step: loss for step, loss in expected.items() if step >= 4}
    assert not folder.exists()


@pytest.mark.gpu
def test_after_a_kill_a_worker_on_a_gpu_continues_from_memory(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    ((expected, _),) = on_workers(1, partial(recorded_run, "undisturbed", "ddp"), tmp_path, "nccl")
    statuses, _ = exits_of_workers(1, partial(killed_in_step, 0, "ddp"), tmp_path, "nccl")
    assert statuses == [-signal.SIGKILL]
    ((losses, read),) = on_workers(1, partial(recorded_run, "killed", "ddp"), tmp_path, "nccl")
    folder = holder_folder(tmp_path / "killed")
    assert read == [str(folder / "files")]
    assert losses == pytest.approx({step: loss for step, loss in expected.items() if step >= 4}, rel=1e-3)
    assert not folder.exists()


def test_the_snapshot_of_a_killed_worker_is_written_after_its_death(tmp_path: Path) -> None:
    (expected, _), _ = on_two_workers(partial(recorded_run, "undisturbed", "fsdp"), tmp_path)
    statuses, _ = exits_of_workers(2, killed_in_write, tmp_path)
    assert statuses[0] == -signal.SIGKILL
    root = tmp_path / "killed"
    assert [path.name for path in complete_checkpoints(root)] == ["step-00000002"]
    os.kill(int((tmp_path / "holder").read_text()), signal.SIGCONT)
    wait_until(lambda: complete_checkpoints(root)[-1].name == "step-00000004")
    assert find_damage(root / "step-00000004") is None
    (losses, _), _ = on_two_workers(partial(recorded_run, "killed", "fsdp"), tmp_path)
    assert losses == {step: loss for step, loss in expected.items() if step >= 4}
