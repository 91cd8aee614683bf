"""Charts and lists of the service's pages, without a service."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from sweeps.config.nights import Nights
from sweeps.service.promotion.night import Night
from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import SweepLine
from sweeps.service.web.learning_curves_svg import HEIGHT, curves_chart
from sweeps.service.web.nights_svg import MOST_NIGHTS, nights_chart
from sweeps.service.web.paging import page_of
from sweeps.service.web.rendering import moment
from sweeps.service.web.rows import rows_of
from sweeps.service.web.svg_axes import label, padded, ticks
from sweeps.service.web.trials_table import TrialsTable, trials_table
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.record import MlflowIds, SweepRecord, SweepSummary, SweepTime, TrialRecord

DAY = 86400.0


def trial(number: int, value: float | None, state: str = "finished", **params: Any) -> TrialRecord:
    return TrialRecord(
        trial=f"{number:04}",
        state=state,
        value=value,
        params={"train.lr": 0.1 / (number + 1), **params},
        run_id=f"run{number}",
        steps=10 * number,
        attempts=1,
    )


def record(*trials: TrialRecord, mode: str = "min") -> SweepRecord:
    best = min if mode == "min" else max
    valued = [each for each in trials if each.value is not None]
    return SweepRecord(
        sweep="s",
        status="running",
        metrics=("eval/loss",),
        modes=(mode,),
        counts={"finished": len(trials), "pruned": 0, "failed": 0, "running": 0, "stopped": 0},
        front=[best(valued, key=lambda each: each.value or 0.0)] if valued else [],
        mlflow=MlflowIds(tracking_uri="sqlite:///x", experiment_id="1", run_id="parent"),
        trials=list(trials),
        time=SweepTime(),
        conf="digits",
        started=0.0,
    )


def job(number: int, sweep: str, state: str, **more: Any) -> Job:
    known: dict[str, Any] = {field.name: None for field in dataclasses.fields(Job)}
    values = {"verb": "run", "request": {"conf": "digits"}, "user": "mira", "project": "chat", "priority": 0}
    return Job(**{**known, **values, "id": number, "sweep": sweep, "state": state, "submitted": float(number), **more})


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


def night(number: int, best: float | None, **more: Any) -> Night:
    values = {"schedule": "nightly", "sweep": f"nightly-{number}", "settings": Nights(), "metric": "eval/loss"}
    return Night(**{**values, "mode": "min", "due": number * DAY, "best": best, "verdict": "kept", **more})


# --- learning curves --------------------------------------------------------------------------------------------


def test_curves_stay_within_their_drawing_and_the_best_is_on_top() -> None:
    sweep = record(trial(0, 0.2), trial(1, 0.9, "pruned"), trial(2, 0.5, "failed"))
    points = {f"{n:04}": [HistoryPoint(step, (n + 1) / step) for step in range(1, 11)] for n in range(3)}
    drawn = curves_chart(sweep, points)
    assert drawn is not None
    assert [curve.trial for curve in drawn.curves] == ["0001", "0002", "0000"]
    assert [curve.mark for curve in drawn.curves] == ["cross", "square", ""]
    pairs = [pair.split(",") for curve in drawn.curves for pair in re.split("[ML]", curve.path)[1:]]
    assert all(0 <= float(x) <= drawn.axes.width and 0 <= float(y) <= HEIGHT for x, y in pairs)
    assert "best: trial 0000" in drawn.summary


def test_a_diverged_trial_does_not_press_the_others_flat() -> None:
    trials = [trial(n, 1.0 + n / 10) for n in range(12)]
    points = {each.trial: [HistoryPoint(1, each.value or 0.0), HistoryPoint(2, each.value or 0.0)] for each in trials}
    points["0011"] = [HistoryPoint(1, 1e6), HistoryPoint(2, 1e6)]
    drawn = curves_chart(record(*trials), points)
    assert drawn is not None
    assert drawn.outside == 2
    spread_of_others = {curve.y for curve in drawn.curves if curve.trial != "0011"}
    assert max(spread_of_others) - min(spread_of_others) > HEIGHT / 10


def test_before_the_first_report_there_is_no_chart() -> None:
    assert curves_chart(record(trial(0, None, "running")), {}) is None


def test_one_report_is_a_dot() -> None:
    drawn = curves_chart(record(trial(0, 0.3, "running")), {"0000": [HistoryPoint(5, 0.3)]})
    assert drawn is not None
    assert drawn.curves[0].mark == "dot"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.113, 3.1), (-3, 5), (1e-7, 3e-7), (1e6, 9e6)])
def test_ticks_are_round_and_within_the_axis(low: float, high: float) -> None:
    found = ticks(low, high, 6)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 <= each <= high * (1 + 1e-9) for each in found)
    assert len({label(each) for each in found}) == len(found)


def test_an_axis_of_one_value_has_room() -> None:
    low, high = padded(0.0, 0.0)
    assert low < 0 < high


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


# --- nights -----------------------------------------------------------------------------------------------------


def test_nights_show_the_best_the_champion_and_its_noise() -> None:
    drawn = nights_chart([night(1, 0.5, verdict="first"), night(2, 0.4, champion=0.5, noise=0.02, verdict="promoted")])
    assert drawn is not None
    first, second = drawn.marks
    assert first.champion is None
    assert first.band is None
    assert second.band is not None
    assert second.champion is not None
    top, height = second.band
    assert top < second.champion < top + height
    assert "promoted, best 0.4, champion 0.5, noise 0.02" in second.title
    assert [tick.text for tick in drawn.x_ticks] == ["2 Jan", "3 Jan"]


def test_a_night_without_a_value_is_no_point_and_a_year_is_its_last_nights() -> None:
    assert nights_chart([night(1, None, verdict="failed")]) is None
    drawn = nights_chart([night(n, 1.0 + n % 3) for n in range(365)])
    assert drawn is not None
    assert len(drawn.marks) == MOST_NIGHTS
    assert drawn.marks[-1].sweep == "nightly-364"
    assert len(drawn.x_ticks) <= 8


def test_times_are_utc_beside_the_pointer() -> None:
    assert 'title="1970-01-01 00:00:00 UTC">1970-01-01 00:00 UTC<' in moment(0)
    assert 'datetime="1970-01-01T00:00:00Z"' in moment(0)
