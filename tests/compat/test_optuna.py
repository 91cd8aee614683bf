"""Contract with the private names of Optuna that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sweeps.compat import optuna as compat


@pytest.fixture(params=["memory", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStorage:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if request.param == "memory":
        return InMemoryStorage()
    return JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))


@pytest.fixture
def study(storage: BaseStorage) -> Iterator[optuna.Study]:
    return optuna.create_study(storage=storage, sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=1))


def test_a_running_trial_can_be_continued(study: optuna.Study) -> None:
    study.ask()
    (frozen,) = study.get_trials(deepcopy=False)
    continued = compat.running_trial(study, frozen)
    continued.suggest_float("x", 0, 1)
    study.tell(continued, 0.5)
    assert [trial.state for trial in study.get_trials()] == [TrialState.COMPLETE], "FrozenTrial._trial_id, Trial"


def test_an_attribute_of_a_running_trial_can_be_set(study: optuna.Study) -> None:
    study.ask()
    compat.set_trial_attribute(study, study.get_trials()[0], "key", {"a": 1})
    assert study.get_trials()[0].user_attrs == {"key": {"a": 1}}, "Study._storage, FrozenTrial._trial_id"


def test_the_values_of_an_enqueued_trial_can_be_read_and_replaced(study: optuna.Study) -> None:
    study.enqueue_trial({"x": 0.25})
    (waiting,) = study.get_trials()
    assert compat.enqueued_values(waiting) == {"x": 0.25}, "system attribute fixed_params"
    compat.set_enqueued_values(waiting, {"x": 0.75})
    other = optuna.create_study()
    other.add_trial(waiting)
    assert other.ask().suggest_float("x", 0, 1) == 0.75, "system attribute fixed_params"
    assert compat.enqueued_values(other.get_trials()[0]) == {"x": 0.75}
    study.ask()
    study.ask()
    assert compat.enqueued_values(study.get_trials()[1]) is None


def test_system_attributes_of_a_study_can_be_copied(study: optuna.Study) -> None:
    study._storage.set_study_system_attr(study._study_id, "note", [1, 2])
    other = optuna.create_study()
    compat.copy_system_attributes(study, other)
    assert other._storage.get_study_system_attrs(other._study_id) == {"note": [1, 2]}, "Study._storage, _study_id"


def test_a_sampler_sees_the_trials_of_a_study_view(study: optuna.Study) -> None:
    distributions = {"x": optuna.distributions.FloatDistribution(0, 1)}
    shown = [
        optuna.create_trial(value=abs(x - 0.9), params={"x": x}, distributions=distributions)
        for x in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.89, 0.9, 0.91)
    ]
    for number, trial in enumerate(shown):
        trial.number = number - len(shown)
    study.ask()
    (frozen,) = study.get_trials()
    view = compat.StudyView(study, [*shown, frozen])
    assert len(view.get_trials()) == len(shown) + 1, "Study._get_trials"
    assert len(view.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) == len(shown), "Study._get_trials"
    suggested = [
        study.sampler.sample_independent(view, frozen, "x", distributions["x"]) for _ in range(10)
    ]  # without the view the first trials are drawn at random
    assert sorted(suggested)[5] > 0.7, "Study._get_trials, which TPESampler calls"
