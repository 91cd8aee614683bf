"""docs/architecture.md: its figure is the one that the sources give, and every file that it names exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest


def test_the_figure_is_up_to_date(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(checkout / "docs")
    figure = importlib.import_module("architecture_figure")
    committed = (checkout / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    drawn = figure.svg(figure.imports())
    assert drawn == committed, "run python docs/architecture_figure.py, and look at docs/images/architecture.svg"


def test_every_file_that_the_page_names_exists(checkout: Path) -> None:
    text = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:sweeps|src|conf|tests|docs)/[\w./-]*)`", text))
    assert len(named) > 40
    assert sorted(name for name in named if not (checkout / name).exists()) == []


def test_the_page_answers_thirty_five_questions(checkout: Path) -> None:
    text = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## Where is", 1)[1].split("\n## ", 1)[0]
    answers = [line for line in table.splitlines() if line.startswith("| ") and "`" in line]
    assert len(answers) >= 35
