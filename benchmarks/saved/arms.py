"""Ways to save the state of a training. Each is called by all workers, and returns when training may go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from saved.state import State
from sweeps_train.checkpoints.checkpoint import write_checkpoint
from sweeps_train.checkpoints.saver import SMALL, CheckpointSaver
from sweeps_train.devices.device_operations import pins_memory
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import SilentReporter
from sweeps_train.snapshots import page_lock, snapshot
from sweeps_train.training_request import TrainingRequest


def nothing() -> None:
    """Do nothing."""


@dataclass
class Arm:
    """One way to save."""

    save: Callable[[int], None]
    """Called with the number of the save."""
    wait: Callable[[], None] = nothing
    """Waits until it is written."""
    close: Callable[[], None] = nothing


def copy(state: State, _: Path) -> Arm:
    """A plain copy of this worker's tensors into memory that is kept, and page-locked for a GPU: the lower bound of any
    save."""
    pinned = pins_memory(state.strategy.workers.device)
    targets = [torch.empty(each.shape, dtype=each.dtype, pin_memory=pinned) for each in state.shards()]

    def save(_: int) -> None:
        for target, source in zip(targets, state.shards(), strict=True):
            target.copy_(source, non_blocking=pinned)

    return Arm(save)


def torch_save(state: State, folder: Path) -> Arm:
    """All tensors are gathered, and the first worker writes them."""

    def save(number: int) -> None:
        full = state.strategy.gather_full(state.tensors())
        if state.strategy.workers.rank == 0:
            torch.save(full, folder / f"torch-{number}.pt")

    return Arm(save)


def dcp_save(state: State, folder: Path) -> Arm:
    """Torch's distributed checkpoint."""
    return Arm(lambda number: _ignored(dcp.save(state.tensors(), checkpoint_id=folder / f"dcp-{number}")))


def dcp_async_thread(state: State, folder: Path) -> Arm:
    """Torch's distributed checkpoint, written by a thread with its own process group: two threads cannot share one."""
    group = dist.new_group(backend="gloo") if dist.is_initialized() else None
    return _dcp_async(state, folder, process_group=group)


def dcp_async_process(state: State, folder: Path) -> Arm:
    """Torch's distributed checkpoint, copied into shared memory that is kept, and written by a process."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    options = StagingOptions(
        use_pinned_memory=pins_memory(state.strategy.workers.device),
        use_shared_memory=True,
        use_async_staging=False,
        use_non_blocking_copy=False,
    )
    stager = DefaultStager(options)
    process = {"async_checkpointer_type": AsyncCheckpointerType.PROCESS, "async_stager": stager}
    return _dcp_async(state, folder, stager.close, **process)


def _dcp_async(state: State, folder: Path, close: Callable[[], None] = nothing, **arguments: Any) -> Arm:
    writing: list[Any] = []

    def save(number: int) -> None:
        writing[:] = [dcp.async_save(state.tensors(), checkpoint_id=folder / f"async-{number}", **arguments)]

    def wait() -> None:
        written = getattr(writing[0], "upload_completion", writing[0])
        written.result()

    return Arm(save, wait, close)


def before(state: State, folder: Path) -> Arm:
    """Sweeps with ``checkpoint.background=false``."""

    def save(number: int) -> None:
        progress = Progress(step=number)
        complete = write_checkpoint(folder, state.config, state.strategy, state.optimizer, progress, {})
        if complete is not None:
            complete()

    return Arm(save)


def ours(state: State, folder: Path) -> Arm:
    """Sweeps: a snapshot in shared memory, written by its holder."""
    saver = CheckpointSaver(
        TrainingRequest(config=state.config, checkpoint_folder=str(folder)),
        SilentReporter(),
        state.strategy,
        state.optimizer,
        None,
        trained_bytes=SMALL + 1,  # as in the sizes that are measured, which are all written in the background
        step=0,
    )

    def save(number: int) -> None:
        saver.save(Progress(step=number), {}, finished=False, stops=False)

    return Arm(save, saver.wait, saver.finish)


def apart(state: State, folder: Path) -> Arm:
    """Sweeps, with all workers but the first one made to believe that they are on another node."""
    arm = ours(state, folder)

    def save(number: int) -> None:
        if number == 0 and state.strategy.workers.rank != 0:  # when it looks for the snapshot
            with mock.patch.object(snapshot, "read_identity", return_value=""):
                arm.save(number)
        else:
            arm.save(number)

    return Arm(save, arm.wait, arm.close)


def unlocked(state: State, folder: Path) -> Arm:
    """Sweeps, with files that are not page-locked for the GPU."""
    arm = ours(state, folder)

    def save(number: int) -> None:
        with mock.patch.object(page_lock, "lock_pages", return_value=False):
            arm.save(number)

    return Arm(save, arm.wait, arm.close)


IN_PROCESS = "`dcp.async_save`, process and shared memory"
APART = "Sweeps, each worker on a node of its own"
UNLOCKED = "Sweeps, without locked memory"
ARMS: dict[str, Callable[[State, Path], Arm]] = {
    "a plain copy in memory": copy,
    "`torch.save`": torch_save,
    "`dcp.save`": dcp_save,
    "`dcp.async_save`, thread": dcp_async_thread,
    IN_PROCESS: dcp_async_process,
    "Sweeps, `checkpoint.background=false`": before,
    "Sweeps": ours,
    APART: apart,
    UNLOCKED: unlocked,
}


def clear(folder: Path) -> None:
    """Remove what an arm has written, on the first worker."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)


def _ignored(value: object) -> None:
    """Return nothing."""
