"""Screenshots of the service's pages: on a desktop and on a phone, light and dark.

Run:
    python benchmarks/pages.py --sweeps 20 --trials 300 --keep /tmp/pages --port 8643 &   # or any service
    make env
    python docs/page_pictures.py http://127.0.0.1:8643 --output /tmp/pictures   # all pages, to look at
    python docs/page_pictures.py http://127.0.0.1:8643                          # those in docs/images/

The form to sign in is there only where the service demands tokens, so it is taken afterwards:

    python -m sweeps token create --user NAME --role admin database=sqlite:////tmp/pages/outputs/service.db
    python docs/page_pictures.py http://127.0.0.1:8643 --only sign-in --token FILE    # with that token in it

Needs Chromium (Debian: ``apt-get install chromium``). Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import io
import itertools
import shutil
from pathlib import Path
from urllib.parse import urljoin

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

IMAGES = Path(__file__).parent / "images"
SCREENS: dict[str, ViewportSize] = {"desk": {"width": 1400, "height": 1100}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
SHOWN = {
    "list": "service-list",
    "sweep": "service-sweep",
    "trial": "service-trial",
    "compare": "service-compare",
    "queue": "service-queue",
    "schedules": "service-schedules",
    "schedule": "service-schedule",
    "submit": "service-submit",
    "new-schedule": "service-new-schedule",
    "edit-schedule": "service-edit-schedule",
    "table": "service-table",
    "report": "service-report",
    "sign-in": "service-sign-in",
    "unknown": "service-unknown",
    "api": "service-api",
}
"""Pages whose pictures are in docs/images/, and the beginnings of their files' names."""
SIGN_IN = "/sign-in"
IN_DARK = "trial"
"""Page whose picture on the phone is the dark one."""
COLOURS = 256
"""Number of colours of a picture, which makes files of a third of the size. They are chosen to cover all colours, and
not by frequency, or the few points of failed trials would get the colour of the others."""
PREVIEWED = "!document.querySelector('form[data-preview]') || document.querySelector('#preview dl')"
DRAWN = """[...document.querySelectorAll("[data-figure]")].every(
  each => !each.checkVisibility() || each.querySelector(".js-plotly-plot, svg"))"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("address", help="of a service that answers")
    parser.add_argument("--output", type=Path, help="folder for pictures of all pages; default: some into docs/images")
    parser.add_argument("--only", nargs="+", metavar="PAGE", help="names of the pages to take; default: all")
    parser.add_argument("--token", help="file with a token, where the service demands one", type=Path)
    arguments = parser.parse_args()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pages = find_pages(browser, arguments.address, arguments.token)
        if arguments.output is None:
            for (name, file), screen in itertools.product(SHOWN.items(), SCREENS):
                if name in pages and name in (arguments.only or SHOWN):
                    scheme = "dark" if name == IN_DARK and screen == "phone" else "light"
                    end = "-phone.png" if screen == "phone" else ".png"
                    take(browser, arguments, pages[name], screen, scheme, IMAGES / f"{file}{end}", full_page=False)
        else:
            for (name, path), screen, scheme in itertools.product(pages.items(), SCREENS, SCHEMES):
                file = arguments.output / f"{name}-{screen}-{scheme}.png"
                take(browser, arguments, path, screen, scheme, file, full_page=True)
        browser.close()


def find_pages(browser: Browser, address: str, token: Path | None) -> dict[str, str]:
    """Paths of one page of each kind, by name."""
    page = open_page(browser, address, token, "desk", "light")
    found = {
        "list": "/",
        "queue": "/queue",
        "schedules": "/schedules",
        "submit": "/submit",
        "new-schedule": "/new-schedule",
        "api": "/api/docs",
        "unknown": "/sweeps/none-such",
    }
    if token is not None:
        found["sign-in"] = SIGN_IN
    page.goto(address)
    names = addresses_of(page, "td .name")
    if names:
        found["running"] = names[0]
        found["sweep"] = next((name for name in names if "large" in name), names[-1])
        page.goto(urljoin(address, found["sweep"]))
        found["trial"] = addresses_of(page, "a.trial")[0]
        found["table"] = f"{found['sweep']}/figures/curves/table"
        found["report"] = f"{found['sweep']}/report"
        page.goto(urljoin(address, found["report"]))
        if (make := page.get_by_role("button", name="Make the report")).count():
            make.click(timeout=120_000)
    if len(names) > 1:
        found["compare"] = "/compare?" + "&".join(
            f"sweep={name.removeprefix('/sweeps/')}" for name in (names[0], found["sweep"])
        )
    page.goto(urljoin(address, "/schedules"))
    if schedules := addresses_of(page, "td .name"):
        found["schedule"] = schedules[0]
        found["edit-schedule"] = f"{schedules[0]}/edit"
    page.context.close()
    return found


def addresses_of(page: Page, links: str) -> list[str]:
    found: list[str] = page.locator(links).evaluate_all("all => all.map(each => each.getAttribute('href'))")
    return found


def open_page(browser: Browser, address: str, token: Path | None, screen: str, scheme: str) -> Page:
    context = browser.new_context(
        viewport=SCREENS[screen],
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        device_scale_factor=1,
        bypass_csp=True,  # `wait_for_function` evaluates its text, which the pages' policy forbids
    )
    page = context.new_page()
    if token is not None:
        page.goto(urljoin(address, SIGN_IN))
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
    token = None if path == SIGN_IN else arguments.token
    page = open_page(browser, arguments.address, token, screen, scheme)
    page.goto(urljoin(arguments.address, path))
    for figure in page.locator("[data-figure]:visible").all():  # figures are drawn when they come near the screen
        figure.scroll_into_view_if_needed()
    page.wait_for_function(DRAWN, timeout=120_000)
    page.wait_for_function(PREVIEWED, timeout=120_000)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(1000)
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > SCREENS[screen]["width"]:
        raise RuntimeError(f"{path} is {width} pixels wide on a {screen}")
    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.open(io.BytesIO(page.screenshot(full_page=full_page))).convert("RGB")
    picture = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(file, optimize=True)
    page.context.close()


if __name__ == "__main__":
    main()
