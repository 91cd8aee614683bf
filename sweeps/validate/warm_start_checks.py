"""Checks of ``search.warm_start``: names, files, config paths, and the contents of sources that can be read without
MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sweeps.config import SweepConfig
from sweeps.config.search import Search
from sweeps.config.sweep_name import is_sweep_name
from sweeps.config.warm_start import MLflowExperiment, OptunaStudy, OtherTrials, TrialTable, WarmStart
from sweeps.errors import UnknownName, UserError
from sweeps.space.distributions import contains, expected
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.uri_passwords import holds_password, redact_uri
from sweeps.tracking.uris import sqlite_path
from sweeps.warm_start.other_trial import TABLE_SUFFIXES, address, existing_file


def warm_start_mistakes(search: Search, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield one line for each mistake in ``search.warm_start``, with key, value and fix."""
    for index, source in enumerate(search.warm_start):
        shown = source if isinstance(source, str) else f"{{kind: {source.kind}, ...}}"
        if source in search.warm_start[:index]:
            yield f"search.warm_start.{index}={shown}: is named twice; remove one"
        if isinstance(source, str) and not is_sweep_name(source):
            yield (
                f"search.warm_start.{index}={source!r}: is not the name of a sweep (letters, digits, '.', '_' and "
                "'-'); python -m sweeps list shows the names"
            )
    for key, other in search.other_trials.items():
        yield from _address_mistakes(key, other)
        yield from _path_mistakes(key, other, space, lookup)


def unread_sources(config: SweepConfig) -> list[str]:
    """Return the keys of sources that only MLflow's client or a database server can read."""
    return [
        f"search.warm_start.{index}"
        for index, source in enumerate(config.search.warm_start)
        if not _is_local(source, config.tracking.uri)
    ]


def _is_local(source: WarmStart, tracking_uri: str) -> bool:
    """Whether the trials of a source are in a file on this machine that can be read without ``import mlflow``."""
    if isinstance(source, MLflowExperiment):
        return False
    if isinstance(source, OptunaStudy):
        text = address("storage", source.storage)
        return "://" not in text or sqlite_path(text) is not None
    return isinstance(source, TrialTable) or sqlite_path(tracking_uri) is not None


def check_sources(config: SweepConfig, space: Space, lookup: Lookup) -> None:
    """Read the local sources, and check that MLflow experiments in an SQLite store exist.

    Raises:
        UserError: A source does not exist, cannot be read, or has no trial in the space.
    """
    from sweeps.tracking.reader import load_sweep
    from sweeps.warm_start.earlier_trials import load_other_trials
    from sweeps.warm_start.mlflow_experiment import check_experiment

    search, uri = config.search, config.tracking.uri
    for index, source in enumerate(search.warm_start):
        key = f"search.warm_start.{index}"
        if isinstance(source, MLflowExperiment):
            check_experiment(key, source, uri)
        elif not _is_local(source, uri):
            continue
        elif isinstance(source, str):
            try:
                load_sweep(uri, source)
            except UnknownName as error:
                raise UserError(f"{key}={source}: {error}") from None
        else:
            load_other_trials(key, source, uri, space, lookup, (search.metrics[0], search.modes[0]))


def warm_start_notes(config: SweepConfig) -> Iterator[str]:
    """Yield a note on the sources that are not read before the sweep starts."""
    if unread := unread_sources(config):
        yield f"{', '.join(unread)}: the trials are read when the sweep starts, and were not checked here"


def _address_mistakes(key: str, source: OtherTrials) -> Iterator[str]:
    """Check that local files exist, and that no password would be recorded with the config."""
    name = "path" if isinstance(source, TrialTable) else "storage" if isinstance(source, OptunaStudy) else "uri"
    written: str | None = getattr(source, name)
    if written is None:
        return
    if holds_password(written):
        yield (
            f"{key}.{name}={redact_uri(written)}: the config is recorded, with its password; put the address into an "
            f"environment variable, and write {name}: $ITS_NAME"
        )
        return
    try:
        text = address(f"{key}.{name}", written)
        file = sqlite_path(text) or (None if "://" in text else Path(text))
        if file is not None:
            existing_file(f"{key}.{name}", file)
    except UserError as error:
        yield str(error)
        return
    if isinstance(source, TrialTable) and Path(text).suffix.lower() not in TABLE_SUFFIXES:
        yield f"{key}.path={text}: the type of the file must be one of {', '.join(TABLE_SUFFIXES)}; convert it"


def _path_mistakes(key: str, source: OtherTrials, space: Space, lookup: Lookup) -> Iterator[str]:
    """Check the config paths in ``parameters`` and ``fixed``."""
    named: dict[str, str] = {}
    for name, path in source.parameters.items():
        if path not in space.distributions and lookup(path) is None:
            yield f"{key}.parameters.{name}={path}: the config has no such value{did_you_mean(path, space)}"
        if path in named:
            yield f"{key}.parameters.{name}={path}: {named[path]} has this path already; remove one"
        named[path] = name
    for path, value in source.fixed.items():
        if path not in space.distributions:
            yield f"{key}.fixed.{path}={value!r}: is not searched; remove it{did_you_mean(path, space)}"
        elif path in named:
            yield f"{key}.fixed.{path}={value!r}: is also the path of the parameter {named[path]}; remove one"
        elif not contains(space[path], value):
            yield f"{key}.fixed.{path}={value!r}: {expected(space[path], value)}, as in the space"
