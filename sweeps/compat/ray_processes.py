"""Ray's private interface (2.60) to start worker processes before anything runs in them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Literal

IdleState = Literal["started", "ready"]
"""State of an idle process; ``ready``: its imports are done."""
KEPT_S = 7 * 86_400
"""Minimum seconds for which Ray keeps an idle process; it ends at the latest with its job."""
WITHIN_S = 10.0
IDLE_TITLE = "ray::IDLE"
"""Title of a worker's process in which no task and no actor runs."""
IMPORTS = "sweeps-spare-processes"
"""Key in the cluster's store, followed by a job's id, for the modules that idle processes of the job import. Without
the key there are no spare processes."""


def is_idle() -> bool:
    """Whether this process is a Ray worker that no actor or task uses yet."""
    import psutil
    import ray
    from ray._private import worker

    if worker.global_worker.mode != worker.WORKER_MODE:  # asking for its context would start a cluster
        return False
    # The title also shows tasks, which run in a separate thread.
    return ray.get_runtime_context().get_actor_id() is None and psutil.Process().cmdline()[:1] == [IDLE_TITLE]


def start_idle_processes(number: int, node_id: str, runtime_env: str) -> None:
    """Start worker processes of this job on a node in advance; only actors with this runtime environment (as Ray
    serializes it) use them.

    Ray starts no more processes at a time than the node has cores, and drops the others.

    Raises:
        LookupError: The node has left the cluster.
        ConnectionError: The node does not answer.
    """
    import grpc
    import ray
    from ray._common.network_utils import build_address  # type: ignore[attr-defined]
    from ray._private.grpc_utils import init_grpc_channel

    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    address = build_address(nodes[node_id]["NodeManagerAddress"], nodes[node_id]["NodeManagerPort"])
    job = ray.get_runtime_context().get_job_id()
    set_imports([], overwrite=False)
    request = _generated("node_manager_pb2").PrestartWorkersRequest(
        language=_generated("common_pb2").PYTHON,
        job_id=bytes.fromhex(job),
        runtime_env_info=_generated("runtime_environment_pb2").RuntimeEnvInfo(serialized_runtime_env=runtime_env),
        keep_alive_duration_secs=KEPT_S,
        num_workers=number,
    )
    channel = init_grpc_channel(address)
    try:
        _generated("node_manager_pb2_grpc").NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=WITHIN_S)
    except grpc.RpcError as error:
        raise ConnectionError(f"the node manager at {address} does not start processes: {error}") from error
    finally:
        channel.close()


def set_imports(names: Sequence[str], *, overwrite: bool = True) -> None:
    """Set the modules that this job's idle processes import in addition to those of every worker."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(_imports_key(), "\n".join(names), overwrite=overwrite)


def imports() -> list[str] | None:
    """Return the modules that an idle process of this job should import; None if no idle processes are expected."""
    from ray.experimental.internal_kv import _internal_kv_exists, _internal_kv_get

    if not _internal_kv_exists(_imports_key()):
        return None
    return _internal_kv_get(_imports_key()).decode().split()


def tell(state: IdleState) -> None:
    """Report the state that this idle process has reached."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_put

    context = ray.get_runtime_context()
    _internal_kv_put(f"{_imports_key()}-{state}-{context.get_node_id()}-{context.get_worker_id()}", b"1")


def told(state: IdleState, node_id: str) -> int:
    """Return the number of this job's idle processes on a node that have ever reported a state, including those in use
    or ended by now."""
    from ray.experimental.internal_kv import _internal_kv_list

    return len(_internal_kv_list(f"{_imports_key()}-{state}-{node_id}-"))


def _imports_key() -> str:
    import ray

    job = ray.get_runtime_context().get_job_id()
    if job == ray.JobID.nil().hex():  # a fork knows its job only when it is used
        job = os.environ["RAY_JOB_ID"]
    return f"{IMPORTS}-{job}"


def _generated(name: str) -> ModuleType:
    return importlib.import_module(f"ray.core.generated.{name}")  # without types
