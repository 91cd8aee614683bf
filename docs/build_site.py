"""Builds the documentation as a site in one folder, which needs no network: docs/*.md, and the reference that
``docs/reference/`` writes from the program itself.

Run:
    make docs                                 # into the package, where `python -m sweeps serve` finds it
    python docs/build_site.py --output DIR    # needs: pip install -e '.[docs]'

A broken link, a page without a place in the navigation (``docs/zensical.toml``) and a place without a page fail.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from content_security import secure_pages
from reference import config_groups, config_keys, python_functions, routes, verbs
from reference.page import slug

from sweeps.files.whole_files import replacing
from sweeps.service.web.documentation import ADDRESS, INSIDE_THE_PACKAGE

DOCS = Path(__file__).resolve().parent
CHECKOUT = DOCS.parent
GENERATORS = (config_keys, config_groups, verbs, routes, python_functions)
ELSEWHERE = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
"""Pages outside of docs/, and their names on the site."""
LINKS = (
    (r"\]\((?:\.\./)?SECURITY\.md", "](security.md"),
    (r"\]\((?:\.\./)?CHANGELOG\.md", "](changelog.md"),
    (r"\]\(\.\./README\.md", "](index.md"),
    (r"\]\(\.\./notebooks/", "](notebooks/"),
    (r"\]\(docs/", "]("),
)
"""Links between files of the checkout, and between the same pages on the site."""
LINK_TO_CONFIG = re.compile(r"\]\(\.\./conf/([\w/]+)\.yaml\)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--output", type=Path, default=INSIDE_THE_PACKAGE, help="folder of the site; it is replaced")
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory(prefix="sweeps-docs-") as folder:
        site = build(Path(folder))
        with replacing(output) as unfinished:
            shutil.copytree(site, unfinished)
    pages = len(list(output.rglob("*.html")))
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print(f"{pages} pages, {size / 2**20:.1f} MiB: {output}/index.html")  # noqa: T201 - its result


def build(folder: Path) -> Path:
    """Build the site.

    Args:
        folder: Empty folder to work in.

    Returns:
        The folder of the site, inside of it.

    Raises:
        SystemExit: A link or the navigation is wrong; the messages are on stderr.
    """
    pages = {**hand_written(), **generated()}
    for path, text in pages.items():
        file = folder / "pages" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shutil.copytree(DOCS / "images", folder / "pages" / "images")
    shutil.copytree(CHECKOUT / "notebooks", folder / "pages" / "notebooks", ignore=shutil.ignore_patterns("*.py", ".*"))
    for name in ("site.css", "before_theme.js"):
        shutil.copy(DOCS / name, folder / "pages")
    (folder / "zensical.toml").write_text(_configuration(set(pages)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        messages = COLOUR.sub("", f"{done.stdout}{done.stderr}").partition("Traceback (most recent call last)")[0]
        sys.exit(messages.rstrip())
    _address_not_found_page(folder / "site" / "404.html")
    secure_pages(folder / "site")
    return folder / "site"


def _address_not_found_page(page: Path) -> None:
    """Let the page for unknown addresses, at any depth, find its files where the service has them."""
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r'((?:href|src)="|"base":\s*")/(?!/)', rf"\g<1>{ADDRESS}/", text), encoding="utf-8")


def hand_written() -> dict[str, str]:
    """Return the pages that people write, by path on the site."""
    files = {path.name: path for path in sorted(DOCS.glob("*.md"))}
    files |= {name: CHECKOUT / file for file, name in ELSEWHERE.items()}
    return {name: _with_links_of_the_site(path.read_text(encoding="utf-8")) for name, path in files.items()}


def _with_links_of_the_site(text: str) -> str:
    for pattern, replacement in LINKS:
        text = re.sub(pattern, replacement, text)
    return LINK_TO_CONFIG.sub(lambda found: f"](reference/groups.md#{slug(found[1])})", text)


def generated() -> dict[str, str]:
    """Return the pages of the reference, by path on the site."""
    return {path: text for generator in GENERATORS for path, text in generator.pages().items()}


def _configuration(pages: set[str]) -> str:
    """Return the configuration with the folders of the navigation replaced by their pages.

    Raises:
        SystemExit: A page has no place in it, or a place no page.
    """
    text = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    for folder in re.findall(r'= "(reference/[\w/]+/)"', text):
        inside = sorted(page for page in pages if page.startswith(folder))
        inside.sort(key=lambda page: not page.endswith("/index.md"))
        text = text.replace(f'"{folder}"', "[" + ", ".join(f'"{page}"' for page in inside) + "]")
    placed = set(places(tomllib.loads(text)["project"]["nav"]))
    if placed != pages:
        sys.exit(f"docs/zensical.toml: no place for {sorted(pages - placed)}, no page for {sorted(placed - pages)}")
    return text


def places(navigation: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(navigation, str):
        yield navigation
    for each in navigation.values() if isinstance(navigation, Mapping) else navigation:
        if isinstance(each, str):
            yield each
        else:
            yield from places(each)


if __name__ == "__main__":
    main()
