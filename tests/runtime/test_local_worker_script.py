"""The script that starts the worker processes of a cluster on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import run_python

from sweeps.runtime import local_worker_script

TELLS = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('ASKED'), os.path.basename(__file__)]))"


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


def test_a_worker_gets_its_arguments_and_the_variables_of_its_runtime_environment(scripts: Path) -> None:
    context = {"env_vars": {"ASKED": "yes"}, "py_executable": sys.executable, "command_prefix": [], "java_jars": []}
    assert started(scripts, context) == [["--node=1"], "yes", "default_worker.py"]
    assert started(scripts, {}, "PYTHON", "-s") == [["--node=1"], None, "default_worker.py"]


@pytest.mark.parametrize(
    "asked",
    [{"command_prefix": ["nice"]}, {"py_executable": "/elsewhere/python"}, {"env_vars": {"PATH": "/mine:$PATH"}}],
)
def test_what_more_a_runtime_environment_asks_for_is_left_to_rays_script(scripts: Path, asked: dict[str, Any]) -> None:
    arguments, _, script = started(scripts, asked)
    assert script == "setup_worker.py"
    assert arguments[1:3] == ["--node=1", "--language=PYTHON"]
