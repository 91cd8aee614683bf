"""Policy for configs that come through the service: which code a sweep may run, which files and addresses it may read
and write, and from which sweeps it may learn. Anything that the operator's ``access`` section does not allow is
refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sweeps.compose import Composition
from sweeps.compose.expressions import Expression
from sweeps.config import Reach
from sweeps.config.access import Access
from sweeps.config.service import Service
from sweeps.errors import SweepsError, raise_mistakes
from sweeps.files.conf_text import nested
from sweeps.provenance.redaction import redacted
from sweeps.service.auth.command_policy import CommandPolicy
from sweeps.service.auth.field_policy import ReachingValue, reaching_values
from sweeps.service.auth.path_policy import PathPolicy
from sweeps.service.auth.request_validation import check_conf, check_overrides
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import value_text
from sweeps.tracking.uris import absolute
from sweeps.validate.source_checks import find_module, parsed_module

SweepExists = Callable[[str], bool]
"""Function that returns whether a sweep of this name is visible to the user."""
CLUSTERS = ("local", "auto")
"""Allowed cluster addresses: a cluster started for the sweep, or the operator's running one."""
MAX_REDACTED = 2000
"""Maximum characters of a value that are searched for secrets; a message shows 80 of them."""
MAX_CONFIGS = 20_000
"""Maximum number of configs to compose for a check: option combinations times values of the space."""
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_]+")
UNREADABLE = ("tracking", "cluster", "output_dir")
"""Sections that no expression may read, since its result would reveal their values."""


class Refusal(NamedTuple):
    """A value that is not allowed."""

    path: str
    value: Any
    """Value at the path, for the message."""
    reason: str
    refused: Any
    """The value itself, or the part of it that is refused."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.path, repr(self.refused)


class Own(NamedTuple):
    """Values that are allowed because the operator's own sweep has them."""

    overrides: Collection[str] = ()
    values: Collection[tuple[str, str]] = ()
    """Identities (``Refusal.identity``) of values that would be refused in a user's sweep."""
    tasks: Sequence[Any] = ()
    """Sections ``task`` of the sweep's configs."""


NOTHING_OWN = Own()


