"""Contract with the private names of Ray Core that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path

import pytest
from processes import run_python
from ray._private import ray_constants, worker
from ray._private.resource_and_label_spec import ResourceAndLabelSpec
from ray._private.state import GlobalState, state
from ray._raylet import AuthenticationTokenLoader

from sweeps.compat.ray_core import (
    LISTEN_ON_ALL,
    draining_nodes,
    forget_token,
    listening_on_loopback,
    logging_instead_of_printing,
    size_of_object_store,
)


def test_ray_reads_the_switch_for_loopback_from_ray_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LISTEN_ON_ALL, "0")
    before = ray_constants.ENABLE_RAY_CLUSTER
    with listening_on_loopback(enabled=True):
        assert ray_constants.ENABLE_RAY_CLUSTER is False
    assert before is ray_constants.ENABLE_RAY_CLUSTER
    assert ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR == LISTEN_ON_ALL, "Ray's variable for loopback has another name"


def test_ray_reserves_the_size_of_the_object_store_that_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_constants, "DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", 100 << 20)
    assert size_of_object_store(1 << 40) == 100 << 20
    spec = ResourceAndLabelSpec()
    spec.resolve(is_head=False)  # as each node does
    assert spec.object_store_memory == 100 << 20


def test_ray_prints_through_print_to_stdstream(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    original = worker.print_to_stdstream
    assert list(inspect.signature(original).parameters) == ["data", "ignore_prefix"], "it takes other arguments"
    with logging_instead_of_printing(), caplog.at_level(logging.DEBUG, "ray"):
        worker.print_to_stdstream({"lines": ["a worker died"]}, ignore_prefix=True)
    assert "a worker died" in caplog.text
    assert capsys.readouterr().out == ""


def test_ray_tells_when_the_nodes_that_it_drains_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = inspect.signature(GlobalState.get_draining_nodes)
    assert str(asked.return_annotation) == "typing.Dict[str, int]", "milliseconds by node"
    monkeypatch.setattr(state, "get_draining_nodes", lambda: {"a": 5500, "b": 0})
    assert draining_nodes() == {"a": 5.5, "b": None}


def test_rays_token_is_read_again_once_it_is_forgotten(tmp_path: Path) -> None:
    def home(name: str) -> str:
        token = name * 64
        (tmp_path / name / ".ray").mkdir(parents=True)
        (tmp_path / name / ".ray" / "auth_token").write_text(token)
        patch.setenv("HOME", str(tmp_path / name))
        return token

    loader = AuthenticationTokenLoader.instance()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_AUTH_TOKEN", raising=False)
        for name in ("a", "b"):
            token = home(name)
            forget_token()
            assert loader.get_raw_token(ignore_auth_mode=True) == token
    forget_token()


TWO_JOBS = """
import subprocess, sys
import ray
from ray.util import placement_group
from sweeps.compat.ray_core import groups_without_nodes

def wait_for(number):
    import time
    until = time.monotonic() + 60
    while (found := groups_without_nodes()) != number:
        assert time.monotonic() < until, found
        time.sleep(0.05)

@ray.remote(num_cpus=0)
class Controller:
    def ask(self):
        self.group = placement_group([{"CPU": 5}])

    def waiting(self):
        return groups_without_nodes()

if len(sys.argv) > 1:
    ray.init(sys.argv[1])
    mine = [placement_group([{"CPU": 5}]) for _ in range(2)]
    wait_for(2)
    print("other", flush=True)
    sys.stdin.read()
else:
    context = ray.init("local", num_cpus=1, include_dashboard=False)
    other = subprocess.Popen(
        [sys.executable, __file__, context.address_info["gcs_address"]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    assert other.stdout.readline() == "other\\n"
    assert groups_without_nodes() == 0
    fits = placement_group([{"CPU": 1}])
    ray.get(fits.ready())
    controller = Controller.remote()
    ray.get(controller.ask.remote())
    wait_for(1)
    assert ray.get(controller.waiting.remote()) == 1, "actors see the same"
    other.communicate("")
"""


@pytest.mark.slow
def test_only_this_jobs_groups_count_as_waiting_also_those_that_its_actors_ask_for(tmp_path: Path) -> None:
    script = tmp_path / "two_jobs.py"
    script.write_text(TWO_JOBS)
    run_python(str(script), within_s=200)


ORPHAN = """
import time
import ray
from ray.util import placement_group
from sweeps.compat.ray_core import remove_orphaned_groups

@ray.remote(num_cpus=0)
class Trial:
    def reserve(self, cpus):
        self.group = placement_group([{"CPU": cpus}])
        ray.get(self.group.ready())

    def remove_orphans(self):
        remove_orphaned_groups()

ray.init("local", num_cpus=3, include_dashboard=False)
mine = placement_group([{"CPU": 1}])
ray.get(mine.ready())
dead, alive = Trial.remote(), Trial.remote()
ray.get([dead.reserve.remote(1), alive.reserve.remote(1)])
ray.kill(dead)
time.sleep(3)
assert "CPU" not in ray.available_resources(), "Ray removes it itself"
until = time.monotonic() + 60
while ray.available_resources().get("CPU") != 1:
    assert time.monotonic() < until
    ray.get(alive.remove_orphans.remote())
    time.sleep(0.1)
for _ in range(2):
    remove_orphaned_groups()
time.sleep(1)
assert ray.available_resources().get("CPU") == 1, "those of the driver and of a living actor stay"
"""


@pytest.mark.slow
def test_the_room_that_a_dead_actor_has_reserved_is_free_again_once_its_groups_are_removed() -> None:
    run_python("-c", ORPHAN, within_s=200)
