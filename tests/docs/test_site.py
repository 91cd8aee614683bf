"""The documentation as a site: it builds without a broken link, loads nothing from elsewhere, and is served under
``/docs``."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from chromium import chromium
from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as WaitedInVain
from serving import Api
from web_server import answering

from sweeps.errors import ConfigError

EXTERNAL_RESOURCE = re.compile(r"<(?:script|link|img|iframe)[^>]*\s(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.fixture(scope="module")
def site(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the site, as ``make docs`` builds it. Fails for a broken link."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(checkout / "docs")  # its generators are scripts beside the pages
        patch.setattr(sys, "argv", ["build_site.py", "--output", str(folder)])
        importlib.import_module("build_site").main()
    return folder


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts_and_have_no_script_or_style_of_their_own(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert EXTERNAL_RESOURCE.findall(text) == [], page
        assert "<script>" not in text, page
        assert "<style" not in text, page
        assert ' style="' not in text, page


@pytest.mark.slow
def test_every_document_is_a_page(checkout: Path, site: Path) -> None:
    missing = [path.name for path in (checkout / "docs").glob("*.md") if not (site / f"{path.stem}.html").exists()]
    assert missing == []
    assert (site / "security.html").exists()
    assert (site / "reference" / "config" / "search.html").exists()


def test_a_service_has_the_site_under_docs_with_its_own_security_policy(tmp_path: Path, uri: str) -> None:
    for page in ("index.html", "404.html", "reference/verbs.html", "assets/site.js"):
        (tmp_path / "site" / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / page).write_text('<script src="/docs/assets/site.js">')
    check_served(uri, tmp_path / "site", files=1)


@pytest.mark.slow
def test_a_service_has_the_files_of_the_built_site(site: Path, uri: str) -> None:
    check_served(uri, site, files=4)


def check_served(uri: str, site: Path, files: int) -> None:
    api = Api(uri, f"docs_dir={site}")
    with api.client() as client:
        page = client.get("/docs/")
        assert page.status_code == 200
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert client.get("/docs/reference/verbs.html").status_code == 200
        unknown = client.get("/docs/deeper/unknown.html")
        assert unknown.status_code == 404
        named = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', unknown.text)
        assert len(named) >= files
        assert all(client.get(file).status_code == 200 for file in named)
        assert 'href="/docs/index.html"' in client.get("/").text
    api.close()


def test_a_folder_that_is_no_site_is_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"docs_dir=.*: has no index\.html; `make docs`"):
        Api(uri, f"docs_dir={tmp_path}")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["service", "disk"])
def test_the_search_of_the_site_works_in_a_browser_without_another_host(where: str, site: Path, tmp_path: Path) -> None:
    program = chromium()
    with sync_playwright() as play, served(site, tmp_path) as address:
        page = play.chromium.launch(executable_path=program, args=["--no-sandbox"]).new_page()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda request: troubles.append(request.url))
        page.goto(f"{address}/docs/index.html" if where == "service" else f"file://{site}/index.html")
        open_search(page)
        page.keyboard.type("hang_timeout_s", delay=50)
        page.get_by_text("scaling.hang_timeout_s").first.wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"reference/config/scaling\.html"))
        assert troubles == []


def open_search(page: Page) -> None:
    """Press its keys until the page's script has begun to listen to them."""
    for _ in range(30):
        page.keyboard.press("Control+k")
        with suppress(WaitedInVain):
            page.locator("input:focus").wait_for(timeout=2000)
            return


@contextmanager
def served(site: Path, folder: Path) -> Iterator[str]:
    """Address of a service with the site."""
    with answering(folder, docs_dir=str(site)) as server:
        yield server.url
