"""The model of learning curves: its gradient, what it measures of early values, and what it predicts."""

from __future__ import annotations

import numpy as np
import pytest

from sweeps.search.curve_model.fit import _LogPosterior, fit, fitted_number
from sweeps.search.curve_model.hyperparameters import Hyperparameters, Prior
from sweeps.search.curve_model.observations import Array, Observations, most_telling, observe, scaled
from sweeps.search.curve_model.posterior import Posterior, expected_improvement
from sweeps.search.schedulers.worth import measure_worth, worth_of_going_on

GROUPS, RUNGS = [0, 1, 2], 3


def end_of(vectors: Array) -> Array:
    """Values at the last rung, without noise."""
    return np.asarray(np.sin(3 * vectors[:, 0]) + vectors[:, 1])


def curves(noise: float, seed: int = 0, number: int = 90) -> tuple[Array, Array]:
    """Configurations, and values of which the best third at each rung went on; noise falls from rung to rung."""
    random = np.random.default_rng(seed)
    vectors = random.random((number, 3))
    values = end_of(vectors)[:, None] + np.array([1.0, 0.5, 0.0]) * noise * random.normal(size=(number, RUNGS))
    for rung in range(RUNGS - 1):
        there = np.isfinite(values[:, rung])
        stopped = values[:, rung] > np.quantile(values[there, rung], 1 / 3)
        values[stopped | ~there, rung + 1 :] = np.nan
    return vectors, values


def predict_observed(posterior: Posterior, rung: int) -> tuple[Array, Array]:
    """Predict the functions of the observed trials themselves."""
    mean, deviation, _ = posterior.look_ahead_observed(np.zeros(len(posterior._data.vectors), dtype=np.intp), rung)
    return mean, deviation


def test_the_gradient_is_that_of_the_density() -> None:
    data = observe(*curves(noise=0.3, number=30))
    prior = Prior.of(3, RUNGS)
    density = _LogPosterior(data, GROUPS, 3, RUNGS, prior)
    at = prior.mean + 0.2 * np.random.default_rng(1).normal(size=len(prior.mean))
    steps = 1e-5 * np.eye(len(at))
    numeric = [(density(at + step)[0] - density(at - step)[0]) / 2e-5 for step in steps]
    assert density(at)[1] == pytest.approx(numeric, abs=1e-4)


@pytest.mark.slow
def test_noise_of_early_values_is_measured_where_only_the_best_went_on() -> None:
    clear, noisy = (fit(observe(*curves(noise)), GROUPS, RUNGS) for noise in (0.02, 1.0))
    assert clear.log_noise[0] < np.log(0.1) < np.log(0.3) < noisy.log_noise[0]


@pytest.mark.parametrize(("noise", "correlation"), [pytest.param(0.02, 0.95, marks=pytest.mark.slow), (1.0, 0.5)])
def test_the_end_is_predicted_from_all_curves_with_an_honest_deviation(noise: float, correlation: float) -> None:
    data = observe(*curves(noise))
    posterior = Posterior(fit(data, GROUPS, RUNGS), GROUPS, data)
    new = np.random.default_rng(7).random((300, 3))
    mean, deviation = posterior.predict(new, RUNGS - 1)
    truth = end_of(new)
    assert np.corrcoef(mean, truth)[0, 1] > correlation
    # The scale of the model is another one: the line between both shows the error.
    slope, intercept = np.polyfit(mean, truth, 1)
    error = np.abs(truth - slope * mean - intercept) / (slope * deviation)
    assert np.quantile(error, 0.5) < 2


def test_a_value_at_a_rung_moves_the_prediction_of_its_own_trial_as_the_model_said_it_would() -> None:
    vectors, values = curves(noise=0.3)
    data = observe(vectors, values)
    at = fit(data, GROUPS, RUNGS)
    new = np.array([[0.31, 0.77, 0.5]])
    mean, deviation, told = Posterior(at, GROUPS, data).look_ahead(new, RUNGS - 1)
    means = []
    first, first_deviation = Posterior(at, GROUPS, data).predict(new, 0)
    for score in (-1.0, 1.0):
        spread = np.sqrt(first_deviation**2 + at.own * np.exp(at.log_variances[0]) + np.exp(at.log_noise[0]))
        known = data.with_values(new, 0, first + score * spread)
        of_trials, deviations = predict_observed(Posterior(at, GROUPS, known), RUNGS - 1)
        means.append(of_trials[-1])
        assert deviations[-1] == pytest.approx(np.sqrt(deviation**2 - told**2)[0], rel=1e-3)
    assert np.mean(means) == pytest.approx(mean[0], abs=1e-3)
    assert (means[1] - means[0]) / 2 == pytest.approx(told[0], rel=1e-3)


