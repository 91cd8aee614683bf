"""How many trials run at once, where schedulers pause trials."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from sweeps.constants import HEARD, STEP, TRIAL
from sweeps.search.schedulers.decisions import History

RESUMED = {"event": "resumed"}
"""The decision that a paused trial goes on."""


class Places(ConcurrencyLimiter):
    """Asks its searcher for a trial when a place is free. Other than Tune's own limiter, it gives the place of a paused
    trial to another one. (A subclass, since Tune looks for one to learn how many trials it may start together.)"""

    def __init__(self, searcher: Searcher, number: int):
        super().__init__(searcher, max_concurrent=number)
        self.searcher: Searcher = searcher
        self.paused: set[str] = set()
        """Trials without a place."""
        self.held_back = False
        """Paused trials wait for a place, and come before new ones."""
        self.dry = False
        """The searcher had no trial to give when it was last asked."""
        self.pauses = False
        """Trials may be paused: then it is not over before the last one has ended, since Tune gives up slots after
        that."""
        self.takes_up_all = False
        """The unfinished trials of an earlier session all come at once: those without a place are paused."""
        self._live: set[str] = set()

    @property
    def free(self) -> int:
        return self.max_concurrent - len(self._live - self.paused)

    @property
    def ended(self) -> bool:
        """Whether the searcher has said why it starts no further trial."""
        return getattr(self.searcher, "ended_because", None) is not None

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        unfinished = self.takes_up_all and bool(getattr(self.searcher, "unfinished", ()))
        # With no trial left Tune waits for a new one, and does not ask the scheduler.
        if not unfinished and (self.free < 1 or (self.held_back and self._live)):
            return None
        suggestion = self.searcher.suggest(trial_id)
        self.dry = not isinstance(suggestion, dict)
        if not self.dry:
            self._live.add(trial_id)
        return None if self.dry and self.pauses and self._live else suggestion

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.discard(trial_id)
        self.paused.discard(trial_id)
        self.searcher.on_trial_complete(trial_id, result=result, error=error)


class Pausing(TrialScheduler):
    """A scheduler that pauses trials. Tune starts new trials by itself, and asks the scheduler for paused ones."""

    resumes_first = True
    """Whether paused trials come before new ones."""

    def __init__(self, *arguments: Any, history: History | None = None, **named: Any):
        super().__init__(*arguments, **named)  # type: ignore[no-untyped-call]
        self._history = history or History()
        self._paused: set[str] = set()
        """Numbers of the trials that wait."""
        self._earlier = set(self._history.trials)
        """Numbers of the trials of an earlier session that were not taken up yet."""

    def take_up(self, tune_controller: Any, trial: Trial) -> bool:
        """Let a trial of an earlier session wait as it did there; whether it is one. To be called when it is added."""
        name = trial.config[TRIAL]
        if name not in self._earlier:
            return False
        self._earlier.remove(name)
        places: Places = tune_controller.search_alg.searcher
        if name in self._paused or places.free < 0:
            # Before Tune has put it among those that it starts. It may be stopped without having been started: Tune
            # wants its folder and its last result all the same.
            trial.set_status(Trial.PAUSED)  # type: ignore[no-untyped-call]
            trial.init_local_path()  # type: ignore[no-untyped-call]
            trial.update_last_result({STEP: trial.config.get(HEARD, 0)})  # type: ignore[no-untyped-call]
            places.paused.add(trial.trial_id)
            places.held_back = True  # until the scheduler has said which of them may go on
        return True

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The next paused trial that may go on, if a place is free for it."""
        places: Places = tune_controller.search_alg.searcher
        if not places.pauses and tune_controller.get_trials():
            self._begin(tune_controller, places)
        live: list[Trial] = [trial for trial in tune_controller.get_live_trials() if not trial.is_finished()]
        if self._history.goes_on_later():  # nothing is decided any more: what waits, waits in the next session
            for trial in [each for each in live if each.status == Trial.PAUSED]:
                tune_controller.stop_trial(trial)
            return None
        places.paused = {trial.trial_id for trial in live if trial.status == Trial.PAUSED}
        idle = len(places.paused) == len(live)
        complete = places.ended or (places.dry and idle)
        ready = self.ready(tune_controller, [each for each in live if each.status == Trial.PAUSED], complete=complete)
        places.held_back = self.resumes_first and bool(ready)
        if not ready or places.free < 1 or not (self.resumes_first or places.dry or complete):
            return None
        places.paused.discard(ready[0].trial_id)
        self._history.add(ready[0].config[TRIAL], RESUMED)
        self._paused.discard(ready[0].config[TRIAL])
        return ready[0]

    def _begin(self, tune_controller: Any, places: Places) -> None:
        places.pauses = True
        # Tune keeps one idle actor, with its slot, besides those that trials wait for. Here as many may fall idle at
        # once as there are places, and are needed again at once.
        request = tune_controller.get_trials()[0].placement_group_factory
        tune_controller._actor_cache.increase_max(request, places.max_concurrent)  # noqa: SLF001

    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """The paused trials that may go on, in their order.

        Args:
            tune_controller: Tune's.
            paused: All that are paused.
            complete: No further trial is to be expected.
        """
        raise NotImplementedError
