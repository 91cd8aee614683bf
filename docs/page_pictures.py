"""Screenshots of the service's pages: on a desktop and on a phone, light and dark.

Run:
    python benchmarks/pages.py --sweeps 20 --trials 300 --keep /tmp/pages --port 8643 &   # or any service
    python -m pip install --constraint constraints.txt --editable '.[docs]'
    python docs/page_pictures.py http://127.0.0.1:8643 --output /tmp/pictures   # all pages, to look at
    python docs/page_pictures.py http://127.0.0.1:8643                          # those in docs/images/

Needs Chromium (Debian: ``apt-get install chromium``). Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
SCREENS = {"desk": (1280, 860), "phone": (390, 844)}
SCHEMES = ("light", "dark")
SHOWN = ((("/", "service-list"), "desk", "light"), (("sweep", "service-sweep"), "desk", "light"))
"""Pictures in docs/images/: page and file name, screen, colour scheme."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("address", help="of a service that answers")
    parser.add_argument("--output", type=Path, help="folder for pictures of all pages; default: a few into docs/images")
    parser.add_argument("--token", help="file with a token, where the service demands one", type=Path)
    arguments = parser.parse_args()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pages = find_pages(browser, arguments.address, arguments.token)
        if arguments.output is None:
            for (name, file), screen, scheme in SHOWN:
                page = pages.get(name, name)
                take(browser, arguments, page, screen, scheme, IMAGES / f"{file}.png", full_page=False)
        else:
            for (name, path), screen, scheme in itertools.product(pages.items(), SCREENS, SCHEMES):
                file = arguments.output / f"{name.strip('/') or 'list'}-{screen}-{scheme}.png"
                take(browser, arguments, path, screen, scheme, file, full_page=True)
        browser.close()


def find_pages(browser: Browser, address: str, token: Path | None) -> dict[str, str]:
    """Paths of one page of each kind, by name."""
    page = open_page(browser, address, token, "desk", "light")
    found = {
        "/": "/",
        "queue": "/queue",
        "schedules": "/schedules",
        "submit": "/submit",
        "unknown": "/sweeps/none-such",
    }
    page.goto(address)
    names = page.locator("td .name").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    if names:
        found["running"] = names[0]
        found["sweep"] = next((name for name in names if "large" in name), names[-1])
    if len(names) > 1:
        found["compare"] = "/compare?" + "&".join(f"sweep={name.removeprefix('/sweeps/')}" for name in names[-2:])
    page.goto(urljoin(address, "/schedules"))
    schedules = page.locator("td .name").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    if schedules:
        found["schedule"] = schedules[0]
    page.context.close()
    return found


def open_page(browser: Browser, address: str, token: Path | None, screen: str, scheme: str) -> Page:
    width, height = SCREENS[screen]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        device_scale_factor=1,
    )
    page = context.new_page()
    if token is not None:
        page.goto(urljoin(address, "/sign-in"))
        page.get_by_label("Token").fill(token.read_text().strip())
        page.get_by_role("button", name="Sign in").click()
    return page


def take(
    browser: Browser,
    arguments: argparse.Namespace,
    path: str,
    screen: str,
    scheme: str,
    file: Path,
    *,
    full_page: bool,
) -> None:
    """Take one picture.

    Raises:
        RuntimeError: The page is wider than the screen.
    """
    page = open_page(browser, arguments.address, arguments.token, screen, scheme)
    page.goto(urljoin(arguments.address, path))
    page.wait_for_timeout(300)
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > SCREENS[screen][0]:
        raise RuntimeError(f"{path} is {width} pixels wide on a {screen}")
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=file, full_page=full_page)
    page.context.close()


if __name__ == "__main__":
    main()
