"""Responses from templates: whole pages, or only the live part that an open page fetches."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sweeps.report.formatting import duration
from sweeps.service.web.plotly_library import plotly_address
from sweeps.service.web.sweep_view import further_change
from sweeps.service.web.trials_table import shown
from sweeps.texts.wording import counted

HERE = Path(__file__).parent
STATIC = HERE / "static"
LIVE = "live"
"""Block of a template that an open page fetches regularly."""
DOCS = "docs"
"""Name of the route of the documentation."""
ONCE = ("part", "done")
"""Query parameters that links on the page leave out."""


def answer(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """Response with a page from a template, or with ``?part=live`` its live part; 304 if the browser already has it."""
    page = _environment().get_template(template)
    has_docs = any(getattr(route, "name", "") == DOCS for route in request.app.routes)
    plain = {"principal": None, "here": "", "signed_in": False, "form_token": "", "message": "", "has_docs": has_docs}
    context = {**plain, **context}
    if request.query_params.get("part") == LIVE and LIVE in page.blocks:
        text = "".join(page.blocks[LIVE](page.new_context(context)))
    else:
        text = page.render(context)
    return conditional(request, text, "text/html", status=status)


def conditional(request: Request, text: str, media_type: str, *, status: int = 200) -> Response:
    """Text response; 304 if the browser already has it."""
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-store"}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, status, headers, media_type)


def addresses(request: Request) -> Callable[..., str]:
    """Function for links to the same page with some query parameters changed: None removes one, a list repeats it."""

    def address(**changed: Any) -> str:
        given = request.query_params.multi_items()
        query = [(key, value) for key, value in given if key not in (*ONCE, *changed) and value]
        for key, value in changed.items():
            values = value if isinstance(value, list) else [value]
            query += [(key, str(each)) for each in values if each not in (None, "")]
        return f"{request.url.path}?{urlencode(query)}" if query else request.url.path

    return address


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(moment=moment, duration=duration, shown=shown, counted=counted)
    environment.globals.update(static=_static, plotly=plotly_address, version=version("ray-sweeps"))
    environment.globals["further_change"] = further_change
    environment.globals["ui"] = environment.get_template("parts.html").module
    environment.globals["actions"] = environment.get_template("actions.html").module.actions  # type: ignore[attr-defined]
    return environment


def moment(seconds: float) -> Markup:
    """Time in UTC, which the page's script converts to the viewer's time zone; the tooltip stays in UTC."""
    utc = time.gmtime(seconds)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", utc),
        time.strftime("%Y-%m-%d %H:%M:%S UTC", utc),
        time.strftime("%Y-%m-%d %H:%M UTC", utc),
    )


@cache
def _static(name: str) -> str:
    """Address of a static file with a hash of its contents, so that browsers can cache it."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]}"
