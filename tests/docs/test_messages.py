"""docs/troubleshooting.md: each message is the one that its command prints, or one in the sources."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from documents import CHECKOUT, blocks, words

from sweeps.cli import run_command

PAGE = CHECKOUT / "docs" / "troubleshooting.md"


PRINTED = [each for block in blocks() for each in block.printed]
ONLY_IN_SOURCES = re.findall(r"<!-- message -->\n```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def _files(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / "mine.py").write_text("def train(config):\n    pass\n")
    (working_folder / "my_conf").mkdir()
    (working_folder / "my_conf" / "tabs.yaml").write_text("defaults: [digits, _self_]\ntrain:\n\tlr: 0.1\n")
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.parametrize(("command", "output"), PRINTED, ids=[command for command, _ in PRINTED])
def test_a_command_prints_the_message_on_the_page(
    command: str, output: str, uri: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(working_folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    status, message = run_command(words(command)[3:])
    assert status == 2
    expected = output.removeprefix("sweeps: ").removesuffix("\n...")
    assert re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), message or ""), message


def constants() -> str:
    """Texts in the sources, with ``...`` for the values within them."""
    found = []
    for path in (*(CHECKOUT / "sweeps").rglob("*.py"), *(CHECKOUT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values]
                found.append("".join(parts))
    return "\n".join(found)


def test_the_other_messages_are_in_the_sources() -> None:
    text = constants()
    missing = [
        message
        for message in ONLY_IN_SOURCES
        if not all(part in text for part in re.split(r"\.\.\.|\n", message) if len(part.strip()) > 3)
    ]
    assert len(ONLY_IN_SOURCES) >= 8
    assert missing == []
