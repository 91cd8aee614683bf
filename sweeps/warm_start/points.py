"""Converts the trials of another program to points of this sweep's space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sweeps.compose.dotted import MISSING
from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.errors import UserError
from sweeps.search.samplers.earlier_sweep import EarlierSweep, as_point
from sweeps.space.distributions import boundary_values, describe, encode, index_of, is_number
from sweeps.space.space import Lookup, Point, Space
from sweeps.warm_start.other_trial import OtherSearch
from sweeps.warm_start.parameter_names import MatchedNames, match_names

MAX_TRIALS = 10_000
"""Maximum number of trials that are kept, evenly by rank, since a model is fitted to all of them."""
READING_ERROR = 1e-12
"""Relative difference by which a number may change when it is written to a file and read again."""
MAX_REASONS = 4
"""Maximum number of reasons in a message."""


def as_earlier_sweep(
    key: str,
    search: OtherSearch,
    names: Mapping[str, str],
    fixed: Mapping[str, Any],
    space: Space,
    lookup: Lookup,
    mode: str,
) -> EarlierSweep:
    """Convert the trials that lie in this sweep's space; the note of the result counts the others by reason. The config
    gives paths by the source's names, and the values (by path) that all its trials had.

    Raises:
        UserError: No name belongs to a path, or no trial lies in the space.
    """
    matched = match_names(
        key, list(dict.fromkeys(name for trial in search.trials for name in trial.params)), names, space, lookup
    )
    sign = 1.0 if search.mode in (None, mode) else -1.0
    found: list[tuple[float, Point]] = []
    reasons: Counter[str] = Counter()
    for trial in search.trials:
        if trial.unusable is not None:
            reasons[trial.unusable] += 1
        elif trial.value is None or not math.isfinite(trial.value):
            reasons[f"no value of {search.value_name}"] += 1
        elif isinstance(point := _point(trial.params, matched, fixed, space, lookup), str):
            reasons[point] += 1
        else:
            found.append((sign * trial.value, point))
    if not found:
        raise UserError(
            f"{key}: none of its {len(search.trials)} trials can be used ({_counted(reasons)}); widen the ranges, name "
            "the paths in `parameters`, give values that were not searched in `fixed`, or leave it out"
        )
    found.sort(key=lambda each: each[0], reverse=mode == "max")
    kept = found[:: math.ceil(len(found) / MAX_TRIALS)]
    values, points = zip(*kept, strict=True)
    thinned = f"every {math.ceil(len(found) / MAX_TRIALS)}th of {len(found):,} by rank" if kept != found else ""
    negated = f"its values are negated, since it searches for a {search.mode}" if sign < 0 else ""
    left_out = f"left out: {_counted(reasons)}" if reasons else ""
    note = ". ".join(part for part in (thinned, left_out, search.note, matched.describe(), negated) if part)
    return EarlierSweep(search.name, list(points), list(values), note=note)


def _point(
    params: Mapping[str, Any], matched: MatchedNames, fixed: Mapping[str, Any], space: Space, lookup: Lookup
) -> Point | str:
    """Return the point of a trial, or the reason to leave it out."""
    given = {path: params[name] for name, path in matched.paths.items() if name in params}
    values = {
        path: typed(space.distributions.get(path), value, lookup(path))
        for path, value in given.items()
        if not _is_missing(value)
    }
    empty = dict.fromkeys(path for path in given if path in space.distributions)  # null, where that is a choice
    point = as_point(space, lookup, lambda path: MISSING, {**empty, **fixed, **values})
    if not isinstance(point, str):
        return point
    distribution, value = space.distributions.get(point), values.get(point, fixed.get(point))
    if distribution is None:
        return f"{point} is not {lookup(point)!r}"
    if value is None:
        return f"no value of {point}"
    if _is_choice(distribution) or is_number(value):
        return f"{point} is not {describe(distribution)}"
    return f"{point} is not a number"


def typed(distribution: Distribution | None, value: Any, own: Any = None) -> Any:
    """Convert a value to the type of a distribution if nothing is lost: strings of numbers and of choices, whole
    floats, and arrays of one element, as frameworks write numbers into a table. For a parameter that is not searched,
    return the config's own value if the text means it. A value that cannot be converted is returned as it is."""
    is_choice = distribution is not None and _is_choice(distribution)
    choices = [own] if distribution is None else boundary_values(distribution) if is_choice else []
    index = index_of(choices, value)
    if index is not None:
        return choices[index]
    alike = [choice for choice in choices if _reads_as(choice, value)]
    if len(alike) == 1:
        return alike[0]
    if isinstance(value, list) and len(value) == 1 and not isinstance(own, list):
        return typed(distribution, value[0], own)
    return value if is_choice else _number(value)


def _reads_as(choice: Any, value: Any) -> bool:
    """Whether a value of another type means a choice: ``"16"`` and ``16.0`` mean 16, ``0.001`` means ``"1e-3"``, and
    ``"true"`` means True."""
    if isinstance(choice, bool) or choice is None:
        words = {"none", "null"} if choice is None else {str(choice).lower()}
        return isinstance(value, str) and value.lower() in words
    number, given = _number(choice), _number(value)
    if is_number(number):
        return is_number(given) and math.isclose(given, number, rel_tol=READING_ERROR)
    return bool(value == encode(choice)) or str(value) == str(choice)


def _is_choice(distribution: Distribution) -> bool:
    return isinstance(distribution, CategoricalDistribution | OrdinalDistribution | ConstantDistribution)


def _number(value: Any) -> Any:
    """Convert a string to the number that it contains; any other value is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _counted(reasons: Counter[str]) -> str:
    """Count reasons: ``3: no value of loss; 2: no train.lr``, most frequent first."""
    listed = [f"{count}: {reason}" for reason, count in reasons.most_common(MAX_REASONS)]
    others = sum(reasons.values()) - sum(count for _, count in reasons.most_common(MAX_REASONS))
    return "; ".join([*listed, *([f"{others}: other reasons"] if others else [])]) or "it has none"
