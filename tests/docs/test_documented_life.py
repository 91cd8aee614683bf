"""The documents' commands and Python code about a sweep that has ended, run in earnest: ``first``, which docs/python.md
makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from documents import ABOUT_AN_ENDED_SWEEP, CHECKOUT, blocks_of, commands_about_an_ended_sweep
from processes import run_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

COMMANDS = commands_about_an_ended_sweep()
FIRST_LAST = sorted(COMMANDS, key=lambda command: command[0] == "clean")
"""Cleaning comes last, since it removes what the others need."""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"SWEEPS_CACHE": str(folder / "cache"), "HOME": str(folder)}
    return run_python(*arguments, folder=folder, environment=environment, status=None, within_s=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the Python code of docs/python.md and of the README was run."""
    folder = tmp_path_factory.mktemp("life")
    for number, path in enumerate((CHECKOUT / "docs" / "python.md", CHECKOUT / "README.md")):
        code = "\n".join(block.text for block in blocks_of(path) if block.language == "python" and block.reason is None)
        (folder / f"example{number}.py").write_text(code, encoding="utf-8")
        done = run(folder, f"example{number}.py")
        assert done.returncode == 0, f"{path.name}\n{done.stdout}{done.stderr}"
    return folder


def test_every_command_about_an_ended_sweep_works(folder: Path) -> None:
    assert {command[0] for command in COMMANDS} == ABOUT_AN_ENDED_SWEEP - {"list"}
    for command in FIRST_LAST:
        done = run(folder, "-m", "sweeps", *command)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    assert (folder / "winner.yaml").exists()
    assert (folder / "DIR" / "report.html").exists()
    (loads,) = (block.text for block in blocks_of(CHECKOUT / "docs" / "life.md") if "sweeps_train" in block.text)
    done = run(folder, "-c", f"{loads}\nprint(type(model).__name__)")
    assert done.stdout.split() == ["ConvNetClassifier"], done.stderr
