"""Figures of a report, from records that need no store."""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optuna
import plotly.graph_objects as go
import pytest
import yaml
from plotly.subplots import make_subplots
from records import sweep_record, trial_record
from report_page import Page
from rich.console import Console

from sweeps.api.sweep import Sweep
from sweeps.report.dataframes import importances_table
from sweeps.report.figures.best_so_far import best_so_far
from sweeps.report.figures.contours import contours
from sweeps.report.figures.image_files import write_image
from sweeps.report.figures.importance import by_importance, importance, importances
from sweeps.report.figures.learning_curves import learning_curves
from sweeps.report.figures.nights import NightsRecord, nights_section
from sweeps.report.figures.parallel_coordinates import parallel_coordinates, parallel_lines
from sweeps.report.figures.section import Section
from sweeps.report.figures.sections import make_sections, write_images
from sweeps.report.figures.slices import slices
from sweeps.report.figures.study_in_memory import LONGEST_CHOICE, label
from sweeps.report.figures.style import robust_range
from sweeps.report.figures.timeline import MOST_BARS, bars, merged, timeline
from sweeps.report.page.document import render
from sweeps.report.report_data import MOST_CURVES, ReportData, chosen_for_curves
from sweeps.report.terminal_tables import print_best
from sweeps.tracking.metric_history import HistoryPoint
from sweeps.tracking.mlflow_texts import describe_no_best
from sweeps.tracking.record import SweepRecord, SweepTime, TrialRecord
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.trial_history import Span

START = 1_700_000_000.0


def trial(number: int, value: float | None = None, state: str = "finished", **more: Any) -> TrialRecord:
    more.setdefault("params", {"lr": 10 ** -(1 + number % 40 / 10), "width": 8 + number % 50})
    return trial_record(number, value, state, run_id=f"{number:032}", steps=10, **more)


def report_data(trials: list[TrialRecord], curves: Any = None, **more: Any) -> ReportData:
    valued = [each for each in trials if each.value is not None]
    record = sweep_record(
        metrics=("loss",),
        front=[min(valued, key=lambda each: each.value or 0.0)] if valued else [],
        trials=trials,
        time=SweepTime(wall_s=100.0),
        started=START,
    )
    return ReportData(record=record, curves=curves or {}, **more)


def searched(points: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float] | None = None) -> ReportData:
    """Trials with these parameters; the value of each is its number, or follows from its parameters."""
    values = [float(number) if value is None else value(point) for number, point in enumerate(points)]
    return report_data([trial(number, values[number], params=point) for number, point in enumerate(points)])


def drawn(section: Section | None) -> Section:
    assert section is not None
    return section


def spans(held: float, seconds: float, workers: tuple[str, ...], ended: bool = True) -> tuple[Span, ...]:
    at = START + held
    return (Span(held=at, trained=at + 1, ended=at + seconds if ended else None, workers=workers),)


def test_a_sweep_without_trials_or_without_values_still_has_a_page() -> None:
    for trials in ([], [trial(0, state="failed", error="ValueError: no", started=START, ended=START + 5)]):
        made = report_data(trials)
        text = render(made, make_sections(made, [importances(made, 0)]))
        assert ("No trial has reported loss." if trials else "No trial was started.") in text
        assert ("ValueError: no" in text) is bool(trials)


def test_a_sweep_without_a_best_trial_says_what_values_there_are() -> None:
    def record(*trials: TrialRecord, status: str = "finished") -> SweepRecord:
        return replace(report_data(list(trials)).record, front=[], status=status)

    failed = replace(trial(0, 0.25, state="failed"), steps=48)
    broken = replace(trial(1, 0.125), steps=80, violation="system/memory_mib=9 is above its limit of 5")
    text = describe_no_best(record(failed))
    assert text == "The only trial with a value, 0000, failed at step 48 with loss 0.25, and counts as no result."
    both = describe_no_best(record(failed, broken, trial(2, None, state="failed")))
    assert both.startswith("The best of 2 trials with a value, 0001, broke a limit at step 80 with loss 0.125")
    out = io.StringIO()
    print_best(record(failed), Console(file=out, width=60))
    assert text in out.getvalue()
    assert describe_no_best(record(trial(0, state="failed"))) == "No trial has reported loss."
    assert describe_no_best(record(trial(0, state="running"), status="running")) == "No trial has reported loss yet."


