"""Who runs a sweep, on what, with which packages."""

from __future__ import annotations

import getpass
import os
import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

INSTALLED = {"site-packages", "dist-packages"}


def user() -> str:
    """Name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def packages() -> dict[str, str]:
    """Version of every installed distribution, by its name."""
    # Ray, once imported, adds folders of its own packages' copies, which nobody has installed.
    path = [entry for entry in sys.path if not INSTALLED & set(Path(entry).parent.parts)]
    found = {each.metadata["Name"]: each.version for each in distributions(path=path) if each.metadata["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def hardware() -> dict[str, Any]:
    """The machine that the sweep is started on."""
    import psutil

    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": _gpus(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - no file of ours
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _gpus() -> list[str]:
    """Name, driver and memory of each, as the driver's own tool says it; imports no CUDA."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines()] if answer.returncode == 0 else []
