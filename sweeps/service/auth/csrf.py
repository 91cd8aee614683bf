"""Protection from requests that other sites make through a user's browser (CSRF), and from DNS rebinding."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that change nothing."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_loopback_host(host: str) -> bool:
    """Whether a ``Host`` header names the loopback interface."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal_of_host(headers: Mapping[str, str]) -> str | None:
    """Return the reason why a service without tokens refuses a request's host; None if it does not. Another host name
    may belong to a site that rebinds its DNS entry to this machine, and a proxy may forward anybody's requests."""
    if not is_loopback_host(headers.get("host", "")):
        return "without tokens the service answers only to localhost and 127.0.0.1; `token create` makes one"
    if any(name in headers for name in FORWARDED):
        return "a proxy has forwarded this, and the service has no tokens; `python -m sweeps token create` makes one"
    return None


def refusal_of_site(method: str, headers: Mapping[str, str], own: Collection[str]) -> str | None:
    """Return the reason why a browser's request is refused, if a page of another site made it; otherwise None. Names of
    headers are in lower case; ``own`` are origins of the service besides that of the ``Host`` header.

    Browsers send the relation of the sites with every request (``Sec-Fetch-Site``), and the site itself with every
    request that may change something (``Origin``); no page can forge either. Other clients send neither.
    """
    refusal = "another site's page made this request"
    is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if method in SAFE_METHODS and is_navigation:
        return None  # a link to one of our pages
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return refusal
    origin = headers.get("origin")
    if method in SAFE_METHODS or origin is None or origin in own:
        return None
    return None if urlsplit(origin).netloc == headers.get("host") else refusal
