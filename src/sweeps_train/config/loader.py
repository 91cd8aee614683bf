"""Schema of the data loader, which prepares batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveInt
from sweeps_train.config.reach import Flag


@dataclass(config=STRICT, kw_only=True)
class Loader:
    """Options of the data loader."""

    num_workers: Annotated[int, Field(ge=0)] | Literal["auto"] = 0
    """Processes of each worker that read batches ahead; 0 reads them when they are needed, which is the fastest for
    data in memory or mapped files; auto: enough for the measured wait for batches, up to the worker's CPUs."""
    prefetch: PositiveInt = 2
    """Batches that each reading process keeps ready; with ``num_workers=auto``, the number at the start."""
    pin_memory: Flag | Literal["auto"] = "auto"
    """Put batches into page-locked memory, from which a GPU can copy while it computes; auto: only if there is a
    GPU."""
