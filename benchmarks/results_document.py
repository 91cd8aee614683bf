"""Measured numbers in Markdown documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table whose first ``left`` columns are aligned to the left, the others to the right."""
    rules = [*["---"] * left, *["---:"] * (len(headers) - left)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [headers, rules, *rows])


def write_between_marks(file: Path, contents: Mapping[str, str]) -> None:
    """Replace the texts of a Markdown file that are between ``<!-- measured: NAME -->`` and ``<!-- end of measured
    -->``."""
    text = file.read_text(encoding="utf-8")
    for name, content in contents.items():
        begin, end = f"<!-- measured: {name} -->", "<!-- end of measured -->"
        start = text.index(begin) + len(begin)
        text = f"{text[:start]}\n{content}\n{text[text.index(end, start) :]}"
    file.write_text(text, encoding="utf-8")
