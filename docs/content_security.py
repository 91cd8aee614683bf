"""Makes the site's pages load nothing from other hosts, and work under the service's Content-Security-Policy.

The policy allows no script within a page.
Scripts move into files of their own, named after a hash of their contents. The theme's only script from another host is
replaced by ``before_theme.js``.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from sweeps.service.web.documentation import ADDRESS

INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
FOREIGN_SCRIPT = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
INLINE_FOLDER = Path("assets", "inline")
BEFORE_THEME = Path("before_theme.js")


def secure_pages(site: Path) -> None:
    """Rewrite all pages of a site.

    Args:
        site: Folder of the site.
    """
    (site / INLINE_FOLDER).mkdir(parents=True, exist_ok=True)
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        page.write_text(_rewritten(text, site, page), encoding="utf-8")


def _rewritten(text: str, site: Path, page: Path) -> str:
    def script(name: Path) -> str:
        address = f"{ADDRESS}/{name}" if page.name == "404.html" else os.path.relpath(site / name, page.parent)
        return f'<script src="{address}"></script>'

    def moved(found: re.Match[str]) -> str:
        name = INLINE_FOLDER / f"{hashlib.sha256(found[1].encode()).hexdigest()[:16]}.js"
        (site / name).write_text(found[1], encoding="utf-8")
        return script(name)

    return INLINE_SCRIPT.sub(moved, FOREIGN_SCRIPT.sub(script(BEFORE_THEME), text))
