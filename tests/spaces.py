"""Spaces as a config writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from sweeps.config.space import Distribution
from sweeps.space.space import Space


def space_of(distributions: Mapping[str, Any]) -> Space:
    return Space(TypeAdapter(dict[str, Distribution]).validate_python(distributions))
