"""Spare processes: worker processes that are started ahead, so that a trial whose workers died trains again sooner.

A new process imports torch and Ray Train for seconds before it can train. Once a trial of a sweep has lost its workers,
or from the beginning if every trial has new processes, each node keeps as many idle processes as a trial has workers
there, with the imports done. Ray gives them to the next worker group, and others are started in their place.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

IDLE_S = 2.0
"""Seconds after its start at which a process that nobody uses is a spare one. Meanwhile the group that it replaces
starts, which needs the cores more."""
LEARNED_AFTER_S = 10.0
"""Seconds after the start of a worker group in which it imports what its task needs."""
LOOKS_EVERY_S = 2.0
IMPORTS = (
    "sweeps.runtime.worker_loop",
    "sweeps_train.loop",
    "ray.train.v2.api.config",
    "ray.train.v2._internal.execution.worker_group.worker",
    "ray.train.torch",
    "torch._dynamo",  # DistributedDataParallel imports it
)
"""Modules that every worker takes seconds to import."""
LIBRARIES = {"accelerate", "datasets", "lightgbm", "lightning", "pandas", "peft", "pyarrow", "scipy", "sklearn"}
LIBRARIES |= {"sweeps_train", "tokenizers", "torch", "torchvision", "transformers", "xgboost"}
"""Packages whose modules spare processes import if the workers of a trial have: the user's own may do anything."""

Place = tuple[str, str]
"""Id of a node, and a runtime environment as Ray serializes it: only actors with the same one get a spare process."""


@dataclass(frozen=True)
class ProcessOrigin:
    """Where a worker's process comes from."""

    place: Place
    was_spare: bool


class SpareProcesses:
    """The number of spare processes on each node, in the broker."""

    def __init__(self) -> None:
        self._kept: Counter[Place] = Counter()

    def replace(self, workers: Sequence[ProcessOrigin], *, wanted: bool) -> dict[Place, int]:
        """Take note of a worker group that has started.

        Args:
            workers: Its processes.
            wanted: Whether spare processes are to be kept from now on, if they are not already.

        Returns:
            Number of spare processes to start.
        """
        if not wanted and not self._kept:
            return {}
        of_group = Counter(worker.place for worker in workers)
        used = Counter(worker.place for worker in workers if worker.was_spare)
        missing = {}
        for place, number in of_group.items():
            # Spare processes that were there, and that Ray did not use, have ended.
            all_used = used[place] >= min(self._kept[place], number)
            left = self._kept[place] - used[place] if all_used else 0
            if number > left:
                missing[place] = number - left
            self._kept[place] = max(number, left)
        return missing


class _Idle:
    """Whether this process has waited for its actor, with the imports done or under way."""

    was_spare = False
    tried: ClassVar[set[str]] = set()
    """Modules whose import it has begun."""


def import_when_idle() -> None:
    """Do the imports of a worker in a thread of a process that has just started, if spare processes are expected and
    nobody uses this one after ``IDLE_S`` seconds. Until it is used, it also imports what other workers have."""
    threading.Thread(target=_import_when_idle, name="spare-process", daemon=True).start()


def _import_when_idle() -> None:
    time.sleep(IDLE_S)
    import ray

    from sweeps.compat.ray_processes import imports

    context = ray.get_runtime_context()
    # An error leaves a process that imports when it is used, as all others do.
    with contextlib.suppress(Exception):
        while context.get_actor_id() is None and (learned := imports()) is not None:
            _Idle.was_spare = True
            for name in (*IMPORTS, *learned):
                if name not in sys.modules and name not in _Idle.tried and context.get_actor_id() is None:
                    _Idle.tried.add(name)
                    with contextlib.suppress(Exception):  # some names are no modules of a file
                        importlib.import_module(name)
            time.sleep(LOOKS_EVERY_S)


def imported_libraries() -> list[str]:
    """Names of the modules that this worker has imported, as far as others may need them."""
    return [name for name in [*sys.modules] if name.partition(".")[0] in LIBRARIES]


def limit_threads() -> None:
    """Let torch use as many threads as Ray has reserved cores: a spare process has imported torch before it was known
    how many these are."""
    if _Idle.was_spare and (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        import torch

        torch.set_num_threads(int(threads))


def origin() -> ProcessOrigin:
    """Where this worker's process comes from."""
    import ray

    context: Any = ray.get_runtime_context()
    return ProcessOrigin((context.get_node_id(), context.get_runtime_env_string()), _Idle.was_spare)


def keep_spares(broker: Any, slot: str, actors: Sequence[Any], *, always: bool) -> None:
    """Start the spare processes that a worker group needs, in a thread: training does not wait for that.

    Args:
        broker: Counts the spare processes.
        slot: The group's slot.
        actors: Its workers.
        always: Also while no trial has lost its workers.
    """
    threading.Thread(target=_keep_spares, args=(broker, slot, actors, always), name="keep-spares", daemon=True).start()


def _keep_spares(broker: Any, slot: str, actors: Sequence[Any], always: bool) -> None:
    import ray

    from sweeps.compat.ray_processes import set_imports, start_idle_processes
    from sweeps.compat.ray_train_workers import execute

    # Workers, a node and the whole sweep may end at any time. The next group finds the spare processes missing.
    with contextlib.suppress(ray.exceptions.RayError, LookupError, ConnectionError):
        origins = ray.get([execute(actor, origin) for actor in actors])
        missing = ray.get(broker.spares_to_start.remote(slot, origins, always))
        for (node_id, runtime_env), number in missing.items():
            start_idle_processes(number, node_id, runtime_env)
        if missing:
            time.sleep(LEARNED_AFTER_S)
            set_imports(ray.get(execute(actors[0], imported_libraries)))
