"""Recorded decisions of a search: made again, and explained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from optuna.storages.journal._storage import JournalOperation, JournalStorageReplayResult

from sweeps.constants import COST_MODEL, NUMBER
from sweeps.errors import UserError
from sweeps.files.checksums import parsed
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan, make_plan
from sweeps.plan.searcher_options import searcher_options
from sweeps.plan.stage import study_file
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.trial_model import TrialModel
from sweeps.search.study_file import open_study_storage
from sweeps.search.study_search import StudySearch
from sweeps.search.study_version import STUDY_FILE
from sweeps.simulate.recorded_table import Report
from sweeps.simulate.replay import read_journal, replay, study_of
from sweeps.simulate.simulation import CurveSource, Simulation
from sweeps.simulate.why import why
from sweeps.space.space import Point


class Curves:
    """Accuracies that rise to a value of the point's own; the learning rate decides."""

    def curve(self, point: Point) -> list[Report]:
        end = 0.9 - point["train.lr"] - 0.1 * point["model.dropout"]
        seconds = 1 + point["model.dropout"]
        return [Report(25 * step, seconds * step, {"eval/accuracy": end - 0.3 / step}) for step in range(1, 13)]


class Diverging(Curves):
    """The same, with a last value that is no number."""

    def curve(self, point: Point) -> list[Report]:
        return [*super().curve(point)[:-1], Report(300, 13, {"eval/accuracy": math.nan})]


def searched(
    *overrides: str, trials: int = 14, workers: int = 3, limit_s: float = math.inf, curves: CurveSource | None = None
) -> Plan:
    """A plan whose search was recorded in its folder, as a sweep does."""
    plan = make_plan(["conf=digits", f"search.num_trials={trials}", *overrides], [], "recorded", "")
    plan.folder.mkdir(parents=True)
    search(plan, workers, limit_s, curves or Curves())
    return plan


def search(plan: Plan, workers: int, limit_s: float, curves: CurveSource) -> None:
    """Record the search of a plan in its folder."""
    storage, _ = open_study_storage(plan.folder / study_file(plan.stage))
    searcher = StudySearch(plan.space, storage=storage, study_name=plan.name, **searcher_options(plan))
    scheduler = build_scheduler(
        plan, DecisionLog(searcher.study), remaining_s=lambda: limit_s - simulation.usage.wall_s
    )
    simulation = Simulation(searcher, scheduler, curves, workers)
    simulation.run()


def stop_the_first(plan: Plan) -> None:
    """Change the first recorded decision of the scheduler: that trial was stopped."""
    file = plan.folder / study_file(plan.stage)
    file.write_text(without_checksums(file).replace('"stops": false', '"stops": true', 1))


def without_checksums(file: Path) -> str:
    """Lines of a study that may be changed."""
    return "".join(json.dumps(parsed(line)) + "\n" for line in file.read_bytes().splitlines())


@pytest.mark.parametrize(
    "scheduler",
    ["asha", "freeze_thaw", *(pytest.param(each, marks=pytest.mark.slow) for each in ("hyperband", "none"))],
)
def test_a_search_on_parallel_workers_makes_the_same_decisions_again(scheduler: str) -> None:
    plan = searched(f"search/scheduler={scheduler}", "search.sampler.startup_trials=4")
    result = replay(plan)
    assert result.differences == []
    assert result.suggestions == 13  # the first point is the config's own
    assert result.given == 1
    assert (result.decisions > 10) == (scheduler != "none")
    assert result.unknown == 0


def test_reports_that_are_recorded_while_a_point_is_sampled_make_no_difference() -> None:
    plan = searched("search/scheduler=freeze_thaw", "search.sampler.startup_trials=4")
    file = plan.folder / STUDY_FILE
    lines = without_checksums(file).splitlines(keepends=True)
    entries = [json.loads(line) for line in lines]
    created = [at for at, each in enumerate(entries) if each["op_code"] == JournalOperation.CREATE_TRIAL]
    later = [(entries[at].get("trial_id"), lines[at]) for at in range(created[12] + 1, len(lines))]
    others = [line for trial, line in later if trial is not None and trial < 12]
    own = [line for trial, line in later if trial == 12]
    file.write_text("".join([*lines[: created[12] + 1], *others, *own]))
    assert replay(plan).differences == []


def test_values_that_a_given_point_lacks_are_sampled_again_from_when_the_point_was_asked_for() -> None:
    space = ("~space", "train.lr=choice(0.001, 0.01, 0.1)", "model.dropout=choice(0.0, 0.1)")
    plan = searched("search/sampler=brute_force", *space, "search.points=[{train.lr: 0.01}, {train.lr: 0.1}]", trials=5)
    assert replay(plan).differences == []


def test_a_search_that_knows_what_trials_cost_makes_the_same_decisions_again() -> None:
    plan = searched("search=sweeps", "search.sampler.startup_trials=4", trials=30, limit_s=300.0)
    assert COST_MODEL in (plan.folder / STUDY_FILE).read_text()
    result = replay(plan)
    assert result.differences == []
    assert result.suggestions == 29
    assert result.decisions > 30


