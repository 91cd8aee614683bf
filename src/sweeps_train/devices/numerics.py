"""TF32 and deterministic algorithms: settings of torch for one training, restored after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from sweeps_train.config import Train


@contextmanager
def numerics(train: Train) -> Iterator[None]:
    """Set ``train.tf32`` and ``train.deterministic`` in torch for one training, and restore its settings afterwards, as
    the next training in the same process may have others.

    Args:
        train: The training loop's options; without them everything stays as torch or the user's own code has set it,
            which it may do once for all trainings, when it is imported.
    """
    with ExitStack() as restored:
        if train.tf32 is not None:
            restored.enter_context(precision_restored())
            torch.set_float32_matmul_precision("high" if train.tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = train.tf32
        if train.deterministic:
            restored.enter_context(algorithms_restored())
            torch.use_deterministic_algorithms(mode=True)
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        yield


@contextmanager
def precision_restored() -> Iterator[None]:
    """Restore torch's precision of float32 operations after a ``with`` block, by whichever of its names it is set in
    the block or was set before."""
    matrices, convolutions = _read(torch.get_float32_matmul_precision), _read(lambda: torch.backends.cudnn.allow_tf32)
    precisions = [(each, each.fp32_precision) for each in _operations()]
    try:
        yield
    finally:
        # Setting the older names changes the newer ones, but not the other way round.
        if matrices is not None:
            torch.set_float32_matmul_precision(matrices)
        if convolutions is not None:
            torch.backends.cudnn.allow_tf32 = convolutions
        for operation, precision in precisions:
            operation.fp32_precision = precision


def _operations() -> list[Any]:
    """Operations that have a precision of their own in torch, the general before the particular."""
    backends: Any = torch.backends
    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    general = [backends, cudnn, mkldnn]
    return [*general, backends.cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn]


def _read(older: Callable[[], Any]) -> Any:
    """Value by an older name; None where newer names were used, after which torch refuses to read the older ones."""
    try:
        return older()
    except RuntimeError:
        return None


@contextmanager
def algorithms_restored() -> Iterator[None]:
    """Restore after a ``with`` block whether torch uses deterministic algorithms, and measures those of cuDNN."""
    cudnn = torch.backends.cudnn
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    kernels = cudnn.deterministic, cudnn.benchmark
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        cudnn.deterministic, cudnn.benchmark = kernels