def test_a_trial_is_called_the_best_only_where_it_is() -> None:
    def printed(*metrics: str, **options: str) -> str:
        front = [replace(trial(0, 0.5), steps=1, values=(0.5, 0.25)[: len(metrics)])]
        out = io.StringIO()
        record = replace(report_data(front).record, front=front, metrics=metrics, modes=("min",) * len(metrics))
        print_best(record, Console(file=out, width=80), **options)  # type: ignore[arg-type]
        return " ".join(out.getvalue().split("\n")[0].split())

    assert printed("loss") == "best trial 0000 (finished after 1 step)"
    assert printed("loss", "size") == "Pareto front 0000 (finished after 1 step)"
    assert printed("loss", label="trial") == "trial 0000 (finished after 1 step)"


ODD_VALUES: dict[str, list[float | None]] = {
    "one trial": [0.5],
    "all equal": [0.5] * 12,
    "a single one far away": [-2.0] * 11 + [-1e12],
    "values that are no numbers": [0.5, math.nan, math.inf, None] * 4,
    "no values": [None] * 3,
    "all different": [float(number) for number in range(12)],
}
ODD_PARAMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "mixed": lambda number: {"lr": 0.1 * (1 + number), "depth": number % 5, "kind": "ab"[number % 2]},
    "choices": lambda number: {"kind": ["a", {"b": [number % 3]}], "flag": number % 2 == 0},
    "never together": lambda number: {"a.lr": 0.1} if number % 2 else {"b.lr": None},
    "on a line": lambda number: {"lr": 0.1 + number, "width": 1.0 + 2 * number},
    "no parameters": lambda number: {},
}


@pytest.mark.parametrize(
    ("values", "params"),
    [
        # Each odd thing once; all of them together are the slow ones.
        pytest.param(values, params, marks=[] if row % len(ODD_PARAMS) == column else pytest.mark.slow)
        for row, values in enumerate(ODD_VALUES)
        for column, params in enumerate(ODD_PARAMS)
    ],
)
def test_odd_sweeps_have_reports_too(values: str, params: str, tmp_path: Path) -> None:
    trials = [
        trial(number, value, params=ODD_PARAMS[params](number)) for number, value in enumerate(ODD_VALUES[values])
    ]
    made = report_data(trials)
    found = [importances(made, 0)]
    sections = make_sections(made, found)
    page = Page(render(made, sections))
    assert len(page.data["rows"]["rows"]) == len(trials)
    images = write_images(sections, tmp_path, "s")
    assert bool(images) is any(value is not None for value in ODD_VALUES[values])


def test_a_large_sweep_makes_a_page_that_is_bounded_and_quick() -> None:
    rng = random.Random(0)
    trials = [
        trial(number, rng.random(), "pruned" if number % 3 else "finished", spans=spans(number, 1.5, ("a/0", "a/1")))
        for number in range(3000)
    ]
    chosen = chosen_for_curves(report_data(trials))
    points = [HistoryPoint(step, 1 / step) for step in range(1, 80)]
    made = report_data(trials, {each.trial: points for each in chosen})
    assert len(chosen) == MOST_CURVES
    assert {each.trial for each in made.ranked[:50]} <= {each.trial for each in chosen}
    text = render(made, make_sections(made, [importances(made, 0)]))
    assert len(text) < 6_000_000


def test_values_far_outside_do_not_press_the_others_flat() -> None:
    values = [1.0 + index / 100 for index in range(50)]
    assert robust_range(values, "min") is None
    low, high = robust_range([*values, 1e8], "min") or (0, 0)
    assert low < 1.0
    assert 1.49 < high < 10
    low, high = robust_range([*(-value for value in values), -1e8], "max") or (0, 0)
    assert -10 < low < -1.49
    assert high > -1.0


def test_a_trial_that_broke_a_limit_or_failed_does_not_move_the_line_of_the_best() -> None:
    trials = [trial(0, 3.0), trial(1, 1.0, violation="memory"), trial(2, 0.5, "failed"), trial(3, 2.0)]
    figure = drawn(best_so_far(report_data(trials))).figures[0].figure
    assert list(figure.data[-1].y) == [3.0, 3.0, 3.0, 2.0]


