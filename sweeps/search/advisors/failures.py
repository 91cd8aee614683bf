"""Advisor that avoids points at which trials run out of memory, diverge or crash repeatedly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from sweeps.config.space import ConstantDistribution, Distribution, IntDistribution
from sweeps.constants import NUMBER, REASON
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.unit_cube import UnitCube, Vector
from sweeps.space.space import Space
from sweeps.worker_error import without_location

if TYPE_CHECKING:
    import optuna
    from sklearn.ensemble import RandomForestClassifier

Failure = Literal["out of memory", "diverged", "crashed"]

SUCCESS = "good"
MAX_PROBABILITY = 0.6
"""Probability of a failure above which a point is refused."""
TREES = 40
REFIT_SHARE = 20
"""The forest is fitted to all trials but the last twentieth, so that it is not fitted again for each of thousands of
trials. A resumed search therefore fits the same forest."""
OUT_OF_MEMORY = re.compile(
    r"out of memory|out-of-memory|OutOfMemory|\bOOM\b|running low on memory|MemoryError|bad_alloc|ALLOC_FAILED"
    r"|(can.?t|cannot|could not|failed to|unable to) allocate",
    re.IGNORECASE,
)
DIVERGED = re.compile(r"\b(nan|inf|infinity)\b|diverge|(not|non|in)[- ]?finite", re.IGNORECASE)
EXTERNAL_CAUSE = re.compile(
    r"stopped by a person|preempt|node (\w+ )?(died|failed|was (lost|removed|terminated))|interrupted", re.IGNORECASE
)
NOT_SIZES = ("worker", "parallel", "accumulation", "seed", "step", "epoch", "every")
"""Words in the names of integer parameters that do not affect a worker's memory."""


def classify(reason: str) -> Failure | None:
    """Return the kind of a failure, from the text of its error; None for an external cause, such as a lost node."""
    reason = without_location(reason)
    if OUT_OF_MEMORY.search(reason):
        return "out of memory"
    if EXTERNAL_CAUSE.search(reason):
        return None
    return "diverged" if DIVERGED.search(reason) else "crashed"


