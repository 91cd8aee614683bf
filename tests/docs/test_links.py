"""Links between documents lead to files in the checkout; those to the generated reference, to pages of the site."""

from __future__ import annotations

import re
from pathlib import Path

from documents import CHECKOUT, DOCUMENTS

LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
GENERATED = "reference/"


def test_every_link_leads_to_a_file() -> None:
    links = {
        (path, target)
        for path in [*DOCUMENTS, CHECKOUT / "CONTRIBUTING.md", CHECKOUT / "CHANGELOG.md"]
        for target in LINK.findall(path.read_text(encoding="utf-8"))
    }
    assert len(links) > 200
    missing = {
        f"{path.name}: {target}"
        for path, target in links
        if not target.startswith(GENERATED) and not (path.parent / target).exists()
    }
    assert missing == set()


def test_every_anchor_is_that_of_a_heading_also_where_the_files_are_read_on_github() -> None:
    pages = [*DOCUMENTS, CHECKOUT / "CONTRIBUTING.md", CHECKOUT / "CHANGELOG.md"]
    anchors = {path: anchors_of(path) for path in pages}
    links = {
        (path, target, anchor)
        for path in pages
        for target, anchor in ANCHOR.findall(path.read_text(encoding="utf-8"))
        if not target.startswith(GENERATED)
    }
    assert len(links) > 50
    missing = {
        f"{path.name}: {target}#{anchor}"
        for path, target, anchor in links
        if anchor not in anchors[(path.parent / target).resolve() if target else path]
    }
    assert missing == set()


def anchors_of(path: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them: unlike those of the site, they keep repeated dashes."""
    prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
