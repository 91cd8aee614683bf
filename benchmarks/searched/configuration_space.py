"""A search space as a ``ConfigSpace``, with its conditions; for SMAC and BOHB."""

from __future__ import annotations

from typing import Any

from searched.axes import axes
from sweeps.space.distributions import allowed_values
from sweeps.space.space import Space


def configuration_space(space: Space, seed: int) -> Any:
    """The space with its conditions, and a seed for its random points."""
    from ConfigSpace import (
        AndConjunction,
        CategoricalHyperparameter,
        ConfigurationSpace,
        InCondition,
        UniformFloatHyperparameter,
        UniformIntegerHyperparameter,
    )

    made, by_path = {}, {axis.path: axis for axis in axes(space)}
    for axis in by_path.values():
        if axis.kind == "choice":
            made[axis.path] = CategoricalHyperparameter(axis.path, list(range(len(axis.values))))
        elif axis.kind == "int":
            made[axis.path] = UniformIntegerHyperparameter(axis.path, int(axis.low), int(axis.high), log=axis.log)
        else:
            made[axis.path] = UniformFloatHyperparameter(axis.path, axis.low, axis.high, log=axis.log)
    converted = ConfigurationSpace(seed=seed)
    converted.add(list(made.values()))
    for path, parameter in made.items():
        conditions = [
            InCondition(parameter, made[other], [by_path[other].index(value) for value in allowed_values(wanted)])
            for other, wanted in space[path].when.items()
            if other in made
        ]
        if conditions:
            converted.add(conditions[0] if len(conditions) == 1 else AndConjunction(*conditions))
    return converted
