"""Pools of nodes: which node belongs to which, what fits there, and mistakes in the config."""

from __future__ import annotations

from typing import Any

import pytest
from composing import composed_digits

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError, DoesNotFit
from sweeps.plan.plan import make_plan
from sweeps.runtime.node_resources import NODE_ID_LABEL, accelerator, label
from sweeps.runtime.trials_at_once import fit, nodes_of_pools


def node(name: str, cpus: float, gpus: float = 0.0, kind: str | None = None, **labels: str) -> dict[str, float]:
    found = {label(key, value): 1.0 for key, value in {**labels, NODE_ID_LABEL: name}.items()}
    return {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **({accelerator(kind): 1.0} if kind else {}), **found}


NODES = [
    node("big", 16, 8, "A100"),
    node("small", 8, 4, "L4"),
    node("other", 8, 4, "L4"),
    node("plain", 32, zone="a"),
]
POOLS = "scaling.pools={a100: {accelerator_type: A100, per_gpu_hour: 4}, l4: {accelerator_type: L4, per_gpu_hour: 1}}"
CPUS = "scaling.pools.cpu={labels: {zone: a}, use_gpu: false, per_cpu_hour: 0.05}"


def config(*overrides: str) -> SweepConfig:
    return composed_digits("search.num_trials=100", *overrides).config


def test_a_node_belongs_to_the_first_pool_whose_labels_and_gpus_it_has() -> None:
    scaling = config("scaling.pools={l4: {accelerator_type: L4}, any: {}, never: {}}").scaling
    names = {pool: [NODES.index(each) for each in own] for pool, own in nodes_of_pools(scaling, NODES).items()}
    assert names == {"l4": [1, 2], "any": [0, 3], "never": []}


def test_each_pool_has_as_many_trials_at_a_time_as_fit_and_keeps_to_its_own_nodes() -> None:
    sweep = config(POOLS, f"+{CPUS}")
    found = fit(sweep, [sweep.scaling], NODES)
    assert {name: each.concurrent for name, each in found.pools.items()} == {"a100": 4, "l4": 4, "cpu": 16}
    assert found.concurrent == 24
    assert {name: each.use_gpu for name, each in found.pools.items()} == {"a100": True, "l4": True, "cpu": False}
    assert found.avoided() == {
        "a100": ("small", "other", "plain"),
        "l4": ("big", "plain"),
        "cpu": ("big", "small", "other"),
    }
    assert found.leaving_out(["other"]).avoided()["l4"] == ("big", "plain", "other")


def test_a_fixed_pool_leaves_the_others_alone_and_limits_hold_for_all_together() -> None:
    fixed = config(POOLS, "scaling.pool=l4")
    assert fit(fixed, [fixed.scaling], NODES[1:]).concurrent == 4
    limited = config(POOLS, "search.max_concurrent=3")
    assert fit(limited, [limited.scaling], NODES).concurrent == 3


@pytest.mark.parametrize(
    ("overrides", "nodes", "named"),
    [
        ((POOLS,), NODES[1:], ["scaling.pools.a100", "accelerator_type:A100", "accelerator_type:L4", "--labels"]),
        ((POOLS, "scaling.num_workers=9"), NODES, ["scaling.pools.", "scaling.num_workers=9"]),
        ((POOLS, "scaling.pool=l4", "scaling.placement=STRICT_PACK", "scaling.num_workers=8"), NODES, ["pools.l4"]),
    ],
)
def test_a_pool_without_nodes_or_without_room_is_refused_by_name(
    overrides: tuple[str, ...], nodes: list[dict[str, float]], named: list[str]
) -> None:
    sweep = config(*overrides)
    with pytest.raises(DoesNotFit) as error:
        fit(sweep, [sweep.scaling], nodes)
    assert all(each in str(error.value) for each in named), error.value


def test_no_trial_runs_in_the_pool_of_evaluations_which_need_one_worker_each() -> None:
    sweep = config(
        POOLS,
        f"+{CPUS}",
        "scaling.evaluation_pool=cpu",
        "scaling.num_workers=8",
        "+scaling.pools.cpu.resources_per_worker.CPU=4",
    )
    found = fit(sweep, [sweep.scaling], [node("big", 16, 8, "A100"), node("small", 32, 8, "L4"), *NODES[3:]])
    assert (set(found.pools), found.concurrent) == ({"a100", "l4"}, 2)
    assert (found.evaluation["cpu"].concurrent, found.evaluation["cpu"].per_worker) == (8, {"CPU": 4.0})
    assert found.leaving_out(["other"]).avoided()["cpu"] == ("big", "small", "other")
    assert "evaluations in pool cpu: 1 worker of 4 CPU" in found.describe()
    with pytest.raises(DoesNotFit, match=r"scaling\.pools\.cpu: no node of the cluster has zone=a"):
        fit(sweep, [sweep.scaling], NODES[:3])


