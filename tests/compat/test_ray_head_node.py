"""Contract with the private names by which Ray starts less on this machine. A failure here says which has moved; then
Ray starts what it usually does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from ray._private import parameter, ray_constants, services
from ray._private.node import Node

from sweeps.compat import ray_head_node
from sweeps.compat.ray_head_node import (
    AGENT_PORTS,
    DASHBOARD_TAKES,
    accepts_left_out_options,
    agent_reports_expected_ports,
    lean_head_node,
    starts_workers_as_expected,
)

SCRIPTS = (Path("start.py"), Path("agent.py"))


def test_a_node_takes_what_it_starts_from_its_parameters_and_a_method() -> None:
    usual = parameter.RayParams, Node.start_api_server
    assert [*inspect.signature(Node.start_api_server).parameters] == DASHBOARD_TAKES
    with lean_head_node(*SCRIPTS):
        params = parameter.RayParams(num_cpus=1)
        assert (params.no_monitor, params.include_log_monitor, params.setup_worker_path) == (True, False, "start.py")
        assert Node.start_api_server is not usual[1]
    assert (parameter.RayParams, Node.start_api_server) == usual


def python_of(component: str) -> list[str]:
    """Begin of a command by which a node starts one of its processes."""
    command: list[str] = services._build_python_executable_command_memory_profileable(component, "session")
    return command


def test_a_node_runs_our_script_with_the_command_of_the_dashboards_agent_and_its_other_processes_as_usual() -> None:
    assert agent_reports_expected_ports()
    usual = python_of(ray_constants.PROCESS_TYPE_DASHBOARD_AGENT)
    with lean_head_node(*SCRIPTS):
        agent, other = map(
            python_of, (ray_constants.PROCESS_TYPE_DASHBOARD_AGENT, ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT)
        )
    assert agent == [*usual, "agent.py", ",".join(AGENT_PORTS)]
    assert other == python_of(ray_constants.PROCESS_TYPE_DASHBOARD_AGENT) == usual


def test_ray_starts_workers_by_a_script_that_ours_knows() -> None:
    assert accepts_left_out_options()
    assert starts_workers_as_expected()


def test_a_ray_with_other_code_starts_what_it_usually_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_head_node, "SETUP_TAKES", {"--another"})
    monkeypatch.setattr(ray_head_node, "LEFT_OUT", {"another": True})
    monkeypatch.setattr(ray_head_node, "DASHBOARD_TAKES", ["another"])
    monkeypatch.setattr(ray_head_node, "AGENT_PORTS", ("another",))
    usual = Node.start_api_server
    with lean_head_node(*SCRIPTS):
        params = parameter.RayParams(num_cpus=1)
        assert (params.no_monitor, params.include_log_monitor, params.setup_worker_path) == (False, None, None)
        assert Node.start_api_server is usual
        assert "agent.py" not in python_of(ray_constants.PROCESS_TYPE_DASHBOARD_AGENT)
