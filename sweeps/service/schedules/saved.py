"""Schedules that were saved through the service: a folder with one YAML file each, and all their earlier versions.

``NAME.yaml`` is a schedule (``schedule_file``), and may also be edited by hand. ``.history/NAME/000007.json`` is its
seventh version, with who saved it and when. A version is written before the schedule's own file, and each has reached
the disk before the next step, so that a crash loses nothing. The number and the size of kept versions are bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from sweeps.compose.service_config import with_output_dir
from sweeps.config.schedule import LONGEST_NAME, Schedule
from sweeps.config.service import Service
from sweeps.errors import ConfigError, Conflict
from sweeps.files.whole_files import FOLDER_MODE, private_opener, replacing, sync, write_json
from sweeps.service.schedules.definition import Definition, find_definition, load_definitions
from sweeps.service.schedules.schedule_file import description_of, is_pause, read_schedule

FOLDER = "schedules"
"""Name of the folder of saved schedules in the service's output folder."""
KEPT_VERSIONS = 200
"""Maximum number of versions kept for a schedule, the newest ones."""
KEPT_BYTES = 2**20
"""Maximum bytes kept of a schedule's versions, the newest ones."""
KEPT_REMOVED = 50
"""Maximum number of a user's removed schedules whose versions are kept, the most recently removed ones."""
LARGEST = 2**16
"""Maximum size of a schedule's file, in bytes."""
_HISTORY, _LOCK = ".history", ".lock"
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}", re.ASCII)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(use_attribute_docstrings=True))
class Version:
    """A saved version of a schedule."""

    number: int
    """Number, from 1."""
    user: str
    """User who saved the version; empty if the file was edited by hand."""
    time: float
    """Time at which the version was saved, in seconds since 1970 (UTC)."""
    action: str
    """Kind of change: ``saved``, ``paused``, ``resumed``, ``brought back``, ``removed`` or ``edited in its file``."""
    text: str | None
    """The YAML; null if the schedule was removed."""
    owner: str | None = None
    """Owner of the schedule; null in versions of earlier releases and of files that were edited by hand."""
    project: str | None = None
    """Project of the schedule; null in versions of earlier releases and of files that were edited by hand."""


class Owner(NamedTuple):
    user: str
    project: str


class SavedSchedules:
    """The schedules of a folder. Any number of processes of a machine may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The folder; created when the first schedule is saved."""

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.yaml") if _NAME.fullmatch(path.stem))

    def removed(self) -> list[str]:
        """Return the names of schedules that were saved before and have no file now."""
        known = (path.name for path in (self.folder / _HISTORY).glob("*") if _NAME.fullmatch(path.name))
        return sorted(set(known) - set(self.names()))

    def text(self, name: str) -> str | None:
        """Return the YAML of a schedule, None if none of that name is saved; raise ``ConfigError`` if its file cannot
        be read."""
        try:
            return self._file(name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(
                f"{FOLDER}/{name}.yaml: cannot be read ({error.strerror}); let the service's user read it, or remove it"
            ) from error

    def tag(self, name: str) -> str:
        """Return a string that changes with the schedule's file; empty if there is none."""
        return _tag(self.text(name))

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a schedule, newest first, including one for an edit of its file by hand."""
        found = self._versions(name)
        by_hand = self._by_hand(name, found)
        return [*([by_hand] if by_hand is not None else []), *reversed(found)]

    def last_owner(self, name: str) -> Owner | None:
        """Return the owner of a schedule by its newest version that names one; None if none does."""
        paths = sorted((self.folder / _HISTORY / name).glob("*.json"), key=lambda path: path.name, reverse=True)
        owners = (_owner(version, name) for path in paths if (version := _read_version(path)) is not None)
        return next((owner for owner in owners if owner is not None), None)

    def write(
        self,
        name: str,
        text: str | None,
        *,
        tag: str | None,
        user: str,
        now: float,
        action: str,
        owner: Owner | None = None,
        operators: Collection[str] = (),
    ) -> list[str]:
        """Write a schedule's YAML, or remove it if that is None, and keep this version, unless the schedule's ``tag``
        has changed since the change began; None replaces any version. Schedules in the operator's files (``operators``)
        do not count as removed when they have no saved file. Return the names of schedules that were removed long ago,
        whose versions this call has deleted.

        Raises:
            ConfigError: The schedule is too large.
            Conflict: Somebody has changed the schedule since; nothing is written.
        """
        if text is not None and len(text.encode()) > LARGEST:
            raise ConfigError(f"{name}: has more than {LARGEST // 1024} KiB; shorten its overrides, or make a config")
        with self._locked():
            present, versions = self.text(name), self._versions(name)
            if tag is not None and tag != _tag(present):
                raise Conflict(self._conflict(name, present))
            if (by_hand := self._by_hand(name, versions)) is not None:
                self._keep(name, by_hand)
                versions.append(by_hand)
            number = versions[-1].number + 1 if versions else 1
            whose = {} if owner is None else {"owner": owner.user, "project": owner.project}
            last = Version(number=number, user=user, time=now, action=action, text=text, **whose)
            self._keep(name, last)
            if text is None:
                self._file(name).unlink(missing_ok=True)
            else:
                _write_text(self._file(name), text)
            sync(self.folder)
            for old in _too_many([last, *reversed(versions)]):
                self._version_file(name, old.number).unlink(missing_ok=True)
            return self._forget_removed(owner, operators) if text is None else []

    def _forget_removed(self, owner: Owner | None, operators: Collection[str]) -> list[str]:
        """Remove the versions of the user's removed schedules, except those that were removed last."""
        user = None if owner is None else owner.user
        removed = (name for name in self.removed() if name not in operators)
        own = [name for name in removed if getattr(self.last_owner(name), "user", None) == user]
        own.sort(key=lambda name: (self.folder / _HISTORY / name).stat().st_mtime, reverse=True)
        for name in own[KEPT_REMOVED:]:
            shutil.rmtree(self.folder / _HISTORY / name)
        return own[KEPT_REMOVED:]

    def _conflict(self, name: str, present: str | None) -> str:
        last = next(iter(self.versions(name)), None)
        who = f" by {last.user}" if last is not None and last.user else ""
        if present is None:
            return f"{name} was removed{who} since you opened it; save it again to create it again"
        return (
            f"{name} was changed{who} since you opened it; what you entered is not saved. Compare it with the version "
            "that is saved now, and save again to replace that"
        )

    def _by_hand(self, name: str, versions: Sequence[Version]) -> Version | None:
        """Version for a file that was edited by hand; None if the file is unchanged since it was saved."""
        text = self.text(name)
        # After a crash the file may be of the version before the last.
        if text is None or text in (each.text for each in versions[-2:]):
            return None
        number = versions[-1].number + 1 if versions else 1
        time = self._file(name).stat().st_mtime
        return Version(number=number, user="", time=time, action="edited in its file", text=text)

    def _versions(self, name: str) -> list[Version]:
        found = map(_read_version, (self.folder / _HISTORY / name).glob("*.json"))
        return sorted((each for each in found if each is not None), key=lambda each: each.number)

    def _keep(self, name: str, version: Version) -> None:
        file = self._version_file(name, version.number)
        for folder in (file.parent.parent, file.parent):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        write_json(file, asdict(version))
        sync(file.parent)

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"name={name[:LONGEST_NAME]!r}: use at most {LONGEST_NAME} letters, digits, '.', '_' and '-', the "
                "first of them a letter or a digit"
            )
        return self.folder / f"{name}.yaml"

    def _version_file(self, name: str, number: int) -> Path:
        return self.folder / _HISTORY / name / f"{number:06}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with open(self.folder / _LOCK, "a", encoding="ascii", opener=private_opener) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def load_own(config: Service, config_dirs: Sequence[Path], now: float) -> dict[str, Definition]:
    """Load the operator's schedules by name, including those that only other services fire.

    Raises:
        ConfigError: Names every mistake in any file, one per line.
        UnknownName: There is no schedule of a name in the service's config.
    """
    own = load_definitions(config_dirs, now, config.enable, with_output_dir(config, ()))
    for name in config.schedules or ():
        find_definition(own, name)
    return own


