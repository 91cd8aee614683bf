"""Charts and lists of the service's pages, without a service."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from processes import run_python
from pydantic import TypeAdapter, ValidationError
from recording import open_recorder, record_small_sweep
from records import sweep_record, trial_record

from sweeps.constants import TAG_ENDED
from sweeps.errors import TrackingUnreachable
from sweeps.report.figures.learning_curves import learning_curves
from sweeps.report.figures.nights import NightsRecord, nights_section
from sweeps.report.figures.parallel_coordinates import parallel_lines
from sweeps.report.figures.section import Section
from sweeps.report.report_data import ReportData
from sweeps.service.api.depends import Trial as QueriedTrial
from sweeps.service.api.sweeps import TrialId as PathTrialId
from sweeps.service.queue.job_requests import TrialId
from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import SweepLine
from sweeps.service.web import figure_cache
from sweeps.service.web.figure_cache import FigureCache
from sweeps.service.web.figures import NOTHING, Choices, as_json, make_section, read_choices
from sweeps.service.web.paging import page_of
from sweeps.service.web.rendering import moment
from sweeps.service.web.sweep_rows import rows_of
from sweeps.service.web.sweep_view import further_change
from sweeps.service.web.trial_page import attempts
from sweeps.service.web.trials_table import TrialsTable, trials_table
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord
from sweeps.tracking.trial_history import FailedAttempt, Span


def trial(number: int, value: float | None, state: str = "finished", **params: Any) -> TrialRecord:
    params = {"train.lr": 0.1 / (number + 1), **params}
    return trial_record(number, value, state, params=params, run_id=f"run{number}", steps=10 * number)


def record(*trials: TrialRecord, mode: str = "min") -> SweepRecord:
    best = min if mode == "min" else max
    valued = [each for each in trials if each.value is not None]
    return sweep_record(
        status="running",
        modes=(mode,),
        counts={"finished": len(trials), "pruned": 0, "failed": 0, "running": 0, "stopped": 0},
        front=[best(valued, key=lambda each: each.value or 0.0)] if valued else [],
        trials=list(trials),
    )


def job(number: int, sweep: str, state: str, **more: Any) -> Job:
    known: dict[str, Any] = dict.fromkeys(Job.model_fields)
    values = {"verb": "run", "request": {"conf": "digits"}, "user": "mira", "project": "chat", "priority": 0}
    values |= {"id": number, "sweep": sweep, "state": state, "submitted": float(number), "attempts": 1}
    return Job(**{**known, **values, **more})


def line(sweep: str, status: str = "finished", started: float = 0.0, maker: Job | None = None) -> SweepLine:
    summary = SweepSummary(
        sweep=sweep,
        conf="digits",
        experiment="digits",
        experiment_id="1",
        status=status,
        metrics=("eval/loss",),
        modes=("min",),
        best=0.5,
        counts={"finished": 3, "pruned": 1, "failed": 0, "running": 2, "stopped": 0},
        started=started,
        wall_s=60.0,
        run_id="r",
        planned=10,
    )
    return SweepLine(summary, maker)


# --- figures ----------------------------------------------------------------------------------------------------


def drawn(section: Section | None) -> list[dict[str, Any]]:
    """Traces of the first figure, as the page's script gets them."""
    document = json.loads(as_json(section, "/sweeps/s/trials/"))
    traces: list[dict[str, Any]] = document["figures"][0]["figure"]["data"]
    return traces


def test_pages_get_no_figure_that_needs_webgl_since_that_makes_code_at_run_time() -> None:
    trials = [trial(n, 1.0 + n) for n in range(60)]
    points = {each.trial: [HistoryPoint(step, 1.0 / step) for step in range(1, 90)] for each in trials}
    curves = learning_curves(ReportData(record=record(*trials), curves=points))
    assert curves is not None
    assert "scattergl" in {trace.type for trace in curves.figures[0].figure.data}
    assert {trace["type"] for trace in drawn(curves)} == {"scatter"}
    lines = parallel_lines(ReportData(record=record(*trials)), ["train.lr"])
    assert {trace["type"] for trace in drawn(lines)} == {"scatter"}


