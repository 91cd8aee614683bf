"""Whether the service is there."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """That the service answers; who does not say who they are may know that, and no more."""

    status: str
    version: str


@router.get("/health")
async def health() -> Health:
    """Whether the service answers; in the event loop itself, and not after others in a queue for a thread."""
    return Health(status="ok", version=version("ray-sweeps"))
