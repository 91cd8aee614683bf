"""Field types shared by several sections of the config."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

STRICT = ConfigDict(extra="forbid", ser_json_inf_nan="constants")  # an infinite argument would be saved as null

PositiveInt = Annotated[int, Field(gt=0, lt=2**63)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
NonEmpty = Annotated[str, Field(min_length=1)]


def _tab(character: Any) -> Any:
    return "\t" if character == "\\t" else character  # Hydra's grammar has no escape for it


Character = Annotated[str, Field(min_length=1, max_length=1), BeforeValidator(_tab)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # a 32-bit number, as numpy requires
