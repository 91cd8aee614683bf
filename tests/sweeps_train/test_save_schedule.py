"""Steps at which checkpoints are saved."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.checkpoints.save_schedule import SaveSchedule, optimal_interval
from sweeps_train.config import Checkpoint
from sweeps_train.reports.progress import Progress

CHECKPOINT: TypeAdapter[Checkpoint] = TypeAdapter(Checkpoint)


def due(every: Any, steps: int = 12, eval_every: int = 4, failures: int = 0, **changes: Any) -> list[int]:
    """Steps at which checkpoints are due, of a training with five steps an epoch, one a second, that is measured at
    every second step and whose saves stop it for 0.02 s."""
    schedule = SaveSchedule(
        CHECKPOINT.validate_python({"every": every, **changes}), eval_every=eval_every, failures=failures, step=0
    )
    found: list[int] = []
    for step in range(1, steps + 1):
        if step % 2 == 0 and schedule.needs_times:
            schedule.observe(step, 1.0, blocked_s=0.02 if found else 0.0, write_s=0.1)
        if schedule.is_due(Progress(step=step, epochs=step / 5), (step - 1) / 5):
            schedule.saved(step)
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (None, [4, 8, 12]),
        (3, [3, 6, 9, 12]),
        ({"steps": 5}, [5, 10]),
        ({"epochs": 1}, [5, 10]),
        ({"epochs": 0.5}, [3, 5, 8, 10]),
        ({"minutes": 0.05}, [3, 4, 7, 8, 11, 12]),  # three steps of a second; and the evaluations, one of which is best
    ],
)
def test_checkpoints_are_saved_in_steps_epochs_or_minutes(every: Any, expected: list[int]) -> None:
    assert due(every) == expected


def test_a_part_of_an_epoch_that_is_no_exact_number_delays_no_checkpoint() -> None:
    schedule = SaveSchedule(CHECKPOINT.validate_python({"every": {"epochs": 0.1}}), eval_every=100, failures=0, step=0)
    epochs = [step / 10 for step in range(11)]
    assert all(schedule.is_due(Progress(step=1, epochs=now), before) for before, now in pairwise(epochs))


def test_without_the_best_only_time_counts() -> None:
    assert due({"minutes": 0.05}, keep=["last"]) == [3, 6, 9, 12]


def test_the_chosen_interval_follows_from_the_cost_of_a_save_and_the_failures() -> None:
    expected = optimal_interval(0.02, 24 * 3600)
    found = due("auto", steps=2000, eval_every=10, keep=["last"])
    assert found[0] == 10  # the first one shows what a checkpoint costs
    assert {after - before for before, after in pairwise(found[1:])} == {round(expected)}
    failing = due("auto", steps=2000, eval_every=10, keep=["last"], failures=99)
    assert round(expected / 10) == pytest.approx(failing[2] - failing[1], abs=1)


def test_checkpoints_are_not_due_before_the_one_before_can_be_written() -> None:
    schedule = SaveSchedule(CHECKPOINT.validate_python({"every": "auto", "keep": ["last"]}), 10, 0, 0)
    schedule.observe(10.0, 1.0, blocked_s=0.001, write_s=500.0)
    assert not schedule.is_due(Progress(step=499), 0.0)
    assert schedule.is_due(Progress(step=500), 0.0)


@pytest.mark.parametrize(("save_s", "between_failures_s"), [(0.01, 600.0), (5.0, 86400.0), (60.0, 3600.0)])
def test_the_chosen_interval_loses_the_least_time(save_s: float, between_failures_s: float) -> None:
    def total(interval: float) -> float:  # expected time for an hour's work, with failures at random (Daly's model)
        return between_failures_s * (math.exp((interval + save_s) / between_failures_s) - 1) / interval

    best = optimal_interval(save_s, between_failures_s)
    assert total(best) < min(total(best * 0.9), total(best * 1.1))


def saved_steps() -> list[int]:
    """Steps that this worker has saved with an interval that is chosen while it trains."""
    found: list[int] = []
    saved = SaveSchedule.saved

    def note(self: SaveSchedule, step: int) -> None:
        found.append(step)
        saved(self, step)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(SaveSchedule, "saved", note)
        chosen = {"every": "auto", "failure_hours": 1e-5, "keep": ["last"]}
        run(configured({**IMAGES, "checkpoint": chosen}, train={"max_steps": 100, "eval_every": 10}), Path("trained"))
    return found


def test_two_workers_save_at_the_same_steps_that_they_choose_while_they_train(tmp_path: Path) -> None:
    found, of_the_other = on_two_workers(saved_steps, tmp_path)
    assert found == of_the_other
    assert (found[0], found[-1]) == (10, 100)
    assert len(found) > 2


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ({}, "give exactly one of steps, epochs and minutes, not none"),
        ({"steps": 1, "minutes": 2.0}, "not steps and minutes"),
        ("often", "auto"),
        (0, "greater than 0"),
    ],
)
def test_a_mistake_is_refused(every: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CHECKPOINT.validate_python({"every": every})