def test_where_a_trial_was_stopped_early_is_marked() -> None:
    points = {"0000": [HistoryPoint(1, 3.0), HistoryPoint(2, 1.0)], "0001": [HistoryPoint(1, 2.0)]}
    begun = trial(2, None, "running")  # without a report, so nothing is left out
    section = drawn(learning_curves(report_data([trial(0, 1.0), trial(1, 2.0, "pruned"), begun], points)))
    assert "selection" not in section.text
    marks = [trace for trace in section.figures[0].figure.data if trace.marker.symbol == "x"]
    assert [(list(trace.x), list(trace.y)) for trace in marks] == [([1], [2.0])]


def curves_of(*values: tuple[float, ...], **more: Any) -> Any:
    """Figure of learning curves with these values; the last is the trial's own."""
    points = {
        f"{number:04}": [HistoryPoint(step, value) for step, value in enumerate(each)]
        for number, each in enumerate(values)
    }
    made = report_data([trial(number, min(each)) for number, each in enumerate(values)], points)
    return drawn(learning_curves(made, **more)).figures[0].figure


def test_the_axis_shows_the_good_curves_and_not_the_first_values_of_the_bad_ones() -> None:
    good = [tuple(0.2 + 0.01 * number + 2.0 / (1 + step) ** 3 for step in range(12)) for number in range(4)]
    bad = [(9.0 + number, 8.0) for number in range(12)]
    low, high = curves_of(*good, *bad).layout.yaxis.range
    assert low < 0.2
    assert high < 0.5, "neither the first values of good curves nor bad trials flatten them"
    assert curves_of(*good, *bad, axis="all").layout.yaxis.range is None
    assert curves_of(*good, *bad, axis="log").layout.yaxis.type == "log"
    flat = [(0.3, 0.25), (0.31, 0.24), (0.32, 0.26)]
    assert curves_of(*flat).layout.yaxis.range is None, "nothing to leave out"


def test_compared_trials_have_their_own_colours_before_the_pale_others() -> None:
    figure = curves_of((0.3, 0.2), (0.4, 0.3), (0.5, 0.4), chosen=["0002", "0001"])
    names = [trace.name for trace in figure.data]
    assert names[0] == "other trials"
    assert [name[:4] for name in names[1:]] == ["0002", "0001"]
    assert len({trace.line.color for trace in figure.data}) == 3


def test_lines_of_parallel_coordinates_lead_to_their_trials_and_stay_within_the_axes() -> None:
    made = searched([{"lr": 0.1, "momentum": 0.9}, {"lr": 0.3, "momentum": 0.8}, {"lr": 0.2}])
    lines = drawn(parallel_lines(made, ["lr", "momentum"], ["0002"])).figures[0].figure.data
    assert lines[-1].name == "trial 0002"
    assert {each for trace in lines for each in trace.customdata if each} == {"0000", "0001", "0002"}
    assert all(0 <= y <= 1 for trace in lines for y in trace.y if y is not None)


def test_a_trial_that_was_cut_off_is_interrupted_and_not_running_once_its_sweep_has_ended() -> None:
    running = report_data([trial(0, 1.0), trial(1, 2.0, "running")]).record
    alive = replace(running, status="running", counts={"running": 1, "finished": 1})
    assert alive.settled() is alive
    dead = replace(alive, status="interrupted").settled()
    assert [each.state for each in dead.trials] == ["finished", "interrupted"]
    assert (dead.counts["running"], dead.counts["interrupted"]) == (0, 1)


def test_choices_that_differ_only_at_their_end_are_kept_apart() -> None:
    base = "organisation/a-model-with-a-long-name"
    assert label(base) == "organisation/…th-a-long-name"
    assert len(label(base)) == LONGEST_CHOICE
    assert label(f"{base}-7b") != label(f"{base}-13b")


