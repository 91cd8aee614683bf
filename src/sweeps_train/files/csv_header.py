"""Detection of the separator between cells, from the first line of a CSV file."""

from __future__ import annotations

SEPARATORS = (",", ";", "\t", "|")


def other_separator(header: str, separator: str) -> str | None:
    """Return the character that separates the column names, if it is not the expected one.

    >>> other_separator("name;age, years;city", ",")
    ';'
    >>> other_separator("name,age", ",") is None
    True
    """
    likely = max(SEPARATORS, key=header.count)
    return likely if header.count(likely) > header.count(separator) else None
