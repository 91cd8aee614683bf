"""Private names of Ray Data: the actor that reads a dataset for several workers."""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.data._internal.iterator.stream_split_iterator import StreamSplitDataIterator

SHUTDOWN_WITHIN_S = 5.0
"""Maximum seconds for an execution to release its resources."""


def end_split(iterator: Any) -> None:
    """End the actor that reads a dataset for several workers, and its running tasks; none of its shards can be read
    afterwards. Otherwise they would run until the worker that created the dataset drops it. Iterators over whole
    datasets have no such actor."""
    if not isinstance(iterator, StreamSplitDataIterator):
        return
    coordinator: Any = iterator._coord_actor
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(coordinator.shutdown_executor.remote(), timeout=SHUTDOWN_WITHIN_S)
    ray.kill(coordinator)
