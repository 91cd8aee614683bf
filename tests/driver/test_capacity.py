"""Number of trials at a time, as nodes join and leave, and fail a check."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.constants import TAG_LANES
from sweeps.doctor.finding import Finding
from sweeps.driver import changing_capacity as capacity
from sweeps.driver import requests
from sweeps.driver.changing_capacity import Capacity
from sweeps.driver.pool_choice import PoolChoice
from sweeps.driver.requests import RequestHandler
from sweeps.plan.plan import Plan, make_plan
from sweeps.runtime.node_resources import NODE_ID_LABEL, label
from sweeps.runtime.trials_at_once import fit
from sweeps.search.schedulers.places import Places


def node(name: str, cpus: float = 2.0) -> dict[str, float]:
    return {"CPU": cpus, label(NODE_ID_LABEL, name): math.inf}


@cache
def planned(*overrides: str) -> Plan:
    return make_plan(["conf=digits", "search.num_trials=100", "cluster=auto", *overrides], [], "capacity", "test")


class Cluster:
    """Nodes that a test changes, and what a sweep on them says and does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *overrides: str, nodes: Sequence[dict[str, float]] = ()):
        self.nodes = [*nodes] or [node("a"), node("b")]
        self.unfit: dict[str, Finding] = {}
        self.said: list[str] = []
        self.avoided: list[dict[str | None, tuple[str, ...]]] = []
        monkeypatch.setattr(capacity, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(capacity, "alive_nodes", lambda: list(self.nodes))
        self.leaving: dict[str, float | None] = {}
        monkeypatch.setattr(capacity, "draining_nodes", lambda: dict(self.leaving))
        monkeypatch.setattr(capacity, "nodes_to_come", lambda *_: [])
        monkeypatch.setattr(capacity, "unfit_nodes", lambda *_: self.unfit)
        plan = planned(*overrides)
        self.places = Places(2)
        self.state: Any = SimpleNamespace(
            fit=(found := fit(plan.config, plan.scalings, self.nodes)),
            excluded_nodes=(),
            concurrent=2,
            lanes_found=1,
            has_found_lanes=False,
            pools=PoolChoice(found.pools) if found.pools else None,
            lock=threading.RLock(),
            shutdown=SimpleNamespace(has_cluster=True),
            suspected=SimpleQueue(),
            announce=self.said.append,
        )
        self.checked: list[Any] = []
        self.moved: list[dict[str, str]] = []
        broker = SimpleNamespace(avoid=self._avoid, set_groups=lambda most: None, nodes_leave=self.moved.append)
        session: Any = SimpleNamespace(state=self.state, broker=broker, recorder=None)
        self.capacity = Capacity(plan, session, self.places)

    def _avoid(self, nodes: dict[str | None, tuple[str, ...]], checked: tuple[str, ...] = ()) -> None:
        self.avoided.append(nodes)
        self.checked += [checked] if checked else []

    def hears(self, *texts: str) -> None:
        wait_until(lambda: any(all(text in line for text in texts) for line in self.said), texts)


def wait_until(condition: Callable[[], bool], what: object) -> None:
    waits = threading.Event()
    for _ in range(3000):
        if condition():
            return
        waits.wait(0.01)
    pytest.fail(f"not within 30 s: {what}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_the_limit_on_trials_follows_the_nodes(cluster: Cluster) -> None:
    with cluster.capacity:
        cluster.nodes = [*cluster.nodes, node("c", 4)]
        cluster.hears("1 node joined: 4 trials at once")
        assert (cluster.places.max_concurrent, cluster.state.concurrent) == (4, 4)
        cluster.nodes = [node("d")]
        cluster.hears("1 node joined and 3 nodes left: 1 trial at once")
        cluster.nodes = [node("small", 1)]
        cluster.hears("1 node joined and 1 node left: no trial can be placed now", "scaling.num_workers=2")
        cluster.nodes = []
        cluster.hears("1 node left: no trial can be placed now (the cluster has no usable node)")
        assert cluster.places.max_concurrent == 1, "the trials that run are not ended"


def test_nodes_that_joined_while_the_driver_started_or_between_two_searches_count(cluster: Cluster) -> None:
    cluster.nodes = [*cluster.nodes, node("c", 4)]
    with cluster.capacity:
        assert (cluster.places.max_concurrent, cluster.state.concurrent) == (4, 4)
    assert cluster.said == ["capacity: 4 trials at once"]


def gpus(name: str, cpus: float, number: float) -> dict[str, float]:
    return node(name, cpus) | {"GPU": number, label("kind", "gpu"): math.inf}


@pytest.mark.parametrize("pools", ["{}", "{one: {labels: {kind: gpu}, use_gpu: true}}"])
def test_a_node_that_joins_with_fewer_cpus_per_gpu_has_room_for_as_many_trials_as_its_cpus_allow(
    monkeypatch: pytest.MonkeyPatch, pools: str
) -> None:
    overrides = ("scaling.num_workers=1", f"scaling.pools={pools}")
    cluster = Cluster(monkeypatch, *overrides, nodes=[gpus("a", 96, 8)])
    with cluster.capacity:
        cluster.nodes = [*cluster.nodes, gpus("b", 16, 4)]
        cluster.hears("1 node joined: 10 trials at once")  # each reserves 8 CPUs, as at the start


def test_a_pool_whose_nodes_are_gone_is_named_until_one_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, cheap = (node(name) | {label("kind", name): math.inf} for name in ("fast", "cheap"))
    pools = "{fast: {labels: {kind: fast}, per_cpu_hour: 40}, cheap: {labels: {kind: cheap}, per_cpu_hour: 10}}"
    cluster = Cluster(monkeypatch, f"scaling.pools={pools}", nodes=[fast, cheap])
    with cluster.capacity:
        cluster.nodes = [cheap]
        cluster.hears("1 node left: 1 trial at once; scaling.pools.fast has no node now, and trials that fit")
        cluster.nodes = [fast, cheap]
        cluster.hears("1 node joined: 2 trials at once")
    assert "scaling.pools" not in cluster.said[-1]


def test_a_sweep_is_extended_also_while_all_nodes_are_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = cluster.capacity._plan
    longer = replace(plan, composition=plan.composition.changed({"search.num_trials": 200}))
    monkeypatch.setattr(requests, "load_sweep", lambda *_: None)
    monkeypatch.setattr(requests, "reopened", lambda *_: longer)
    monkeypatch.setattr(requests, "save", lambda *_: None)
    recorder: Any = SimpleNamespace(record_config=lambda *_: None, attach=lambda *_: None)
    cluster.state.stage, cluster.state.extend = None, lambda *_: None
    searcher = SimpleNamespace(num_trials=100)
    session: Any = SimpleNamespace(state=cluster.state, recorder=recorder, plan=plan)
    limiter, nothing = SimpleNamespace(searcher=searcher), None
    handler = RequestHandler(session, limiter, cluster.capacity, nothing)  # type: ignore[arg-type]
    cluster.nodes = []
    answer = handler.handle({"verb": "extend", "changes": {"search.num_trials": 200}})
    assert "up to 200 trials; no trial can be placed now" in answer
    assert (searcher.num_trials, session.plan) == (200, longer)


def test_a_node_whose_end_is_announced_is_left_out_once(cluster: Cluster) -> None:
    with cluster.capacity:
        cluster.leaving = {"b": 0.0}
        cluster.hears("1 node will leave the cluster: 1 trial at once")
        cluster.leaving = {"a": None, "b": 0.0}
        cluster.hears("1 node will leave the cluster: no trial can be placed now")
        wait_until(lambda: len(cluster.moved) == 2, "the broker lets the trials move")
    first, second = {"b": "leaves the cluster in 0 s"}, {"a": "leaves the cluster"}
    assert cluster.moved == [first, first | second]
    assert cluster.state.excluded_nodes == ("b", "a")


def test_a_cluster_on_this_machine_is_not_asked_which_nodes_will_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "cluster.address=local")
    cluster.leaving = {"b": 0.0}
    with cluster.capacity:
        cluster.nodes = [*cluster.nodes, node("c")]
        cluster.hears("1 node joined: 3 trials at once")
    assert cluster.moved == []


def test_a_cluster_that_does_not_answer_for_a_while_is_said_once_and_followed_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def broken() -> list[dict[str, float]]:
        looks.append(1)
        raise ConnectionError("the GCS is away")

    with cluster.capacity:
        monkeypatch.setattr(capacity, "alive_nodes", broken)
        wait_until(lambda: len(looks) > 3, "it looks again")
        monkeypatch.setattr(capacity, "alive_nodes", lambda: [*cluster.nodes, node("c", 4)])
        cluster.hears("1 node joined: 4 trials at once")
    assert [line for line in cluster.said if "cannot be checked" in line] == [
        "the cluster's nodes cannot be checked (the GCS is away); still 2 trials at once"
    ]


def test_a_node_that_fails_a_check_after_a_failure_is_left_out(cluster: Cluster) -> None:
    cluster.unfit = {"b": Finding("storage", "failed", "host b", "does not share output_dir=/x")}
    with cluster.capacity:
        cluster.state.suspected.put(("b", "gone"))
        cluster.hears("leaves out host b: does not share output_dir=/x; 1 trial at once")
    assert cluster.avoided[-1] == {None: ("b",)}
    assert cluster.checked == [("b", "gone")], "the broker knows the failure by all of its nodes"
    assert cluster.places.max_concurrent == 1


def test_a_bad_node_is_used_on_if_no_trial_fits_on_the_others(cluster: Cluster) -> None:
    bad = Finding("speed", "failed", "every host", "a matrix product failed")
    cluster.unfit = {"a": bad, "b": bad}
    with cluster.capacity:
        cluster.state.suspected.put(("a", "b"))
        cluster.hears("every host", "it stays in use")
        wait_until(lambda: cluster.checked == [("a", "b")], "the waiting trial is let go")
    assert cluster.avoided[-1] == {None: ()}


def test_a_check_that_fails_itself_lets_the_trial_go_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> dict[str, Finding]:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(capacity, "unfit_nodes", broken)
    with cluster.capacity:
        cluster.state.suspected.put(("b",))
        cluster.hears("could not be checked", "Read-only file system")
        wait_until(lambda: cluster.checked == [("b",)], "the waiting trial is let go")


def test_the_sweep_knows_how_many_trials_share_their_workers(cluster: Cluster) -> None:
    broker: Any = cluster.capacity._broker
    told: list[tuple[int, str | None]] = []
    broker.lanes, broker.set_lanes = lambda: (4, None), lambda *found: told.append(found)
    cluster.state.fit = replace(cluster.state.fit, finds_lanes=True)
    with cluster.capacity:
        wait_until(lambda: cluster.state.lanes_found == 4, "what the broker tells")
        asked = threading.Event()

        def of_next_process() -> tuple[int, None]:
            asked.set()
            return 1, None

        broker.lanes = of_next_process
        wait_until(asked.is_set, "the next process is asked")
    assert cluster.state.lanes_found == 4
    assert told == [(4, None)]


def test_the_number_of_trials_that_share_workers_is_announced_even_if_no_trial_fits_then(cluster: Cluster) -> None:
    broker: Any = cluster.capacity._broker
    broker.lanes, broker.set_lanes = lambda: (4, "measured"), lambda *_: None
    tags: dict[str, str] = {}
    recorder: Any = SimpleNamespace(attach=lambda _, added: tags.update(added))
    cluster.capacity._recorder = recorder
    cluster.state.fit = replace(cluster.state.fit, finds_lanes=True)
    cluster.nodes = [node("small", 1)]
    with cluster.capacity:
        cluster.hears("1 node joined and 2 nodes left: no trial can be placed now")
    assert tags == {TAG_LANES: "4 trials a worker group: measured"}
    assert any("4 trials a worker group: measured" in line for line in cluster.said)