def test_every_point_of_a_curve_names_its_trial_to_which_it_leads() -> None:
    points = {"0000": [HistoryPoint(1, 0.5), HistoryPoint(2, 0.2)], "0001": [HistoryPoint(1, 0.9)]}
    traces = drawn(learning_curves(ReportData(record=record(trial(0, 0.2), trial(1, 0.9, "pruned")), curves=points)))
    assert {each for trace in traces for each in trace.get("customdata", []) if each} == {"0000", "0001"}


def test_a_night_shows_its_verdict_and_leads_to_its_sweep() -> None:
    shared = {"champion": 0.5, "noise": 0.02, "reason": "", "wall_s": 60.0, "cost": None}
    nights = [
        {**shared, "due": 86400.0 * n, "sweep": f"nightly-{n}", "best": 0.5 - n / 10, "verdict": verdict}
        for n, verdict in enumerate(("first", "promoted"))
    ]
    traces = drawn(nights_section(NightsRecord("nightly", "eval/loss", nights)))
    (best,) = [trace for trace in traces if trace.get("customdata")]
    assert best["customdata"] == ["nightly-0", "nightly-1"]
    assert "promoted" in best["text"][1]


def test_the_axis_of_a_single_night_is_days_long() -> None:
    night = {"champion": None, "noise": None, "reason": "", "wall_s": 60.0, "cost": 2.0}
    alone = NightsRecord("nightly", "loss", [{**night, "due": 86400.0, "sweep": "n", "best": 0.5, "verdict": "first"}])
    for each in nights_section(alone).figures:
        assert each.figure.layout.xaxis.range == ("1970-01-01T00:00:00Z", "1970-01-03T00:00:00Z")
    assert nights_section(alone).figures[1].figure.data[0].width == 86400 * 1000 / 4


def test_nothing_reported_yet_is_said_and_not_an_error() -> None:
    empty = json.loads(as_json(None, ""))
    assert (empty["figures"], empty["text"]) == ([], NOTHING)


def test_a_figure_is_made_once_for_a_record_and_again_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_cache, "MAX_LOAD", math.inf)
    cache, made = FigureCache(), []
    first, second = record(trial(0, 0.2)), record(trial(0, 0.1))
    for each in (first, record(trial(0, 0.2)), second):
        cache.get(each, "curves", lambda: made.append(1))
    assert len(made) == 2


def test_while_the_store_is_away_the_last_figure_is_shown_and_a_new_one_is_made_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away() -> str:
        raise TrackingUnreachable("MLflow does not answer")

    monkeypatch.setattr(figure_cache, "MAX_LOAD", math.inf)
    cache, running, ended = FigureCache(), record(trial(0, 0.2)), record(trial(0, 0.1))
    with pytest.raises(TrackingUnreachable):
        cache.get(running, "curves", away)
    assert [cache.get(running, "curves", lambda: "old"), cache.get(ended, "curves", away)] == ["old", "old"]
    assert cache.get(ended, "curves", lambda: "new") == "new"


def test_an_attempt_that_moved_to_other_workers_has_not_failed() -> None:
    spans = tuple(Span(held=at, trained=at + 1.0, ended=at + 8.0, workers=("a",)) for at in (0.0, 10.0))
    moved = FailedAttempt(attempt=1, ended=8.0, error="its node leaves", moved=True)
    continued = trial_record(0, 0.5, spans=spans, failures=(moved,))
    first, second = attempts(sweep_record(trials=[continued]), continued)
    assert (first.outcome, first.why) == ("interrupted", "moved to other workers: its node leaves")
    assert second.outcome == "finished"


@pytest.mark.parametrize("pattern", [TrialId, PathTrialId, QueriedTrial], ids=["body", "path", "query"])
def test_the_service_accepts_the_ids_of_trials_of_every_kind(pattern: Any) -> None:
    known = TypeAdapter(pattern)
    for name in ("7", "0007", "0007r1", "s1-0007", "s10-0007"):
        assert known.validate_python(name) == name
    for name in ("-0007", "s1-", "../0007", "s1-0007/x", ""):
        with pytest.raises(ValidationError):
            known.validate_python(name)


def test_what_a_viewer_chooses_and_does_not_exist_is_left_out() -> None:
    choices = read_choices(record(trial(0, 0.2), trial(7, 0.1)), "", "sideways", ["7", "0000", "99", "0007"])
    assert choices == Choices(metric="eval/loss", axis="good", trials=("0007", "0000"))
    assert read_choices(record(trial(0, 0.2)), "train/lr", "log", []).axis == "log"


