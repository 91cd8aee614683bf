"""Conversion of another tool's search in the working folder, and the plan of the config that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sweeps.cli import run_command
from sweeps.plan.plan import Plan, make_plan


def converted(text: str, *options: str) -> dict[str, Any]:
    """Convert a file, and read what was written."""
    Path("source.yaml").write_text(text)
    assert run_command(["convert", "source.yaml", "--output=conf", *options]) == (0, None)
    (file,) = Path("conf").iterdir()
    loaded: dict[str, Any] = yaml.safe_load(file.read_text())
    return loaded


def plan_of(conf: dict[str, Any], *overrides: str) -> Plan:
    return make_plan([f"conf={conf['name']}", "cluster.num_cpus=4", *overrides], [Path("conf")], None, "")


def argument(conf: dict[str, Any], name: str) -> Any:
    return conf["space"][f"task.arguments.{name}"]
