"""What a sweep that comes through the service may reach: the code that it runs, the files and addresses that it reads
and writes, the other sweeps that it learns from. The operator's ``access`` says what; all else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.compose import Composition
from sweeps.compose.expressions import Expression
from sweeps.config import SWEEP_CONFIG, Reach
from sweeps.config.access import Access
from sweeps.errors import ConfigError, SweepsError
from sweeps.provenance.secrets import redacted
from sweeps.redact import redact_uri
from sweeps.service.auth.field_policy import ReachingValue, at_path, reaching_values
from sweeps.service.auth.path_policy import Sources
from sweeps.service.auth.request_validation import check_conf, check_overrides
from sweeps.service.auth.sizes import check_sizes
from sweeps.service.auth.targets import refusal_of_target
from sweeps.tracking.uris import absolute

SweepExists = Callable[[str], bool]
"""Whether a sweep exists for whoever asks, by its name."""
CLUSTERS = ("local", "auto")
"""Started for the sweep, or the one that the operator runs here."""
MOST_READ = 2000
"""Characters of a value that are looked through for secrets, of which a message shows 80."""
WORD = re.compile(r"[A-Za-z0-9_]+")
SECRET = ("tracking", "cluster", "output_dir")
"""Sections that no expression may read: by its answers it would tell what they are."""


class ConfigPolicy:
    """Judges what is asked, by what the operator allows."""

    def __init__(self, access: Access, *, tracking_uri: str, output_dir: str) -> None:
        """
        Args:
            access: What is allowed.
            tracking_uri: The service's own store, where every sweep is recorded.
            output_dir: The service's own folder, where every sweep is written.
        """
        self._access = access
        self._sources = Sources(access)
        self._tracking_uri = absolute(tracking_uri)
        self._output_dir = Path(output_dir).expanduser().resolve()

    def check_request(self, conf: str | None, overrides: Sequence[str]) -> None:
        """What was asked, before any of it is composed.

        Args:
            conf: Name of the config; None, where a sweep that there is goes on.
            overrides: What is changed of it, as typed.

        Raises:
            ConfigError: Something in it is not allowed.
        """
        if conf is not None:
            check_conf(conf)
        check_overrides(overrides, self._access)

    def check(self, composition: Composition, sees: SweepExists) -> None:
        """A whole sweep, with every option and choice that it may take. ``check_sweep`` calls this first.

        Raises:
            ConfigError: With everything that is not allowed, one a line.
        """
        check_sizes(composition, self._access)
        refusals = dict.fromkeys(
            f"{item.path}={_short(item.value)}: {refusal}"
            for each in _all_configs(composition)
            for item in reaching_values(each)
            for refusal in self._refusals(item, sees)
        )
        if refusals:
            raise ConfigError("\n".join(refusals))

    def _refusals(self, item: ReachingValue, sees: SweepExists) -> Iterator[str]:
        if item.reach is Reach.ARGUMENTS:
            yield from self._refusals_of_arguments(item.value)
        elif item.reach is Reach.SWEEPS and isinstance(item.value, list):
            yield from (f"there is no sweep {name!r}" for name in item.value if not sees(str(name)))
        elif item.reach is Reach.CONSTRAINTS and isinstance(item.value, list):
            yield from _refusals_of_constraints(item.value)
        elif item.value is not None and (refusal := self._refusal(item.reach, item.value)):
            yield refusal

    def _refusal(self, reach: Reach, value: Any) -> str | None:
        """Of a single value."""
        if reach is Reach.TARGET:
            return refusal_of_target(value, self._access.allowed_targets)
        if reach is Reach.SOURCE:
            return self._sources.refusal(value) if isinstance(value, str) else "must be a text"
        own: dict[Reach, tuple[Callable[[Any], bool], str]] = {
            Reach.REMOTE_CODE: (_is_false, "code from the hub does not run through the service; leave it false"),
            Reach.WORD: (_is_word, "must be one word, without a slash: code from the hub does not run here"),
            Reach.STORE: (self._is_own_store, "sweeps of the service are recorded in its own store; leave it out"),
            Reach.CLUSTER: (self._is_cluster, f"sweeps of the service run on {' or '.join(CLUSTERS)}; leave it out"),
            Reach.FOLDER: (self._is_output_dir, "sweeps of the service are written to its own folder; leave it out"),
        }
        may_be, otherwise = own.get(reach, (lambda _: True, ""))
        return None if may_be(value) else otherwise

    def _refusals_of_arguments(self, value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                if key == "_target_" and (refusal := refusal_of_target(each, self._access.allowed_targets)):
                    yield f"{_short(each)} {refusal}"
                yield from self._refusals_of_arguments(key)
                yield from self._refusals_of_arguments(each)
        elif isinstance(value, list):
            for each in value:
                yield from self._refusals_of_arguments(each)
        elif isinstance(value, str) and (refusal := self._sources.refusal_of_argument(value)):
            yield f"{_short(value)} {refusal}"

    def _is_own_store(self, value: Any) -> bool:
        return isinstance(value, str) and (absolute(value) == self._tracking_uri or value in self._access.allowed_uris)

    def _is_cluster(self, value: Any) -> bool:
        return value in (*CLUSTERS, *self._access.allowed_uris)

    def _is_output_dir(self, value: Any) -> bool:
        try:
            return isinstance(value, str) and Path(value).expanduser().resolve() == self._output_dir
        except (OSError, RuntimeError, ValueError):
            return False


def _all_configs(composition: Composition) -> Iterator[Mapping[str, Any]]:
    """The sweep's own config and all that its trials may have: of every combination of options, with every choice set
    by itself, also where another value of the YAML follows it."""
    document = SWEEP_CONFIG.dump_python(composition.config, by_alias=True)
    yield document
    options = [dict(variant) for variant in composition.variants]
    for each in options:
        yield composition.container(each)
    for path, value in _sampled(document):
        if path in composition.searched_groups:
            continue  # the name of an option
        yield at_path(path, value)
        for each in options:
            try:
                yield composition.container({**each, path: value})
            except SweepsError:
                continue  # it makes no config, and the value itself has been judged


def _sampled(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that trials may have by the space and by the points that are tried first."""
    for path, distribution in document["space"].items():
        prior = distribution.get("prior") or {}
        for value in (*distribution.get("choices", ()), distribution.get("value"), prior.get("value")):
            if value is not None:
                yield path, value
    for point in document["search"]["points"]:
        yield from point.items()


def _refusals_of_constraints(constraints: Sequence[Any]) -> Iterator[str]:
    for text in constraints:
        try:
            paths = Expression(str(text)).paths
        except ValueError:
            continue  # reading the constraints will tell
        read = [path for path in paths if path.partition(".")[0] in SECRET]
        if read:
            yield f"{', '.join(read)} cannot be read through the service; leave the condition out"


def _is_false(value: Any) -> bool:
    return value is False


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = redacted(redact_uri(text[:MOST_READ]))
    return text if len(text) <= 80 else text[:77] + "..."
