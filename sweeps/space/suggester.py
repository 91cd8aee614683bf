"""Suggestions of single values, from which a space samples a point: by an ``optuna.Trial``, or at random."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Protocol


class Suggester(Protocol):
    """The methods of ``optuna.Trial`` that sample a space; bounds are inclusive."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float: ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int: ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


class RandomDraws:
    """Random suggestions without Optuna."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        if step is not None:
            return low + step * self._random.randint(0, round((high - low) / step))
        if log:
            return min(max(math.exp(self._random.uniform(math.log(low), math.log(high))), low), high)
        return self._random.uniform(low, high)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        if log:
            return min(max(round(self.suggest_float(name, low - 0.5, high + 0.5, log=True)), low), high)
        return self._random.randrange(low, high + 1, step)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)
