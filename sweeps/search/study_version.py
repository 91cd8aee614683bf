"""The version of a study: of what we keep in Optuna's storage beside what Optuna keeps there itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.versions import check_not_newer, release

if TYPE_CHECKING:
    import optuna

STUDY_FILE = "optuna.log"
"""File in the sweep's folder: Optuna's journal."""
VERSION, WRITTEN_BY = "sweeps:version", "sweeps:written_by"
"""Attributes of a study; one without them is of version 1, from before versions were kept."""


def _say_version(_study: optuna.Study) -> None:
    """Version 1 to 2: the study has its version, which ``bring_forward`` sets after every step."""


STEPS: Sequence[Callable[[optuna.Study], None]] = (_say_version,)
"""The first brings a study of version 1 to version 2, and so on."""
STUDY_VERSION = len(STEPS) + 1


def check_study(folder: Path) -> None:
    """Read the version of the study in a sweep's folder, without Optuna and without changing the file.

    Raises:
        NewerVersion: A later release wrote it.
    """
    path = folder / STUDY_FILE
    attributes: dict[str, Any] = {}
    if path.is_file():
        with path.open("rb") as lines:
            for line in lines:
                if VERSION.encode() in line or WRITTEN_BY.encode() in line:
                    attributes |= _user_attributes(line)
    check_not_newer(str(path), int(attributes.get(VERSION, 1)), STUDY_VERSION, attributes.get(WRITTEN_BY))


def bring_forward(study: optuna.Study) -> None:
    """Bring an open study to this release's version; its caller has it alone.

    Raises:
        NewerVersion: A later release wrote it.
    """
    found = int(study.user_attrs.get(VERSION, 1))
    check_not_newer(study.study_name, found, STUDY_VERSION, study.user_attrs.get(WRITTEN_BY))
    for number, step in enumerate(STEPS[found - 1 :], start=found + 1):
        step(study)
        study.set_user_attr(WRITTEN_BY, release())
        study.set_user_attr(VERSION, number)


def _user_attributes(line: bytes) -> dict[str, Any]:
    try:
        change = json.loads(line)
    except ValueError:  # half a line at the end
        return {}
    found = change.get("user_attr") if isinstance(change, dict) else None
    return found if isinstance(found, dict) else {}
