"""Base classes of the API's documents and bodies, whose attribute docstrings become descriptions in its OpenAPI
document."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A document of a response."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Body(BaseModel):
    """A body of a request; unknown keys are refused."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")
