"""Puts the pages into the service's application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from sweeps.service.page.pages import Pages
from sweeps.service.page.rendering import STATIC
from sweeps.service.page.router import router
from sweeps.service.page.seen import Looking

if TYPE_CHECKING:
    from sweeps.service.process import ServiceProcess


def add_pages(app: FastAPI, service: ServiceProcess) -> None:
    """
    Args:
        app: Which answers.
        service: What it answers for.
    """
    app.state.pages = Pages(service.config, Looking(service.config.tracking_uri, service.database))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.include_router(router)
