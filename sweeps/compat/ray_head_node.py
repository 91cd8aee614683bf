"""Private names of Ray (2.60) that start a local cluster without the processes that a sweep does not use."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LEFT_OUT = {"no_monitor": True, "include_log_monitor": False}
"""Parameters of a node without the autoscaler's monitor and without the monitor of logs."""
DASHBOARD_TAKES = ["self", "include_dashboard", "raise_on_failure"]
SETUP_TAKES = {"--serialized-runtime-env-context", "--language"}
"""Arguments of Ray's script that starts a worker, in addition to the worker's command."""
CONTEXT_HAS = {"command_prefix", "env_vars", "py_executable", "override_worker_entrypoint", "java_jars"}
"""Fields of a runtime environment that this script receives."""
AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
"""Names of the ports that the dashboard's agent reports to its node, each in a file in the session's folder."""


@contextlib.contextmanager
def lean_head_node(start_script: Path, agent_script: Path) -> Iterator[None]:
    """Start clusters inside the block without Ray's two monitor processes, its dashboard and the dashboard's agent. If
    the release's code differs from the one known here, Ray starts everything as usual.

    Args:
        start_script: Python file that Ray runs for each worker process in place of its ``setup_worker``.
        agent_script: Python file that Ray runs in place of the agent, with the names of its ports and its command.
    """
    from ray._private import parameter, ray_constants, services
    from ray._private.node import Node

    params, start_api_server = parameter.RayParams, Node.start_api_server
    python_of = services._build_python_executable_command_memory_profileable
    left_out: dict[str, Any] = dict(LEFT_OUT) if accepts_left_out_options() else {}
    if starts_workers_as_expected():
        left_out["setup_worker_path"] = str(start_script)

    def lean_params(*args: Any, **kwargs: Any) -> Any:
        return params(*args, **kwargs | left_out)

    def no_api_server(node: Any, **_: Any) -> None:
        node._webui_url = ""

    def python_with_script(component: str, *args: Any, **kwargs: Any) -> list[str]:
        command: list[str] = python_of(component, *args, **kwargs)
        is_agent = component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT
        return [*command, str(agent_script), ",".join(AGENT_PORTS)] if is_agent else command

    parameter.RayParams = lean_params  # type: ignore[assignment, misc]
    if [*inspect.signature(start_api_server).parameters] == DASHBOARD_TAKES:
        Node.start_api_server = no_api_server  # type: ignore[method-assign, assignment]
    if agent_reports_expected_ports():
        services._build_python_executable_command_memory_profileable = python_with_script
    try:
        yield
    finally:
        parameter.RayParams, Node.start_api_server = params, start_api_server  # type: ignore[method-assign, misc]
        services._build_python_executable_command_memory_profileable = python_of


def accepts_left_out_options() -> bool:
    """Whether Ray's node parameters still include those that switch the monitors off."""
    from ray._private.parameter import RayParams

    return {*LEFT_OUT} <= {*inspect.signature(RayParams).parameters}


def starts_workers_as_expected() -> bool:
    """Whether Ray's script that starts a worker is the version that our replacement was written for."""
    from ray._private import parameter, worker
    from ray._private.runtime_env.context import RuntimeEnvContext

    script = Path(worker.__file__).parent / "workers" / "setup_worker.py"
    return (
        "setup_worker_path" in inspect.signature(parameter.RayParams).parameters
        and {*inspect.signature(RuntimeEnvContext).parameters} == CONTEXT_HAS
        and script.exists()
        and {*re.findall(r'"(--[\w-]+)"', script.read_text(encoding="utf-8"))} == SETUP_TAKES
    )


def agent_reports_expected_ports() -> bool:
    """Whether the dashboard's agent still reports the same ports to its node as when our replacement was written."""
    import ray
    from ray import _raylet

    agent = Path(ray.__file__).parent / "dashboard" / "agent.py"
    names = {*re.findall(r"\b[A-Z_]+_PORT_NAME\b", agent.read_text(encoding="utf-8"))} if agent.exists() else set()
    return {getattr(_raylet, name, "") for name in names} == {*AGENT_PORTS}
