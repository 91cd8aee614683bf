"""TF32 and deterministic algorithms: settings of torch for one training, restored after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from sweeps_train.config import Train

_cuda = torch.backends.cuda
_ATTENTION: list[tuple[Callable[[bool], None], Callable[[], bool]]] = [
    (_cuda.enable_flash_sdp, _cuda.flash_sdp_enabled),
    (_cuda.enable_mem_efficient_sdp, _cuda.mem_efficient_sdp_enabled),
    (_cuda.enable_cudnn_sdp, _cuda.cudnn_sdp_enabled),
    (_cuda.enable_math_sdp, _cuda.math_sdp_enabled),
]
"""Setter and getter for each kind of kernels of scaled dot product attention."""


@contextmanager
def numerics(train: Train) -> Iterator[None]:
    """Set ``train.tf32`` and ``train.deterministic`` in torch for one training, and restore torch's settings afterwards
    for the next one in this process. ``tf32=None`` keeps the settings of TF32, since a user's own code may have made
    them when it was imported."""
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
    """Restore torch's float32 precision settings after a ``with`` block, under whichever of their names they
    were set."""
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
    """Return the operations with their own precision setting in torch, general ones first."""
    backends: Any = torch.backends
    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    general = [backends, cudnn, mkldnn]
    return [*general, backends.cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn]


def _read(older: Callable[[], Any]) -> Any:
    """Read a setting under its older name; None if newer names were used, since torch then refuses to read older
    ones."""
    try:
        return older()
    except RuntimeError:
        return None


@contextmanager
def algorithms_restored() -> Iterator[None]:
    """Restore torch's settings for deterministic algorithms, cuDNN benchmarking and kernels of attention after a
    ``with`` block."""
    cudnn = torch.backends.cudnn
    algorithms = _deterministic_algorithms()
    kernels = cudnn.deterministic, cudnn.benchmark
    attention = [(enable, is_enabled()) for enable, is_enabled in _ATTENTION]
    try:
        yield
    finally:
        if _deterministic_algorithms() != algorithms:
            torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])  # imports torch's compiler
        cudnn.deterministic, cudnn.benchmark = kernels
        for enable, was_enabled in attention:
            enable(was_enabled)


def _deterministic_algorithms() -> tuple[bool, bool]:
    """Return whether torch uses deterministic algorithms only, and whether it merely warns of others."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
