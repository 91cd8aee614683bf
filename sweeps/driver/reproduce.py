"""Reproduction of a recorded trial or a whole sweep: a second run, and the comparison of its metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sweeps import constants
from sweeps.driver.recorded_provenance import present_provenance, recorded_provenance
from sweeps.errors import UnknownName, UserError
from sweeps.plan.export import choose
from sweeps.plan.new_sweep_name import repeat_name
from sweeps.plan.plan import Plan, new_plan
from sweeps.plan.retrain import plan_alone, repeat_tags
from sweeps.provenance.redaction import HIDDEN
from sweeps.report.reproduction_result import Repeated
from sweeps.tracking.artifacts import recorded_composition
from sweeps.tracking.client import connect
from sweeps.tracking.metric_history import HistoryPoint, fetch_histories, fetch_metric_names
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.validate.config_checks import Approve

MEASURED_IN_TIME = re.compile(
    r"^(system|param|time)/|^train/(data_wait_share|communication_share|flop_utilization)$|_per_second$"
)
"""Metrics that differ between any two runs, since they measure time."""


@dataclass(frozen=True)
class Reproduction:
    """A recorded sweep or trial that is to be run again."""

    record: SweepRecord
    trial: TrialRecord | None
    """The trial to run again; None for the whole sweep."""
    plan: Plan
    differences: dict[str, str] | None
    """Differences between the recorded and the current provenance in words, by subject (code, packages, data); None if
    none is recorded."""

    def describe(self) -> list[str]:
        """Return the differences, one per line."""
        if self.differences is None:
            return [f"the provenance of {self.record.sweep} is not recorded, so it is unknown what differs now"]
        if not self.differences:
            return ["code, packages and data are as they were"]
        return [f"{name} differs: {words}" for name, words in self.differences.items()]


def plan_reproduction(
    uri: str,
    run: str,
    trial: str | None,
    name: str | None,
    command: str,
    config_dirs: Sequence[Path] = (),
    approve: Approve | None = None,
) -> Reproduction:
    """Plan a sweep that runs a recorded sweep, or one of its trials, again.

    Args:
        uri: Tracking URI.
        run: Name of a sweep, or MLflow's id of its run or of a trial's.
        trial: A trial of that sweep; None for all of it.
        name: Name of the new sweep; default: derived from the old name.
        command: The command that was typed.
        config_dirs: Users' folders of configs.
        approve: See ``check_sweep``.

    Raises:
        UserError: There is no such run, or too little of it is recorded to run it again.
    """
    record, chosen = _find(uri, run)
    if trial is not None:
        chosen = choose(record, trial)
    name = repeat_name(record, chosen, "again") if name is None else name
    tags = repeat_tags(record, chosen, "reproduce")
    if chosen is not None:
        plan = plan_alone(record, chosen, (), config_dirs, name, command, tags, approve)
    else:
        plan = _plan_all(record, name, command, tags, approve)
    then = recorded_provenance(record)
    if then is None:
        return Reproduction(record, chosen, plan, None)
    whole = (lambda: None) if chosen is None else partial(recorded_composition, record)
    now = present_provenance(plan, whole, approve)
    return Reproduction(record, chosen, plan, then.differences(now))


def document(reproduction: Reproduction, again: SweepRecord | None, comparisons: Sequence[Repeated]) -> dict[str, Any]:
    """Return the document that ``reproduce --json`` prints; ``again`` is None when nothing was run."""
    record, trial = reproduction.record, reproduction.trial
    return {
        "of": {
            "sweep": record.sweep,
            "trial": None if trial is None else trial.trial,
            "run_id": record.mlflow.run_id if trial is None else trial.run_id,
        },
        "differences": reproduction.differences,
        "sweep": None if again is None else again.sweep,
        "status": None if again is None else again.status,
        "equal": None if again is None else is_reproduced(comparisons),
        "metrics": [each.as_json() for each in comparisons],
    }


def compare(reproduction: Reproduction, again: SweepRecord) -> list[Repeated]:
    """Compare all metrics of a trial at each step, or the objectives of all trials of a whole sweep.

    Raises:
        TrackingUnreachable: The store does not answer.
    """
    record, trial, uri = reproduction.record, reproduction.trial, reproduction.record.mlflow.tracking_uri
    pairs: list[tuple[TrialRecord, TrialRecord | None]]
    if trial is not None:
        pairs = [(trial, each) for each in again.trials[:1]]
        names = {*record.metrics, *fetch_metric_names(uri, [trial.run_id])}
        metrics = [name for name in sorted(names) if not MEASURED_IN_TIME.search(name)]
    else:
        points = {each.trial: each.params for each in record.trials}
        same = {each.trial: each for each in again.trials if each.params == points.get(each.trial)}
        pairs, metrics = [(each, same.get(each.trial)) for each in record.trials], [*record.metrics]
    runs = [each.run_id for pair in pairs for each in pair if each is not None]
    comparisons: list[Repeated] = []
    for metric in metrics:
        histories = fetch_histories(uri, runs, metric, finite=False)
        for then, now in pairs:
            if (before := histories.get(then.run_id)) is not None:
                after = [] if now is None else histories.get(now.run_id, [])
                counts = metric in record.metrics
                comparisons.append(_repeated(then.trial, metric, before, after, counts=counts))
    return comparisons


def is_reproduced(comparisons: Sequence[Repeated]) -> bool:
    """Whether all objectives are equal, to the last bit, at every step that both runs reached."""
    deciding = [each for each in comparisons if each.counts]
    return bool(deciding) and all(each.equal for each in deciding)


def _find(uri: str, run: str) -> tuple[SweepRecord, TrialRecord | None]:
    try:
        return load_sweep(uri, run), None
    except UnknownName:
        if not re.fullmatch(r"[0-9a-f]{32}", run):
            raise
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    try:
        tags = client.get_run(run).data.tags
    except MlflowException:
        raise UnknownName(f"there is no sweep and no run {run!r} in this store") from None
    if constants.TAG_SWEEP not in tags:
        raise UnknownName(f"the run {run} belongs to no sweep; `python -m sweeps list` lists the sweeps")
    record = load_sweep(uri, tags[constants.TAG_SWEEP])
    return record, choose(record, tags[constants.TAG_TRIAL]) if constants.TAG_TRIAL in tags else None


def _plan_all(record: SweepRecord, name: str, command: str, tags: Mapping[str, str], approve: Approve | None) -> Plan:
    composition = recorded_composition(record)
    if composition is None:
        raise UserError(
            f"{record.sweep}: its MLflow run has no {constants.COMPOSITION_ARTIFACT}, so only its trials can be run "
            "again; name one with --trial"
        )
    lines = composition.as_yaml().splitlines()
    hidden = [line.strip() for line in lines if HIDDEN in line and not line.strip().startswith("uri:")]
    if hidden:
        raise UserError(
            f"{record.sweep}: a secret in its config is not recorded ({hidden[0]}); run it again with `run`"
        )
    return new_plan(composition, name, command, tags, approve, is_new=False)


def _repeated(
    trial: str, metric: str, before: Sequence[HistoryPoint], after: Sequence[HistoryPoint], *, counts: bool
) -> Repeated:
    then, now = ({point.step: point.value for point in points} for points in (before, after))
    common = sorted(then.keys() & now.keys())
    first = next(((step, then[step], now[step]) for step in common if not _same(then[step], now[step])), None)
    return Repeated(trial, metric, len(common), first, counts)


def _same(then: float, now: float) -> bool:
    return then == now or (math.isnan(then) and math.isnan(now))
