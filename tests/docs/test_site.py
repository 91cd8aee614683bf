"""The documentation as a site: it builds without a broken link, loads nothing from elsewhere, and is served under
``/docs``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXTERNAL_RESOURCE = re.compile(r"<(?:script|link|img|iframe)[^>]*\s(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the site, as ``make docs`` builds it. Fails for a broken link, and a page without a place."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, str(checkout / "docs" / "build_site.py"), "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_other_hosts_and_have_no_script_or_style_of_their_own(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert EXTERNAL_RESOURCE.findall(text) == [], page
        assert "<script>" not in text, page
        assert "<style" not in text, page
        assert ' style="' not in text, page


def test_every_document_is_a_page(checkout: Path, site: Path) -> None:
    missing = [path.name for path in (checkout / "docs").glob("*.md") if not (site / f"{path.stem}.html").exists()]
    assert missing == []
    assert (site / "security.html").exists()
    assert (site / "reference" / "config" / "search.html").exists()
