"""Plans of users' requests, checked by the operator's policy. They are made in child processes (``plan_processes``), so
arguments and results must pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.service_config import with_output_dir
from sweeps.config.service import Service
from sweeps.driver.reproduce import document, plan_reproduction
from sweeps.errors import UserError
from sweeps.plan.extend import read_changes
from sweeps.plan.plan import Plan, new_plan
from sweeps.plan.resume import reopened
from sweeps.plan.retrain import plan_retraining
from sweeps.registry.model_names import check_registration, retrained_model
from sweeps.report.expected_cost import PastSweep, cost_in_words, expected_cost, workload_of
from sweeps.report.plan_summary import PlanPreview, plan_document, plan_preview, plan_text
from sweeps.service.auth.config_policy import ConfigPolicy, SweepExists
from sweeps.service.nights.checks import check_nights
from sweeps.service.queue.job_requests import Reproduce, Retrain, Run
from sweeps.service.schedules.definition import Definition
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config_checks import Approve


@dataclass(frozen=True)
class Planned:
    """A checked plan, as documents for the user."""

    name: str
    """Name of the sweep."""
    document: dict[str, Any]
    """Document of ``--dry-run --json``."""
    text: str
    """Text of ``--dry-run``."""
    preview: PlanPreview | None = None
    """The plan of a new sweep, for the form."""
    model: str | None = None
    """Name under which a retraining registers its model; None if it does not register one."""


@dataclass(frozen=True)
class Plans:
    """Makes plans. Each method raises ``UserError`` for a mistake in the request, as the command line does."""

    config: Service
    config_dirs: tuple[Path, ...]

    @property
    def policy(self) -> ConfigPolicy:
        return ConfigPolicy(self.config, self.config_dirs)

    def run(self, sweep_exists: SweepExists, request: Run, past: Sequence[PastSweep]) -> Planned:
        """Plan a ``run``; ``past`` are earlier sweeps of its config."""
        approve = self._approve(sweep_exists, request.conf, request.overrides)
        search_path = ConfSearchPath(self.config_dirs)
        composition = compose_sweep(request.conf, with_output_dir(self.config, request.overrides), search_path)
        command = f"python -m sweeps {' '.join(request.arguments())}"
        plan = new_plan(composition, request.name, command, approve=approve)
        return replace(_planned(plan, past), preview=plan_preview(plan))

    def retrain(
        self, sweep_exists: SweepExists, record: SweepRecord, request: Retrain, past: Sequence[PastSweep]
    ) -> Planned:
        """Plan a ``retrain``; ``past`` are earlier sweeps of the config."""
        approve = self._approve(sweep_exists, None, request.overrides)
        command = f"python -m sweeps {' '.join(request.arguments())}"
        overrides = with_output_dir(self.config, request.overrides)
        plan = plan_retraining(record, request.trial, overrides, self.config_dirs, request.name, command, approve)
        model = None if request.no_register else retrained_model(plan.config, request.register_as, record.conf)
        if model is not None:
            check_registration(plan.config, model, request.alias, merged=request.merged)
        return replace(_planned(plan, past), model=model)

    def reproduce(self, sweep_exists: SweepExists, request: Reproduce) -> Planned:
        """Plan a ``reproduce``, with the differences between now and the recorded run."""
        command = f"python -m sweeps {' '.join(request.arguments())}"
        approve = self._approve(sweep_exists, None, ())
        uri = self.config.tracking_uri
        found = plan_reproduction(uri, request.sweep, request.trial, request.name, command, self.config_dirs, approve)
        return Planned(found.plan.name, document(found, None, ()), "\n".join(found.describe()))

    def schedule(self, sweep_exists: SweepExists, definition: Definition, due: float) -> PlanPreview:
        """Plan the sweep of a saved schedule's firing."""
        schedule, placed = definition.schedule, set(definition.placed)
        overrides = [each for each in definition.overrides(due) if each not in placed]
        approve = self._approve(sweep_exists, schedule.conf, overrides, self.policy_for(definition, due))
        plan = definition.plan(due, approve=approve, is_ahead=True)
        if schedule.nights is not None:
            check_nights(schedule.nights, plan)
        return plan_preview(plan)

    def policy_for(self, definition: Definition | None, due: float) -> ConfigPolicy:
        """Return the policy for the sweep of a schedule's firing: a schedule that replaces the operator's may keep the
        operator's values."""
        own = None if definition is None else definition.replaces
        if own is None:
            return self.policy
        overrides = own.overrides(due)
        try:
            composition = compose_sweep(own.schedule.conf, overrides, ConfSearchPath(own.config_dirs))
        except UserError:  # a disabled schedule may be unfinished
            return self.policy
        return self.policy.allowing_own(overrides, composition)

    def extend(
        self, sweep_exists: SweepExists, record: SweepRecord, changes: Sequence[str]
    ) -> tuple[Path, Mapping[str, Any]]:
        """Return the folder of a sweep to extend, and the changes; without changes, the sweep is resumed."""
        approve = self._approve(sweep_exists, None, changes)
        read = read_changes(changes)
        return reopened(record, read, approve=approve).folder, read

    def _approve(
        self, sweep_exists: SweepExists, conf: str | None, overrides: Sequence[str], policy: ConfigPolicy | None = None
    ) -> Approve:
        """Check the overrides as written, and return a function that checks the composed sweep; both raise
        ``ConfigError`` for what the operator does not allow."""
        policy = policy or self.policy
        policy.check_request(conf, overrides)
        return partial(policy.check, sweep_exists=sweep_exists)


def _planned(plan: Plan, past: Sequence[PastSweep]) -> Planned:
    expected = expected_cost(workload_of(plan), past)
    cost = cost_in_words(plan, expected)
    return Planned(plan.name, plan_document(plan, expected=expected), plan_text(plan, cost))
