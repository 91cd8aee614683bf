"""A search space as other libraries have it: real numbers, whole numbers and choices, without conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, FloatDistribution, IntDistribution
from sweeps.space.distributions import grid_values
from sweeps.space.space import Space


@dataclass(frozen=True)
class Axis:
    """A parameter. An ordinal value, and one on a grid, is its index."""

    path: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    """Inclusive."""
    log: bool = False
    values: Sequence[Any] = ()
    """Values by index: those of choices, ordinals and grids."""

    def index(self, value: Any) -> Any:
        """A value of the space as the library has it."""
        return list(self.values).index(value) if self.values else value

    def value(self, raw: Any) -> Any:
        """A value of the library as the space has it."""
        if self.kind == "float":
            return min(max(float(raw), self.low), self.high)
        return self.values[int(raw)] if self.values else int(raw)


def axes(space: Space) -> list[Axis]:
    """The parameters of a space, without constants."""
    found = []
    for path, distribution in space.distributions.items():
        match distribution:
            case ConstantDistribution():
                continue
            case FloatDistribution(low=low, high=high, log=log, step=None):
                found.append(Axis(path, "float", low, high, log))
            case IntDistribution(low=low, high=high, log=log, step=1):
                found.append(Axis(path, "int", low, high, log))
            case CategoricalDistribution(choices=choices):
                found.append(Axis(path, "choice", values=choices))
            case _:
                values = grid_values(path, distribution)
                found.append(Axis(path, "int", 0, len(values) - 1, values=values))
    return found


def to_point(space: Space, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A point from a library's values; those whose conditions do not hold are left out."""
    by_path = {axis.path: axis for axis in axes(space)}
    point: dict[str, Any] = {}
    for path, distribution in space.distributions.items():
        if not space.active(path, point, lambda path: None):
            continue
        constant = isinstance(distribution, ConstantDistribution)
        point[path] = distribution.value if constant else by_path[path].value(raw[path])
    return point