def test_a_pool_that_has_lost_its_nodes_leaves_the_others_their_trials() -> None:
    sweep = config(POOLS)
    found = fit(sweep, [sweep.scaling], NODES[1:], all_pools=False)
    assert (set(found.pools), found.concurrent) == ({"l4"}, 4)


def test_a_trial_too_wide_for_one_pool_runs_in_the_other() -> None:
    sweep = config(POOLS, "scaling.num_workers=8", "scaling.placement=STRICT_PACK")
    assert set(fit(sweep, [sweep.scaling], NODES).pools) == {"a100"}


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ((POOLS, "scaling.pool=a10"), ["pool=a10", "a100"]),
        (("scaling.pool=l4",), ["pool=l4", "scaling.pools has none"]),
        ((POOLS, "scaling.pool=choice(l4, h100)"), ["h100"]),
        (("+scaling.pools.x={accelerator_typ: L4}",), ["accelerator_typ"]),
        (("+scaling.pools.x={accelerator_type: L4, use_gpu: false}",), ["pools.x", "use_gpu"]),
        (
            (POOLS, "search/scheduler=pbt"),
            ["scaling.pools", "search.scheduler.kind=pbt", "use search/scheduler=auto, asha or none"],
        ),
        ((POOLS, "scaling.evaluation_pool=cpus"), ["evaluation_pool=cpus", "no such pool"]),
        (("scaling.evaluation_pool=cpu",), ["evaluation_pool=cpu", "scaling.pools has none"]),
        ((f"+{CPUS}", "scaling.evaluation_pool=cpu"), ["evaluation_pool=cpu", "add one to scaling.pools"]),
        ((POOLS, "scaling.evaluation_pool=l4", "scaling.pool=choice(a100, l4)"), ["pool=l4", "choose another pool"]),
        (
            (POOLS, "scaling.evaluation_pool=l4", "scaling.pool=a100", "train.on_divergence=restore"),
            ["scaling.evaluation_pool=l4", "train.on_divergence=restore", "use stop"],
        ),
        (
            (POOLS, "scaling.evaluation_pool=l4", "output_dir=s3://bucket/x"),
            ["scaling.evaluation_pool=l4", "s3://bucket"],
        ),
        (("search.metric=[eval/loss,system/cost]", "search.mode=[min,min]"), ["search.metric=system/cost", "prices"]),
        (
            (
                "search.metric=[system/gpu_hours,eval/loss]",
                "search.mode=[min,min]",
                "search.stop.cost={limit: 9, per_cpu_hour: 1}",
            ),
            ["search.metric=system/gpu_hours", "no result of the training", "[eval/loss,system/gpu_hours]"],
        ),
        (("+search.limits={system/cost: {max: 2}}",), ["search.limits.system/cost", "prices"]),
        (("+search.limits={system/gpu_hours: {max: 2}}",), ["system/gpu_hours", "scaling.pools"]),
        (("scaling.pools={a: {labels: {zone: a}}}",), ["scaling.pools.a", "zone=a"]),
        (
            ("conf=estimator", POOLS, "scaling.evaluation_pool=l4"),
            ["scaling.evaluation_pool=l4: task.kind=estimator evaluates by itself; remove it"],
        ),
    ],
)
def test_mistakes_in_pools_are_found_before_anything_starts(overrides: tuple[str, ...], named: list[str]) -> None:
    with pytest.raises((ConfigError, DoesNotFit)) as error:
        make_plan(["conf=digits", *overrides] if "conf=" not in overrides[0] else [*overrides], [], "pools", "test")
    assert all(each in str(error.value) for each in named), error.value


@pytest.mark.parametrize(
    ("pool", "expected"),
    [("a100", 2 * 4.0 + 4 * 0.1), ("l4", 2 * 1.0 + 4 * 0.1), ("cpu", 4 * 0.05), (None, 2 * 9.0 + 4 * 0.1)],
)
def test_prices_of_a_pool_take_precedence(pool: str | None, expected: float) -> None:
    held: dict[str, Any] = {"CPU": 4.0, "GPU": 0.0 if pool == "cpu" else 2.0}
    sweep = config(POOLS, f"+{CPUS}", "search.stop.cost={limit: 5, per_gpu_hour: 9, per_cpu_hour: 0.1}")
    assert sweep.in_pool(pool).hourly_cost(held) == pytest.approx(expected)


def test_prices_of_pools_are_enough_for_a_budget() -> None:
    assert config(POOLS, "search.stop.cost.limit=5").is_priced
    assert not config().is_priced
