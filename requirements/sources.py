"""Package sources for uv, from pip's environment variables and config files, which uv does not read."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

SETTINGS = {
    "index-url": ("UV_INDEX_URL", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", ""),
    "cert": ("SSL_CERT_FILE", ""),
    "proxy": ("ALL_PROXY", ""),
}
"""For each of pip's options uv's variable, and what separates its values there."""


def uv_settings() -> dict[str, str]:
    """uv's environment variables for what pip's own variables and config files say.

    Variables that are set already stay as they are.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: value for name, value in translated(listed).items() if name not in os.environ}


def translated(listed: str) -> dict[str, str]:
    """uv's variables for the lines of ``pip config list``, such as ``install.find-links='/wheels'``.

    A section of `install` has precedence over `global`, and pip's environment variables over both.
    """
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, _, text = line.partition("=")
        section, _, option = key.rpartition(".")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section, -1)
        if option in SETTINGS and rank >= found.get(option, (0, ""))[0]:
            found[option] = rank, ast.literal_eval(text)
    # Empty values switch a setting of another file off.
    return {
        SETTINGS[option][0]: SETTINGS[option][1].join(text.split())
        for option, (_, text) in found.items()
        if text.strip()
    }
