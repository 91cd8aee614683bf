"""Links between documents lead to files in the checkout; those to the generated reference, to pages of the site."""

from __future__ import annotations

import re

from documents import CHECKOUT, DOCUMENTS

LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
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
