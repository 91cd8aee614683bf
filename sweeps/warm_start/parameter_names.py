"""Matches the parameters of another program to config paths."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeps.errors import UserError
from sweeps.space.space import Lookup
from sweeps.texts.suggestions import did_you_mean

MAX_SHOWN = 8
"""Maximum number of names in a message."""


@dataclass(frozen=True)
class MatchedNames:
    """Config paths of a source's parameters."""

    paths: Mapping[str, str]
    """Path by the source's name."""
    ignored: Sequence[str]
    """Names in the source that match no path."""

    def describe(self) -> str:
        """Describe the matches, as ``lr is train.lr; ignored: seed``; names that are paths are left out."""
        pairs = [f"{name} is {path}" for name, path in self.paths.items() if name != path]
        ignored = [f"ignored: {shortened(self.ignored)}"] if self.ignored else []
        return "; ".join([*([", ".join(pairs)] if pairs else []), *ignored])


def match_names(
    key: str, names: Collection[str], given: Mapping[str, str], searched: Iterable[str], lookup: Lookup
) -> MatchedNames:
    """Find the config path of each parameter.

    A name gets the path that the config gives. Otherwise, a name that is itself a path gets that path, and any other
    name gets the searched path with the same last part (``lr``, ``config/lr`` and ``params.lr`` get ``train.lr``), if
    it is the only one.

    Raises:
        UserError: The source lacks a given name, or no name belongs to a path.
    """
    for name in given:
        if name not in names:
            raise UserError(f"{key}.parameters.{name}: the source has no such parameter{did_you_mean(name, names)}")
    searched = list(searched)
    paths = dict(given)
    for name in names:
        if name not in {*paths, *paths.values()} and (name in searched or ("." in name and lookup(name) is not None)):
            paths[name] = name
    free = [path for path in searched if path not in paths.values()]
    unnamed = [name for name in names if name not in {*paths, *paths.values()}]
    theirs, ours = _by_last_part(unnamed), _by_last_part(free)
    for part, candidates in theirs.items():
        if len(candidates) == len(ours.get(part, ())) == 1:
            paths[candidates[0]] = ours[part][0]
    if not set(paths.values()) & set(searched):
        raise UserError(
            f"{key}: none of its parameters ({shortened(sorted(names)) or 'it has none'}) has the name of a searched "
            f"path ({shortened(searched)}); name the paths, as in parameters: {{NAME: {next(iter(searched), 'PATH')}}}"
        )
    return MatchedNames(paths, [name for name in names if name not in paths])


def shortened(names: Sequence[str]) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")


def is_end(end: str, name: str) -> bool:
    """Whether the last parts of a name are those of another one: ``eval/loss`` of ``metrics.Eval/Loss``."""
    parts = _parts(end)
    return _parts(name)[-len(parts) :] == parts


def _parts(name: str) -> list[str]:
    """Return the parts of a path or of another program's name, in lower case."""
    return re.split(r"[./]", name.lower().replace("-", "_"))


def _by_last_part(names: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Group names by their last part: ``lr`` of ``config/lr`` and ``params_lr``."""
    found = defaultdict[str, list[str]](list)
    for name in names:
        found[_parts(name)[-1].removeprefix("params_")].append(name)
    return found
