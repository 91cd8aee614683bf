"""Priors: a good one helps, a wrong one costs little."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import optuna
import pytest
from hartmann import Hartmann
from spaces import space_of

from sweeps.config.space import FloatDistribution, Prior
from sweeps.search import OptunaSearcher
from sweeps.search.advisors.priors import PriorAdvisor
from sweeps.space.distributions import contains
from sweeps.space.space import Space

STUDY = optuna.create_study()  # priors do not look at it


def space(**distributions: object) -> Space:
    return space_of(distributions)


LR = {"type": "float", "low": 1e-5, "high": 1e-1, "log": True}


def test_a_prior_is_drawn_less_and_less() -> None:
    advisor = PriorAdvisor(space(lr={**LR, "prior": {"value": 1e-3, "confidence": 0.8}}), seed=0)
    drawn = np.array([bool(advisor.fix(STUDY, number)) for number in range(2000)])
    expected = 0.8 * 10 / (10 + np.arange(2000))
    for part in (slice(0, 10), slice(10, 100), slice(100, 2000)):
        assert drawn[part].sum() == pytest.approx(expected[part].sum(), abs=3 * expected[part].sum() ** 0.5)


def test_the_surer_the_nearer_to_the_guess() -> None:
    def spread(confidence: float) -> float:
        advisors = (
            PriorAdvisor(space(lr={**LR, "prior": {"value": 1e-3, "confidence": confidence}}), seed)
            for seed in range(300)
        )
        values = [fixed["lr"] for advisor in advisors if (fixed := advisor.fix(STUDY, 0))]
        assert np.median(np.log10(values)) == pytest.approx(-3, abs=0.4)
        return float(np.std(np.log10(values)))

    assert spread(0.95) < 0.2 < spread(0.7) < 1 < spread(0.2) + 0.2


def test_what_is_drawn_can_be_sampled_whatever_its_kind() -> None:
    searched = space(
        lr={**LR, "prior": {"value": 1e-5, "confidence": 0.4}},
        rate={"type": "float", "low": 0, "high": 1, "step": 0.3, "prior": {"value": 0.9, "confidence": 0.4}},
        layers={"type": "int", "low": 3, "high": 12, "step": 4, "prior": {"value": 11, "confidence": 0.4}},
        width={"type": "int", "low": 1, "high": 4096, "log": True, "prior": {"value": 1, "confidence": 0.4}},
        size={"type": "ordinal", "choices": ["s", "m", "l"], "prior": {"value": "l", "confidence": 0.4}},
        on={"type": "categorical", "choices": [True, "y", "x"], "prior": {"value": "x", "confidence": 0.4}},
        plain={"type": "int", "low": 1, "high": 2},
    )
    seen: dict[str, list[object]] = {}
    for seed in range(200):
        for path, value in PriorAdvisor(searched, seed).fix(STUDY, 0).items():
            assert contains(searched[path], value)
            seen.setdefault(path, []).append(value)
    assert set(seen) == set(searched) - {"plain"}
    for path, guess in (("size", "l"), ("on", "x"), ("layers", 11), ("rate", pytest.approx(0.9))):
        share = sum(value == guess for value in seen[path]) / len(seen[path])
        assert 0.4 < share < 0.9, path


def test_the_same_seed_and_trial_draw_the_same() -> None:
    searched = space(lr={**LR, "prior": {"value": 1e-3, "confidence": 0.9}})
    drawn = [PriorAdvisor(searched, 7).fix(STUDY, number) for number in range(50)]
    again = [PriorAdvisor(searched, 7).fix(STUDY, number) for number in reversed(range(50))]
    assert drawn == again[::-1]
    assert drawn != [PriorAdvisor(searched, 8).fix(STUDY, number) for number in range(50)]


def regrets(prior: dict[str, float] | None, confidence: float, seeds: int) -> npt.NDArray[np.float64]:
    """Regret of the best so far after each of 40 trials; shape ``[seeds, 40]``."""
    function = Hartmann(6)
    distributions = function.space
    for path, value in (prior or {}).items():
        distribution = distributions[path]
        assert isinstance(distribution, FloatDistribution)
        distribution.prior = Prior(value=value, confidence=confidence)
    found = []
    for seed in range(seeds):
        searcher = OptunaSearcher(
            distributions,
            metric="loss",
            mode="min",
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8),
            advisors=[PriorAdvisor(Space(distributions), seed)],
        )
        found.append(np.minimum.accumulate(function.searched(searcher, 40)[1]))
    return np.array(found)


@pytest.mark.parametrize("seeds", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_good_prior_gets_closer_faster_and_a_wrong_one_does_no_harm(seeds: int) -> None:
    best = Hartmann(6).best
    without = regrets(None, 0.5, seeds)
    good = regrets({path: value + 0.08 for path, value in best.items()}, 0.8, seeds)
    wrong = regrets({path: (value + 0.5) % 1 for path, value in best.items()}, 0.5, seeds)
    noise = float(np.hypot(without[:, -1].std(), wrong[:, -1].std()) / seeds**0.5)
    assert good[:, 9].mean() < 0.6 * without[:, 9].mean()
    assert good[:, 19].mean() < 0.7 * without[:, 19].mean()
    assert wrong[:, -1].mean() < without[:, -1].mean() + 2 * noise
