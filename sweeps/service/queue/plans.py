"""Plans of what callers ask for, judged by what the operator allows. They are made in processes of their own (see
``planner``): what they take and return pickles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep import compose_sweep
from sweeps.config.service import Service
from sweeps.driver.reproduce import document, plan_reproduction
from sweeps.plan.export import choose
from sweeps.plan.extend import read_changes
from sweeps.plan.plan import Plan, new_plan
from sweeps.plan.retrain import plan_retraining
from sweeps.plan.saved_sweep import reopened
from sweeps.registry.names import check_registration
from sweeps.report.plan_summary import plan_document, plan_text
from sweeps.service.auth.config_policy import ConfigPolicy, SweepExists
from sweeps.service.queue.requests import Reproduce, Retrain, Run
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config import Approve


@dataclass(frozen=True)
class Planned:
    """A checked plan, for the principal who asked for it."""

    name: str
    """Name of the sweep."""
    document: dict[str, Any]
    """As ``--dry-run --json`` prints it."""
    text: str
    """As ``--dry-run`` does."""


@dataclass(frozen=True)
class Plans:
    """Makes them. Each raises ``UserError`` for a mistake in what is asked, in the terminal's words."""

    config: Service
    config_dirs: tuple[Path, ...]

    def run(self, sees: SweepExists, asked: Run) -> Planned:
        """Plan of ``run``."""
        approve = self._check_request(sees, asked.conf, asked.overrides)
        search_path = ConfSearchPath(self.config_dirs)
        composition = compose_sweep(asked.conf, here(self.config, asked.overrides), search_path)
        command = f"python -m sweeps {' '.join(asked.arguments())}"
        return _planned(new_plan(composition, asked.name, command, approve=approve))

    def retrain(self, sees: SweepExists, record: SweepRecord, asked: Retrain) -> Planned:
        """Plan of ``retrain``."""
        approve = self._check_request(sees, None, asked.overrides)
        trial = choose(record, asked.trial)
        command = f"python -m sweeps {' '.join(asked.arguments())}"
        overrides = here(self.config, asked.overrides)
        plan = plan_retraining(record, trial, overrides, self.config_dirs, asked.name, command, approve)
        if not asked.no_register:
            model = asked.register_as or record.conf
            check_registration(plan.config, model, asked.alias, merged=asked.merged)
        return _planned(plan)

    def reproduce(self, sees: SweepExists, asked: Reproduce) -> Planned:
        """Plan of ``reproduce``, and what differs now from the recorded run."""
        command = f"python -m sweeps {' '.join(asked.arguments())}"
        approve = self._check_request(sees, None, ())
        uri = self.config.tracking_uri
        found = plan_reproduction(uri, asked.sweep, asked.trial, asked.name, command, self.config_dirs, approve)
        return Planned(found.plan.name, document(found, None, ()), "\n".join(found.describe()))

    def extend(self, sees: SweepExists, record: SweepRecord, changes: Sequence[str]) -> tuple[Path, Mapping[str, Any]]:
        """The folder of a sweep that is to go further, and what changes of it; without changes, of one that goes on."""
        approve = self._check_request(sees, None, changes)
        read = read_changes(changes)
        return reopened(record, read, approve=approve).folder, read

    def _check_request(self, sees: SweepExists, conf: str | None, overrides: Sequence[str]) -> Approve:
        """Check the overrides as they were written, and return the check of the composed sweep.

        Raises:
            ConfigError: The operator does not allow them.
        """
        config = self.config
        policy = ConfigPolicy(config.access, tracking_uri=config.tracking_uri, output_dir=config.output_dir)
        policy.check_request(conf, overrides)
        return lambda composition: policy.check(composition, sees)


def here(config: Service, overrides: Sequence[str]) -> list[str]:
    """Overrides with the service's folder as the sweep's, unless that is the default."""
    output_dir = Path(config.output_dir).expanduser().absolute()
    if output_dir == Path("outputs").absolute() or any(each.startswith("output_dir=") for each in overrides):
        return [*overrides]
    quoted = str(output_dir).replace("\\", "\\\\").replace("'", "\\'")
    return [*overrides, f"output_dir='{quoted}'"]


def _planned(plan: Plan) -> Planned:
    return Planned(plan.name, plan_document(plan), plan_text(plan))
