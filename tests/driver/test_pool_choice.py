"""Choice of a trial's pool: the cheapest on which it fits and that has room."""

from __future__ import annotations

from typing import Any

import pytest
from composing import composed_digits

from sweeps.config import SweepConfig
from sweeps.driver.pool_choice import PoolChoice
from sweeps.runtime.trials_at_once import Fit
from sweeps.search.advisors.memory import Estimate

POOLS = "scaling.pools={a100: {memory_gib: 80, per_gpu_hour: 4}, l4: {memory_gib: 24, per_gpu_hour: 1}}"
GIB = 1024.0


class Memory:
    """Expects a trial to need as much memory as its point says."""

    def estimate(self, point: dict[str, Any], metric: str) -> Estimate | None:
        assert metric == "system/gpu_memory_mib"
        return Estimate(point["gib"] * GIB, 0.0) if "gib" in point else None


def config(*overrides: str) -> SweepConfig:
    return composed_digits(POOLS, *overrides).config


@pytest.fixture
def choice() -> PoolChoice:
    gpu: dict[str, Any] = {"use_gpu": True, "per_worker": {"CPU": 1.0, "GPU": 1.0}, "num_workers": 2}
    fits = {"a100": Fit(**gpu, concurrent=1, most_workers=8), "l4": Fit(**gpu, concurrent=2, most_workers=4)}
    return PoolChoice(fits, Memory())  # type: ignore[arg-type]


def test_the_cheapest_pool_with_room_is_taken_and_a_trial_waits_when_all_are_full(choice: PoolChoice) -> None:
    assert [choice.choose(str(number), config(), {}) for number in range(4)] == ["l4", "l4", "a100", None]
    choice.release("1")
    assert choice.choose("4", config(), {}) == "l4"


def test_a_trial_that_is_expected_to_need_more_memory_runs_where_it_fits(choice: PoolChoice) -> None:
    assert choice.choose("0", config(), {"gib": 30}) == "a100"
    assert choice.choose("1", config(), {"gib": 30}) is None, "it waits rather than run out of memory"
    choice.release("0")
    assert choice.choose("2", config(), {"gib": 300}) == "a100", "the largest, since the estimate may be wrong"


def test_memory_that_workers_report_is_that_of_a_pool_without_another_statement(choice: PoolChoice) -> None:
    silent = config("scaling.pools.l4.memory_gib=null")
    assert choice.choose("0", silent, {"gib": 30}) == "l4"
    choice.observe("l4", {"system/gpu_memory_limit_mib": 22 * GIB})
    assert choice.choose("1", silent, {"gib": 30}) == "a100"


def test_a_wide_trial_and_a_fixed_pool_leave_no_choice(choice: PoolChoice) -> None:
    assert choice.choose("0", config("scaling.num_workers=8"), {}) == "a100"
    assert choice.choose("1", config("scaling.pool=l4"), {"gib": 30}) == "l4"


def test_a_pool_that_has_lost_its_nodes_gets_no_trials_until_one_joins(choice: PoolChoice) -> None:
    fits = {name: choice._pools[name] for name in ("a100", "l4")}
    choice.refit({"a100": fits["a100"]})
    assert choice.choose("0", config(), {}) == "a100"
    assert choice.choose("1", config(), {}) is None
    choice.refit(fits)
    assert choice.choose("2", config(), {}) == "l4"
