"""Every `python -m sweeps run` of the documents makes a plan as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from sweeps.plan.plan import make_plan

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (path.name, block) for path in DOCUMENTS for block in re.findall(r"```\w*\n(.*?)```", path.read_text(), re.DOTALL)
]
COMMANDS = [
    (name, line.strip())
    for name, block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if "python -m sweeps run " in line
]
ONE_LINERS = [(path.name, found) for path in DOCUMENTS for found in re.findall(r"`(conf=\w+ [^`]+)`", path.read_text())]
MODULE = """
def train(config):
    return config["lr"]

trainer = training = train

def data():
    pass

class Model:
    pass
"""


@pytest.fixture(autouse=True)
def _files(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the documents tell their readers to write."""
    (working_folder / "texts.jsonl").write_text('{"text": "a document"}\n' * 20)
    (working_folder / "module.py").write_text(MODULE)
    (working_folder / "train.py").write_text("print()")
    (working_folder / "winner.yaml").write_text("defaults: [digits, _self_]\n")
    (working_folder / "PATH").mkdir()
    (working_folder / "my_conf").mkdir()
    for language, name, content in re.findall(
        r"`([\w/]+\.(?:py|yaml))`[^\n]*:\n\n```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    ):
        assert name in ("python", "yaml")
        (working_folder / language).write_text(content)
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])
    sys.path_importer_cache.pop(str(working_folder), None)


def plan(tokens: list[str]) -> None:
    folders = [Path(tokens[index + 1]) for index, token in enumerate(tokens) if token == "--config-dir"]
    options = {index + 1 for index, token in enumerate(tokens) if token in ("--config-dir", "--name", "--server")}
    overrides = [token for index, token in enumerate(tokens) if index not in options and not token.startswith("--")]
    make_plan(overrides, folders, None, "")


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_a_documented_command_makes_a_plan(document: str, command: str) -> None:
    tokens = [token.replace("\\$", "$") for token in shlex.split(command, comments=True)]  # as a shell has it
    plan(tokens[tokens.index("run") + 1 :])


@pytest.mark.parametrize(("document", "one_liner"), ONE_LINERS)
def test_a_documented_one_liner_makes_a_plan_with_the_conf_that_it_names(document: str, one_liner: str) -> None:
    own = "task._target_=module." in one_liner  # whose arguments are not the example's
    plan([*shlex.split(one_liner), *(["~task.arguments", "~space"] if own else [])])


def test_all_documented_commands_are_found() -> None:
    assert len(COMMANDS) >= 18
    assert len(ONE_LINERS) >= 9
