"""Whether the service is there."""

from __future__ import annotations

from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from sweeps.service.database.storage_errors import RETRY_AFTER_S, outage

router = APIRouter(tags=["service"])


class Ready(BaseModel):
    """Whether requests can be answered and sweeps started now."""

    status: Literal["ready", "not ready"]
    trouble: str | None
    """Error of the storage, if it does not work."""


class Health(BaseModel):
    """That the service answers; who does not say who they are may know that, and no more."""

    status: str
    version: str


@router.get("/health")
async def health() -> Health:
    """Whether the service answers; in the event loop itself, and not after others in a queue for a thread."""
    return Health(status="ok", version=version("ray-sweeps"))


@router.get("/ready", responses={503: {"model": Ready}})
async def ready(response: Response) -> Ready:
    """Whether the service can do its work: 503 while its storage is locked, full or away. Send requests elsewhere
    meanwhile; a new start helps only where `health` does not answer either."""
    why = outage.reason
    if why is not None:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return Ready(status="ready" if why is None else "not ready", trouble=why)