def test_choices_that_differ_only_in_their_middle_are_kept_apart_in_every_figure() -> None:
    chance = random.Random(0)
    paths = [f"s3://bucket/run-{run}/checkpoint-final.pt" for run in "abc"]
    assert len(set(map(label, paths))) == 1
    made = searched(
        [{"path": paths[number % 3], "x": chance.random()} for number in range(24)],
        lambda point: paths.index(point["path"]) + 0.01 * point["x"],
    )
    assert importances(made, 0)["fANOVA"]["path"] > 0.9
    dots, star = drawn(slices(made, ["path"], "0001")).figures[0].figure.data
    assert (set(dots.x), star.x) == (set(paths), (paths[1],))
    axis = drawn(parallel_coordinates(made, ["path"])).figures[0].figure.data[0].dimensions[0]
    assert list(axis.ticktext) == paths
    assert contours(made, ["path", "x"]) is not None


def test_a_number_and_a_text_that_read_the_same_are_kept_apart_in_every_figure() -> None:
    sizes = [1, "1", True, "true"]
    made = searched([{"size": sizes[number % 4], "x": number / 24} for number in range(24)])
    labels = ["1", '"1"', "true", '"true"']
    dots, star = drawn(slices(made, ["size"], "0001")).figures[0].figure.data
    assert (set(dots.x), star.x) == (set(labels), (labels[1],))
    axis = drawn(parallel_coordinates(made, ["size"])).figures[0].figure.data[0].dimensions[0]
    assert list(axis.ticktext) == labels


def test_long_texts_that_differ_only_in_their_middle_have_short_labels_with_numbers() -> None:
    texts = [
        f"You are an assistant. {middle * 30} Answer in one sentence." for middle in ("Think. ", "Cite. ", "Try. ")
    ]
    made = searched([{"prompt": texts[number % 3]} for number in range(6)])
    axis = drawn(parallel_coordinates(made, ["prompt"])).figures[0].figure.data[0].dimensions[0]
    assert list(axis.ticktext) == [f"{label(texts[0])} ({number})" for number in (1, 2, 3)]


def test_dollar_signs_are_no_formulas_in_an_image(tmp_path: Path) -> None:
    choices = ["from $5_ to $6", "$$", "x^{2$ + y$"]
    made = searched([{"prompt": choices[number % 3], "x": 0.1 * number} for number in range(6)])
    made = replace(made, record=replace(made.record, metrics=("cost_$^$",)))
    images = write_images(make_sections(made, [importances(made, 0)]), tmp_path, "s")
    assert {"slices.png", "parallel_coordinates.png"} <= {image.name for image in images}


