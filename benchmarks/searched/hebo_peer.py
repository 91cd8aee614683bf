"""HEBO, with its defaults: full trainings, suggested one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from searched.axes import axes, to_point
from searched.peer import Decision, Job
from sweeps.space.space import Space


class Hebo:
    """HEBO. Conditions are left out: it has none."""

    def __init__(self, space: Space, seed: int, longest: int):
        import torch
        from hebo.design_space.design_space import DesignSpace
        from hebo.optimizers.hebo import HEBO

        np.random.seed(seed)  # noqa: NPY002 - it draws from the global generators
        torch.manual_seed(seed)
        described: list[dict[str, Any]] = []
        for axis in axes(space):
            if axis.kind == "choice":
                described.append({"name": axis.path, "type": "cat", "categories": list(range(len(axis.values)))})
                continue
            kind = {"float": ("num", "pow"), "int": ("int", "pow_int")}[axis.kind][axis.log]
            described.append({"name": axis.path, "type": kind, "lb": axis.low, "ub": axis.high})
        self._space, self._longest = space, longest
        self._hebo = HEBO(DesignSpace().parse(described))
        self._suggested: list[Any] = []

    def next(self) -> Job | None:
        suggested = self._hebo.suggest(n_suggestions=1)
        self._suggested.append(suggested)
        return Job(len(self._suggested) - 1, to_point(self._space, suggested.iloc[0].to_dict()))

    def report(self, number: int, progress: int, loss: float) -> Decision:
        if progress < self._longest:
            return "continue"
        self._hebo.observe(self._suggested[number], np.array([[loss]]))
        return "stop"
