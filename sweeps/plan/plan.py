"""Plan of a sweep: everything that is known and checked before it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sweeps.compose import Composition
from sweeps.compose.hydra_composition import compose_tokens
from sweeps.config import SweepConfig
from sweeps.config.samplers import CustomSampler
from sweeps.config.scaling import Scaling
from sweeps.config.sweep_name import another_name
from sweeps.errors import ConfigError, UserError, mistakes_of, raise_mistakes
from sweeps.folders.shadowing_file import check_working_folder
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.plan.automatic_choices import with_chosen_scheduler, with_lanes
from sweeps.plan.new_sweep_name import checked_name, default_name
from sweeps.plan.stage import PlannedStage, planned_stages, rescaled
from sweeps.plan.unstarted import was_left_unstarted
from sweeps.provenance.redaction import redacted
from sweeps.runtime.node_resources import local_resources
from sweeps.runtime.trials_at_once import Fit, fit
from sweeps.space.constraints import Constraints
from sweeps.space.initial_points import InitialPoints
from sweeps.space.space import Space
from sweeps.storage.location import is_remote, joined, working_copy
from sweeps.storage.object_store import ObjectStore, checked_store
from sweeps.storage.state_mirror import has_state
from sweeps.tracking.sqlite_file import check_sqlite_file
from sweeps.tracking.uris import sqlite_path
from sweeps.validate.argument_checks import check_arguments, configs_of_trials
from sweeps.validate.command_checks import check_command, command_notes
from sweeps.validate.config_checks import Approve, check_sweep, check_training, lookup_in, partly_invalid_ranges
from sweeps.validate.data_checks import check_data
from sweeps.validate.hub_checks import HubName, check_hub, hub_names
from sweeps.validate.search_notes import search_notes
from sweeps.validate.storage_checks import storage_notes
from sweeps.validate.target_checks import check_all_targets
from sweeps.validate.warm_start_checks import check_sources, unread_sources, warm_start_notes

if TYPE_CHECKING:
    from sweeps.search.samplers.earlier_sweep import EarlierSweep

MEASURES = "scaling.measure_workers: short trainings before the search decide on the workers; these numbers may change"

Where = Literal["here", "again", "elsewhere"]
"""Place where a planned sweep will run: ``here``; ``again``: here, where a sweep of the same name may exist, which then
continues; or ``elsewhere``: on a cluster whose nodes see other files than this machine."""


@dataclass(frozen=True)
class Plan:
    """Checked sweep that can be run."""

    name: str
    """The sweep's name."""
    composition: Composition
    """Composed config, and that of each option of a searched group."""
    space: Space
    """Distributions of the searched parameters."""
    scalings: list[Scaling]
    """Workers of every kind of trial in the space."""
    command: str
    """Command line that led to the plan, without secrets."""
    folder: Path
    """Absolute path of the sweep's folder, with its checkpoints, its study and Ray's files; for a sweep in an object
    store, of this machine's copy of the driver's own files."""
    working_folder: Path
    """Folder in which the sweep was started: base of the config's relative paths and of users' modules."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Additional tags of the sweep's MLflow run."""
    uri: str | None = None
    """URI of the sweep's folder, if it is in an object store."""
    stage: PlannedStage | None = None
    """Stage of ``search.stages`` to which the plan belongs; None: the sweep itself."""
    stages: tuple[PlannedStage, ...] = ()
    """Preceding stages: all stages for a sweep's plan, or those before this stage."""
    scheduler_reason: str | None = None
    """Reason for the scheduler that was chosen for ``search.scheduler.kind=auto``; None if the config names one, or the
    first trials decide."""
    alone: str | None = None
    """Reason why trials do not share their workers despite ``scaling.trials_per_group=auto``."""

    def _repr_html_(self) -> str:
        from sweeps.plan.plan_html import plan_html

        facts = self.local_fit, self.location, self.notes, self.num_trials, self.search_summary
        return plan_html(self.name, self.composition, self.space, *facts)

    @property
    def config(self) -> SweepConfig:
        """Typed config of the sweep."""
        return self.composition.config

    @property
    def compositions(self) -> list[Composition]:
        """Composed configs of the stages, and of the sweep itself."""
        return [*(self.composition.in_stage(each.number) for each in self.stages), self.composition]

    @property
    def location(self) -> str:
        """Path or URI of the sweep's folder."""
        return self.uri or str(self.folder)

    @cached_property
    def store(self) -> ObjectStore | None:
        """Place of the sweep's folder in an object store, if it is in one."""
        return None if self.uri is None else ObjectStore(self.uri)

    def check_store(self) -> None:
        """Check that the object store of a new sweep answers and does not contain a sweep of this name.

        Raises:
            UserError: The store does not answer, or has a sweep of this name.
        """
        if self.uri is not None:
            checked_store("output_dir", self.config.output_dir)
            assert self.store is not None
            if has_state(self.store):
                raise UserError(
                    f"the folder {self.uri} already exists; choose another --name, or continue it with --resume"
                )

    @cached_property
    def points(self) -> InitialPoints:
        """Points to try first, and constraints on all points."""
        return InitialPoints(self.composition, self.space, Constraints(self.composition), lookup_in(self.composition))

    @property
    def search_summary(self) -> str:
        """Describe the sampler and the scheduler, and how the scheduler is chosen if the config does not name one."""
        search = self.config.search
        summary = f"sampler {search.sampler.kind}, scheduler {search.scheduler.kind}"
        if search.scheduler.kind == "auto":
            return f"{summary}, which pauses trials unless the first ones show that this costs much"
        if search.scheduler.kind == "freeze_thaw" and not search.must_pause:
            summary += " without pauses"
        return summary if self.scheduler_reason is None else f"{summary}, since {self.scheduler_reason}"

    @property
    def num_trials(self) -> int:
        """Number of trials that the sweep can start."""
        return self.points.num_trials

    @cached_property
    def warm_start(self) -> list[EarlierSweep]:
        """Earlier sweeps and trials of other programs to learn from, read on first access: from the folder of a sweep
        that continues, and from their own places for a new one.

        Raises:
            UserError: A sweep or a source does not exist, or shares neither the metric nor a part of the space.
        """
        from sweeps.search.samplers.saved_trials import saved_earlier
        from sweeps.warm_start.earlier_trials import load_earlier

        search = self.config.search
        if not search.warm_start:
            return []
        if (saved := saved_earlier(self.folder)) is not None:
            return saved
        return load_earlier(
            self.config.tracking.uri,
            search.warm_start,
            self.space,
            self.points.lookup,
            search.metrics[0],
            search.modes[0],
        )

    def check_warm_start(self) -> None:
        """Read the trials that a new sweep learns from, except those that only MLflow's slow import could read.

        Raises:
            UserError: See ``warm_start``.
        """
        if unread_sources(self.config):
            check_sources(self.config, self.space, self.points.lookup)
        else:
            _ = self.warm_start

    def in_stage(self, number: int) -> Plan:
        """Return the plan of a stage's search: the same sweep with cheaper trials.

        Args:
            number: Number of the stage, from 1.
        """
        composition = self.composition.in_stage(number)
        return replace(self, composition=composition, stage=self.stages[number - 1], stages=self.stages[: number - 1])

    @property
    def results_of_stages(self) -> list[EarlierSweep]:
        """Trials of the completed stages before this one: the latest stage first, the best trial first in each. Their
        points are rescaled to this plan's trials."""
        from sweeps.search.samplers.saved_trials import saved_earlier

        results: list[EarlierSweep] = []
        factors: dict[str, float] = {}
        for stage in reversed(self.stages):
            factors |= {path: factors.get(path, 1.0) * factor for path, factor in stage.factors.items()}
            for each in saved_earlier(self.folder, stage.results_file) or ():
                points = [rescaled(point, factors, self.space) for point in each.points]
                results.append(replace(each, points=points))
        return results

    def first_points(self) -> list[dict[str, Any]]:
        """Return the points to train before the sampler chooses: the config's own values, the user's points, and the
        best of earlier sweeps; after a stage, the config's own values and the best of that stage."""
        from sweeps.search.samplers.transfer import distinct_best, points_to_retry

        before = self.results_of_stages
        if not before:
            return [*self.points.first(), *(dict(each) for each in points_to_retry(self.warm_start, self.space))]
        default = self.points.default()[0] if self.config.search.default_first else None
        kept = distinct_best(before[0], self.stages[-1].keep, self.space)
        return [*([] if default is None or default in kept else [default]), *map(dict, kept)]

    def check_point(self, point: Mapping[str, Any]) -> None:
        """Check that values make a valid trial.

        Raises:
            ConfigError: The values are not a valid trial; ``ConstraintViolated`` if a constraint excludes it.
        """
        self.points.constraints.check(point)  # first, since it is faster
        check_training(self.composition.trial(point))

    @property
    def hub_names(self) -> list[HubName]:
        """Models and data sets of the Hugging Face hub that trials load; none if the preflight is off."""
        if not self.config.preflight.timeout_s:
            return []
        return hub_names(
            config
            for each in self.compositions
            for _, config in configs_of_trials(each, self.space, lookup_in(each), ("model", "data"))
        )

    def check_hub(self) -> None:
        """Ask the Hugging Face hub whether the user may load the models and data sets of trials; skipped for trials on
        a cluster, whose nodes may have another token.

        Raises:
            ConfigError: The hub refuses a model or a data set.
        """
        if self.config.cluster.address == "local":
            check_hub(self.hub_names)

    @property
    def notes(self) -> list[str]:
        """Notes on settings that are valid but may be unintended."""
        return [
            *self.points.notes(),
            *search_notes(self.composition, self.space, self.points.lookup),
            *partly_invalid_ranges(self.points),
            *command_notes(self.composition),
            *storage_notes(self.config),
            *([] if self.alone is None else [self.alone]),
            *([MEASURES] if self.config.scaling.measure_workers else []),
            *([] if "warm_start" in vars(self) else warm_start_notes(self.config)),
        ]

    @property
    def local_fit(self) -> Fit | None:
        """Number of trials that can run at once on a local cluster; None for other clusters."""
        if self.config.cluster.address != "local":
            return None
        return fit(self.config, self.scalings, [local_resources(self.config)])


