"""Errors that a training raises for its caller to handle."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OUT_OF_MEMORY = re.compile(
    r"out.of.memory|not enough memory|can't allocate memory"
    r"|[A-Z]_STATUS_(INTERNAL_ERROR_(HOST|DEVICE)_)?ALLOC(ATION)?_FAILED"
    # The end of NCCL's message; only its log says that the memory was too small.
    r"|Failed to CUDA (host )?[cm]alloc"
    # Often the first symptom of a full device: the library allocates its workspace when it is first used.
    r"|CUBLAS_STATUS_NOT_INITIALIZED.*cublasCreate|cudaErrorMemoryAllocation|hipErrorOutOfMemory",
    re.IGNORECASE | re.DOTALL,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device ran out of memory, for which torch's own allocator raises ``torch.OutOfMemoryError``, but
    cuBLAS, NCCL and the driver a ``RuntimeError`` or a class derived from it."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return (
        isinstance(error, RuntimeError)
        and not isinstance(error, MicroBatchHalved)
        and bool(_OUT_OF_MEMORY.search(str(error)))
    )


class MicroBatchHalved(RuntimeError):
    """Raised if a device ran out of memory while workers wait for each other, so that the process group cannot
    continue.

    Restarted from its last checkpoint with micro batches of at most ``half`` samples, the training gives the same
    result.

    >>> str(MicroBatchHalved(16, 8))
    'out of memory: micro batches have 8 samples from the last checkpoint on, instead of 16'
    """

    def __init__(self, size: int, half: int):
        super().__init__(size, half)
        self.half = half
        """Maximum samples of a micro batch after the restart."""
        self._size = size

    def __str__(self) -> str:
        halved = f"{self.half} samples from the last checkpoint on, instead of {self._size}"
        return f"out of memory: micro batches have {halved}"


class CannotShare(ValueError):
    """Raised if a training's model cannot be computed together with those of other trainings.

    >>> str(CannotShare("model.path=opt draws random numbers"))
    'model.path=opt draws random numbers; use scaling.trials_per_group=1'
    """

    def __init__(self, reason: str, fix: str = "use scaling.trials_per_group=1"):
        super().__init__(reason, fix)
        self.reason = reason
        self._fix = fix

    def __str__(self) -> str:
        return f"{self.reason}; {self._fix}"


class SilentCorruption(RuntimeError):
    """Raised if workers have computed different numbers from the same inputs, although no hardware reported an
    error."""

    def __init__(self, step: int, ranks: Sequence[int], hosts: Sequence[str]):
        """Name the ranks whose numbers differ from those of most others after a step, or all ranks if none are in the
        majority. ``hosts`` are those of all workers."""
        super().__init__(step, ranks, hosts)
        named = ", ".join(f"{rank} on {hosts[rank]}" for rank in ranks)
        self._text = f"silent data corruption after step {step}: " + (
            f"workers {named} compute different losses or gradients of the same samples; one of them is wrong"
            if len(ranks) == len(hosts)
            else f"worker{'s'[: len(ranks) > 1]} {named} computed another loss or other gradients of the same samples "
            f"than the other {len(hosts) - len(ranks)} workers"
        )

    def __str__(self) -> str:
        return self._text
