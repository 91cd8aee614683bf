"""Makes the files of a new project."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from sweeps.errors import UserError
from sweeps.scaffold.kinds import Kind

CONF_FOLDER = "conf"
TEST_FILE = "test_sweep.py"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def project_name(folder: Path, name: str | None) -> str:
    """Return the name of a project's config: the given one, otherwise that of the folder.

    Raises:
        UserError: The given name cannot be a config's.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9]+", "_", folder.resolve().name).strip("_")[:60] or "sweep"
    if NAME.fullmatch(name) is None:
        raise UserError(
            f"--name={name}: must be up to 60 letters, digits, '-', '_' or '.', the first a letter or digit"
        )
    return name


def project_files(kind: Kind, name: str) -> dict[str, str]:
    """Return the files of a project: its module, its config and its test, by path.

    Args:
        kind: Kind of project.
        name: Name of the config.
    """
    texts = {
        kind.module: template(kind.name, kind.module),
        f"{CONF_FOLDER}/{name}.yaml": Template(template(kind.name, "conf.yaml")).substitute(name=name),
        TEST_FILE: own_test(TEST_FILE, name, CONF_FOLDER, kind.short),
    }
    if kind.name == "lora":
        texts["examples.jsonl"] = _examples()
    if kind.name == "table":
        texts["table.csv"] = template(kind.name, "table.csv")
    return texts


def own_test(file: str, name: str, conf_folder: str, short: Mapping[str, object] | None, values: str = "") -> str:
    """Return the test of a project: the config makes a plan, and a short trial reports the metric.

    Args:
        file: Name of the test's file.
        name: Name of the config.
        conf_folder: Its folder.
        short: Overrides of a short trial; None for a test that only makes the plan, for trials that may take any time.
        values: Overrides that the plan needs.
    """
    text, checks = template("test_sweep.py"), "the config"
    if short is not None:
        overrides = "".join(f"\n        {json.dumps(key)}: {value!r}," for key, value in short.items())
        text += template("test_short_trial.py").replace("\n        $short", overrides)
        checks += " and one short trial"
    return Template(text).substitute(file=file, name=name, conf_folder=conf_folder, checks=checks, values=values)


def _examples() -> str:
    """Return the files that ``make_examples.py`` writes; with them the project runs immediately."""
    pairs = [(f"{a} + {b} = ", f"{a + b}") for a in range(20) for b in range(20)]
    return "".join(json.dumps({"prompt": prompt, "completion": answer}) + "\n" for prompt, answer in pairs)


def template(*parts: str) -> str:
    path = files("sweeps.scaffold").joinpath("templates", *parts[:-1], f"{parts[-1]}.template")
    return path.read_text(encoding="utf-8")
