"""The scripts that Ray runs on a cluster on this machine in place of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import outputs, run_python
from waiting import wait_until

from sweeps.runtime import local_agent_script, local_worker_script

TELLS = """
import json, os, signal, sys
blocked = [each.name for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
print(json.dumps([sys.argv[1:], os.environ.get("ASKED"), os.path.basename(__file__), blocked]))
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with scripts by the names of Ray's."""
    for name in ("default_worker.py", "setup_worker.py"):
        (tmp_path / name).write_text(TELLS, encoding="utf-8")
    return tmp_path


def started(scripts: Path, context: dict[str, Any], language: str = "PYTHON", *flags: str) -> Any:
    worker = [*flags, str(scripts / "default_worker.py"), "--node=1", f"--language={language}"]
    done = run_python(
        local_worker_script.__file__, *worker, f"--serialized-runtime-env-context={json.dumps(context)}", within_s=60
    )
    return json.loads(done.stdout)


def test_a_worker_hears_of_sighup_though_rays_own_processes_do_not(scripts: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        assert started(scripts, {})[3] == []
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_worker_gets_its_arguments_and_the_variables_of_its_runtime_environment(scripts: Path) -> None:
    context = {"env_vars": {"ASKED": "yes"}, "py_executable": sys.executable, "command_prefix": [], "java_jars": []}
    assert started(scripts, context) == [["--node=1"], "yes", "default_worker.py", []]
    assert started(scripts, {}, "PYTHON", "-s") == [["--node=1"], None, "default_worker.py", []]


@pytest.mark.parametrize(
    "asked",
    [{"command_prefix": ["nice"]}, {"py_executable": "/elsewhere/python"}, {"env_vars": {"PATH": "/mine:$PATH"}}],
)
def test_what_more_a_runtime_environment_asks_for_is_left_to_rays_script(scripts: Path, asked: dict[str, Any]) -> None:
    arguments, _, script, _ = started(scripts, asked)
    assert script == "setup_worker.py"
    assert arguments[1:3] == ["--node=1", "--language=PYTHON"]


def test_the_node_is_told_that_the_dashboards_agent_has_no_ports_until_it_ends(tmp_path: Path) -> None:
    from ray._raylet import wait_for_persisted_port

    arguments = [local_agent_script.__file__, "a,b", "agent.py", "--minimal", f"--session-dir={tmp_path}"]
    node = (
        "import subprocess, sys\n"
        f"print(subprocess.Popen([sys.executable, *{arguments!r}]).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    node_id = "7" * 56
    process = subprocess.Popen(
        [sys.executable, "-c", node],
        env={**os.environ, "RAY_NODE_ID": node_id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    script = psutil.Process(int(process.stdout.readline()))
    assert [wait_for_persisted_port(str(tmp_path), node_id, name, 60_000) for name in ("a", "b")] == [-1, -1]
    assert script.is_running()
    outputs(process, 60)
    wait_until(lambda: not script.is_running() or script.status() == psutil.STATUS_ZOMBIE)


def test_an_agent_that_has_something_to_offer_is_started(scripts: Path) -> None:
    agent = str(scripts / "setup_worker.py")
    done = run_python(local_agent_script.__file__, "a,b", agent, f"--session-dir={scripts}", within_s=60)
    assert json.loads(done.stdout)[0] == [f"--session-dir={scripts}"]
