"""Puts the pages into the service's application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from sweeps.service.page import comparing, orders, router, schedules, signing_in, submitting, trial
from sweeps.service.page.pages import Pages
from sweeps.service.page.rendering import STATIC

if TYPE_CHECKING:
    from sweeps.service.process import ServiceProcess


def add_pages(app: FastAPI, service: ServiceProcess) -> None:
    """
    Args:
        app: Which answers.
        service: What it answers for.
    """
    app.state.pages = Pages(service)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for part in (router, trial, comparing, orders, submitting, schedules, signing_in):
        app.include_router(part.router)
