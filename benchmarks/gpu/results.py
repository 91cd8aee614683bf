"""Results of all parts: a line of JSON for each measurement, on the disk as soon as it is made."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "results.jsonl"


@dataclass(frozen=True)
class Results:
    """The file to which a part appends."""

    file: Path
    part: str

    def add(self, what: str, **numbers: Any) -> None:
        """Append one measurement, which a kill of this process cannot take back."""
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        line = json.dumps({"part": self.part, "what": what, "at": at, **numbers})
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(line + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        say(f"result: {what}: {', '.join(f'{name} {_short(value)}' for name, value in numbers.items())}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def say(text: str) -> None:
    """Print what a part does; ``measure.py`` adds the seconds, and repeats the line while nothing new comes."""
    print(text, flush=True)


def read_results(file: Path) -> list[dict[str, Any]]:
    """All measurements of a file. A last line that a kill has cut is left out."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            say(f"{file.name}: a line was cut off: {line[:60]}")
    return found


def run_part(part: str, measure: Callable[[Results, bool], None]) -> None:
    """Run a part as a program of its own: ``python -m gpu.PART FOLDER [--tiny]``."""
    folder, *options = sys.argv[1:]
    measure(Results(Path(folder) / FILE, part), "--tiny" in options)
