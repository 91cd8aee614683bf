"""The page of a report, as a browser would find it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Elements of the page, as a browser would find them."""

    def __init__(self, text: str):
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.data: dict[str, Any] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.addresses += [value for name in ("src", "href", "srcset", "data") if (value := found.get(name))]
        self._inside = found.get("id") or "" if tag == "script" else ""
        self.ids.append(found.get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("figures", "rows"):
            self.data[self._inside] = json.loads(data)