@pytest.mark.parametrize("champion", [None, 0.4])
def test_the_image_of_a_first_night_shows_its_day(champion: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    night = {"champion": champion, "noise": None, "reason": "", "wall_s": 60.0, "cost": 2.0}
    night |= {"due": 1_000_000_000.0, "sweep": "n", "best": 0.5, "verdict": "first"}
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # texts stay texts
    shown = io.StringIO()
    figures = nights_section(NightsRecord("nightly", "loss", [night])).figures
    write_image(shown, [each.figure for each in figures], (8, 6), file_format="svg")
    assert shown.getvalue().count(">2001-Sep-10<") == 3, "below each of the three time axes"


@pytest.mark.parametrize("choice", ["adamw", "it's", r"C:\data", "two\nlines", "'quoted'"])
def test_slices_mark_a_trial_and_lead_to_all(choice: str) -> None:
    made = searched([{"lr": 0.1, "opt": "sgd"}, {"lr": 0.3, "opt": choice}, {"lr": 0.2, "opt": "sgd"}])
    for each, x in zip(drawn(slices(made, ["lr", "opt"], "0001")).figures, (0.3, choice), strict=True):
        dots, star = each.figure.data
        assert sorted(dots.customdata) == ["0000", "0001", "0002"]
        assert (star.marker.symbol, list(star.x), list(star.customdata)) == ("star", [x], ["0001"])
        at = list(dots.customdata).index("0001")
        assert dots.x[at] == x


def test_parallel_coordinates_keep_trials_that_lack_a_parameter() -> None:
    made = searched([{"lr": 0.1, "momentum": 0.9}, {"lr": 0.3, "momentum": 0.8}, {"lr": 0.2}])
    figure = drawn(parallel_coordinates(made, ["lr", "momentum"])).figures[0].figure
    lr, momentum, loss = figure.data[0].dimensions
    assert len(lr["values"]) == len(loss["values"]) == 3
    assert momentum["ticktext"][0] == "absent"
    assert momentum["values"][0] == momentum["tickvals"][0]


def test_importance_finds_the_parameter_that_matters() -> None:
    rng = random.Random(0)
    points = [{"lr": rng.random(), "width": rng.random(), "depth": rng.randint(1, 9)} for _ in range(60)]
    made = searched(points, lambda point: (point["lr"] - 0.5) ** 2)
    for shares in importances(made, 0).values():
        assert max(shares, key=lambda name: shares[name]) == "lr"
        assert sum(shares.values()) == pytest.approx(1)
    few = report_data(made.record.trials[:3])
    assert importances(few, 0) == {}
    assert contours(few, few.paths) is None
    assert slices(few, few.paths) is not None


def test_a_parameter_with_a_range_of_63_bits_has_a_contour_and_its_image(tmp_path: Path) -> None:
    chance = random.Random(0)
    points = [{"seed": chance.randrange(2**63), "x": chance.random()} for _ in range(24)]
    space = {"seed": {"type": "int", "low": 0, "high": 2**63 - 1}, "x": {"type": "float", "low": 0, "high": 1}}
    made = replace(searched(points, lambda point: point["x"]), config=yaml.safe_dump({"space": space}))
    assert len(write_images([drawn(contours(made, ["seed", "x"]))], tmp_path, "s")) == 1


def test_the_importance_for_being_among_the_best_is_that_of_the_highest_values_where_the_metric_is_maximised() -> None:
    rng = random.Random(0)
    points = [{"decides_best": rng.random(), "decides_worst": rng.random(), "noise": rng.random()} for _ in range(80)]

    def value(point: dict[str, float]) -> float:
        kept = 2.0 if point["decides_best"] > 0.8 else 1.0
        return (kept if point["decides_worst"] > 0.2 else 0.0) + 0.01 * point["noise"]

    highest, lowest = searched(points, value), searched(points, lambda point: -value(point))
    highest = replace(highest, record=replace(highest.record, modes=("max",)))
    for made in (highest, lowest):
        shares = importances(made, 0)["PED-ANOVA"]
        assert shares["decides_best"] > shares["decides_worst"]


@pytest.mark.parametrize(("low", "high"), [(1e-5, 1e-1), (1e-12, 1e-7)])
def test_a_parameter_on_a_logarithmic_scale_is_as_important_as_one_that_changes_the_value_as_much(
    low: float, high: float
) -> None:
    chance = random.Random(0)
    points = [{"eps": low * (high / low) ** chance.random(), "x": chance.random()} for _ in range(60)]
    made = searched(points, lambda point: math.log(point["eps"] / low) / math.log(high / low) + point["x"])
    space = {
        "eps": {"type": "float", "low": low, "high": high, "log": True},
        "x": {"type": "float", "low": 0, "high": 1},
    }
    found = importances(replace(made, config=yaml.safe_dump({"space": space})), 0)
    assert {name: shares["eps"] for name, shares in found.items()} == pytest.approx(
        {"fANOVA": 0.5, "PED-ANOVA": 0.5}, abs=0.1
    )


def test_whole_numbers_are_no_more_important_than_real_numbers_that_change_the_value_as_much() -> None:
    chance = random.Random(0)
    points = [{"layers": chance.randint(1, 4), "x": chance.random()} for _ in range(100)]
    made = searched(points, lambda point: (point["layers"] - 1) / 3 + point["x"])
    space = {"layers": {"type": "int", "low": 1, "high": 4}, "x": {"type": "float", "low": 0, "high": 1}}
    found = importances(replace(made, config=yaml.safe_dump({"space": space})), 0)
    assert {name: shares["layers"] for name, shares in found.items()} == pytest.approx(
        {"fANOVA": 0.5, "PED-ANOVA": 0.5}, abs=0.1
    )


@pytest.mark.parametrize(("choices", "share"), [(3, 0.67), (20, 0.52)])
def test_choices_however_many_are_as_important_as_real_numbers_that_change_the_value_as_much(
    choices: int, share: float
) -> None:
    chance = random.Random(0)
    points = [{"data": f"d{7 * number % choices}", "x": chance.random()} for number in range(60)]
    made = searched(points, lambda point: int(point["data"][1:]) / (choices - 1) + point["x"])
    space = {
        "data": {"type": "categorical", "choices": [f"d{number}" for number in range(choices)]},
        "x": {"type": "float", "low": 0, "high": 1},
    }
    found = importances(replace(made, config=yaml.safe_dump({"space": space})), 0)
    assert found["fANOVA"]["data"] == pytest.approx(share, abs=0.12)


def test_values_whose_sum_is_infinite_have_no_importance_instead_of_ending_the_report() -> None:
    chance = random.Random(0)
    points = [{"x": chance.random(), "y": chance.random(), "choice": chance.choice("ab")} for _ in range(24)]
    with np.errstate(all="ignore"):
        found = importances(searched(points, lambda point: 1e308 * (1 + point["x"] / 2)), 0)
    assert "fANOVA" not in found


def test_parameters_of_trials_with_one_value_have_no_importance() -> None:
    chance = random.Random(0)
    points: list[dict[str, Any]] = [{"x": chance.random(), "y": chance.random()} for _ in range(40)]
    made = searched(points, lambda point: 1.0)
    assert importances(made, 0) == {}
    assert "differ in their values" in drawn(importance(made, [{}])).text
    for point in points[20:]:
        point["momentum"] = chance.random()
    for shares in importances(searched(points, lambda point: 0.1 if "momentum" in point else point["x"]), 0).values():
        assert "momentum" not in shares


def conditional(number_of_trials: int, with_momentum: int) -> ReportData:
    """``lr`` decides; ``momentum`` does nothing, and few trials have it."""
    rng = random.Random(1)
    points: list[dict[str, Any]] = [{"lr": rng.random(), "depth": rng.randint(1, 9)} for _ in range(number_of_trials)]
    for point in points[:with_momentum]:
        point["momentum"] = rng.random()
    return searched(points, lambda point: (point["lr"] - 0.5) ** 2)


def test_a_parameter_that_few_trials_have_is_not_ranked_and_says_on_how_many_trials_it_rests() -> None:
    made = conditional(16, with_momentum=5)
    found = importances(made, 0)
    assert found.keys() == {"fANOVA", "PED-ANOVA"}
    for shares in found.values():
        assert "momentum" not in shares
        assert sum(shares.values()) == pytest.approx(1)
    assert by_importance(made, found) == ["lr", "depth", "momentum"]
    section = drawn(importance(made, [found]))
    assert list(section.figures[0].figure.data[0].y) == ["momentum (5 of 16 trials)", "depth", "lr"]
    assert "fewer than 8 trials" in section.text


def test_a_conditional_parameter_is_compared_among_the_trials_that_have_it() -> None:
    made = conditional(60, with_momentum=30)
    for shares in importances(made, 0).values():
        assert shares["momentum"] < 0.5 * shares["lr"]
    rng = random.Random(2)
    points = [{"lr": rng.random()} | ({"momentum": rng.random()} if number % 2 else {}) for number in range(80)]
    decides = searched(points, lambda point: point.get("momentum", 0.5))
    for name, shares in importances(decides, 0).items():
        assert shares["momentum"] > 0.25, name
    frame = importances_table(made)
    assert dict(frame["trials"]) == {"lr": 60, "depth": 60, "momentum": 30}


def test_a_parameter_that_only_trials_without_a_value_have_is_left_out_of_slices_and_contours() -> None:
    failed = [trial(12 + each, None, "failed", params={"lr": 0.5, "momentum": 0.9 + each}) for each in range(2)]
    made = report_data([*conditional(12, with_momentum=0).record.trials, *failed])
    sections = {section.slug: section for section in make_sections(made, [{}])}
    assert [each.label for each in sections["slices"].figures] == ["lr", "depth"]
    assert [each.label for each in sections["contours"].figures] == ["lr and depth"]


def test_figures_leave_optuna_as_talkative_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        assert slices(conditional(12, with_momentum=0), ["lr"]) is not None
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(before)
    assert "study" not in capfd.readouterr().err


def test_a_pair_of_parameters_that_hardly_any_of_the_drawn_trials_have_has_no_contour() -> None:
    rng = random.Random(0)
    points = [{"lr": rng.random()} | ({"momentum": rng.random()} if number < 9 else {}) for number in range(500)]
    assert contours(searched(points, lambda point: point["lr"]), ["lr", "momentum"]) is None


def test_two_parameters_with_one_short_name_keep_their_own_ranges() -> None:
    rng = random.Random(3)
    points: list[dict[str, Any]] = [
        {"model.arguments.lr": 1 + 8 * rng.random()} if number % 2 else {"task.arguments.lr": 0.1 + rng.random() / 5}
        for number in range(20)
    ]
    made = searched(points)
    assert sorted(made.names.values()) == ["model.arguments.lr", "task.arguments.lr"]
    assert slices(made, made.paths) is not None


def test_parameters_that_differ_only_in_the_beginning_of_their_paths_have_an_importance_and_a_slice_each() -> None:
    rng = random.Random(4)
    points = [{"model.lora.r": rng.random(), "teacher.lora.r": rng.random()} for _ in range(40)]
    made = searched(points, lambda point: point["model.lora.r"])
    for shares in importances(made, 0).values():
        assert shares[made.names["model.lora.r"]] > 0.8
        assert sum(shares.values()) == pytest.approx(1)
    figure = drawn(slices(made, ["model.lora.r"])).figures[0].figure
    assert sorted(figure.data[0].x) == pytest.approx(sorted(each["model.lora.r"] for each in points))


def test_workers_of_one_host_have_rows_of_their_own_and_gpus_are_named() -> None:
    trials = [
        trial(0, 1.0, spans=spans(0, 10, ("a", "a"))),
        trial(1, 1.0, spans=spans(5, 10, ("a",))),
        trial(2, 1.0, spans=spans(10, 10, ("a", "a"))),
    ]
    rows = [(bar.trial, bar.row) for bar in bars(report_data(trials))]
    assert rows == [
        *(("0000", "worker 1"), ("0000", "worker 2"), ("0001", "worker 3"), ("0002", "worker 1"), ("0002", "worker 2"))
    ]
    two = report_data([trial(0, 1.0, spans=spans(0, 9, ("a/0", "b/0")))])
    assert [bar.row for bar in bars(two)] == ["a GPU 0", "b GPU 0"]


def test_a_span_that_nobody_saw_the_end_of_ends_where_the_next_one_begins() -> None:
    twice = (*spans(0, 9, ("a",), ended=False), *spans(20, 5, ("a",)))
    found = bars(report_data([trial(0, 1.0, spans=twice)]))
    assert [(bar.held, bar.ended) for bar in found] == [(0.0, 20.0), (20.0, 25.0)]
    running = bars(report_data([trial(0, None, "running", spans=spans(3, 9, ("a",), ended=False))]))
    assert [(bar.held, bar.ended) for bar in running] == [(3.0, 100.0)]


def test_the_value_of_a_trial_that_has_not_ended_stands_where_its_driver_was_last_seen() -> None:
    cut_off = trial(0, 0.5, "running", started=START, spans=spans(3, 9, ("a",), ended=False))
    by_time = drawn(best_so_far(report_data([cut_off]))).figures[1].figure
    assert list(by_time.data[0].x) == [100.0]  # seconds


def test_a_record_without_spans_shows_trials_from_their_start_to_their_end() -> None:
    found = bars(report_data([trial(0, 1.0, started=START + 2, ended=START + 9)]))
    assert [(bar.row, bar.held, bar.trained, bar.ended) for bar in found] == [("worker 1", 2.0, 2.0, 9.0)]


def test_the_timeline_has_the_trials_of_stages_and_the_repeats() -> None:
    made = report_data([trial(0, 1.0, spans=spans(50, 10, ("a",)))])
    staged = [trial_record("s1-0000", 2.0, stage=1, spans=spans(0, 50, ("a",)))]
    repeats = [trial_record("0000r1", 1.0, repeat_of="0000", spans=spans(60, 40, ("a",)))]
    made = replace(made, record=replace(made.record, staged=staged, repeats=repeats))
    assert [bar.trial for bar in bars(made)] == ["s1-0000", "0000", "0000r1"]
    section = drawn(timeline(made))
    assert "held their workers for 100% of the time" in section.text


def test_trials_that_share_a_gpu_hold_it_once() -> None:
    shared = [trial(number, 1.0, spans=spans(0, 50, ("a/0",))) for number in range(8)]
    made = report_data([*shared, trial(8, 1.0, spans=spans(60, 40, ("a/0",)))])
    section = drawn(timeline(made))
    assert "held their workers for 90% of the time, and started in 2% of that" in section.text
    assert max(section.figures[0].figure.data[-1].y) == pytest.approx(1)


def test_a_failed_trial_and_one_beyond_a_limit_are_ranked_after_those_that_count() -> None:
    trials = [trial(0, 0.5), trial(1, 0.1, "failed"), trial(2, 0.2, violation="too large"), trial(3, 0.6)]
    made = report_data(trials)
    assert [each.trial for each in made.ranked] == ["0000", "0003", "0001", "0002"]
    section = drawn(parallel_lines(made, ["lr"]))
    (best,) = [trace for trace in section.figures[0].figure.data if trace.name == "best"]
    assert {each for each in best.customdata if each} == {"0000"}


def test_the_page_s_table_has_every_whole_number_exactly_and_null_where_that_was_tried() -> None:
    seed = 2**53 + 1  # JavaScript has no such number
    tried = [{"seed": seed, "decay": None}, {"seed": 3, "decay": 0.1}, {"seed": 4}]
    made = report_data([trial(number, 0.5, params=params) for number, params in enumerate(tried)])
    table = Page(render(made, [])).data["rows"]
    shown = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert [each["seed"] for each in shown] == [str(seed), 3, 4]
    assert [each["decay"] for each in shown] == ["null", 0.1, None]


def test_images_draw_axes_that_match_with_the_same_range() -> None:
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True)
    for row, (x, colour) in enumerate([([5, 10], "#123456"), ([0, 10], "#654321")], start=1):
        figure.add_trace(go.Scatter(x=x, y=[0, 1], mode="lines", line={"color": colour, "width": 1}), row=row, col=1)
    write_image(image := io.StringIO(), [figure], (6, 4), file_format="svg")
    ends = {}
    for colour in ("#123456", "#654321"):
        (path,) = re.findall(rf'<path d="([^"]+)"[^>]*stroke: {colour}', image.getvalue())
        (left, _), (right, _) = (point.split() for point in re.split("[ML]", path)[1:])
        ends[colour] = float(left), float(right)
    (middle, upper), (start, lower) = ends.values()
    assert upper == pytest.approx(lower)
    assert middle == pytest.approx((start + lower) / 2)


