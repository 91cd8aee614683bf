"""TF32 and deterministic algorithms: settings of torch for one training, restored after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sweeps_train.config import Train


@contextmanager
def numerics(train: Train) -> Iterator[None]:
    """Set ``train.tf32`` and ``train.deterministic`` in torch for one training, and restore its settings afterwards, as
    the next training in the same process may have others.

    Args:
        train: The training loop's options; without them everything stays as torch or the user's own code has set it.
    """
    cudnn = torch.backends.cudnn
    matrices, convolutions = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    kernels = cudnn.deterministic, cudnn.benchmark
    try:
        if train.tf32 is not None:
            torch.set_float32_matmul_precision("high" if train.tf32 else "highest")
            cudnn.allow_tf32 = train.tf32
        if train.deterministic:
            torch.use_deterministic_algorithms(mode=True)
            cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        cudnn.allow_tf32 = convolutions
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        cudnn.deterministic, cudnn.benchmark = kernels
