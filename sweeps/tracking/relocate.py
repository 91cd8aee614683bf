"""Update of recorded paths and URIs after a sweep's folder was moved."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.constants import CHECKPOINT_TAGS
from sweeps.tracking.store import RawRun
from sweeps.tracking.uris import as_uri


@dataclass(frozen=True)
class Relocation:
    """Move of a sweep's folder from one path to another; falsy if both paths are the same."""

    before: str
    after: str

    def __bool__(self) -> bool:
        return self.before != self.after

    def path(self, path: str) -> str:
        """Return the new path of a file or folder; unchanged if it is not in the folder."""
        return _moved(path, self.before, self.after)

    def changed_tags(self, run: RawRun) -> dict[str, str | None]:
        """Return new values for a run's tags that name a checkpoint in the moved folder."""
        before, after = as_uri(self.before), as_uri(self.after)
        uris = {tag: run.tags[tag] for tag in CHECKPOINT_TAGS.values() if tag in run.tags}
        return {tag: new for tag, uri in uris.items() if (new := _moved(uri, before, after)) != uri}


def _moved(path: str, before: str, after: str) -> str:
    return after + path.removeprefix(before) if path.startswith(f"{before}/") else path
