"""The plan of a sweep: everything that is known, and checked, before anything starts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.compose import Composition
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep import compose_sweep
from sweeps.config import SweepConfig
from sweeps.config.execution import Scaling
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.provenance.secrets import redacted
from sweeps.runtime.placement import Fit, fit, local_resources
from sweeps.space.constraints import Constraints
from sweeps.space.distributions import Space
from sweeps.space.initial_points import InitialPoints
from sweeps.tracking.sqlite_file import check_sqlite_file
from sweeps.tracking.uris import sqlite_path
from sweeps.validate.arguments import check_arguments
from sweeps.validate.config import check_sweep, lookup_in
from sweeps.validate.data import check_data
from sweeps.validate.search import search_notes
from sweeps.validate.targets import check_targets
from sweeps.validate.tracking import tracking_notes

if TYPE_CHECKING:
    from sweeps.search.samplers.earlier_trials import EarlierSweep

LONGEST_NAME = 120
"""Letters of a sweep's name."""


@dataclass(frozen=True)
class Plan:
    """A sweep that can be run."""

    name: str
    composition: Composition
    space: Space
    scalings: list[Scaling]
    """Of every kind of trial that the space can make."""
    command: str
    folder: Path
    """Where the sweep's checkpoints, its study and Ray's files are; absolute."""
    working_folder: Path
    """Where it was started: relative paths of the config, and people's own modules, are looked for there."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Of its MLflow run, besides the usual ones."""

    @property
    def config(self) -> SweepConfig:
        return self.composition.config

    @cached_property
    def points(self) -> InitialPoints:
        """What is tried first, and what is never tried."""
        return InitialPoints(self.composition, self.space, Constraints(self.composition), lookup_in(self.composition))

    @cached_property
    def warm_start(self) -> list[EarlierSweep]:
        """Earlier sweeps to learn from, as they are recorded in MLflow when this is first asked.

        Raises:
            UserError: One does not exist, or has nothing to tell of this sweep's space and metric.
        """
        from sweeps.search.samplers.earlier_trials import load_earlier

        search = self.config.search
        return load_earlier(
            self.config.tracking.uri,
            search.warm_start,
            self.space,
            self.points.lookup,
            search.metrics[0],
            search.modes[0],
        )

    def check_point(self, point: Mapping[str, Any]) -> None:
        """
        Raises:
            ConfigError: The values do not make a valid trial; ``Forbidden``, if the constraints leave it out.
        """
        self.composition.trial(point)
        self.points.constraints.check(point)

    @property
    def notes(self) -> list[str]:
        """What is allowed, and may not be what was meant."""
        return [
            *self.points.notes(),
            *search_notes(self.composition, self.space, self.points.lookup),
            *tracking_notes(self.config),
        ]

    @property
    def local_fit(self) -> Fit | None:
        """How many trials run at once, where that is known without asking a cluster."""
        if self.config.cluster.address != "local":
            return None
        return fit(self.config, self.scalings, [local_resources(self.config)])


def make_plan(
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str | None,
    command: str,
    tags: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for what was typed; imports neither ray, torch nor mlflow.

    Args:
        tokens: ``conf=NAME`` or ``conf=FILE.yaml``, and overrides.
        config_dirs: Users' folders of configs, before our own.
        name: Name of the sweep; default: the config's name and the time.
        command: What was typed, for the record; without secrets there.
        tags: Of the sweep's MLflow run, besides the usual ones.

    Raises:
        UserError: For every mistake that can be seen from here.
    """
    confs = [token.removeprefix("conf=") for token in tokens if token.startswith("conf=")]
    if len(confs) == 1 and (file := Path(confs[0])).suffix == ".yaml":
        _check_file(file)
        confs, config_dirs = [file.stem], [file.parent, *config_dirs]
    search_path = ConfSearchPath(config_dirs)
    if len(confs) != 1:
        known = ", ".join(search_path.confs())
        raise UnknownName(f"say which sweep to run, once: conf=NAME; there is {known}")
    overrides = [token for token in tokens if not token.startswith("conf=")]
    composition = compose_sweep(confs[0], overrides, search_path)
    return new_plan(composition, name, command, tags)


def new_plan(composition: Composition, name: str | None, command: str, tags: Mapping[str, str] | None = None) -> Plan:
    """The plan of a new sweep; see ``make_plan``."""
    space = check_sweep(composition)
    name = _checked_name(name) if name is not None else f"{composition.config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    plan = Plan(
        name=name,
        composition=composition,
        space=space,
        scalings=all_scalings(composition, space),
        command=redacted(command),
        folder=Path(composition.config.output_dir).expanduser().absolute() / name,
        tags=tags or {},
        working_folder=Path.cwd(),
    )
    check_targets(composition.config)
    check_arguments(composition, space, lookup_in(composition))
    check_data(composition.config)
    _ = plan.local_fit
    _check_folder(plan.folder)
    if (store := sqlite_path(composition.config.tracking.uri)) is not None:
        check_sqlite_file(store)
    return plan


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise UnknownName(f"conf={file}: there is no such file; give the name of a config, or a YAML file that exists")


def _checked_name(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not name[:1].isalnum() or not plain.isalnum() or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"--name={name}: use letters, digits, '.', '_' and '-', at most {LONGEST_NAME}, and begin with a letter or "
            "a digit; without --name the sweep is named after its config and the time"
        )
    return name


def all_scalings(composition: Composition, space: Space) -> list[Scaling]:
    """The sweep's own scaling, and those at the ends of what the space searches of it."""
    scalings = [composition.config.scaling]
    for path, _, point in space.corners(lookup_in(composition)):
        if path.startswith("scaling"):
            scalings.append(composition.trial(point).scaling)
    return scalings


def _check_folder(folder: Path) -> None:
    if folder.exists():
        raise UserError(f"the folder {folder} exists already; choose another --name")
    existing = next(parent for parent in folder.parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f"output_dir: {folder.parent} cannot be written; set output_dir to a folder that can")