def test_what_later_rungs_add_to_all_trials_alike_is_no_promise_before_there_are_values() -> None:
    """Else bad trials promise as much as good ones until the first training has ended."""
    vectors, values = curves(noise=0.1)
    values[:, 1:] = np.nan
    data = observe(vectors, values)
    posterior = Posterior(Hyperparameters.of(Prior.of(3, RUNGS).mean, 3, RUNGS), GROUPS, data)
    mean, deviation = predict_observed(posterior, RUNGS - 1)
    promise = expected_improvement(mean, deviation, float(mean.min()))
    order = np.argsort(mean)
    assert promise[order[len(order) // 2]] < 0.1 * promise[order[0]]


def test_diverged_trials_do_not_decide_the_scale() -> None:
    vectors, values = curves(noise=0.1)
    worse = values.copy()
    worse[:5, 0], worse[:5, 1:] = 1e9, np.nan
    data = observe(vectors, worse)
    good = data.values[data.trials >= 5]
    assert good.std() > 0.3


def test_good_values_keep_their_distances_and_bad_ones_lose_them() -> None:
    """Else a small gain at the best place looks like more than a large one that other places may have."""
    values = np.concatenate([np.linspace(1.0, 6.0, 6), np.linspace(7.0, 8.0, 60), [20.0, 40.0, 80.0]])[:, None]
    found = scaled(values)[:, 0]
    good = np.diff(found[:6])
    assert good.min() > 0
    assert good.max() == pytest.approx(good.min())
    assert 0 <= found[-1] - found[-2] < good.min()  # 40 apart, and not 1


def test_a_value_too_good_to_be_true_leaves_the_others_apart() -> None:
    values = np.append(np.linspace(1.0, 2.0, 40), -1e9)[:, None]
    found = scaled(values)[:, 0]
    assert np.argmin(found) == 40
    assert np.ptp(found[:40]) > 0.1


def test_where_most_values_are_equal_the_others_tell_the_scale() -> None:
    """Accuracies of models of which most know one class only."""
    values = -np.array([[0.9]] * 50 + [[0.91], [0.92], [0.95], [0.99]])
    apart = np.diff(np.sort(scaled(values)[:, 0])[:5])
    assert apart.max() < 10 * apart.min()


def test_hyperparameters_are_fitted_when_there_are_a_fifth_more_values() -> None:
    found = [fitted_number(number) for number in range(8, 400)]
    assert found == sorted(found)
    assert all(number <= count < 1.3 * number + 1 for count, number in enumerate(found, start=8))
    assert len(set(found)) < 25


def test_of_many_trials_the_best_of_each_rung_are_kept_and_others_of_the_whole_search() -> None:
    """So that a new trial that is good at the first rung is known, however many are further."""
    _, values = curves(noise=0.1, number=600)
    rows = most_telling(values[None], 100)
    assert len(rows) == len(set(rows.tolist())) == 100
    last = np.isfinite(values).sum(axis=1) - 1
    for rung in range(values.shape[1]):
        there = np.nonzero(last == rung)[0]
        best = there[np.argsort(values[there, rung])][:12]
        assert set(best) <= set(rows.tolist())
    others = [row for row in rows if np.isnan(values[row, 1])]
    assert others[0] < 100
    assert others[-1] > 500


def test_of_many_trials_those_that_are_best_in_each_objective_are_kept() -> None:
    first = np.random.default_rng(0).random((600, 1))
    rows = set(most_telling(np.stack([first, 1 - first]), 100).tolist())
    assert set(np.argsort(first[:, 0])[:20]) <= rows
    assert set(np.argsort(first[:, 0])[-20:]) <= rows


def test_expected_improvement_is_that_of_a_normal_distribution() -> None:
    draws = np.random.default_rng(0).normal(0.3, 2.0, 400_000)
    improvement = expected_improvement(np.array([0.3]), np.array([2.0]), -1.0)
    assert improvement == pytest.approx(np.maximum(-1.0 - draws, 0).mean(), rel=0.02)


def test_a_trial_is_worth_more_the_more_its_next_value_will_tell() -> None:
    told = np.array([0.0, 0.5, 0.9, 0.999])
    before, after = np.full(4, 0.01), np.full(4, 0.99)
    worths = worth_of_going_on(np.zeros(4), np.ones(4), told, before, after, -1.0)
    assert worths.tolist() == sorted(worths)
    # Where it tells nothing every trial has to be trained to its end.
    assert worths[0] == pytest.approx(float(expected_improvement(np.zeros(1), np.ones(1), -1.0)[0]), rel=0.05)
    assert worths[-1] > 5 * worths[0]
    # With values that get worse when others get better it is the same.
    assert worth_of_going_on(np.zeros(4), np.ones(4), -told, before, after, -1.0) == pytest.approx(worths)


def test_the_next_value_of_a_trial_is_expected_to_tell_what_it_does_tell() -> None:
    """Over many values that the model itself draws, predictions for the end vary as much as was told before."""
    rng = np.random.default_rng(3)
    vectors, values = curves(noise=0.1, number=24)
    values[12:, 1:] = np.nan
    data = observe(vectors, values)
    at = fit(data, GROUPS, values.shape[1])
    posterior, end, trial = Posterior(at, GROUPS, data), values.shape[1] - 1, 20
    told = posterior.look_ahead_observed(np.full(24, 1), end)[2][trial]
    mean, deviation = (found[trial] for found in predict_observed(posterior, 1))
    found = []
    for drawn in rng.normal(mean, np.hypot(deviation, np.exp(at.log_noise[1] / 2)), 200):
        more = Observations(
            data.vectors, np.append(data.trials, trial), np.append(data.rungs, 1), np.append(data.values, drawn)
        )
        found.append(predict_observed(Posterior(at, GROUPS, more), end)[0][trial])
    assert np.std(found) == pytest.approx(abs(told), rel=0.15)


def test_a_paused_trial_may_be_worth_its_next_rung_where_it_is_not_worth_the_rest() -> None:
    vectors, values = curves(noise=1.0, number=24)
    values[12:, 1:] = np.nan
    names, rungs, ones = [str(number) for number in range(24)], [1.0, 3.0, 27.0], np.ones(24)
    at = fit(observe(vectors, values), GROUPS, RUNGS)
    worth = measure_worth(names, values, vectors, vectors, rungs, at, GROUPS, ones, ones, 0.0)
    mean, deviation = predict_observed(Posterior(at, GROUPS, observe(vectors, values)), RUNGS - 1)
    to_the_end = expected_improvement(mean, deviation, mean[:12].min())[12:] / (1 - rungs[0] / rungs[-1])
    best = int(np.argmax(to_the_end))
    assert worth.trials[names[12 + best]] > 1.5 * to_the_end[best] > 0.01
    dear = measure_worth(names, values, vectors, vectors, rungs, at, GROUPS, ones, ones, 0.5)
    assert dear.trials == worth.trials
    assert dear.new < worth.new / 1.5


def test_a_single_parameter_at_a_single_rung_is_modelled() -> None:
    vectors = np.linspace(0, 1, 9)[:, None]
    data = observe(vectors, (vectors - 0.3) ** 2)
    at = fit(data, [0], 1)
    assert isinstance(at, Hyperparameters)
    mean, _ = Posterior(at, [0], data).predict(vectors, 0)
    assert np.argmin(mean) in (2, 3)


def test_values_that_are_all_the_same_are_no_error() -> None:
    data = observe(np.random.default_rng(0).random((12, 3)), np.ones((12, 1)))
    assert isinstance(data, Observations)
    mean, deviation = Posterior(fit(data, GROUPS, 1), GROUPS, data).predict(data.vectors, 0)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()


def test_the_same_points_again_and_again_without_noise_are_no_error() -> None:
    vectors = np.repeat(np.random.default_rng(0).random((4, 3)), 10, axis=0)
    data = observe(vectors, np.repeat(end_of(vectors)[:, None], RUNGS, axis=1))
    prior = Prior.of(3, RUNGS)
    extreme = prior.mean + np.where(np.arange(len(prior.mean)) < 6, 4.0, -4.0) * prior.deviation
    extreme[6:8] = 2.6  # slopes
    mean, deviation = Posterior(Hyperparameters.of(extreme, 3, RUNGS), GROUPS, data).predict(vectors, RUNGS - 1)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()
    assert np.isfinite(_LogPosterior(data, GROUPS, 3, RUNGS, prior)(extreme)[0])
