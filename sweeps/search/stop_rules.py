"""Stop rules of a search: a target, a plateau, and a minimum expected improvement."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.search import Mode, Stop
from sweeps.constants import NUMBER
from sweeps.search.expected_improvement import ExpectedImprovement
from sweeps.search.reported_values import violates_limit

ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def stop_reason(stop: Stop, mode: Mode, study: optuna.Study, *, last_counts: bool = False) -> str | None:
    """Return a message about the target or the plateau that was reached; None if neither was. For one objective.

    Args:
        study: The searcher's study; running trials have their intermediate values.
        last_counts: Whether a trial's value is that of its last report, so that a running trial has none yet.
    """
    if stop.target is None and stop.plateau is None:
        return None
    trials = [trial for trial in study.get_trials(deepcopy=False) if NUMBER in trial.user_attrs]
    sign = 1 if mode == "min" else -1
    losses = [_loss(trial, sign, last_counts=last_counts) for trial in trials]
    if stop.target is not None:
        best = min((loss for loss in losses if loss is not None), default=None)
        if best is not None and best <= sign * stop.target:
            return f"search.stop.target={stop.target:g} is reached"
    plateau = stop.plateau
    if plateau is not None and _since_improvement(trials, losses, plateau.min_change) >= plateau.trials:
        return f"{plateau.trials} trials have not improved on the best (search.stop.plateau)"
    return None


def too_little_improvement(stop: Stop, improvement: ExpectedImprovement, study: optuna.Study) -> str | None:
    """Return a message that further trials are expected to improve too little; None if they may improve enough."""
    if stop.expected_improvement is None:
        return None
    largest = improvement.largest(study)
    if largest is None or largest > stop.expected_improvement:
        return None
    return f"no point is expected to improve on the best by more than {largest:.3g} (search.stop.expected_improvement)"


def _since_improvement(trials: Sequence[FrozenTrial], losses: Sequence[float | None], min_change: float) -> int:
    """Return the number of trials that ended since the best value last improved by more than ``min_change``; 0 before
    any value."""
    best: float | None = None
    since = 0
    ended = [
        (trial.datetime_complete, trial.number, loss)
        for trial, loss in zip(trials, losses, strict=True)
        if trial.state in ENDED and trial.datetime_complete is not None
    ]
    for _, _, loss in sorted(ended, key=lambda each: each[:2]):
        if loss is not None and (best is None or loss < best - min_change):
            best, since = loss, 0
        elif best is not None:
            since += 1
    return since


def _loss(trial: FrozenTrial, sign: int, *, last_counts: bool) -> float | None:
    """Return the value of a trial as a loss; None if it failed, violated a limit, or has none yet."""
    if trial.state == TrialState.FAIL or violates_limit(trial):
        return None
    if trial.state == TrialState.COMPLETE:
        values = [trial.value]
    elif last_counts:
        steps = sorted(trial.intermediate_values) if trial.state == TrialState.PRUNED else []
        values = [trial.intermediate_values[step] for step in steps[-1:]]
    else:
        values = [*trial.intermediate_values.values()]
    return min((sign * value for value in values if value is not None), default=None)