def make_plan(
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str | None,
    command: str,
    tags: Mapping[str, str] | None = None,
    approve: Approve | None = None,
    where: Where = "here",
) -> Plan:
    """Make the plan of a sweep from the command line. Imports neither ray, torch nor mlflow.

    Args:
        tokens: ``conf=NAME`` or ``conf=FILE.yaml``, and overrides.
        config_dirs: Users' folders of configs, which take precedence.
        name: Name of the sweep; default: the config's name and the time.
        command: Command as it was typed; it is recorded without secrets.
        tags: Additional tags of the sweep's MLflow run.
        approve: Policy of the service that plans the sweep for a user; see ``check_sweep``.
        where: Place where the sweep will run; for ``elsewhere``, its folder and its data files are not checked.

    Raises:
        UserError: The request has mistakes that this machine can detect; the message has all of the first step that
            finds any: keys and values, the sweep as a whole, code and data. Folder and cluster come last, one by one.
    """
    composition = compose_tokens(tokens, config_dirs, names_files=approve is None)
    return new_plan(composition, name, command, tags, approve, where)


def new_plan(
    composition: Composition,
    name: str | None,
    command: str,
    tags: Mapping[str, str] | None = None,
    approve: Approve | None = None,
    where: Where = "here",
    *,
    is_new: bool = True,
) -> Plan:
    """Make the plan of a new sweep; see ``make_plan``. ``is_new`` is false if it repeats one, which an earlier release
    may have begun."""
    plan = _planned(composition, name, command, tags or {}, approve, is_new=is_new)
    check_code_and_data(plan, is_new=is_new, has_data=where != "elsewhere")
    if where != "elsewhere":
        _check_here(plan, where, is_queued=approve is not None)
    return plan


