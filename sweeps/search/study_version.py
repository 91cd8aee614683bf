"""Format version of a study: the version of the attributes that Sweeps adds to Optuna's own data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.files.checksums import parsed
from sweeps.files.found_lines import lines_with
from sweeps.files.versions import check_not_newer, release

if TYPE_CHECKING:
    import optuna

STUDY_FILE = "optuna.log"
"""File in the sweep's folder: Optuna's journal."""
VERSION, WRITTEN_BY = "sweeps:version", "sweeps:written_by"
"""Attributes of a study. A study without them has version 1: it was written before versions were recorded."""
STUDY_VERSION = 2
"""The version of this release; between 1 and 2, only the record of the version was added."""


def check_study(folder: Path) -> None:
    """Check the version of the study in a sweep's folder, without Optuna and without changing the file.

    Raises:
        NewerVersion: A later release wrote it.
    """
    path = folder / STUDY_FILE
    attributes = read_attributes(path, VERSION, WRITTEN_BY)
    check_not_newer(str(path), int(attributes.get(VERSION, 1)), STUDY_VERSION, attributes.get(WRITTEN_BY))


def read_attributes(path: Path, *names: str) -> dict[str, Any]:
    """Read the named attributes of a study from its file, without Optuna; attributes that are not set are left out."""
    attributes: dict[str, Any] = {}
    for name in names:
        for _, line in lines_with(path, name.encode()):
            attributes |= _user_attributes(line)
    return {name: attributes[name] for name in names if name in attributes}


def migrate_study(study: optuna.Study) -> None:
    """Migrate an open study to this release's version. Its caller must be the only writer.

    Raises:
        NewerVersion: A later release wrote it.
    """
    found = int(study.user_attrs.get(VERSION, 1))
    check_not_newer(study.study_name, found, STUDY_VERSION, study.user_attrs.get(WRITTEN_BY))
    if found < STUDY_VERSION:
        study.set_user_attr(WRITTEN_BY, release())
        study.set_user_attr(VERSION, STUDY_VERSION)


def _user_attributes(line: bytes) -> dict[str, Any]:
    try:
        found = parsed(line).get("user_attr")
    except ValueError:  # an incomplete line at the end, or a damaged one
        return {}
    return found if isinstance(found, dict) else {}
