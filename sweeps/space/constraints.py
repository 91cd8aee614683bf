"""Constraints between parameters: expressions over a trial's config that must hold for a point to be trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sweeps.compose import Composition, Variant
from sweeps.compose.dotted import MISSING, find, leaves
from sweeps.compose.schema_errors import knows
from sweeps.errors import ConfigError, ConstraintViolated, raise_mistakes
from sweeps.texts.suggestions import closest_names, did_you_mean

if TYPE_CHECKING:
    from sweeps.compose.expressions import Expression


class ConstraintFailed(ConstraintViolated):
    """A constraint cannot be computed from the values of a point."""


class Constraints:
    """The constraints of a sweep: ``search.constraints``.

    A name in a constraint is a dotted path of the trial's config, searched or not; the name of a config group stands
    for the chosen option. A parameter whose ``when`` does not hold has the config's own value. A constraint does not
    apply to a trial whose config lacks one of its paths, for example because another model was chosen.
    """

    def __init__(self, composition: Composition):
        self._composition = composition
        self._variants: dict[Variant, Any] = {}

    @cached_property
    def expressions(self) -> list[Expression]:
        """The parsed constraints.

        Raises:
            ConfigError: A string is not an expression, or names a path that no trial's config has.
        """
        texts = self._composition.config.search.constraints
        if not texts:
            return []
        from sweeps.compose.expressions import Expression

        parsed: list[Expression] = []
        mistakes: list[str] = []
        for index, text in enumerate(texts):
            try:
                parsed.append(Expression(text))
                mistakes.extend(self._unknown_paths(index, parsed[-1]))
            except ValueError as error:
                mistakes.append(f"{key_of(index, text)}: {error}")
        raise_mistakes(mistakes)
        return parsed

    def check(self, point: Mapping[str, Any], unknown: frozenset[str] = frozenset()) -> None:
        """Check a point; constraints that depend on ``unknown`` paths, which are not sampled yet, are not checked.

        Raises:
            ConstraintViolated: A constraint does not hold at this point; ``ConstraintFailed`` if it cannot be computed.
        """
        from sweeps.compose.expressions import Absent

        values = self.values(point)

        def known(path: str) -> Any:
            derived = bool(unknown) and path not in point and self._composition.derives(point, path)
            if derived or any(path == each or path.startswith(f"{each}.") for each in unknown):
                raise Absent(path)
            return values(path)

        for index, expression in enumerate(self.expressions):
            try:
                holds = expression.evaluate(known)
            except Absent:
                continue
            except ValueError as error:
                raise ConstraintFailed(f"{key_of(index, expression.text)}: {error}") from None
            if not isinstance(holds, bool):
                raise ConfigError(
                    f"{key_of(index, expression.text)}: gives {repr(holds)[:100]}, which is neither true nor "
                    "false; compare it with something"
                )
            if not holds:
                raise ConstraintViolated(f"{key_of(index, expression.text)} does not hold{expression.inputs(known)}")

    def allows(self, point: Mapping[str, Any]) -> bool:
        """Whether all constraints hold at a point."""
        if not self.expressions:
            return True
        try:
            self.check(point)
        except ConstraintViolated:
            return False
        return True

    def values(self, point: Mapping[str, Any]) -> Callable[[str], Any]:
        """Return a lookup in the config of a trial at this point, which composes the config only if necessary. It
        returns the option of a group, and raises ``Absent`` for a path that the config lacks."""
        from sweeps.compose.expressions import Absent

        composition = self._composition
        whole: list[Any] = []

        def value(path: str) -> Any:
            if path in point:
                return point[path]
            if path in composition.options:
                return composition.options[path]
            sections = (each for each in point if each not in composition.searched_groups)
            above = next((each for each in sections if path.startswith(f"{each}.")), None)
            below = any(each.startswith(f"{path}.") for each in point)
            if above is not None:
                found = find(point[above], path.removeprefix(f"{above}."))
            elif below or composition.derives(point, path):
                if not whole:
                    whole.append(composition.trial(point).as_values())
                found = find(whole[0], path)
            else:
                found = find(self._variant(point), path)
            if found is MISSING:
                raise Absent(path)
            return found

        return value

    def _variant(self, point: Mapping[str, Any]) -> Any:
        """Return the composed config with only the point's choices of config groups."""
        key = self._composition.variant(point)
        if key not in self._variants:
            self._variants[key] = self._composition.trial(dict(key)).as_values()
        return self._variants[key]

    def perhaps_misspelt(self) -> list[str]:
        """Return a note for each name that the sweep's config lacks, where the schema allows any name, as in
        ``task.arguments``, and another name is similar. Some trials may have it, or the constraint may do without."""
        composition = self._composition
        variants = [self._variant(dict(key)) for key in composition.variants]
        given = [*composition.config.space, *(path for stage in composition.stages for path in stage)]

        def may_have(path: str) -> bool:
            owner, _, name = path.rpartition(".")
            beside = [key for each in variants if isinstance(found := find(each, owner), Mapping) for key in found]
            is_given = any(path == each or path.startswith(f"{each}.") for each in given)
            return is_given or not knows(f"{owner}.?") or not closest_names(name, beside)

        found = enumerate(self.expressions)
        unknown = (line for index, each in found for line in self._unknown_paths(index, each, may_have))
        return [f"{line}; a constraint does not apply to a trial that lacks it" for line in unknown]

    def _unknown_paths(
        self, index: int, expression: Expression, may_have: Callable[[str], bool] = knows
    ) -> Iterator[str]:
        composition = self._composition
        known: set[str] = {*composition.config.space, *composition.options}
        variants = [self._variant(dict(key)) for key in composition.variants]
        for path in expression.paths:
            if path not in known and not may_have(path) and all(find(each, path) is MISSING for each in variants):
                hint = did_you_mean(path, known.union(*(leaves(each) for each in variants)))
                yield f"{key_of(index, expression.text)}: the config has no {path!r}{hint}"


def key_of(index: int, text: str) -> str:
    """Return the name of a constraint for messages."""
    return f"search.constraints.{index}={text!r}"
