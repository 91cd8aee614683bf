"""Splits texts into lines at line breaks only."""

from __future__ import annotations

import io


def text_lines(text: str) -> list[str]:
    r"""Return the lines of a text without their ends: ``\n``, ``\r\n`` and ``\r``.

    ``str.splitlines`` also splits at characters that a value may have, such as U+2028 in a JSON string.

    >>> text_lines("a\u2028b\r\nc\n")
    ['a\u2028b', 'c']
    """
    return [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]
