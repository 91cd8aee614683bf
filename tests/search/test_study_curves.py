"""Learning curves as the sampler reads them from a study: rungs, values there, and bad trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from sweeps.constants import VIOLATIONS
from sweeps.search import CurveSampler, FloatDistribution, Space
from sweeps.search.samplers.study_curves import END, MOST_RUNGS, Curves, StudyCurves, common_rungs

SPACE = Space({"x": FloatDistribution(type="float", low=0, high=1)})


def study_of(*reports: Mapping[int, float], state: TrialState = TrialState.COMPLETE, **attributes: Any) -> optuna.Study:
    """A study of trials with these values by step."""
    study = optuna.create_study()
    add(study, *reports, state=state, **attributes)
    return study


def add(study: optuna.Study, *reports: Mapping[int, float], state: TrialState, **attributes: Any) -> None:
    for index, values in enumerate(reports):
        study.add_trial(
            optuna.create_trial(
                state=state,
                value=None if state is TrialState.RUNNING else min(values.values(), default=0.0),
                params={"x": index / 100},
                distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
                intermediate_values=dict(values),
                **attributes,
            )
        )


def read(study: optuna.Study) -> Curves:
    return StudyCurves().read(study)


def test_trainings_that_have_no_step_in_common_are_compared_at_powers_of_three_and_at_their_ends() -> None:
    lengths = range(20, 80)
    curves = read(study_of(*({length // 2: 2.0, length: 1.0 + length} for length in lengths)))
    assert curves.rungs == [9, 27, END]
    assert curves.values[0, :, -1].tolist() == [1.0 + length for length in lengths]


def test_a_search_with_trainings_of_different_lengths_is_not_random() -> None:
    """As with epochs and a searched batch size, or early stopping of one's own."""
    study = study_of(*({50 + index: (index / 100 - 0.3) ** 2} for index in range(40)))
    study.sampler = CurveSampler(optuna.samplers.RandomSampler(seed=0), SPACE, startup=8, seed=0)
    suggested = [study.ask().suggest_float("x", 0, 1) for _ in range(8)]
    assert abs(np.median(suggested) - 0.3) < 0.05


def test_a_training_that_ended_earlier_than_others_has_its_final_value_at_the_last_rung_too() -> None:
    curves = read(study_of(*([{500: 0.3}] * 3 + [{500: 0.4, 1000: 0.2}] * 3)))
    assert curves.rungs == [500, 1000]
    assert curves.values[0].tolist() == [[0.3, 0.3]] * 3 + [[0.4, 0.2]] * 3


def test_a_trial_that_was_stopped_has_no_value_at_rungs_that_it_did_not_reach() -> None:
    study = study_of({3: 0.3, 9: 0.2}, {3: 0.4, 9: 0.1})
    add(study, {3: 0.5}, {3: 0.6}, state=TrialState.PRUNED)
    assert np.isnan(read(study).values[0, 2]).tolist() == [False, True]


def test_a_value_at_a_rung_is_the_last_one_reported_up_to_it() -> None:
    study = study_of({10: 0.5, 30: 0.2}, {10: 0.4, 30: 0.3}, {10: 0.6}, {10: 0.7})
    add(study, {8: 0.9, 12: 0.8, 29: 0.7, 31: 0.6}, state=TrialState.PRUNED)
    curves = read(study)
    assert curves.rungs == [10, 30]
    assert curves.values[0, 4].tolist() == [0.9, 0.7]


@pytest.mark.parametrize("evaluations", [20, 100])
def test_however_many_evaluations_end_trials_there_are_few_rungs(evaluations: int) -> None:
    """A median rule ends trials at any evaluation; the model takes longer with each value."""
    told = [{end} for end in range(1, evaluations + 1) for _ in range(3)]
    rungs = common_rungs(told)
    assert len(rungs) <= MOST_RUNGS
    assert (rungs[0], rungs[-1]) == (1, evaluations)


def test_a_trial_that_has_broken_a_limit_is_bad_while_it_runs() -> None:
    study = study_of({1: 0.3})
    add(study, {1: 0.1}, state=TrialState.RUNNING, user_attrs={VIOLATIONS: {"memory <= 100": 0.5}})
    add(study, {1: 0.2}, state=TrialState.RUNNING, user_attrs={VIOLATIONS: {"memory <= 100": 0.0}})
    assert read(study).is_bad.tolist() == [False, True, False]


def test_what_has_ended_is_read_once_and_rows_follow_the_rungs() -> None:
    study, reader = study_of({1: 0.5, 3: 0.4}, {1: 0.6, 3: 0.3}), StudyCurves()
    assert reader.read(study).rungs == [3]
    add(study, {1: 0.7}, {1: 0.8}, state=TrialState.PRUNED)
    curves = reader.read(study)
    assert curves.rungs == [1, 3]
    assert np.nan_to_num(curves.values[0], nan=-1).tolist() == [[0.5, 0.4], [0.6, 0.3], [0.7, -1], [0.8, -1]]
