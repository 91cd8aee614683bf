"""Health and readiness of the service."""

from __future__ import annotations

from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response

from sweeps.service.api.response_documents import Document
from sweeps.service.database.storage_errors import RETRY_AFTER_S, outage

VERSION = version("ray-sweeps")  # reads a file

router = APIRouter(tags=["service"])


class Ready(Document):
    """Whether requests can be answered and sweeps started now."""

    status: Literal["ready", "not ready"]
    """Whether the service is ready."""
    trouble: str | None
    """Error of the storage, if it does not work."""


class Health(Document):
    """Answer of a service that is up; needs no token."""

    status: str
    """Always ok."""
    version: str
    """Version of Sweeps."""


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Health:
    """Whether the service answers. Runs in the event loop, so that it does not wait for a thread."""
    return Health(status="ok", version=VERSION)


@router.head("/ready", include_in_schema=False)
@router.get("/ready", responses={503: {"model": Ready}})
async def ready(response: Response) -> Ready:
    """Whether the service can work: 503 while its storage is locked, full or unreachable. Route requests elsewhere
    during that time; a restart only helps if `health` does not answer either."""
    reason = outage.reason
    if reason is not None:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return Ready(status="ready" if reason is None else "not ready", trouble=reason)
