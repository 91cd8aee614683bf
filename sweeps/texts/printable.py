"""Removes control characters, which a terminal or a page would interpret, from text of users and programs."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,99}[ -/]{0,9}[@-~]"  # CSI: colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,999}(?:\x07|\x1b\\)"  # OSC and other strings: titles, links, the clipboard
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # the order in which text is read
)
_OVERWRITTEN = re.compile(r"\n[^\n]*\x1b\[A")
"""A line above which later output has moved the cursor, such as a progress bar below another one."""


def printable(text: str) -> str:
    """Return text without control characters. Of a line that was overwritten, such as a progress bar, only the last
    state remains."""
    text = _OVERWRITTEN.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return without_controls(text)


def without_controls(text: str) -> str:
    """Return text without escape sequences, control characters other than tab and line end, and bidirectional
    controls."""
    return text if text.isprintable() else _CONTROL.sub("", text)
