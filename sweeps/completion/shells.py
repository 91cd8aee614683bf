"""Completion scripts for bash, zsh and fish, and the answers that they ask for.

Each script calls the command line with what was typed so far in ``COMP_LINE``, and ``_SWEEPS_COMPLETE`` set to
``SHELL_complete``. An answer is one line for each candidate: its kind, the word, and one line of help, with tabs
between them. The kind is ``plain``, ``nospace`` (more may follow: ``train.``), ``file`` or ``dir``.
"""

from __future__ import annotations

import os
import re
from importlib.resources import files
from typing import Any

from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

PROGRAM = re.compile(r"\s*(\S+\s+-m\s+sweeps|\S+)(\s+|$)")
"""``python -m sweeps`` or ``sweeps``, with the following space."""
OPEN_ENDS = ("=", ".", "/")


def typed_words() -> list[str]:
    """Return the words after the program's name; the last one may be incomplete."""
    line = os.environ.get("COMP_LINE", "")
    return split_arg_string(line[match.end() :] if (match := PROGRAM.match(line)) else line)


class _Shell(ShellComplete):
    """Base of the completion classes: a common form of answer, and a script in a file."""

    @property
    def source_template(self) -> str:  # type: ignore[override]
        return files("sweeps.completion").joinpath("scripts", f"{self.name}.txt").read_text(encoding="utf-8")

    def source(self) -> str:
        return self.source_template

    def get_completion_args(self) -> tuple[list[str], str]:
        words = typed_words()
        if not words or os.environ.get("COMP_LINE", "")[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        kind = item.type
        if kind == "plain" and str(item.value).endswith(OPEN_ENDS):
            kind = "nospace"
        return "\t".join((kind, self.word(str(item.value)), " ".join((item.help or "").split())))

    def word(self, value: str) -> str:
        """Return the word in the shell's format."""
        return value


class BashCompletion(_Shell):
    """Completion for bash, which replaces only what follows the last word break, such as ``=``."""

    name = "bash"

    def word(self, value: str) -> str:
        breaks = [sign for sign in os.environ.get("COMP_WORDBREAKS", "=:") if not sign.isspace() and sign not in "\"'"]
        _, incomplete = self.get_completion_args()
        kept = max((incomplete.rfind(sign) for sign in breaks), default=-1) + 1
        return value[kept:] if value.startswith(incomplete[:kept]) else value


class ZshCompletion(_Shell):
    name = "zsh"


class FishCompletion(_Shell):
    name = "fish"


SHELLS: dict[str, type[_Shell]] = {shell.name: shell for shell in (BashCompletion, ZshCompletion, FishCompletion)}
