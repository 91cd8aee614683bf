"""Consoles that print text without reading markup in it."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def plain_console(**options: Any) -> Console:
    """Console that prints ``[lightning]`` and ``:warning:`` as they are, since texts come from users and their YAML.

    Styles are set with ``Text``, or as an argument of ``print`` and ``add_column``.
    """
    # In a notebook rich would show HTML instead of printing to the file that it was given.
    return Console(markup=False, emoji=False, force_jupyter=False, **options)