class FailureAdvisor(Advisor):
    """Refuses points that are close to several failed trials; a single failure refuses nothing.

    **Out of memory** is assumed to be monotone: a point is refused if two trials ran out of memory whose sizes were all
    no larger, unless a trial of at least the point's sizes succeeded. Sizes are integers (batch size, sequence length,
    rank, width, layers) and ordered integer choices, except those whose names say otherwise (workers, steps,
    accumulation); unordered choices must be equal.

    **Any kind of failure** is also predicted by a random forest, which finds the parameters that matter: trials that
    diverge at high learning rates count against high learning rates, whatever their other values were. A point is
    refused if it fails with a probability above 0.6. (Measured: a vote of the trials by distance in the unit cube, with
    or without weights of the parameters, avoided half as many failures.) The forest needs two failed and two successful
    trials: if all trials fail, nothing is refused.

    Example:
        >>> import optuna
        >>> from sweeps.search import FailureAdvisor, IntDistribution, Space
        >>> space = Space({"batch_size": IntDistribution(type="int", low=1, high=64)})
        >>> FailureAdvisor(space).refuse(optuna.create_study(), {"batch_size": 64}) is None
        True
    """

    def __init__(self, space: Space):
        """
        Args:
            space: Space of the points.
        """
        self._unit = UnitCube(space)
        self._sizes = [path for path, distribution in space.distributions.items() if _is_size(path, distribution)]
        self._choices = [
            path
            for path, distribution in space.distributions.items()
            if path not in self._sizes
            and not isinstance(distribution, ConstantDistribution)
            and _is_discrete(distribution)
        ]
        self._ended: dict[int, _Ended] = {}
        self._skipped: set[int] = set()
        self._out_of_memory: list[dict[str, Any]] = []
        self._forest: _Forest | None = None

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """Return the reason to refuse a point, by the failures so far; None if there is none."""
        self._learn(study.get_trials(deepcopy=False))
        return self._too_large(point) or self._likely_to_fail(point)

    def _learn(self, trials: Sequence[FrozenTrial]) -> None:
        for trial in trials:
            if trial.number in self._ended or trial.number in self._skipped or not trial.state.is_finished():
                continue
            outcome = _outcome(trial)
            if outcome is None:
                self._skipped.add(trial.number)
            else:
                point = self._unit.point(trial.params)
                self._ended[trial.number] = _Ended(outcome, point)
                self._learn_size(outcome, point)

    def _learn_size(self, outcome: str, point: dict[str, Any]) -> None:
        if outcome == SUCCESS:  # smaller points fit as well, although some ran out of memory
            self._out_of_memory = [other for other in self._out_of_memory if not self._at_least(point, other)]
        elif outcome == "out of memory" and not any(
            other.outcome == SUCCESS and self._at_least(other.point, point) for other in self._ended.values()
        ):
            self._out_of_memory.append(point)

    def _too_large(self, point: Mapping[str, Any]) -> str | None:
        exceeded = [other for other in self._out_of_memory if self._at_least(point, other)]
        if len(exceeded) < 2:
            return None
        sizes = ", ".join(f"{path}={exceeded[-1][path]}" for path in self._sizes if path in exceeded[-1])
        return f"{len(exceeded)} trials that were no larger ran out of memory, the last at {sizes}"

    def _at_least(self, point: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether a point is at least as large as another in all sizes, and equal to it in all choices."""
        if not self._sizes or any(point.get(path) != other.get(path) for path in self._choices):
            return False
        return all((path in point) == (path in other) for path in self._sizes) and all(
            point[path] >= other[path] for path in self._sizes if path in point
        )

    def _likely_to_fail(self, point: Mapping[str, Any]) -> str | None:
        if not self._unit.columns:  # nothing is searched
            return None
        number = len(self._ended) - len(self._ended) % max(1, len(self._ended) // REFIT_SHARE)
        if self._forest is None or number != self._forest.num_trials:
            known = [self._ended[trial] for trial in sorted(self._ended)[:number]]
            self._forest = _Forest(self._unit, known)
        probability, kind = self._forest.predict(self._unit.vector(point))
        if probability <= MAX_PROBABILITY:
            return None
        return f"{self._forest.num_failed} trials failed, and this point is likely to ({kind}, {probability:.0%})"


class _Ended(NamedTuple):
    outcome: str
    """``good``, or the kind of the failure."""
    point: dict[str, Any]


def _outcome(trial: FrozenTrial) -> str | None:
    """Return the outcome of an ended trial; None if it was not trained, or if its point did not cause its failure."""
    if trial.state is not TrialState.FAIL:
        return SUCCESS
    return classify(trial.user_attrs.get(REASON, "")) if NUMBER in trial.user_attrs else None


class _Forest:
    """Random forest (Breiman, 2001; of scikit-learn) that predicts the probability that a point fails."""

    def __init__(self, unit: UnitCube, trials: Sequence[_Ended]):
        outcomes = [trial.outcome for trial in trials]
        self.num_trials, self.num_failed = len(trials), len(trials) - outcomes.count(SUCCESS)
        self._trees: RandomForestClassifier | None = None
        if min(self.num_failed, outcomes.count(SUCCESS)) >= 2:
            from sklearn.ensemble import RandomForestClassifier  # takes a second; only for sweeps with failures

            # With at least two trials in a leaf, and a sample of the trials in each tree, no trial decides alone.
            self._trees = RandomForestClassifier(TREES, min_samples_leaf=2, max_features=None, random_state=0)
            self._trees.fit(unit.matrix([trial.point for trial in trials]), outcomes)

    def predict(self, point: Vector) -> tuple[float, str]:
        """Return the probability of a failure, and its most probable kind; 0 while there are too few trials."""
        if self._trees is None:
            return 0.0, SUCCESS
        probable = dict(zip(self._trees.classes_, self._trees.predict_proba(point[None])[0], strict=True))
        good = float(probable.pop(SUCCESS, 0.0))
        return 1 - good, max(probable, key=lambda kind: probable[kind])


def _is_size(path: str, distribution: Distribution) -> bool:
    if any(word in path.lower() for word in NOT_SIZES):
        return False
    if isinstance(distribution, IntDistribution):
        return True
    choices = getattr(distribution, "choices", [])
    return bool(choices) and all(type(choice) is int for choice in choices)


def _is_discrete(distribution: Distribution) -> bool:
    return isinstance(distribution, IntDistribution) or hasattr(distribution, "choices")
