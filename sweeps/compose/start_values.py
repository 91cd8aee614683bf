"""Values that a config takes from the environment and the clock: read once, when the sweep is composed, so that all its
trials have them, on any machine and after a resume."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeps.compose.composition import literal

_SAME_FOR_ALL = {"oc.env:", "oc.decode:", "now:"}
"""Resolvers whose results do not depend on the trial."""
_BEGINNING = re.compile(r"\$\{\s*([\w.]+:)?")
"""Beginning of an interpolation, with its resolver if it has one."""
_OF_START = re.compile(r"(?<!\\)\$\{(?:oc\.env|now):[^${}]*\}")
"""Interpolation of the environment or the clock that contains no other interpolation."""
_PLAIN = re.compile(r"[\w./:@+ -]*")
"""Text that means the same in quotes inside of another interpolation."""


class StartValues:
    """Replaces a config's interpolations of the environment and the clock by their values; one that is written twice
    has one value."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def fixed(self, value: Any) -> Any:
        """Return a raw config, or one of its values, with interpolations of the environment and the clock resolved. One
        that cannot be resolved stays: it is a mistake only if its value is read."""
        if isinstance(value, dict):
            return {key: self.fixed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.fixed(each) for each in value]
        if not isinstance(value, str) or _OF_START.search(value) is None:
            return value
        if set(_BEGINNING.findall(value)) <= _SAME_FOR_ALL:
            return self._resolved(value)
        return _OF_START.sub(self._replaced, value)

    def _replaced(self, interpolation: re.Match[str]) -> str:
        """Return the text of an interpolation beside or inside of others, which OmegaConf must read as that text."""
        value, before = self._resolved(interpolation[0]), interpolation.string[: interpolation.start()]
        outer = before[before.rfind("${") :] if before.count("${") > before.count("}") else None
        if outer is None:
            return str(value)
        if value is None or not _PLAIN.fullmatch(value):
            return "null" if value is None else interpolation[0]
        is_quoted = outer.count("'") % 2 or outer.count('"') % 2
        return str(value) if is_quoted else f"'{value}'"

    def _resolved(self, text: str) -> Any:
        if text not in self._known:
            try:
                value = OmegaConf.to_container(OmegaConf.create([text]), resolve=True)[0]  # type: ignore[index]
            except OmegaConfBaseException:
                return text
            self._known[text] = literal(value)
        return self._known[text]
