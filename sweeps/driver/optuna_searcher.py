"""Ray Tune searcher that keeps a search in an Optuna study, for any ``tune.Tuner``."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from ray.tune.search import Searcher

from sweeps.search.study_search import StudySearch


class OptunaSearcher(StudySearch, Searcher):
    """Suggests points of a space with an Optuna sampler, for any ``tune.Tuner``.

    Each trial's state in the study depends on how the trial ended:

    ==================================================  ===========================================================
    it trained to its end                               COMPLETE, with the best value that it reported
    a scheduler stopped it, also while it was paused    PRUNED, with its reports
    it failed, in all its retries                       FAIL
    its last report has NaN or infinity                 FAIL
    it ended without a report                           FAIL
    a person stopped it                                 FAIL
    the search was interrupted, or its driver died      RUNNING; it is suggested first, under its own number, when the
                                                        study is opened again
    ==================================================  ===========================================================

    The attribute ``sweeps:reason`` of a failed trial says why it failed. With several objectives, a trial's values are
    those of the report with the best value of the first objective. One driver at a time may have a study open; others
    may read it.

    A class ``Trainable`` reports ``sweeps_completed: True`` in its last result when it is done. If Tune itself ends
    trials that are done (by ``max_t`` of ASHA, or a ``stop`` criterion), override ``finished``.

    Example:
        >>> from sweeps.search import FloatDistribution, OptunaSearcher
        >>> space = {"lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)}
        >>> searcher = OptunaSearcher(space, metric="loss", mode="min", num_trials=20, points=[{"lr": 1e-3}])

        Give it to Tune as ``tune.TuneConfig(search_alg=searcher, num_samples=-1)``, which calls it like this:

        >>> searcher.suggest("first")
        {'lr': 0.001}
        >>> searcher.on_trial_result("first", {"loss": 0.5, "training_iteration": 1})
        >>> searcher.on_trial_complete("first", {"loss": 0.5, "training_iteration": 1})
        >>> searcher.study.best_value
        0.5
    """

    @property
    def metric(self) -> str:  # of Tune's searchers, which know one objective
        return self.objectives.metrics[0]

    @property
    def mode(self) -> str:
        return self.objectives.modes[0]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Numbers of the trials by Tune's id."""
        return {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the next point: values by path, without parameters whose conditions do not hold.

        Args:
            trial_id: Tune's id of the trial.

        Returns:
            The point; if no further trial should start, None while trials run (``num_trials`` may still be raised), and
            ``FINISHED`` after that.

        Raises:
            ConfigError: No point of the space can be trained.
        """
        suggested = self.next_trial()
        if suggested is None:
            return self.none_left()
        self._numbers[trial_id] = suggested.number
        return suggested.point

    def none_left(self) -> dict[str, Any] | None:
        """Return the answer to Tune when no further trial should start now."""
        return None if self.has_running else cast("dict[str, Any]", self.FINISHED)  # Tune's convention: a string

    def number(self, trial_id: str) -> int:
        """Return a trial's number in the order of suggestion, from 0."""
        return self._numbers[trial_id]

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Write a report into the study; a report of an ended trial is ignored."""
        if trial_id in self._numbers:
            self.report(self._numbers[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study how a trial ended."""
        if trial_id in self._numbers:
            why = self.why_failed(trial_id) if error else None
            self.end(self._numbers[trial_id], result, error=why)  # Tune may say it twice

    def why_failed(self, trial_id: str) -> str:
        """Return the reason of a trial's failure for the study; override this to give one, because Tune does not."""
        return "error"

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because the study is saved in its storage."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, because the study is saved in its storage."""
