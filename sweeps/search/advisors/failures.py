"""What failed trials teach: where points run out of memory, diverge or crash again and again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.space import ConstantDistribution, Distribution, IntDistribution
from sweeps.constants import NUMBER, REASON
from sweeps.search.encoding import UnitSpace, Vector
from sweeps.space.distributions import Space
from sweeps.worker_error import without_place

if TYPE_CHECKING:
    import optuna

Failure = Literal["out of memory", "diverged", "crashed"]

GOOD = "good"
CERTAIN = 0.6
"""Probability of a failure above which a point is refused."""
TREES = 40
KNOWN_PART = 20
"""The forest knows all trials but for the last twentieth, so that it need not be grown anew for each of thousands; a
search that was interrupted grows the same one again."""
OUT_OF_MEMORY = re.compile(
    r"out of memory|out-of-memory|OutOfMemory|\bOOM\b|running low on memory|MemoryError|bad_alloc|ALLOC_FAILED"
    r"|(can.?t|cannot|could not|failed to|unable to) allocate",
    re.IGNORECASE,
)
DIVERGED = re.compile(r"\b(nan|inf|infinity)\b|diverge|(not|non|in)[- ]?finite", re.IGNORECASE)
NOT_ITS_OWN = re.compile(
    r"stopped by a person|preempt|node (\w+ )?(died|failed|was (lost|removed|terminated))|interrupted", re.IGNORECASE
)
FEWER_WITH_MORE = ("worker", "parallel", "accumulation", "seed", "step", "epoch", "every")
"""Words in the names of whole numbers that do not make a worker take more memory when they grow."""


def classify(reason: str) -> Failure | None:
    """What kind of failure an error's text tells of; None if the point is not to blame (a person, a lost node)."""
    reason = without_place(reason)
    if OUT_OF_MEMORY.search(reason):
        return "out of memory"
    if NOT_ITS_OWN.search(reason):
        return None
    return "diverged" if DIVERGED.search(reason) else "crashed"


class FailureAdvisor:
    """Keeps away from where trials failed repeatedly; one failure alone condemns nothing.

    **Out of memory** is taken to be monotone: when two trials ran out of memory at sizes that a point reaches or
    exceeds in all, the point is refused, unless a trial of at least such sizes went well. Sizes are whole numbers
    (batch size, sequence length, rank, width, layers) and ordered whole choices, but for those whose names say
    otherwise (workers, steps, accumulation); what is a plain choice must be the same.

    **Every kind of failure** is also learned from failed and good trials by a random forest, which finds which
    parameters matter: trials that diverge at high learning rates condemn high learning rates, whatever else was
    tried with them. A point that fails with a probability above 0.6 is refused. (Measured: a vote of the trials by
    their distance in the unit cube, also weighted by what sets failed and good trials apart, avoided half as many.)
    It takes two of both: where all trials fail there is nothing to tell good from bad, and nothing is refused.
    """

    def __init__(self, space: Space):
        self._unit = UnitSpace(space)
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
        self._too_much: list[dict[str, Any]] = []
        self._forest: _Forest | None = None

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """Failures say where not to go, not where to go."""
        return {}

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """Which failures speak against a point; None if too few do."""
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
                self._ended[trial.number] = _Ended(outcome, point, self._unit.vector(point))
                self._learn_size(outcome, point)

    def _learn_size(self, outcome: str, point: dict[str, Any]) -> None:
        if outcome == GOOD:  # what it was no smaller than was not too much after all
            self._too_much = [other for other in self._too_much if not self._at_least(point, other)]
        elif outcome == "out of memory" and not any(
            other.outcome == GOOD and self._at_least(other.point, point) for other in self._ended.values()
        ):
            self._too_much.append(point)

    def _too_large(self, point: Mapping[str, Any]) -> str | None:
        exceeded = [other for other in self._too_much if self._at_least(point, other)]
        if len(exceeded) < 2:
            return None
        sizes = ", ".join(f"{path}={exceeded[-1][path]}" for path in self._sizes if path in exceeded[-1])
        return f"{len(exceeded)} trials that were no larger ran out of memory, the last at {sizes}"

    def _at_least(self, point: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether a point is as large as another one, which may take parameters that exist in both of them."""
        if not self._sizes or any(point.get(path) != other.get(path) for path in self._choices):
            return False
        return all((path in point) == (path in other) for path in self._sizes) and all(
            point[path] >= other[path] for path in self._sizes if path in point
        )

    def _likely_to_fail(self, point: Mapping[str, Any]) -> str | None:
        number = len(self._ended) - len(self._ended) % max(1, len(self._ended) // KNOWN_PART)
        if self._forest is None or number != self._forest.num_trials:
            known = [self._ended[trial] for trial in sorted(self._ended)[:number]]
            self._forest = _Forest(known)
        probability, kind = self._forest.predict(self._unit.vector(point))
        if probability <= CERTAIN:
            return None
        return f"{self._forest.num_failed} trials failed, and this point is likely to ({kind}, {probability:.0%})"


class _Ended(NamedTuple):
    outcome: str
    """``good``, or the kind of failure."""
    point: dict[str, Any]
    vector: Vector


def _outcome(trial: FrozenTrial) -> str | None:
    """None for what tells nothing of its point: it was not trained, or failed through no fault of its own."""
    if trial.state is not TrialState.FAIL:
        return GOOD
    return classify(trial.user_attrs.get(REASON, "")) if NUMBER in trial.user_attrs else None


class _Forest:
    """The probability that a point fails, by a random forest (Breiman, 2001) of scikit-learn."""

    def __init__(self, trials: Sequence[_Ended]):
        from sklearn.ensemble import RandomForestClassifier  # half a second, for sweeps in which something fails

        outcomes = [trial.outcome for trial in trials]
        self.num_trials, self.num_failed = len(trials), len(trials) - outcomes.count(GOOD)
        self._trees: RandomForestClassifier | None = None
        if min(self.num_failed, outcomes.count(GOOD)) >= 2:
            # A leaf holds two trials at least, and each tree sees a sample of them: no trial decides alone.
            self._trees = RandomForestClassifier(TREES, min_samples_leaf=2, max_features=None, random_state=0)
            self._trees.fit(np.array([trial.vector for trial in trials]), outcomes)

    def predict(self, point: Vector) -> tuple[float, str]:
        """The probability of a failure of any kind, and the most probable kind; too few trials tell of none."""
        if self._trees is None:
            return 0.0, GOOD
        probable = dict(zip(self._trees.classes_, self._trees.predict_proba(point[None])[0], strict=True))
        good = float(probable.pop(GOOD, 0.0))
        return 1 - good, max(probable, key=lambda kind: probable[kind])


def _is_size(path: str, distribution: Distribution) -> bool:
    if any(word in path.lower() for word in FEWER_WITH_MORE):
        return False
    if isinstance(distribution, IntDistribution):
        return True
    choices = getattr(distribution, "choices", [])
    return bool(choices) and all(type(choice) is int for choice in choices)


def _is_discrete(distribution: Distribution) -> bool:
    return isinstance(distribution, IntDistribution) or hasattr(distribution, "choices")