def test_many_short_trials_on_a_worker_are_drawn_as_one_bar() -> None:
    made = report_data([trial(number, 1.0, spans=spans(number, 0.9, ("a/0",))) for number in range(MOST_BARS + 100)])
    few = merged(bars(made))
    assert len(few) <= MOST_BARS
    assert sum(bar.count for bar in few) == MOST_BARS + 100
    section = drawn(timeline(made))
    assert "one bar" in section.text


def test_the_timeline_shows_what_the_time_of_each_trial_was_spent_on() -> None:
    accounts = [TimeAccount(training=30, start=10), TimeAccount(training=30, lost=90)]
    made = [trial(number, 1.0, spans=spans(0, 9, ("a",)), account=each) for number, each in enumerate(accounts)]
    whole = TimeAccount(training=60, start=10, lost=90, idle_tail=40)
    time = SweepTime(wall_s=100.0, goodput=whole.goodput, account=whole)
    section = drawn(timeline(replace(data := report_data(made), record=replace(data.record, time=time))))
    assert "Goodput 30%" in section.text
    assert "lost after failures 45%, idle at the end 20%, start 5%." in section.text
    _, shares = section.figures
    parts = {trace.name: list(trace.x) for trace in shares.figure.data}
    assert parts["training"] == [0.3, 0.75, 0.25]
    assert parts["lost after failures"] == [0.45, 0.0, 0.75]
    assert "evaluation" not in parts
    assert [sum(each) for each in zip(*parts.values(), strict=True)] == pytest.approx([1, 1, 1])


def test_the_table_of_trials_has_its_columns_before_the_first_trial_and_after_a_copy() -> None:
    empty = Sweep.of(sweep_record(metrics=("loss",)))
    assert empty.trials().columns.tolist() == [
        *("sweep", "trial", "state", "loss", "steps", "attempts", "seconds", "run_id")
    ]
    stopped = Sweep.of(sweep_record(metrics=("loss",), trials=[trial(0, 1.0, "stopped")], status="interrupted"))
    assert stopped.settled().trials()["state"].tolist() == ["interrupted"]
