"""Set-up of the environment: uv is told what pip is told, and installs the locked versions."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name


def in_requirements(checkout: Path, code: str, **environment: str) -> str:
    """Run Python code beside requirements/install.py, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout / "requirements",
        env={name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_uv_is_told_what_pips_config_file_and_variables_say(checkout: Path, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://mirror.example/simple\nfind-links = /a\nconstraint = one.txt\n    two.txt\n"
        "[install]\nfind-links =\n    /wheels\n    /more\n[download]\nno-index = true\n"
    )
    environment = {"PIP_CONFIG_FILE": str(config), "PIP_EXTRA_INDEX_URL": "https://b.example https://c.example"}
    code = "from sources import uv_settings; print(sorted(uv_settings().items()))"
    told = dict(eval(in_requirements(checkout, code, **environment)))
    assert told["UV_INDEX_URL"] == "https://mirror.example/simple"
    assert told["UV_FIND_LINKS"] == "/wheels,/more"
    assert told["UV_CONSTRAINT"] == "one.txt two.txt"
    assert told["UV_EXTRA_INDEX_URL"] == "https://b.example https://c.example"
    assert "UV_NO_INDEX" not in told


def test_a_variable_of_uv_has_precedence_over_what_pip_is_told(checkout: Path) -> None:
    code = "from sources import uv_settings; print(uv_settings())"
    environment = {"PIP_INDEX_URL": "https://pip.example", "UV_INDEX_URL": "https://uv.example"}
    assert "UV_INDEX_URL" not in in_requirements(checkout, code, **environment)


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_bare_environment_gets_the_locked_versions(checkout: Path, tmp_path: Path, installer: str) -> None:
    """With both: without an installable uv, pip reads the same files."""
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(checkout), str(copy)], check=True)
    if installer == "pip":
        (copy / "requirements" / "uv.txt").write_text("uv==0.0.0\n")
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare/bin/python"
    subprocess.run([python, copy / "requirements/install.py", "run"], check=True)
    frozen = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    locked = (copy / "requirements/run.txt").read_text()
    installed = [line.split("==") for line in frozen.splitlines() if "==" in line and not line.startswith("torch==")]
    assert len(installed) > 100
    assert [name for name, version in installed if f"\n{canonicalize_name(name)}=={version} " not in locked] == []
    listed = subprocess.run([python, "-m", "sweeps", "conf"], capture_output=True, text=True, check=True, cwd=copy)
    assert "llm_lora" in listed.stdout