def test_why_tells_which_point_of_the_user_a_trial_has() -> None:
    rarely = "search.constraints=['model.dropout < 0.05']"  # a point's other values are sampled several times
    plan = searched("search.points=[{train.lr: 0.05}, {train.lr: 0.002}]", rarely, trials=4)
    started = [trial for trial in study_of(plan, read_journal(plan)).trials if NUMBER in trial.user_attrs]
    told = {trial.params["train.lr"]: why(plan, f"{trial.user_attrs[NUMBER]:04}")[0] for trial in started}
    for rate, each in ((0.001, "the config's own"), (0.05, "search.points.0"), (0.002, "search.points.1")):
        assert told[rate].startswith(f"given first: it is {each};")


def test_what_is_different_now_is_told() -> None:
    plan = searched("search=optuna_asha")
    stop_the_first(plan)
    (difference,) = replay(plan).differences
    assert "was stopped, and is now not stopped" in difference
    other = make_plan(["conf=digits", "search=optuna_asha", "search.num_trials=14", "seed=5"], [], "other", "")
    other.folder.mkdir(parents=True)
    text = without_checksums(plan.folder / STUDY_FILE).replace('"recorded"', '"other"')
    (other.folder / STUDY_FILE).write_text(text)
    assert any("was suggested" in each for each in replay(other).differences)


def test_the_decisions_of_stages_are_made_again_as_well() -> None:
    stages = "search.stages=[{overrides: ['train.max_steps=150'], num_trials: 5}]"
    plan = make_plan(["conf=digits", "search=optuna_asha", "search.num_trials=4", stages], [], "staged", "")
    plan.folder.mkdir(parents=True)
    search(plan.in_stage(1), 2, math.inf, Curves())
    result = replay(plan)
    assert (result.suggestions, result.given, result.differences) == (4, 1, [])  # its search has not begun
    search(plan, 2, math.inf, Curves())
    assert replay(plan).suggestions == 7
    stop_the_first(plan.in_stage(1))
    (difference,) = replay(plan).differences
    assert difference.startswith("trial s1-0")


def test_the_reasons_for_a_trial_are_told_with_what_was_known_then() -> None:
    plan = searched("search=optuna_asha")
    first = why(plan, "0000")
    assert first[0].startswith("given first: it is the config's own; ")
    assert "no other trial" in first[0]
    later = [why(plan, f"{number:04}") for number in range(6, 14)]
    assert all("suggested by the sampler tpe; then known: " in reasons[0] for reasons in later)
    stopped = [reasons[-1] for reasons in later if reasons[-1].startswith("stopped: ")]
    assert stopped
    assert " its eval/accuracy was" in stopped[0]
    assert ", worse than 0." in stopped[0]
    assert "the bound of the best 1/3 of the" in stopped[0]


def test_reasons_of_every_scheduler_read_as_sentences() -> None:
    for scheduler, words in (
        ("median", "the bound of the best 1/2 of the"),
        ("hyperband", "trials of its bracket"),
        ("freeze_thaw", "for the cost of a whole training"),
    ):
        plan = searched(f"search/scheduler={scheduler}", f"output_dir={scheduler}")
        told = [reason for number in range(14) for reason in why(plan, f"{number:04}")]
        assert any(words in reason for reason in told), told
        assert any(reason.startswith("stopped: ") for reason in told), told


def test_reasons_are_told_without_making_the_decisions_about_other_trials_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = searched("search/scheduler=freeze_thaw")
    measured: list[TrialModel] = []
    monkeypatch.setattr(TrialModel, "_measure", measured.append)
    assert any(reason.startswith("paused: ") for number in range(14) for reason in why(plan, f"{number:04}"))
    assert measured == []


def test_a_trial_without_a_number_at_its_end_is_told_as_what_it_is_for_the_sampler() -> None:
    plan = searched("search/scheduler=none", trials=1, curves=Diverging())
    assert why(plan, "0000")[-1] == "counts as failed for the sampler: eval/accuracy=nan"


def test_a_repeat_has_no_decisions() -> None:
    plan = make_plan(["conf=digits"], [], "confirmed", "")
    with pytest.raises(
        UserError, match=r"--trial=0003r2: repeats trial 0003 with another seed, so .* --trial=0003 --why"
    ):
        why(plan, "0003r2")


def test_a_sweep_without_its_study_is_refused() -> None:
    plan = make_plan(["conf=digits"], [], "absent", "")
    with pytest.raises(UserError, match="only this file records the decisions of the search"):
        replay(plan)


@pytest.mark.parametrize("left", ["", '{"op_code": 0, "worker_id": "'], ids=["nothing", "a part of an entry"])
def test_a_sweep_that_failed_before_its_search_began_is_refused(left: str) -> None:
    plan = make_plan(["conf=digits"], [], "empty", "")
    plan.folder.mkdir(parents=True)
    (plan.folder / STUDY_FILE).write_text(left)
    for ask in (replay, lambda plan: why(plan, "0000")):
        with pytest.raises(UserError, match=r"empty: its study .*optuna\.log is empty: its search has not begun"):
            ask(plan)


def test_a_search_is_made_again_in_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = searched("search/sampler=random")
    applied = []
    apply_logs = JournalStorageReplayResult.apply_logs

    def counted(self: JournalStorageReplayResult, logs: Iterable[dict[str, Any]]) -> None:
        entries = list(logs)
        applied.append(len(entries))
        apply_logs(self, entries)

    monkeypatch.setattr(JournalStorageReplayResult, "apply_logs", counted)
    assert replay(plan).differences == []
    # Each entry is read for the whole study, and once more for the suggestions, which write some of them again.
    assert sum(applied) < 3 * len(read_journal(plan))
