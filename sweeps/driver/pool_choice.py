"""Choice of the pool in which each trial runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sweeps.config import SweepConfig
from sweeps.runtime.reservation import reserved_per_trial
from sweeps.runtime.trials_at_once import Fit

if TYPE_CHECKING:
    from sweeps.search.advisors.memory import MemoryEstimate

MIB_OF_GIB = 1024
MEMORY_METRICS = {True: "system/gpu_memory_mib", False: "system/memory_mib"}
"""Metric of a worker's memory, by whether it has a GPU."""


class PoolChoice:
    """Gives each trial the cheapest pool in which it fits and that has room, and counts the trials of each pool."""

    def __init__(self, pools: Mapping[str, Fit], memory: MemoryEstimate | None = None):
        self._pools, self._memory = dict(pools), memory
        self._empty: Collection[str] = ()
        self._running: dict[str, str] = {}
        self._reported_mib: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._pools)

    def refit(self, pools: Mapping[str, Fit]) -> None:
        """Set the current capacity of each pool; a missing pool has no node."""
        self._pools = {name: pools.get(name, before) for name, before in self._pools.items()}
        self._empty = self._pools.keys() - pools.keys()

    @property
    def without_nodes(self) -> list[str]:
        """Pools that no node of the cluster belongs to now, in the config's order."""
        return [name for name in self._pools if name in self._empty]

    def choose(self, trial_id: str, config: SweepConfig, point: Mapping[str, Any]) -> str | None:
        """Choose a trial's pool.

        Returns:
            The pool, in which the trial counts until ``release``; None if all suitable pools are full.
        """
        suitable = self._suitable(config, point)
        suitable.sort(key=lambda name: self._price(config, name))
        counts = Counter(self._running.values())
        chosen = next((name for name in suitable if counts[name] < self._capacity(name)), None)
        if chosen is not None:
            self._running[trial_id] = chosen
        return chosen

    def release(self, trial_id: str) -> None:
        """Stop counting a trial in its pool."""
        self._running.pop(trial_id, None)

    def observe(self, pool: str, metrics: Mapping[str, float]) -> None:
        """Learn from a report how much memory the workers of a pool may use."""
        limit = metrics.get(MEMORY_METRICS[self._pools[pool].use_gpu].replace("_mib", "_limit_mib"))
        if limit is not None:
            self._reported_mib[pool] = min(limit, self._reported_mib.get(pool, math.inf))

    def _suitable(self, config: SweepConfig, point: Mapping[str, Any]) -> list[str]:
        if config.scaling.pool is not None:
            return [config.scaling.pool]
        wide = [name for name, fit in self._pools.items() if config.scaling.min_workers <= fit.most_workers]
        room = {name: self._memory_mib(config, name) for name in wide}
        return [name for name in wide if self._needs_mib(name, point) <= room[name]] or sorted(
            wide, key=lambda name: -room[name]
        )[:1]

    def _memory_mib(self, config: SweepConfig, pool: str) -> float:
        stated = config.scaling.pools[pool].memory_gib
        return stated * MIB_OF_GIB if stated is not None else self._reported_mib.get(pool, math.inf)

    def _needs_mib(self, pool: str, point: Mapping[str, Any]) -> float:
        """Return the MiB that a worker is expected to need in a pool; 0 while nothing is known."""
        metric = MEMORY_METRICS[self._pools[pool].use_gpu]
        estimate = self._memory.estimate(point, metric) if self._memory is not None else None
        return 0.0 if estimate is None else estimate.mib + estimate.error

    def _price(self, config: SweepConfig, pool: str) -> float:
        fit = self._pools[pool]
        placed = config.in_pool(pool)
        return placed.hourly_cost(reserved_per_trial(placed, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu))

    def _capacity(self, pool: str) -> int:
        return 0 if pool in self._empty else self._pools[pool].concurrent
