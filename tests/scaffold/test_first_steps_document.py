"""Every command of docs/first_steps.md is run."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from sweeps.cli import run_command
from sweeps.scaffold.kinds import KINDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "first_steps.md"
BLOCKS = re.findall(r"```\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
COMMANDS = [
    shlex.split(found, comments=True)
    for block in BLOCKS
    for line in block.splitlines()
    for found in re.findall(r"python -m sweeps ([^)>]*)", line)
]
SCRIPT = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=0.1)\n"
SWEEP = "program: train.py\nmethod: random\nrun_cap: 3\nmetric: {name: loss}\nparameters: {lr: {min: 0.0, max: 1.0}}\n"
MODULE = """
from ray import tune

param_space = {"lr": tune.loguniform(1e-4, 1e-1)}
tune_config = tune.TuneConfig(metric="loss", mode="min", num_samples=4)
"""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_document_works(
    command: list[str], working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (working_folder / "train.py").write_text(SCRIPT)
    (working_folder / "sweep.yaml").write_text(SWEEP)
    (working_folder / "my_module.py").write_text(MODULE)
    if command == ["init", "mine"]:  # it asks, and here is no terminal
        command.append("--kind=function")
    assert run_command(command) == (0, None)
    assert capsys.readouterr().out


def test_every_kind_of_project_and_every_verb_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []
    assert {command[0] for command in COMMANDS} == {"init", "convert", "completion"}
