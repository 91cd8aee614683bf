"""Serves plotly.js, which draws the figures in browsers, from the file that the plotly package contains.

The pages' content security policy forbids inline styles and code made at run time. ``static/figures.js`` sets the few
styles that Plotly sets as attributes through the CSSOM, which is allowed. Traces that are drawn by WebGL
(``scattergl``, ``parcoords``) make code at run time and are not used on the pages: ``figures.py`` draws them as SVG.
"""

from __future__ import annotations

import gzip
from functools import cache

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from sweeps.service.auth.auth import reader

router = APIRouter(include_in_schema=False)

CACHEABLE = "private, max-age=31536000, immutable"
"""``Cache-Control`` of files whose addresses change with their contents."""


@router.get("/plotly.js", dependencies=[Depends(reader)])
def plotly() -> Response:
    """The library plotly.js, compressed."""
    headers = {"Content-Encoding": "gzip", "Cache-Control": CACHEABLE}
    return Response(_compressed(), media_type="text/javascript", headers=headers)


@cache
def _compressed() -> bytes:
    return gzip.compress(get_plotlyjs().encode(), mtime=0)


@cache
def plotly_address() -> str:
    """Address of the library, with its version."""
    return f"/plotly.js?{get_plotlyjs_version()}"
