"""Conversion of another tool's search in the working folder, and the plan of the config that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sweeps.cli import run_command
from sweeps.plan.plan import Plan, make_plan


def converted(text: str, *options: str) -> dict[str, Any]:
    """Convert a YAML file, and read what was written."""
    Path("source.yaml").write_text(text)
    return carried_over("source.yaml", "conf", *options)


def carried_over(source: str, folder: str, *options: str) -> dict[str, Any]:
    """Convert a file or a value of a module into a new folder, and read what was written."""
    assert run_command(["convert", source, f"--output={folder}", *options]) == (0, None)
    (file,) = Path(folder).iterdir()
    loaded: dict[str, Any] = yaml.safe_load(file.read_text())
    return loaded


def plan_of(conf: dict[str, Any], *overrides: str, folder: str = "conf") -> Plan:
    return make_plan([f"conf={conf['name']}", "cluster.num_cpus=4", *overrides], [Path(folder)], None, "")


def argument(conf: dict[str, Any], name: str) -> Any:
    return conf["space"][f"task.arguments.{name}"]
