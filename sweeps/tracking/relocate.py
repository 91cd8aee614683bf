"""A sweep's folder that was moved: what names places in it is to name them where they are now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweeps.tracking.artifact_uploader import TAGS
from sweeps.tracking.store import RawRun
from sweeps.tracking.uris import as_uri


@dataclass(frozen=True)
class Move:
    """From one folder to another, or to the same."""

    was: Path
    now: Path

    def __bool__(self) -> bool:
        return self.was != self.now

    def path(self, place: str) -> str:
        """Where a path is now; one elsewhere is where it was."""
        return _moved(place, str(self.was), str(self.now))

    def named_by(self, run: RawRun) -> dict[str, str | None]:
        """Those of a run's tags that name a checkpoint in the folder, as they are to be."""
        was, now = as_uri(str(self.was)), as_uri(str(self.now))
        named = {tag: run.tags[tag] for tag in TAGS.values() if tag in run.tags}
        return {tag: place for tag, uri in named.items() if (place := _moved(uri, was, now)) != uri}


def _moved(place: str, was: str, now: str) -> str:
    return now + place.removeprefix(was) if place.startswith(f"{was}/") else place