def check_code_and_data(plan: Plan, *, is_new: bool = True, has_data: bool = True) -> None:
    """Check the code and the programs that trials run, and the data files that they read.

    Args:
        plan: The sweep.
        is_new: Whether the sweep is new, so that the user can still change it. In a sweep that continues, arguments are
            not checked: one without effect fails no trial.
        has_data: Whether this machine sees the same files as the trials.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    lines: list[str] = []
    for each in plan.compositions:
        lines += mistakes_of(_check_code, each, plan.space, is_new=is_new)
        if has_data:
            lines += mistakes_of(check_data, each.config)
    raise_mistakes(lines)


def _planned(
    composition: Composition,
    name: str | None,
    command: str,
    tags: Mapping[str, str],
    approve: Approve | None,
    *,
    is_new: bool,
) -> Plan:
    check_working_folder()
    composition, reason = with_chosen_scheduler(composition)
    composition, alone = with_lanes(composition)
    space = check_sweep(composition, approve, is_new=is_new)
    name = checked_name(name) if name is not None else default_name(composition.config.name)
    output_dir = composition.config.output_dir
    uri = joined(output_dir, name) if is_remote(output_dir) else None
    return Plan(
        name=name,
        composition=composition,
        space=space,
        scalings=all_scalings(composition, space),
        command=redacted(command),
        folder=Path(output_dir).expanduser().absolute() / name if uri is None else working_copy(uri),
        uri=uri,
        tags=tags,
        working_folder=Path.cwd(),
        stages=planned_stages(composition),
        scheduler_reason=reason,
        alone=alone,
    )


def _check_code(composition: Composition, space: Space, *, is_new: bool) -> None:
    """Check the code and the programs that trials run, in the order in which one check relies on another."""
    lookup = lookup_in(composition)
    check_all_targets(composition, space, lookup)
    if is_new:
        check_arguments(composition, space, lookup)
    check_command(composition, space, lookup)


def _check_here(plan: Plan, where: Where, *, is_queued: bool) -> None:
    """Check everything else that this machine can check. If a service plans the sweep for a user, their code runs only
    in a process of its own, and the queued sweep may learn from one that has not ended yet."""
    if not is_queued:
        _check_sampler(plan.config)
    _check_address(plan.config.cluster.address)
    _ = plan.local_fit
    if plan.uri is None and (where == "here" or not plan.folder.exists()):
        _check_folder(plan.folder)
    if (store := sqlite_path(plan.config.tracking.uri)) is not None:
        existing = next(parent for parent in store.absolute().parents if parent.exists())  # MLflow makes the rest
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise UserError(
                f"tracking.uri={plan.config.tracking.uri}: {existing} is not a folder that can be written; use a file "
                "in another folder"
            )
        check_sqlite_file(store)
    if not is_queued and where == "here":
        plan.check_warm_start()


def _check_sampler(config: SweepConfig) -> None:
    """Create a custom sampler once, since its mistakes only show when its code runs."""
    if isinstance(sampler := config.search.sampler, CustomSampler):
        from sweeps.search.samplers.custom import make_custom_sampler

        make_custom_sampler(sampler, config.seed)


def _check_address(address: str) -> None:
    if address.startswith(("http://", "https://")):
        raise ConfigError(
            f"cluster.address={address}: is the address of a dashboard, through which `python -m sweeps submit --to "
            "ray` submits a sweep; to run it from here, give the address of the cluster itself, HOST:6379"
        )


def all_scalings(composition: Composition, space: Space) -> list[Scaling]:
    """Return the scaling of the sweep, and the scalings at the ends of the ranges that the space has for it."""
    scalings = [composition.config.scaling]
    for path, _, point in space.corners(lookup_in(composition)):
        if path.startswith("scaling"):
            scalings.append(composition.trial(point).scaling)
    return scalings


def _check_folder(folder: Path) -> None:
    if folder.exists() and not was_left_unstarted(folder):
        fix = another_name(folder.name) if (folder / SWEEP_FILE).exists() else "choose another --name"
        raise UserError(f"the folder {folder} already exists; {fix}")
    existing = next(parent for parent in folder.parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(f"output_dir: {folder.parent} cannot be written; set output_dir to a folder that can")
