"""Values that a trial has reported, stored in its Optuna trial so that they survive the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweeps.config.objectives import Objectives, Values
from sweeps.constants import LINEAGE, REPORT_AFTER_EXPLOIT_PREFIX, REPORT_PREFIX, STEP, VIOLATIONS

if TYPE_CHECKING:
    import optuna


class ReportedValues:
    """A running trial's objectives at every reported step, and its violations of limits."""

    def __init__(self, trial: optuna.Trial, objectives: Objectives, earlier: optuna.trial.FrozenTrial | None = None):
        """
        Args:
            earlier: The same trial, as an earlier driver left it.
        """
        self.trial = trial
        self._objectives = objectives
        self._violations: dict[str, float] = dict.fromkeys(objectives.bounds(), 0.0)
        self.reports: dict[int, Values] = {}
        """Objectives by step, as they were measured first."""
        self._after_exploits: dict[str, Values] = {}
        """Objectives that were measured after the trial had continued from another trial's state, by attribute: some
        steps are measured again, with other weights."""
        if earlier is not None:
            self.reports.update(reported_values(earlier))
            self._after_exploits.update(
                (name, tuple(values))
                for name, values in earlier.user_attrs.items()
                if name.startswith(REPORT_AFTER_EXPLOIT_PREFIX)
            )
            self._violations |= earlier.user_attrs.get(VIOLATIONS, {})

    def add(self, result: Mapping[str, Any]) -> None:
        """Add a report. It counts if all objectives are present and finite; a step that is reported again after a retry
        keeps its first values."""
        if (values := self._objectives.values(result)) is not None:
            step = int(result[STEP] if STEP in result else result["training_iteration"])
            self._add_first(step, values)
            attribute = f"{REPORT_AFTER_EXPLOIT_PREFIX}{result.get(LINEAGE)}:{step}"
            if result.get(LINEAGE) and attribute not in self._after_exploits:
                self._after_exploits[attribute] = values
                self.trial.set_user_attr(attribute, values)
        worst = {name: max(each, self._violations[name]) for name, each in self._objectives.excesses(result).items()}
        if not worst.items() <= self._violations.items():
            self._violations |= worst
            self.trial.set_user_attr(VIOLATIONS, self._violations)

    def _add_first(self, step: int, values: Values) -> None:
        if step in self.reports:
            return
        self.reports[step] = values
        if len(values) == 1:
            self.trial.report(values[0], step)
        else:  # Optuna's own reports are for one objective only
            self.trial.set_user_attr(f"{REPORT_PREFIX}{step}", values)

    @property
    def values(self) -> Values | None:
        """The objectives of the report whose first objective is best; None before the first report."""
        best: Values | None = None
        for values in (*self.reports.values(), *self._after_exploits.values()):
            if self._objectives.improves(values, best):
                best = values
        return best

    def set_constraints(self) -> None:
        """Record for Optuna by how much each limit was exceeded; zero if it was kept."""
        for name, violation in self._violations.items():
            self.trial.set_constraint(name, violation)


def violates_limit(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial of the study has violated a limit, also while it runs."""
    excesses = trial.constraints or trial.user_attrs.get(VIOLATIONS, {})  # Optuna's are set when a trial ends
    return any(excess > 0 for excess in excesses.values())


def reported_values(trial: optuna.trial.FrozenTrial) -> dict[int, Values]:
    """Return the objectives that a trial of the study has reported, by step."""
    if trial.intermediate_values:  # of one objective
        return {step: (value,) for step, value in trial.intermediate_values.items()}
    return {
        int(name.removeprefix(REPORT_PREFIX)): tuple(values)
        for name, values in trial.user_attrs.items()
        if name.startswith(REPORT_PREFIX)
    }
