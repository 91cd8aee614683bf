"""Spaces and samplers as a config writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from sweeps.config.samplers import Sampler
from sweeps.config.space import Distribution
from sweeps.space.space import Space


def space_of(distributions: Mapping[str, Any]) -> Space:
    return Space(TypeAdapter(dict[str, Distribution]).validate_python(distributions))


def sampler_of(kind: str, **options: Any) -> Sampler:
    return TypeAdapter[Sampler](Sampler).validate_python({"kind": kind, **options})
