"""Freeze-thaw: trials pause at rungs, and the trial with the most expected improvement for its remaining cost
continues."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sweeps.config.objectives import Objectives
from sweeps.constants import COMPLETED, SECONDS, STEP
from sweeps.search.schedulers.decisions import LONGER, PAUSES, STOPS, DecisionLog
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.rung_positions import Rungs, amount_in
from sweeps.search.schedulers.scheduler import Choice, Result, ScheduledTrial, Turn, Verdict
from sweeps.search.schedulers.trial_model import TrialModel
from sweeps.search.schedulers.trial_overhead import NEWEST, TrialOverhead
from sweeps.search.trial_ids import trial_number
from sweeps.space.space import Lookup, Space
from sweeps.texts.wording import amount

START_COST = "start_cost"
"""Key of a decision at a rung: measured cost of starting a trial, as a fraction of the cost of a whole training."""
IS_LEADER = "is_leader"
"""Key of a decision at a rung: true if the trial continued since it had the best prediction and none had finished."""
PAUSED_PER_RUNNING = 8
"""Paused trials that are kept for later, for each trial that runs at once; beyond that number, the least promising ones
are stopped."""
LEAST_FURTHER = 2 / 3
"""Minimum share of all steps that is spent on trials after their first rung, as in successive halving. While no trial
has come far, new ones look the most promising, and nothing would show how well early values predict late ones."""


class FreezeThaw(PausingScheduler):
    """Pauses trials at rungs and continues the most promising one (freeze-thaw: Swersky et al., 2014,
    https://arxiv.org/abs/1406.3896), by a model of all learning curves so far (``TrialModel``).

    At a rung a trial continues if it is worth at least as much as starting a new one, and pauses otherwise. It
    continues later if it turns out to be worth it after all, before any new trial is started. The most promising one
    continues in any case while less than two thirds of all steps were spent on resumed trials. As long as there are too
    few values for the model, the best 1/eta of a rung continue, as in asynchronous successive halving. Without pauses,
    trials that would pause are stopped, but until one has finished, the one with the best prediction continues. A new
    trial also costs its start, as measured in earlier ones.

    Towards the end of a budget of time, only trials that can be trained to their end count: no other new trial is
    started, and the best paused ones that can be finished are finished. When all trials were started, the paused ones
    that are still worth it continue, and the others are stopped. With several objectives, a trial is worth its maximum
    over several weightings: each objective alone, and all equally.
    """

    def __init__(
        self,
        resource: str,
        grace: float,
        longest: float | None,
        eta: float,
        space: Space,
        objectives: Objectives,
        decisions: DecisionLog | None = None,
        *,
        lookup: Lookup = lambda path: None,
        remaining_s: Callable[[], float] = lambda: math.inf,
        pauses: bool = True,
    ):
        """
        Args:
            resource: Key of the result in which the rungs are counted.
            grace: The first rung.
            longest: Resource of a trial that trains to its end; None to learn it from the trials.
            eta: Each rung is ``eta`` times as far as the one before it.
            space: Space of the trials' points.
            objectives: As in ``Scheduler``; all of them count.
            decisions: As in ``Scheduler``.
            lookup: Returns the config's own value at a path.
            remaining_s: Returns the seconds that are left of the search's budget.
            pauses: Whether trials pause; otherwise they are stopped.
        """
        super().__init__(objectives, decisions)
        self._resource, self._eta, self._remaining_s = resource, eta, remaining_s
        self._positions, self._given_longest = Rungs(grace, eta), longest
        further = zip(objectives.metrics[1:], objectives.modes[1:], strict=True)
        self._further = {metric: 1.0 if mode == "max" else -1.0 for metric, mode in further}
        self._model = TrialModel(space, lookup, self._positions, longest, 1 + len(self._further))
        self._overhead, self._num_begun = TrialOverhead(resource), 0
        self._live: set[str] = set()
        self._longer: set[str] = set()
        """Trials that had ended before their sweep was extended to longer ones, and have not begun again."""
        self._pauses = pauses
        self._left_s = math.inf
        """Remaining seconds of the budget when the last decision was made."""
        for name, event in self._decisions.events:
            self._apply(name, event)
        costs = [event[START_COST] for _, event in self._decisions.events if START_COST in event]
        self._earlier_costs = costs[-NEWEST:]
        """Costs of a start, as measured in earlier sessions."""
        self._earlier = {name for name, _ in self._decisions.events}
        """Trials of earlier sessions that have not reported in this one. Their first report may repeat their last one,
        without any training before it."""

    # --- changes of the state, by decisions of this session and of earlier ones ---------------------------------

    def _decide(self, trial: str, event: dict[str, Any]) -> None:
        self._apply(trial, event)
        self._decisions.record(trial, event)

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        self._apply(number, event)
        if number is None or event["event"] == "added" or PAUSES not in event:
            return bool(event.get(STOPS, event.get(PAUSES)))
        self._paused.discard(number)
        halts = not self._goes_on(number)
        if event[PAUSES]:
            self._paused.add(number)
        return halts

    def _apply(self, trial: str | None, event: Mapping[str, Any]) -> None:
        assert trial is not None
        self._paused.discard(trial)
        match event["event"]:
            case "added":
                self._model.add(trial, event.get("point", {}), event.get("at"))
                self._live.add(trial)
                self._longer.discard(trial)
                if event.get(PAUSES):
                    self._paused.add(trial)
            case "arrived" | "done":
                rung, values = float(event["rung"]), (float(event["value"]), *map(float, event.get("further", ())))
                self._model.start_cost = float(event.get(START_COST, self._model.start_cost))
                self._model.arrive(trial, rung, values, event.get(SECONDS))
                self._left_s = float(event.get("left_s", math.inf))
                # A finished trial is unfinished again if its sweep was extended to longer trials.
                is_whole = event["event"] == "done" and self._given_longest is None and not event.get(LONGER)
                if self._is_end(rung) or is_whole:
                    self._model.finish(trial, rung, values)
                elif event.get(PAUSES):
                    self._paused.add(trial)
                elif event.get(LONGER):
                    self._longer.add(trial)
            case "bad":
                self._model.spoil(trial)
                self._live.discard(trial)  # also if its driver dies before it has stopped the trial
            case "dropped" | "left":
                self._live.discard(trial)

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        match event["event"]:
            case "arrived":
                value = self._sign * float(event["value"])
                return (
                    f"at the rung of {amount(event['rung'], self._resource)} its {self._objective} was {value:.6g}; "
                    f"{self._why(event)}"
                )
            case "resumed":
                return "it was the most promising of the paused trials"
            case "dropped":
                return "it was paused, and others were more promising"
            case "bad":
                return str(event["reason"])
        return None

    def _why(self, arrived: Mapping[str, Any]) -> str:
        """Return the reason why a trial at a rung continued, paused or was stopped."""
        halts = arrived[PAUSES] or arrived.get(STOPS, False)
        if not arrived.get("new_fits", True):
            if STOPS in arrived:
                return "no new trial could end within the budget"
            told = "another one was more promising" if arrived[PAUSES] else "this one was the most promising"
            return f"no new trial could end within the budget, and of those that had begun {told}"
        if "worth" not in arrived:
            return f"there were too few values to predict its end, and the best 1/{self._eta:g} continued"
        if arrived.get(IS_LEADER):
            return "no trial had been trained to its end, and this one was predicted to end best"
        if not halts and arrived["worth"] < arrived["new"]:
            best = f"among the best 1/{self._eta:g} of its rung" if STOPS in arrived else "best"
            return f"less than two thirds of all steps had been spent on continuing trials, and this one was {best}"
        return (
            f"continuing promised an improvement of {float(arrived['worth']):.3g} standard deviations for the cost of "
            f"a whole training, and a new trial {float(arrived['new']):.3g}"
        )

    # --- what trials are worth -----------------------------------------------------------------------------------

    def _fits(self, trial: str | None) -> bool:
        """Whether a trial can be trained to its end within the budget; for None, a new trial. Also true if no trial
        can."""
        if self._left_s == math.inf or self._model.longest is None or not self._model.costs.seconds:
            return True
        if trial is None:
            begun = (each for each in self._live if self._model.curves.by_trial[each])
            fits = self._model.costs.usual_seconds * self._model.longest <= self._left_s
            # If nothing can be finished, new trials are as good as any.
            return fits or not (self._model.done or any(map(self._fits, begun)))
        # The budget may have been set after the trial paused.
        seconds = self._model.costs.seconds.get(trial, self._model.costs.usual_seconds)
        return seconds * (self._model.longest - max(self._model.curves.by_trial[trial])) <= self._left_s

    def _priority(self, trial: str) -> tuple[bool, float, int]:
        """Return the sort key of trials that could continue, largest first; of equal ones, the earlier trial comes
        first."""
        return self._fits(trial), self._worth_of(trial), -trial_number(trial)

    def _worth_of(self, trial: str) -> float:
        """Return the worth of continuing a trial. If unknown: infinite for the best 1/eta of its rung, otherwise -1."""
        if not self._model.curves.by_trial[trial]:
            return math.inf
        if (worth := self._model.worth()) is not None:
            return worth.trials[trial]
        return math.inf if self._model.curves.is_among_best(trial, self._eta) else -1.0

    def _least(self) -> float:
        """Return the worth below which a trial does not continue: that of a new trial, if one can start."""
        worth = self._model.worth()
        return worth.new if worth is not None and self._fits(None) else 0.0

    def _goes_on(self, trial: str) -> bool:
        """Whether a trial at a rung continues immediately."""
        new_fits = self._fits(None)
        if new_fits:
            if self._worth_of(trial) >= self._least() or self._must_finish(trial):
                return True
            if not self._is_behind(trial):
                return False
        if not self._pauses:
            return not new_fits or self._model.curves.is_among_best(trial, self._eta)
        own = self._priority(trial)
        return all(own >= self._priority(other) for other in self._paused)

    def _must_finish(self, trial: str) -> bool:
        """Whether a trial may not be stopped, since otherwise none might be trained to its end."""
        return not self._pauses and not self._model.done and trial in self._leaders()

    def _is_behind(self, arrived: str | None = None) -> bool:
        """Whether too small a share of all steps went into continued trials, counting the steps about to be made. A
        trial that has just reached a rung does not count as about to make any."""
        training_on = self._live - self._paused - self._model.done.keys() - {arrived}
        every, further = self._model.curves.steps(training_on, self._model.rungs())
        return further < LEAST_FURTHER * every

    # --- what happens to trials ----------------------------------------------------------------------------------

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        if trial.id not in self._live and not self._is_done(trial.id):
            waits = {PAUSES: True} if self._pauses and trial.id in self._longer else {}
            self._decide(trial.id, {"event": "added", "point": trial.parameters, **waits})
        self._num_begun += 1
        # The first trials wait for the start of their workers.
        self._begin(trial.id, counts=self._num_begun > places.max_concurrent)
        return super().add(trial, places)

    def next(self, live: Sequence[ScheduledTrial], places: Places, *, is_over: bool) -> Turn:
        turn = super().next(live, places, is_over=is_over)
        if turn.resumed is not None:
            self._begin(turn.resumed.id)
        return turn

    def _begin(self, trial: str, *, counts: bool = True) -> None:
        self._overhead.begin(trial, counts=counts and trial not in self._earlier)

    def _measure(self, trial: str, result: Result) -> None:
        """Measure the overhead of a trial by its report."""
        self._earlier.discard(trial)
        self._overhead.report(trial, result)

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict:
        name = trial.id
        self._measure(name, result)
        rung = self._new_rung(name, result)
        if (reason := self._why_bad(result, rung)) is not None:
            self._spoil(name, reason, places, stops=True)
            return Verdict.STOP
        if rung is None or self._is_end(rung):
            return Verdict.CONTINUE  # the end of a training is recorded when it comes
        event = self._report("arrived", rung, result) | {PAUSES: False}
        if (overhead := self._overhead.of_training(self._model.longest)) is not None:
            # Single starts vary widely: the first of this session do not replace what earlier ones have measured.
            costs = [*self._earlier_costs, *[overhead.start] * self._overhead.num_starts]
            event[START_COST] = statistics.median(costs)
        self._apply(name, event)
        halts = not self._goes_on(name)
        if not self._pauses:
            event[STOPS] = halts
        elif halts:
            event[PAUSES] = True
            self._paused.add(name)
        if not self._fits(None):
            event["new_fits"] = False
        if (worth := self._model.worth()) is not None:
            event |= {"worth": worth.trials[name], "new": self._least()}
            if event["worth"] < event["new"] and self._must_finish(name):
                event[IS_LEADER] = True
        self._decisions.record(name, event)
        self._let_paused_go_first(places)
        if not halts:
            return Verdict.CONTINUE
        return Verdict.PAUSE if self._pauses else Verdict.STOP

    def _is_end(self, rung: float) -> bool:
        """Whether a rung is at or beyond the known end of a training."""
        longest = self._given_longest
        return longest is not None and (rung >= longest or math.isclose(rung, longest, rel_tol=1e-8))

    def _new_rung(self, name: str, result: Result) -> float | None:
        """Return the rung that a trial reaches for the first time with a report; None if there is none, or objectives
        are missing."""
        reached = amount_in(result, self._resource)
        if reached is None or not self._has_values(result):
            return None
        rung = self._positions.furthest(reached)
        return None if rung in self._model.curves.by_trial[name] else rung

    def _has_values(self, result: Result) -> bool:
        """Whether a report has all objectives, and the resource at which they were measured."""
        return {self._resource, self._objective, *self._further} <= result.keys()

    def _why_bad(self, result: Result, rung: float | None) -> str | None:
        """Return the reason why a trial can no longer be the best; None if it can."""
        if (broken := self._violation(result)) is not None:
            return broken
        metrics = [self._objective, *self._further]
        if rung is not None and not all(math.isfinite(result.get(metric, math.nan)) for metric in metrics):
            return f"{', '.join(metrics)} had a value that is not finite"
        return None

    def _spoil(self, name: str, reason: str, places: Places, *, stops: bool) -> None:
        """Record, once, that a trial can no longer be the best."""
        if name not in self._model.bad:
            self._decide(name, {"event": "bad", "reason": reason, STOPS: stops})
            self._let_paused_go_first(places)

    def _report(self, kind: str, rung: float, result: Result) -> dict[str, Any]:
        """Return the record of a report at a rung; with a budget, it contains the remaining seconds."""
        event: dict[str, Any] = {"event": kind, "rung": float(rung)}
        if STEP in result:
            event[STEP] = int(result[STEP])  # samplers learn from the values at rungs
        event["value"] = float(self._sign * result[self._objective])
        if self._further:
            event["further"] = [float(sign * result[metric]) for metric, sign in self._further.items()]
        left = self._remaining_s()
        if left < math.inf:
            reached = amount_in(result, self._resource) or rung
            event |= {SECONDS: result.get(SECONDS, 0.0) / max(reached, 1e-9), "left_s": left}
        return event

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        name = trial.id
        if result.get(COMPLETED) and self._has_values(result) and not self._is_done(name):
            end = self._given_longest or result[self._resource]
            if (reason := self._why_bad(result, end)) is not None:
                self._spoil(name, reason, places, stops=False)  # it has ended by itself
            elif name not in self._model.bad and math.isfinite(end):
                self._decide(name, self._report("done", end, result))
        self.leave(trial, places)

    def leave(self, trial: ScheduledTrial, places: Places) -> None:
        """Forget a trial."""
        if trial.id in self._live:
            self._decide(trial.id, {"event": "left"})
            self._let_paused_go_first(places)

    def _let_paused_go_first(self, places: Places) -> None:
        """Hold back new trials until a paused one that is worth more has continued."""
        if self._worth_going_on():
            places.holds_new = True

    def _worth_going_on(self) -> list[str]:
        """Return the paused trials that should continue, most promising first."""
        chosen: Iterable[str] = self._paused
        if not self._pauses:
            return sorted(filter(self._goes_on, chosen))
        if self._fits(None):
            least = self._least()
            chosen = [name for name in self._paused if self._worth_of(name) > least]
            if not chosen and self._paused and self._is_behind():
                chosen = [max(self._paused, key=self._priority)]
        return sorted(chosen, key=self._priority, reverse=True)

    @property
    def depends_on_time(self) -> bool:
        return self._remaining_s() < math.inf

    def ready(self, paused: Sequence[ScheduledTrial], places: Places, *, complete: bool) -> Choice:
        """Return the paused trials that are worth more than a new one, most promising first, and the least promising of
        the others to stop. When no new trials will be started and none runs, all others are stopped."""
        self._left_s = self._remaining_s()
        by_name = {trial.id: trial for trial in paused}
        # Trials that were paused because an earlier session had too many have not reached a rung yet.
        chosen = sorted(by_name.keys() - self._paused) + [name for name in self._worth_going_on() if name in by_name]
        waiting = sorted(by_name.keys() - set(chosen), key=self._priority)
        kept = PAUSED_PER_RUNNING * places.max_concurrent if self._pauses else 0
        if complete and waiting and not chosen and places.capacity == places.max_concurrent:
            # Before the others are stopped, the best one has to be finished.
            leaders = self._leaders()
            chosen = [name for name in waiting if name in leaders]
            if not chosen and not any(map(self._is_done, self._model.curves.by_trial)):
                chosen = waiting[-1:]
            waiting = [name for name in waiting if name not in chosen]
            kept = 0
        dropped = waiting[: max(0, len(waiting) - kept)]
        for name in dropped:
            self._decide(name, {"event": "dropped", STOPS: True})
        return [by_name[name] for name in chosen], [by_name[name] for name in dropped]

    def _leaders(self) -> set[str]:
        """Return the trial with the best prediction among live and finished ones, unless it has finished; with several
        objectives, one for each weighting."""
        worth, found = self._model.worth(), set[str]()
        for ranking in worth.rankings if worth is not None else ():
            first = next((name for name in ranking if name in self._live or self._is_done(name)), None)
            if first is not None and not self._is_done(first):
                found.add(first)
        return found

    def _is_done(self, trial: str) -> bool:
        """Whether a trial has trained to its end."""
        return trial in self._model.done
