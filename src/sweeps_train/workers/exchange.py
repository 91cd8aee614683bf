"""Exchange of numbers between workers, in a form that lets the lanes of a group share one collective operation.

A lane yields its numbers, and is resumed with the numbers of all workers. The caller that runs the lanes may send the
numbers of several lanes together.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from sweeps_train.workers.distributed import Workers

T = TypeVar("T")

Rows = list[list[float]]
"""Numbers by worker."""
Exchange = Generator[Sequence[float], Rows, T]
"""One exchange between workers, as a generator: yields this worker's numbers (every worker yields equally many),
receives the numbers of all workers, and returns its result."""


def exchange_together(workers: Workers, numbers: Sequence[Sequence[float]]) -> list[Rows]:
    """Exchange the numbers of several lanes in one operation; every worker must call it for the same lanes.

    >>> import torch
    >>> exchange_together(Workers(rank=0, size=1, device=torch.device("cpu")), [[1.0], [2.0, 3.0]])
    [[[1.0]], [[2.0, 3.0]]]
    """
    by_worker = workers.all_gather([number for each in numbers for number in each])
    ends = [*accumulate(len(each) for each in numbers)]
    return [[row[start:end] for row in by_worker] for start, end in pairwise([0, *ends])]
