"""Completion of ``conf=NAME`` and ``key=value``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.completion.candidate import Candidate
from sweeps.completion.conf_names import ConfNames


def complete_token(typed: str, before: Sequence[str], names: ConfNames, *, wants_conf: bool) -> list[Candidate]:
    """Return the completions of a token of ``run``.

    Args:
        typed: The token, incomplete.
        before: The tokens before it.
        names: Confs and groups.
        wants_conf: Whether the verb takes ``conf=``.
    """
    signs = typed[: len(typed) - len(typed.lstrip("+~"))]
    key, is_given, value = typed.removeprefix(signs).partition("=")
    if is_given:
        found = [Candidate(f"{key}={each.text}", each.help) for each in _values(key, value, names)]
    elif wants_conf and not signs and "conf=".startswith(key) and _conf(before) is None:
        found = [Candidate("conf=", "the sweep to run")]
    else:
        found = _keys(key, before, names)
    return [Candidate(signs + each.text, each.help) for each in found]


def complete_service_token(typed: str, names: ConfNames) -> list[Candidate]:
    """Return the completions of a token of ``serve``."""
    from sweeps.completion.config_keys import complete_key, complete_value
    from sweeps.config.service import Service

    key, is_given, value = typed.partition("=")
    if is_given:
        options = names.described("service") if key == "service" else dict.fromkeys(complete_value(Service, key), "")
        return [Candidate(f"{key}={name}", help_) for name, help_ in options.items() if name.startswith(value)]
    return [*_starting({"service=": "an option of the group"}, key), *complete_key(Service, {}, key)]


def _conf(tokens: Sequence[str]) -> str | None:
    return next((token.removeprefix("conf=") for token in tokens if token.startswith("conf=")), None)


def _keys(key: str, before: Sequence[str], names: ConfNames) -> list[Candidate]:
    """Return the groups and keys of the config that begin with the typed text."""
    from sweeps.completion.config_keys import complete_key
    from sweeps.config import SweepConfig

    conf = _conf(before)
    values = {} if conf is None else names.values(conf)
    if key.startswith("space."):
        space = values.get("space")
        return _space_keys(key, list(space) if isinstance(space, dict) else [])
    groups = {f"{group}=": "a group" for group in names.groups() if group not in ("schedule", "service")}
    return [*_starting(groups, key), *complete_key(SweepConfig, {**values, "space": {}}, key)]


def _space_keys(key: str, paths: Sequence[str]) -> list[Candidate]:
    """Return the searched paths, or the fields of a distribution, that begin with the typed text."""
    from sweeps.completion.config_keys import keys_of
    from sweeps.config.space import CategoricalDistribution, FloatDistribution

    fields = keys_of([FloatDistribution, CategoricalDistribution])
    for path in paths:
        if key.startswith(f"space.{path}."):
            return _starting({f"space.{path}.{name}=": field.help for name, field in fields.items()}, key)
    return _starting({f"space.{path}.": "searched" for path in paths}, key)


def _values(key: str, value: str, names: ConfNames) -> list[Candidate]:
    if key == "conf":
        files = {}
        if value.startswith((".", "/")) or "/" in value or value.endswith((".y", ".ya", ".yam", ".yaml")):
            folder, begun = Path(value).parent, "" if value.endswith("/") else Path(value).name
            folder = Path(value) if value.endswith("/") else folder
            files = {str(file): "" for file in sorted(folder.glob(f"{begun}*.yaml"))} if folder.is_dir() else {}
        return _starting({**names.described(), **files}, value)
    if names.is_group(key):
        return _starting(names.described(key), value)
    from sweeps.completion.config_keys import complete_value
    from sweeps.config import SweepConfig

    return _starting(dict.fromkeys(complete_value(SweepConfig, key), ""), value)


def _starting(choices: dict[str, str], typed: str) -> list[Candidate]:
    return [Candidate(text, help_) for text, help_ in choices.items() if text.startswith(typed)]
