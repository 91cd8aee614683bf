"""Decisions of schedulers in the study: recorded with their trial, and read as they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.trial import FrozenTrial

from sweeps.constants import DECISION_PREFIX, NUMBER
from sweeps.search.schedulers.decisions import DecisionLog, is_paused, is_running, judged_steps, was_stopped
from sweeps.search.study_file import StudyFile


@pytest.fixture(params=["memory", "file"])
def study(request: pytest.FixtureRequest, tmp_path: Path) -> optuna.Study:
    storage: BaseStorage = InMemoryStorage()
    if request.param == "file":
        storage = JournalStorage(StudyFile(tmp_path / "study.journal"))
    return optuna.create_study(storage=storage)


def start(study: optuna.Study, number: int) -> None:
    study.ask().set_user_attr(NUMBER, number)


def started(study: optuna.Study, number: int) -> FrozenTrial:
    trials = study.get_trials(deepcopy=False)
    return next(trial for trial in trials if trial.user_attrs.get(NUMBER) == number)


def recorded(study: optuna.Study, number: int) -> list[dict[str, Any]]:
    attributes = started(study, number).user_attrs
    return [value for name, value in attributes.items() if name.startswith(DECISION_PREFIX)]


def test_a_decision_is_recorded_with_its_trial_whether_it_is_the_last_or_others_came_after_it(
    study: optuna.Study,
) -> None:
    start(study, 0)
    log = DecisionLog(study)
    for number in (1, 2, 3):
        start(study, number)
        study.ask()  # a point that is turned down has no number
    for number in (2, 3, 0, 2):
        log.record(f"{number:04}", {"about": number})
    assert [recorded(study, number) for number in range(4)] == [
        [{"about": 0}],
        [],
        [{"about": 2}, {"about": 2}],
        [{"about": 3}],
    ]


def test_whether_a_trial_is_paused_is_told_by_its_last_decision_at_any_time(study: optuna.Study) -> None:
    start(study, 0)
    log = DecisionLog(study)
    assert is_running(started(study, 0))
    log.record("0000", {"event": "arrived", "step": 3, "pauses": True})
    for _ in range(2):
        assert is_paused(started(study, 0))
        assert judged_steps(started(study, 0)) == {3}
    log.record("0000", {"event": "resumed"})
    assert is_running(started(study, 0))
    log.record("0000", {"event": "arrived", "step": 9, "stops": True})
    assert was_stopped(started(study, 0))
    assert judged_steps(started(study, 0)) == {3, 9}


def test_the_last_decision_is_the_one_with_the_largest_number_in_whatever_order_a_store_has_them() -> None:
    attributes = {f"{DECISION_PREFIX}11": {"pauses": False}, f"{DECISION_PREFIX}2": {"pauses": True}}
    assert not is_paused(optuna.create_trial(value=0.0, user_attrs=attributes))
    attributes = {f"{DECISION_PREFIX}2": {"pauses": False}, f"{DECISION_PREFIX}11": {"pauses": True}}
    assert is_paused(optuna.create_trial(value=0.0, user_attrs=attributes))