def test_the_page_of_a_repeat_shows_the_curve_of_the_repeat(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0000", {"train.lr": 0.1}, "train: {lr: 0.1}", 1)
    recorder.trials.start("0000r1", {"train.lr": 0.1, "seed": 1}, "train: {lr: 0.1}", 1, repeat_of="0000")
    for name, loss in (("0000", 0.5), ("0000r1", 0.6)):
        recorder.trials.log(name, 1, {"eval/loss": loss})
    assert not recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    choices = read_choices(sweep, "", "all", ["0000r1"])
    section = make_section(FigureCache(), sweep, "curves", choices)
    assert {each for trace in drawn(section) for each in trace.get("customdata", []) if each} == {"0000", "0000r1"}


# --- the list ---------------------------------------------------------------------------------------------------


def test_what_runs_comes_first_then_the_queue_in_its_order_then_the_newest() -> None:
    sweeps = [line("old", started=1), line("new", started=5), line("alive", "running", started=3)]
    jobs = [job(1, "low", "queued"), job(2, "high", "queued", priority=5), job(3, "low-too", "queued")]
    assert [row.sweep for row in rows_of(sweeps, jobs)] == ["alive", "high", "low", "low-too", "new", "old"]


def test_a_sweep_belongs_to_who_submitted_it_and_not_to_who_extends_it() -> None:
    made, further = job(1, "s", "finished"), job(2, "s", "queued", verb="extend", user="root", request={})
    (row,) = rows_of([line("s", maker=made)], [further, made])
    assert row.user == "mira"
    assert row.waits
    assert row.note == "extend waits in the queue"
    (row,) = rows_of([line("s")], [further])
    assert row.owner is None


def test_a_cancelled_job_owns_no_sweep_of_that_name() -> None:
    (row,) = rows_of([line("s")], [job(1, "s", "cancelled")])
    assert row.owner is None
    (row,) = rows_of([], [job(1, "s", "cancelled")])
    assert (row.status, row.user) == ("cancelled", "mira")


def test_a_job_that_never_became_a_sweep_says_why() -> None:
    (row,) = rows_of([], [job(1, "s", "failed", error="search.num_trials=0: must be 1 or more\nmore of it")])
    assert (row.status, row.note, row.recorded) == ("failed", "search.num_trials=0: must be 1 or more", False)


def test_progress_counts_trials_that_have_ended() -> None:
    (row,) = rows_of([line("s", "running")], [])
    assert row.trials == "4 of 10"
    assert row.bar_text == "3 finished, 1 pruned, 2 running"


@pytest.mark.parametrize(
    ("changed", "proposed"),
    [
        ({"planned": 20}, "search.num_trials=40"),
        ({"planned": None}, "search.num_trials=4"),
        ({"planned": 20, "points": 30}, "search.num_trials=30"),
        ({"planned": 3, "points": 3}, ""),  # a grid of 3 of 16 trials: `search.num_trials=6` would be refused
        ({"planned": 16, "tags": {TAG_ENDED: "no point of the space is left that can be trained"}}, ""),
        ({"planned": 16, "tags": {TAG_ENDED: "search.stop.wall_hours=1.5 is used up"}}, "search.stop.wall_hours=3"),
        ({"planned": 16, "tags": {TAG_ENDED: "16 trials were started"}}, "search.num_trials=32"),
    ],
)
def test_what_is_proposed_to_extend_a_sweep_has_something_to_try(changed: dict[str, Any], proposed: str) -> None:
    assert further_change(dataclasses.replace(record(trial(0, 1.0), trial(1, 2.0)), **changed)) == proposed


def test_search_words_must_all_occur() -> None:
    (row,) = rows_of([line("lora-1", maker=job(1, "lora-1", "finished"))], [])
    assert row.holds(["lora", "mira"])
    assert not row.holds(["lora", "jonas"])


def test_a_page_beyond_the_last_is_the_last() -> None:
    shown = page_of(list(range(101)), 99)
    assert (shown.page, shown.pages, list(shown.rows)) == (3, 3, [100])
    assert page_of([], 1).pages == 1


# --- trials -----------------------------------------------------------------------------------------------------


def numbers(table: TrialsTable) -> list[str]:
    return [each.trial for each in table.shown.rows]


def test_trials_are_ranked_unless_a_column_is_asked_for() -> None:
    sweep = record(trial(0, 0.5, opt="sgd"), trial(1, None, "running"), trial(2, 0.1, opt="adamw"))
    assert numbers(trials_table(sweep, "rank", down=False, page=1)) == ["0002", "0000", "0001"]
    by_value = trials_table(sweep, "metric0", down=True, page=1)
    assert numbers(by_value) == ["0000", "0002", "0001"], "what has no value comes last"
    assert numbers(trials_table(sweep, "opt", down=False, page=1)) == ["0002", "0000", "0001"]
    assert trials_table(sweep, "no-such-column", down=False, page=1).sort == "rank"


def test_trials_without_a_finite_value_do_not_mix_up_the_order_of_the_others() -> None:
    values = (0.5, math.nan, 0.25, math.inf, 0.75, -math.inf, None, 0.125)
    sweep = record(*(trial(number, value) for number, value in enumerate(values)))
    upwards, downwards = (trials_table(sweep, "metric0", down=down, page=1) for down in (False, True))
    assert numbers(upwards) == ["0007", "0002", "0000", "0004", "0001", "0003", "0005", "0006"]
    assert numbers(downwards) == ["0004", "0000", "0002", "0007", "0001", "0003", "0005", "0006"]


def test_trials_that_cannot_be_the_best_are_ranked_after_the_others() -> None:
    best, second = trial(0, 0.25), trial(1, 0.5)
    beyond = dataclasses.replace(trial(2, 0.125), violation="system/memory_mib=9 is above its limit of 5")
    sweep = dataclasses.replace(record(beyond, second, trial(3, 0.2, "failed"), trial(4, None), best), front=[best])
    assert numbers(trials_table(sweep, "rank", down=False, page=1)) == ["0000", "0001", "0002", "0003", "0004"]


def test_a_parameter_that_was_null_is_told_from_one_that_a_trial_lacks() -> None:
    table = trials_table(record(trial(0, 0.5, decay=None), trial(1, 0.6)), "rank", down=False, page=1)
    decay = next(column for column in table.columns if column.key == "decay")
    assert [decay.text(each) for each in table.shown.rows] == ["null", ""]


def test_a_sweep_of_2000_trials_shows_its_best_50() -> None:
    table = trials_table(record(*(trial(n, abs(n - 700.0)) for n in range(2000))), "rank", down=False, page=1)
    assert [each.trial for each in table.shown.rows[:2]] == ["0700", "0699"]
    assert (len(table.shown.rows), table.shown.pages) == (50, 40)


def test_numbers_stand_on_the_right_and_lists_are_plain() -> None:
    table = trials_table(record(trial(0, 0.5, modules=["q", "v"])), "rank", down=False, page=1)
    columns = {column.key: column for column in table.columns}
    assert columns["train.lr"].right
    assert not columns["modules"].right
    assert columns["modules"].text(table.shown.rows[0]) == "q, v"


def test_times_are_utc_beside_the_pointer() -> None:
    assert 'title="1970-01-01 00:00:00 UTC">1970-01-01 00:00 UTC<' in moment(0)
    assert 'datetime="1970-01-01T00:00:00Z"' in moment(0)


IMPORTED = """
import sys
from sweeps.service.web.figures import Choices, FigureCache, load_libraries, make_section
from sweeps.tracking.reader import load_sweep

load_libraries(sys.argv[1])
record, before = load_sweep(sys.argv[1], "digits-1"), {*sys.modules}
for figure in ("curves", "best", "parallel", "slices", "timeline"):
    section = make_section(FigureCache(), record, figure, Choices("eval/loss", "good", ()))
    assert section is not None and [each.figure.to_json() for each in section.figures], figure
print(*({name.partition(".")[0] for name in {*sys.modules} - before} & {"optuna", "pandas", "sklearn", "sqlalchemy"}))
"""


@pytest.mark.slow
def test_the_first_viewer_of_a_figure_does_not_wait_for_libraries(uri: str) -> None:
    record_small_sweep(uri)
    done = run_python("-c", IMPORTED, uri, status=None)
    assert (done.stdout, done.stderr) == ("\n", "")
