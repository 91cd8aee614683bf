"""Contract with the private interface by which Ray starts worker processes ahead."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest
from ray._private.grpc_utils import init_grpc_channel
from ray.experimental import internal_kv


def generated(name: str) -> Any:
    return importlib.import_module(f"ray.core.generated.{name}")


def test_a_node_manager_takes_a_request_for_processes_of_a_job() -> None:
    fields = {each.name for each in generated("node_manager_pb2").PrestartWorkersRequest.DESCRIPTOR.fields}
    assert fields >= {"language", "job_id", "runtime_env_info", "keep_alive_duration_secs", "num_workers"}
    assert "serialized_runtime_env" in {
        each.name for each in generated("runtime_environment_pb2").RuntimeEnvInfo.DESCRIPTOR.fields
    }
    channel = init_grpc_channel("127.0.0.1:1")
    assert callable(generated("node_manager_pb2_grpc").NodeManagerServiceStub(channel).PrestartWorkers)
    channel.close()


def test_a_process_that_is_no_worker_is_not_idle_and_starts_no_cluster_when_it_is_asked() -> None:
    code = "from sweeps.compat.ray_processes import is_idle; import ray; assert not (is_idle() or ray.is_initialized())"
    subprocess.run([sys.executable, "-c", code], check=True)


RUNS = """
import ray
from concurrent.futures import ThreadPoolExecutor
from sweeps.compat.ray_processes import is_idle


@ray.remote
def task():
    with ThreadPoolExecutor() as threads:
        return threads.submit(is_idle).result()


@ray.remote
class Watched:
    def is_idle(self):
        return is_idle()


ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
assert not ray.get(task.remote())
assert not ray.get(Watched.remote().is_idle.remote())
"""


@pytest.mark.slow
def test_a_process_in_which_a_task_or_an_actor_runs_is_not_idle() -> None:
    subprocess.run([sys.executable, "-c", RUNS], check=True)


def test_the_clusters_store_of_keys_is_asked_as_before() -> None:
    assert list(inspect.signature(internal_kv._internal_kv_put).parameters)[:3] == ["key", "value", "overwrite"]
    for asked in (internal_kv._internal_kv_get, internal_kv._internal_kv_exists):
        assert next(iter(inspect.signature(asked).parameters)) == "key"
    assert next(iter(inspect.signature(internal_kv._internal_kv_list).parameters)) == "prefix"
