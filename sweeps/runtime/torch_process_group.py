"""Configuration of the workers' torch process group by a process that does not import torch itself.

Ray's ``TorchConfig`` imports torch in the process that controls the worker group, a trial's Tune actor. That takes
seconds of processor time, which the workers need to start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.train.backend import Backend, BackendConfig

from sweeps_train.command.launch import free_address

LEAVES_WITHIN_S = 30.0
"""Maximum seconds to wait for workers to leave the group before they are ended."""


@dataclass
class ProcessGroup(BackendConfig):
    """Configuration of the workers' communication, replacing Ray's ``TorchConfig``."""

    backend: Literal["gloo", "nccl"]
    timeout_s: int
    """Seconds that an operation among the workers may take."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _ProcessGroupBackend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        return _on_own_gpu


class _ProcessGroupBackend(Backend):
    """Ray Train's hooks into a worker group, called by its controller; code that needs torch runs in the workers."""

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        address, port = worker_group.execute_single(0, free_address)
        number = len(worker_group)
        group = backend_config.backend, backend_config.timeout_s
        ray.get(
            [
                worker_group.execute_single_async(rank, _join, address, port, rank, number, *group)
                for rank in range(number)
            ]
        )

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        left = worker_group.execute_async(_leave)
        with contextlib.suppress(ray.exceptions.GetTimeoutError):
            ray.get(left, timeout=LEAVES_WITHIN_S)


def _join(address: str, port: int, rank: int, number: int, backend: str, timeout_s: int) -> None:
    """Join the process group, with the environment variables that torch and accelerate document."""
    from datetime import timedelta

    import ray.train.torch
    import torch.distributed

    context = ray.train.get_context()
    os.environ |= {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "NODE_RANK": str(context.get_node_rank()),
        "RANK": str(rank),
        "WORLD_SIZE": str(number),
        "ACCELERATE_TORCH_DEVICE": str(ray.train.torch.get_device()),
    }
    if backend == "nccl" and "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    torch.distributed.init_process_group(
        backend, init_method="env://", rank=rank, world_size=number, timeout=timedelta(seconds=timeout_s)
    )


def _leave() -> None:
    """Leave the process group, if there are other workers, and free this worker's cached GPU memory."""
    import torch.distributed

    group = torch.distributed
    if group.is_initialized() and group.get_world_size() > 1:
        group.destroy_process_group()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _on_own_gpu() -> Any:
    """Make the worker's GPU torch's default device."""
    import ray.train.torch
    import torch

    if torch.cuda.is_available() and (device := ray.train.torch.get_device()).type == "cuda":
        torch.cuda.set_device(device)
    yield
