"""English and Python text from the running interpreter's standard library, which every machine has.

The default sweep adapts a small language model to the library's docstrings; the model was pretrained on the library's
code without them. Nothing is random: one Python release gives the same text on every machine, the next one slightly
different text.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["train", "eval"]

BUILTIN_DOCSTRINGS = "builtin:stdlib_docstrings"
"""Config path that names the standard library's docstrings as documents."""

MIN_DOCSTRING_CHARACTERS = 80
"""Minimum length of a docstring; shorter ones are mostly one-liners that repeat a name."""

MIN_ASCII_FRACTION = 0.95
"""Part of a docstring's characters that must be ASCII: to a byte-level model other scripts are noise."""

EVAL_FRACTION = 0.1
"""Approximate part of the modules that is held out."""

# Tests, third-party packages, generated tables and the help topics (prose in a dict). Also packages that distributions
# ship separately or newer Pythons have dropped, so that machines differ less.
_FOLDERS_LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages", "lib-dynload"}
    | {"encodings", "pydoc_data", "__phello__", "distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo"}
)
# _sysconfigdata_*.py and config-*/ hold the build settings of one machine.
_PREFIXES_LEFT_OUT = ("_sysconfigdata", "config-")


def source_files() -> list[Path]:
    """Return the ``.py`` files of the running Python's standard library, sorted, without tests and site-packages.

    Raises:
        FileNotFoundError: This Python was installed without the source of its library.
    """
    root = _library()
    found = []
    for folder, subfolders, names in os.walk(root):
        # In place, so that os.walk does not descend into the others.
        subfolders[:] = [
            name for name in subfolders if name not in _FOLDERS_LEFT_OUT and not name.startswith(_PREFIXES_LEFT_OUT)
        ]
        found += [
            Path(folder, name) for name in names if name.endswith(".py") and not name.startswith(_PREFIXES_LEFT_OUT)
        ]
    if not found:
        raise FileNotFoundError(
            f"no Python source in {root}: this Python came without the source of its standard library; "
            "set data.path to a text of your own"
        )
    return sorted(found, key=lambda path: path.relative_to(root).parts)


def split_of(path: Path) -> Split:
    """Return the split of a source file, by its module's top-level name, so that no package is in both splits."""
    name = path.relative_to(_library()).parts[0].removesuffix(".py")
    # Not hash(), which differs from process to process.
    return "eval" if hashlib.sha256(name.encode()).digest()[0] < EVAL_FRACTION * 256 else "train"


def docstrings(split: Split) -> list[str]:
    """Return the docstrings of the standard library's modules, classes and functions, each text once.

    The order is fixed and mixes the modules, so that the first ones are a fair sample of all.

    >>> len(docstrings("train")) > len(docstrings("eval")) > 100
    True
    """
    return list(_docstrings_by_split()[split])


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def parse(path: Path) -> ast.Module | None:
    """Parse a file into its syntax tree; None if it does not parse or is not UTF-8, since columns in ``ast`` count
    UTF-8 bytes."""
    source = path.read_bytes()
    try:
        source.decode("utf-8")
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


@cache  # Parsing the library takes a second, and a warm worker loads the same data for every trial.
def _docstrings_by_split() -> dict[Split, tuple[str, ...]]:
    split_by_text: dict[str, Split] = {}
    for path in source_files():
        if tree := parse(path):
            split = split_of(path)
            for text in _docstrings_of(tree):
                if _is_worth_learning(text):
                    # Text that several modules have belongs to the split of the first one, never to both.
                    split_by_text.setdefault(text, split)
    mixed = sorted(split_by_text, key=lambda text: hashlib.sha256(text.encode()).digest())
    return {
        "train": tuple(text for text in mixed if split_by_text[text] == "train"),
        "eval": tuple(text for text in mixed if split_by_text[text] == "eval"),
    }


def _docstrings_of(tree: ast.Module) -> Iterator[str]:
    for owner in _blocks(tree):
        if isinstance(owner, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(owner)
            if text is not None:
                yield text.strip()


def _is_worth_learning(text: str) -> bool:
    ascii_characters = len(text.encode("ascii", errors="ignore"))
    return len(text) >= MIN_DOCSTRING_CHARACTERS and ascii_characters >= MIN_ASCII_FRACTION * len(text)


def _blocks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes that contain a block of statements. Expressions have none; skipping them is twice as fast."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        owner = waiting.pop()
        yield owner
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(owner, name, ())
