"""Repeats the recorded decisions of a sweep: its suggestions, and its scheduler's stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import PlayedJournal, enqueued_values, running_trial, sampled_at
from sweeps.constants import NUMBER
from sweeps.errors import UserError
from sweeps.files.checksums import parsed
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan
from sweeps.plan.searcher_options import searcher_options
from sweeps.plan.stage import study_file
from sweeps.search.schedulers.decisions import PAUSES, STOPS, STOPS_IF_LONGER, DecisionLog
from sweeps.search.trial_ids import trial_id
from sweeps.texts.wording import counted


@dataclass(frozen=True)
class Replay:
    """Result of repeating all decisions."""

    suggestions: int
    """Number of points that were sampled again."""
    given: int
    """Number of points that were not sampled again: those given first, points of a grid, and trials of a study that was
    rewritten."""
    decisions: int
    """Number of the scheduler's decisions that were repeated."""
    unknown: int
    """Number of decisions that this scheduler does not repeat."""
    differences: list[str] = field(default_factory=list)
    """Decisions that differed."""

    def describe(self) -> str:
        """Return the result in one line."""
        same = f"{len(self.differences)} are different" if self.differences else "all are the same"
        given = f"; {counted(self.given, 'point')} given, and not sampled" if self.given else ""
        unknown = f"; {self.unknown} decisions are of a kind that is not repeated" if self.unknown else ""
        return f"{self.suggestions} suggestions and {self.decisions} decisions repeated: {same}{given}{unknown}"

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``replay --json``."""
        return asdict(self)


def read_journal(plan: Plan) -> list[dict[str, Any]]:
    """Return the entries of the journal of a sweep's study; an incomplete one at the end is left out.

    Raises:
        UserError: The sweep's folder has none.
    """
    path, entries = plan.folder / study_file(plan.stage), []
    if not path.is_file():
        raise UserError(f"{plan.name}: its study {path} is missing; only this file records the decisions of the search")
    for line in path.read_bytes().splitlines():  # bytes: a text has more kinds of line ends
        try:
            entries.append(parsed(line))
        except ValueError:
            break
    return entries


def study_of(plan: Plan, entries: Sequence[dict[str, Any]]) -> optuna.Study:
    """Return the study that results from these entries, in memory.

    Raises:
        UserError: There is no study: the sweep failed before its search began.
    """
    journal = PlayedJournal(entries)
    journal.play(len(entries))
    try:
        return _loaded(plan, journal)
    except KeyError:
        raise UserError(
            f"{plan.name}: its study {plan.folder / study_file(plan.stage)} is empty: its search has not begun, and "
            "there are no decisions"
        ) from None


def _loaded(plan: Plan, journal: PlayedJournal, sampler: Any = None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.load_study(study_name=plan.name, storage=journal, sampler=sampler)


def replay(plan: Plan) -> Replay:
    """Repeat all suggestions and decisions of a sweep, and of its stages.

    Each point is sampled again from the study as it was when the point was sampled; if trials reported meanwhile, from
    the states that the sampler may have seen, until the point is the same. A new scheduler gets the reports
    that the recorded one decided on, in their order.

    Raises:
        UserError: The sweep's folder has no study, or its search has not begun.
    """
    plans = [*(plan.in_stage(stage.number) for stage in plan.stages), plan]
    begun = [each for each in plans if (plan.folder / study_file(each.stage)).is_file()]
    suggestions = given = decisions = unknown = 0
    differences: list[str] = []
    for each in begun or [plan]:
        entries = read_journal(each)
        study = study_of(each, entries)
        sampled, different = _suggestions(each, entries, study)
        decided, unrepeated, differing = _decisions(each, study)
        suggestions, decisions, unknown = suggestions + sampled, decisions + decided, unknown + unrepeated
        given += len([trial for trial in study.get_trials(deepcopy=False) if trial.params]) - sampled
        differences += different + differing
    return Replay(suggestions, given, decisions, unknown, differences)


def _suggestions(plan: Plan, entries: Sequence[dict[str, Any]], study: optuna.Study) -> tuple[int, list[str]]:
    sampler, journal = searcher_options(plan)["sampler"], PlayedJournal(entries)
    trials, count, different = study.get_trials(deepcopy=False), 0, []
    for number, positions in sampled_at(entries).items():
        trial = trials[number]
        known = enqueued_values(trial)
        if known is not None and known.keys() >= trial.params.keys():
            continue
        recorded, point = plan.space.sample(trial, plan.points.lookup), None
        for position in positions:
            journal.play(position)
            then = _loaded(plan, journal, sampler)
            if (trial_then := then.get_trials(deepcopy=False)[number]).state is TrialState.WAITING:
                continue  # it was enqueued, and its values were not sampled yet
            again = running_trial(then, trial_then)
            point = plan.space.sample(again, plan.points.lookup)
            if point == recorded:
                break
        else:
            different.append(f"{_named(trial, plan)} was suggested {recorded}, and is now {point}")
        count += 1
    return count, different


def _decisions(plan: Plan, study: optuna.Study) -> tuple[int, int, list[str]]:
    """Return the number of repeated decisions, the number of those that cannot be repeated, and the differences."""
    stage = None if plan.stage is None else plan.stage.number
    scheduler, count, unknown, different = build_scheduler(plan, DecisionLog()), 0, 0, list[str]()
    for number, event in DecisionLog(study, named=lambda number: trial_id(number, stage)).events:
        again = scheduler.repeat(number, event)
        if again is None:
            unknown += 1
            continue
        count += 1
        recorded = bool(event.get(STOPS, event.get(STOPS_IF_LONGER, event.get(PAUSES, False))))
        if again != recorded:
            what = "paused" if PAUSES in event else "stopped"
            did, does = (what if each else f"not {what}" for each in (recorded, again))
            different.append(f"trial {number} was {did}, and is now {does}: {event}")
    return count, unknown, different


def _named(trial: FrozenTrial, plan: Plan) -> str:
    """Return the name of a plan's trial for messages."""
    number, stage = trial.user_attrs.get(NUMBER), None if plan.stage is None else plan.stage.number
    return f"trial {trial_id(number, stage)}" if number is not None else f"rejected sample {trial.number}"
