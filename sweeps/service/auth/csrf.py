"""Where a request comes from: which site sent the browser, and under which name it knows us."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
"""Change nothing."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_loopback_host(host: str) -> bool:
    """Whether a ``Host`` header names this machine as seen from itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal_of_host(headers: Mapping[str, str]) -> str | None:
    """Why a service without tokens does not answer: another name may lead a page of its own site here (DNS rebinding),
    and a proxy may lead anybody here. None if it does."""
    if not is_loopback_host(headers.get("host", "")):
        return "without tokens the service answers to localhost and 127.0.0.1 alone; `token create` makes one"
    if any(name in headers for name in FORWARDED):
        return "a proxy has passed this on, and the service has no tokens; `python -m sweeps token create` makes one"
    return None


def refusal_of_site(method: str, headers: Mapping[str, str], own: Collection[str]) -> str | None:
    """Why a browser's request is refused: another site's page made it. None if it is not.

    Browsers say on every request where it comes from (``Sec-Fetch-Site``), and on every one that may change something
    the site, too (``Origin``); no page can forge either. Other clients send neither.

    Args:
        method: Of HTTP.
        headers: By lower-case name.
        own: Addresses under which browsers know us, besides the ``Host`` that they send.
    """
    refusal = "another site's page made this request"
    is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if method in SAFE_METHODS and is_navigation:
        return None  # a link to us
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return refusal
    origin = headers.get("origin")
    if method in SAFE_METHODS or origin is None or origin in own:
        return None
    return None if urlsplit(origin).netloc == headers.get("host") else refusal
