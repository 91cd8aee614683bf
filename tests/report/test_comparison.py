"""Sweeps side by side, from what MLflow has of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from recording import open_recorder
from records import sweep_record, trial_record

from sweeps.config.objectives import Objectives
from sweeps.constants import TAG_LANES
from sweeps.errors import UserError
from sweeps.report.comparison import Compared, Comparison, compare_sweeps, print_comparison
from sweeps.report.figures.comparison import check_output, comparison_figure, write_comparison
from sweeps.report.plain_console import printed_text
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, SweepTime, TrialRecord
from sweeps.tracking.trial_history import Span

LOSS = Objectives(("eval/loss",), ("min",))


def trial(number: int, value: float | None, ended: float, state: str = "finished", workers: int = 2) -> TrialRecord:
    """One that trained for the half hour before its end."""
    span = Span(held=ended - 1800, trained=ended - 1700, ended=ended, workers=("host",) * workers)
    return trial_record(number, value, state, steps=10, started=ended - 1800, ended=ended, spans=(span,))


def sweep(name: str, trials: Sequence[TrialRecord], metric: str = "eval/loss", mode: str = "min") -> SweepRecord:
    time = SweepTime(wall_s=7200)
    return sweep_record(sweep=name, metrics=(metric,), modes=(mode,), trials=list(trials), time=time)


FAST = sweep("fast", [trial(0, 0.9, 3600), trial(1, 0.5, 1800), trial(2, 0.1, 5400, "failed"), trial(3, 0.4, 7200)])
SLOW = sweep("slow", [trial(0, 0.8, 1800, workers=4), trial(1, 0.45, 7200, workers=4)])


def compared(*sweeps: SweepRecord) -> Comparison:
    return Comparison([Compared(each, {"seed": "0", "train.lr": each.sweep}) for each in sweeps])


ONE, OTHER = (sweep(name, [trial(0, 1.0, 3600)]) for name in ("one", "other"))


def test_the_best_so_far_counts_trials_in_the_order_of_their_end_and_no_failed_one() -> None:
    (each,) = compared(FAST).sweeps
    assert [(point.trials, point.seconds, point.hours, point.best) for point in each.curve] == [
        (1, 1800, 1.0, 0.5),
        (2, 3600, 2.0, 0.5),
        (3, 5400, 3.0, 0.5),
        (4, 7200, 4.0, 0.4),
    ]
    assert each.hours == 4.0


def test_what_all_have_reached_is_the_target_and_its_price_is_told() -> None:
    comparison = compared(FAST, SLOW)
    assert comparison.target == 0.45
    document = comparison.as_json()
    reached = {each["sweep"]: each["target_reached"] for each in document["sweeps"]}
    assert reached["fast"] == {"trials": 4, "seconds": 7200, "hours": 4.0, "best": 0.4}
    assert reached["slow"] == {"trials": 2, "seconds": 7200, "hours": 4.0, "best": 0.45}
    assert document["differences"] == {"train.lr": {"fast": "fast", "slow": "slow"}}
    assert document["hours"] == "worker-hours"
    json.dumps(document, allow_nan=False)
    printed = printed_text(partial(print_comparison, comparison))
    for words in ("min of eval/loss", "fast", "slow", "reached 0.45 after", "train.lr"):
        assert words in printed
    assert "4 trials, 2h 00m, 4 worker-hours" in printed


def test_sweeps_of_unknown_config_are_named_and_have_no_hours_and_no_differences() -> None:
    texts = {"fast": "seed: 1", "slow": None, "third": "seed: 2"}
    for names, paths in ((("fast", "slow"), {}), (("fast", "slow", "third"), {"seed": ["1", "?", "2"]})):
        comparison = compare_sweeps([replace(FAST, sweep=each) for each in names], lambda record: texts[record.sweep])
        assert comparison.differences == paths
        assert [each.hours for each in comparison.sweeps[:2]] == [4.0, None]
        assert {point.hours for point in comparison.sweeps[1].curve} == {None}
        printed = printed_text(partial(print_comparison, comparison))
        assert "The config of slow is not recorded, or cannot be read here.\n" in printed
        assert ("same" in printed, "seed" in printed) == (False, "third" in names)


def test_the_hours_of_a_sweep_are_also_those_of_its_stages_and_repeats() -> None:
    staged = [replace(trial(0, 0.9, 1800), trial="s1-0000", stage=1)]
    repeats = [replace(trial(0, 0.6, 7200), trial="0000r1", repeat_of="0000")]
    (each,) = compared(replace(sweep("staged", [trial(0, 0.5, 3600)]), staged=staged, repeats=repeats)).sweeps
    assert each.hours == 3.0
    assert [(point.trials, point.hours) for point in each.curve] == [(1, 2.0)]


@pytest.mark.parametrize(
    ("setting", "tags", "hours"),
    [
        ("2", {}, 2.0),
        ("auto", {TAG_LANES: "2 trials a worker group: a larger number was not faster"}, 2.0),
        ("auto", {}, 4.0),  # it ended before a number was found
    ],
)
def test_the_hours_of_trials_that_share_their_workers_are_those_of_the_workers(
    setting: str, tags: dict[str, str], hours: float
) -> None:
    each = Compared(replace(FAST, tags=tags), {"scaling.trials_per_group": setting})
    assert each.hours == hours
    assert each.curve[-1].hours == hours


@pytest.mark.parametrize(
    ("worker", "gpus", "hours"),
    [("host/0", "0.5", 1.0), ("host/0,1", "2", 4.0), ("host/0", "1", 2.0), ("host", "0.5", 2.0)],
)
def test_gpu_hours_are_those_of_the_gpus_that_workers_have_or_share(worker: str, gpus: str, hours: float) -> None:
    span = Span(held=0, trained=0, ended=3600, workers=(worker,))
    trials = [trial_record(number, 0.5, steps=1, started=0.0, ended=3600.0, spans=(span,)) for number in range(2)]
    of_pool = {"scaling.pool": "big", "scaling.pools.big.resources_per_worker.GPU": gpus}
    for config in ({"scaling.resources_per_worker.GPU": gpus}, of_pool):
        assert Compared(sweep("shared", trials), config).hours == hours


def test_a_trial_that_has_not_ended_counts_at_its_sweeps_last_sign_of_life() -> None:
    unended = replace(trial(1, 0.3, 7200, "running"), ended=None)
    running, fresh = sweep("running", [trial(0, 0.5, 3600), unended]), sweep("fresh", [])
    comparison = compared(running, SLOW, fresh)
    assert [each.value for each in comparison.sweeps] == [0.3, 0.45, None]
    assert comparison.target == 0.45
    reached = comparison.sweeps[0].reached(0.45)
    assert reached is not None
    assert (reached.trials, reached.seconds) == (2, 7200)


def test_an_attempt_whose_driver_was_killed_held_its_workers_until_then() -> None:
    killed = Span(held=0, trained=100, workers=("host",))
    again = Span(held=10_000, trained=10_100, ended=13_600, workers=("host",))
    record = sweep("resumed", [trial_record(0, 0.5, steps=10, started=0.0, ended=13_600.0, spans=(killed, again))])
    sessions = ((0.0, 1800.0), (9_900.0, 13_600.0))
    (each,) = compared(replace(record, time=SweepTime(wall_s=5500, sessions=sessions))).sweeps
    assert each.hours == 1.5


def test_other_metrics_and_a_sweep_alone_are_refused() -> None:
    with pytest.raises(UserError, match="same metric and mode; fast has min eval/loss, other has max eval/accuracy"):
        compare_sweeps([FAST, sweep("other", [], "eval/accuracy", "max")])
    with pytest.raises(UserError, match="two sweeps or more"):
        compare_sweeps([FAST, FAST])
    with pytest.raises(UserError, match=r"--output=curve.gif: must end in .html"):
        check_output(Path("curve.gif"))


def test_the_axis_of_the_figure_fits_the_later_trials_of_each_sweep() -> None:
    values = [9.0, 4.0, 1.2, 1.0]
    falling = sweep("falling", [trial(number, value, 3600.0 * (number + 1)) for number, value in enumerate(values)])
    figure = comparison_figure(compared(falling, sweep("other", [trial(0, 1.1, 3600)])))
    assert figure.layout.yaxis.range == pytest.approx((0.98, 1.22))
    assert comparison_figure(compared(ONE, OTHER)).layout.yaxis.range is None


@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_a_figure_is_written_also_of_sweeps_without_a_value(working_folder: Path, suffix: str) -> None:
    file = working_folder / f"figure{suffix}"
    write_comparison(compared(FAST, SLOW, sweep("nothing", [])), file)
    content = file.read_bytes()
    assert len(content) > 5_000
    if suffix == ".html":
        assert b"<svg" in content
        assert b"slow" in content
        assert b"http-equiv" not in content


def test_configs_differences_are_read_from_mlflow(working_folder: Path) -> None:
    uri = f"sqlite:///{working_folder}/mlflow.db"
    for name, rate in (("first", 0.1), ("second", 0.2)):
        space = "{train.lr: {type: float, low: 0, high: %s, log: true}}" % (5 * rate)
        config = f"name: {name}\nseed: 0\ntrain: {{momentum: {rate}}}\nspace: {space}\n"
        open_recorder(uri, name, conf="test", config=config, command="", experiment="test").close("finished")
    comparison = compare_sweeps([load_sweep(uri, "first"), load_sweep(uri, "second")])
    assert comparison.differences == {
        "train.momentum": ["0.1", "0.2"],
        "space.train.lr": ["float, low 0, high 0.5, log", "float, low 0, high 1.0, log"],
    }
    assert comparison.target is None