class ConfigPolicy:
    """Checks requests and composed configs by the operator's ``access`` section."""

    def __init__(self, config: Service, config_dirs: Sequence[Path] = (), own: Own = NOTHING_OWN) -> None:
        """Check configs of a service's sweeps. ``own`` values are allowed because the operator's own sweep has them."""
        self._config, self._config_dirs, self._own = config, config_dirs, own
        self._access, self._tracking_uri = config.access, absolute(config.tracking_uri)
        self._output_dir = config.folder.resolve()
        self._paths = PathPolicy(self._access)
        self._commands = CommandPolicy(self._access, config_dirs, own.tasks)

    def allowing_own(self, overrides: Sequence[str], composition: Composition) -> ConfigPolicy:
        """Return the policy for changes of the operator's own sweep, which may keep all its overrides and values."""
        configs = [*_all_configs(composition)]
        values = {each.identity for config in configs for each in self._refused_values(config, lambda _: False)}
        own = Own(frozenset(overrides), frozenset(values), [config.get("task") for config in configs])
        return ConfigPolicy(self._config, self._config_dirs, own)

    def check_request(self, conf: str | None, overrides: Sequence[str]) -> None:
        """Check a request before it is composed; ``conf`` is None if it is about an existing sweep.

        Raises:
            ConfigError: A part of the request is not allowed.
        """
        if conf is not None:
            check_conf(conf)
        check_overrides([each for each in overrides if each not in self._own.overrides], self._access)

    def check(self, composition: Composition, sweep_exists: SweepExists) -> None:
        """Check a composed sweep, with every option and choice of its space. ``check_sweep`` calls this first.

        Raises:
            ConfigError: Names everything that is not allowed, one item a line.
        """
        _check_sizes(composition, self._access)
        sweep_exists = cache(sweep_exists)  # all values of a space come with the same earlier sweeps
        raise_mistakes(
            f"{refusal.path}={_short(refusal.value)}: {refusal.reason}"
            for each in _all_configs(composition)
            for refusal in self._refused_values(each, sweep_exists)
            if refusal.identity not in self._own.values
        )

    def _refused_values(self, config: Mapping[str, Any], sweep_exists: SweepExists) -> Iterator[Refusal]:
        yield from (Refusal(*each, refused=each) for each in self._commands.refusals(config))
        for item in reaching_values(config):
            if item.reach is not Reach.COMMAND:  # the section was checked as a whole
                for refused, reason in self._refusals(item, sweep_exists):
                    yield Refusal(item.path, item.value, reason, refused)

    def _refusals(self, item: ReachingValue, sweep_exists: SweepExists) -> Iterator[tuple[Any, str]]:
        """Yield each refused part of a value with the reason."""
        match item.reach, item.value:
            case Reach.ARGUMENTS, value:
                yield from self._refusals_of_arguments(value)
            case Reach.SWEEPS, list(values):
                names = [each for each in values if not isinstance(each, Mapping)]  # sections are items of their own
                yield from ((name, f"there is no sweep {name!r}") for name in names if not sweep_exists(str(name)))
            case Reach.CONSTRAINTS, list(values):
                yield from _refusals_of_constraints(values)
            case Reach.ENVIRONMENT, list(values):
                reason = "is not among the environment variables that access.allowed_env allows; leave it out"
                refused = (each for each in values if not self._is_allowed_variable(str(each)))
                yield from ((each, f"{each} {reason}") for each in refused)
            case Reach.TRIALS, None:
                yield None, "sweeps of the service are read by their names; give the address of another server"
            case reach, value if value is not None and (refusal := self._refusal(reach, value)):
                yield value, refusal

    def _refusal(self, reach: Reach, value: Any) -> str | None:
        """Return the reason why a single value is refused; None if it is allowed."""
        refusal: str | None = None
        match reach:
            case Reach.TARGET:
                refusal = _refusal_of_target(value, self._access.allowed_targets)
            case Reach.SOURCE:
                refusal = self._paths.refusal(value) if isinstance(value, str) else "must be a text"
            case Reach.TRIALS:
                refusal = self._paths.refusal_of_records(value) if isinstance(value, str) else "must be a text"
            case Reach.REMOTE_CODE if value is not False:
                refusal = "code from the hub does not run through the service; leave it false"
            case Reach.WORD if not (isinstance(value, str) and WORD.fullmatch(value)):
                refusal = "must be one word, without a slash: code from the hub does not run here"
            case Reach.STORE if not self._is_own_store(value):
                refusal = "sweeps of the service are recorded in its own store; leave it out"
            case Reach.CLUSTER if value not in (*CLUSTERS, *self._access.allowed_uris):
                refusal = f"sweeps of the service run on {' or '.join(CLUSTERS)}; leave it out"
            case Reach.LAUNCH:
                refusal = "is for `submit`: sweeps of the service are not submitted; leave it out"
            case Reach.FOLDER if not self._is_output_dir(value):
                refusal = "sweeps of the service are written to its own folder; leave it out"
        return refusal

    def _refusals_of_arguments(self, value: Any) -> Iterator[tuple[Any, str]]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                if key == "_target_" and (refusal := _refusal_of_target(each, self._access.allowed_targets)):
                    yield each, f"{_short(each)} {refusal}"
                yield from self._refusals_of_arguments(key)
                yield from self._refusals_of_arguments(each)
        elif isinstance(value, list):
            for each in value:
                yield from self._refusals_of_arguments(each)
        elif isinstance(value, str) and (refusal := self._paths.refusal_of_argument(value)):
            yield value, f"{_short(value)} {refusal}"

    def _is_own_store(self, value: Any) -> bool:
        return isinstance(value, str) and (absolute(value) == self._tracking_uri or value in self._access.allowed_uris)

    def _is_allowed_variable(self, name: str) -> bool:
        """Whether ``access.allowed_env`` allows an environment variable, by its name or by a prefix with ``*``."""
        allowed = self._access.allowed_env
        return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in allowed)

    def _is_output_dir(self, value: Any) -> bool:
        try:
            return isinstance(value, str) and Path(value).expanduser().resolve() == self._output_dir
        except (OSError, RuntimeError, ValueError):
            return False


