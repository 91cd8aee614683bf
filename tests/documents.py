"""Blocks of code in the documents, with the files that readers are told to write, and the reason for a block that no
test can run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DOCUMENTS = [CHECKOUT / "README.md", CHECKOUT / "SECURITY.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
LANGUAGES = {"", "python", "yaml", "text", "console", "json", "ini"}
BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n(?P<gap>\n?)(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<text>.*?)\n(?P=indent)```", re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
NAMED = re.compile(r"`(?P<file>[\w./]+\.(?:py|yaml|jsonl))`[^`\n]*:$")
NAMED_INSIDE = re.compile(r"# (?P<file>[\w./]+\.(?:py|yaml))\b")


@dataclass(frozen=True)
class Block:
    """One block of code."""

    document: str
    line: int
    language: str
    text: str
    reason: str | None
    """Reason for not running it."""
    file: str | None
    """Path that the reader writes it to."""

    @property
    def commands(self) -> list[str]:
        """Commands of a block without a language, which has nothing else."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "" else []
        return [line.strip() for line in lines if line.strip()]

    @property
    def printed(self) -> list[tuple[str, str]]:
        """Commands of a block with the language ``console``, each with what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else []
        return [(command, output.strip()) for command, _, output in (part.partition("\n") for part in parts)]


def blocks() -> list[Block]:
    """All blocks of all documents."""
    return [block for path in DOCUMENTS for block in blocks_of(path)]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = match["before"].strip()
        reason = NOT_RUN.fullmatch(before)
        if reason is not None:  # the sentence before the comment may name the file
            before = text[: match.start()].rstrip().rpartition("\n")[2]
        named = NAMED.search(before) or (NAMED_INSIDE.match(match["text"]) if match["language"] != "" else None)
        line = text.count("\n", 0, match.start("language")) + 1
        why = reason["reason"] if reason is not None else None
        found.append(Block(path.name, line, match["language"], match["text"], why, named["file"] if named else None))
    return found


def write_files(document: str, folder: Path) -> None:
    """Write the files that a document tells its readers to write."""
    (path,) = (each for each in DOCUMENTS if each.name == document)
    for block in blocks_of(path):
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text + "\n", encoding="utf-8")


def words(command: str) -> list[str]:
    """Words of a command, as a shell gives them to the program."""
    return [word.replace("\\$", "$") for word in shlex.split(command, comments=True)]
