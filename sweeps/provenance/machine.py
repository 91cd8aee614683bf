"""The user, the hardware and the installed packages of a sweep."""

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
    """Return the user's name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may have no name
        return "unknown"


def packages() -> dict[str, str]:
    """Return the version of every installed distribution, by name."""
    # Leave out the copies of packages inside Ray, whose folders Ray adds to the path when it is imported.
    path = [entry for entry in sys.path if not INSTALLED & set(Path(entry).parent.parts)]
    found = {each.metadata["Name"]: each.version for each in distributions(path=path) if each.metadata["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def hardware() -> dict[str, Any]:
    """Return a description of this machine."""
    import psutil

    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": nvidia_gpus(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - no file of ours
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def nvidia_gpus() -> list[str]:
    """Return name, driver and memory of each GPU from ``nvidia-smi``, without importing CUDA, as ``L4, 550.54, 23034
    MiB``."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines()] if answer.returncode == 0 else []