def with_saved(
    config: Service, config_dirs: Sequence[Path], own: Mapping[str, Definition], saved: SavedSchedules, now: float
) -> tuple[dict[str, Definition], dict[str, str]]:
    """Add saved schedules to the operator's (``own``); a saved one replaces the operator's of the same name, even while
    its file cannot be read.

    The sweeps of saved schedules are not composed here, since anybody who may run sweeps may save a schedule: they are
    composed when a schedule is saved, and again before a sweep starts.

    Returns:
        All schedules, by name, and the mistakes in files that are left out, by name.
    """
    found, mistakes = dict(own), {}
    for name in saved.names():
        operators = own.get(name)
        try:
            text = saved.text(name)
        except ConfigError as error:
            mistakes[name] = str(error)
            found.pop(name, None)  # the file may pause the operator's schedule
            continue
        if text is None or (operators is None and is_pause(text)):
            continue  # it was just removed, or the operator has removed the paused schedule
        try:
            schedule = read_schedule(text, name, None if operators is None else operators.schedule)
            definition = define_saved(config, config_dirs, own, schedule)
            wrong = definition.mistakes_of_times(now)
        except ConfigError as error:
            wrong = str(error).splitlines()
        else:
            found |= {} if wrong else {name: replace(definition, description=description_of(text))}
        if wrong:
            mistakes[name] = "\n".join(f"{FOLDER}/{name}.yaml: {each}" for each in wrong)
    return found, mistakes


def define_saved(
    config: Service, config_dirs: Sequence[Path], own: Mapping[str, Definition], schedule: Schedule
) -> Definition:
    """Return the definition of a saved schedule, which replaces the operator's (``own``) of the same name."""
    replaces = own.get(schedule.name)
    placed = tuple(with_output_dir(config, ()))
    saved = Definition(schedule, tuple(config_dirs), is_saved=True, replaces=replaces, placed=placed)
    if replaces is not None and saved.is_operators:  # paused or resumed; its sweeps stay where they are
        return replace(saved, placed=replaces.placed)
    return saved


def fired(config: Service, definitions: Mapping[str, Definition]) -> dict[str, Definition]:
    """Return the schedules that a service fires: those of the operator that its config names, and those that were made
    or changed through the service."""
    only = config.schedules
    if only is None:
        return dict(definitions)
    return {name: each for name, each in definitions.items() if name in only or not each.is_operators}


def _too_many(versions: Sequence[Version]) -> Sequence[Version]:
    """Return the versions that exceed the limits, newest first."""
    sizes = accumulate(len((each.text or "").encode()) for each in versions)
    return versions[max(1, min(KEPT_VERSIONS, sum(size <= KEPT_BYTES for size in sizes))) :]


def _owner(version: Version, name: str) -> Owner | None:
    if version.owner is not None and version.project is not None:
        return Owner(version.owner, version.project)
    with contextlib.suppress(ConfigError):
        schedule = read_schedule(version.text or "", name)
        return Owner(schedule.user, schedule.project)
    return None


def _read_version(path: Path) -> Version | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Version(**json.loads(path.read_text(encoding="utf-8")))
    return None


def _tag(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