def _check_sizes(composition: Composition, access: Access) -> None:
    """Check the size of a sweep's space, points, constraints and warm start.

    Raises:
        ConfigError: Names everything that exceeds its limit.
    """
    space, search = composition.config.space, composition.config.search
    values = sum(len(getattr(each, "choices", ())) + 1 for each in space.values())
    values += sum(len(point) for point in search.points)
    counted = (
        ("space", len(space), access.max_space, "paths", "access.max_space"),
        ("space", values, access.max_choices, "choices and values", "access.max_choices"),
        ("search.points", len(search.points), access.max_points, "points", "access.max_points"),
        ("search.warm_start", len(search.warm_start), access.max_warm_starts, "sweeps", "access.max_warm_starts"),
        ("search.constraints", len(search.constraints), access.max_constraints, "of them", "access.max_constraints"),
        ("space", values * max(1, len(composition.variants)), MAX_CONFIGS, "values times options of groups", None),
    )
    raise_mistakes(
        f"{key}: has {count:,} {what}; the service takes at most {most:,}{f' ({setting})' if setting else ''}"
        for key, count, most, what, setting in counted
        if count > most
    )


def _refusal_of_target(target: object, allowed: Sequence[str]) -> str | None:
    """Return the reason why an import path may not be run; None if it may. The listed paths are allowed and, for
    ``package.module.*``, the public functions and classes that this module defines, but not those that it only
    imports."""
    if not isinstance(target, str) or not IMPORT_PATH.fullmatch(target):
        return "is not an import path"
    if target in allowed:
        return None
    module, _, name = target.rpartition(".")
    if f"{module}.*" not in allowed or name.startswith("_"):
        return "is not among the import paths that the service allows (access.allowed_targets)"
    if name not in _defined_in(module):
        return f"is not defined in {module} itself; the service allows only names that are (access.allowed_targets)"
    return None


def _defined_in(module: str) -> set[str]:
    """Return the names of a module's functions and classes, read from its source. Its parent packages are imported."""
    tree = parsed_module(find_module(module))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)} if tree else set()


def _all_configs(composition: Composition) -> Iterator[Mapping[str, Any]]:
    """Yield the sweep's config and those of its trials: every combination of group options, and each of these with one
    value of the space at a time, so that values derived from it are included."""
    document = composition.config.as_values()
    yield document
    options = [dict(variant) for variant in composition.variants]
    for each in options:
        yield composition.container(each)
    for path, value in _sampled(document):
        if path in composition.searched_groups:
            continue  # its values are names of options
        yield nested({path: value})
        for each in options:
            try:
                yield composition.container({**each, path: value})
            except SweepsError:
                continue  # not a valid config; the value alone was checked above


def _sampled(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that trials may get from the space and from the initial points."""
    for path, distribution in document["space"].items():
        prior = distribution.get("prior") or {}
        for value in (*distribution.get("choices", ()), distribution.get("value"), prior.get("value")):
            if value is not None:
                yield path, value
    for point in document["search"]["points"]:
        yield from point.items()


def _refusals_of_constraints(constraints: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    for text in constraints:
        try:
            paths = Expression(str(text)).paths
        except ValueError:
            continue  # reported when the constraints are read
        read = [path for path in paths if path.partition(".")[0] in UNREADABLE]
        if read:
            yield text, f"{', '.join(read)} cannot be read through the service; leave the condition out"


def _short(value: Any) -> str:
    text = value_text(value)
    text = redacted(redact_uri(text[:MAX_REDACTED]))
    return text if len(text) <= 80 else text[:77] + "..."
