"""Consoles that print text as it is."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def plain_console(**options: Any) -> Console:
    """A console that takes neither ``[lightning]`` for markup nor ``:warning:`` for an emoji: what it prints comes
    from users and their YAML. Styles are set with ``Text``, or as an argument of ``print`` and ``add_column``.

    Args:
        options: Of ``rich.console.Console``.
    """
    return Console(markup=False, emoji=False, **options)
