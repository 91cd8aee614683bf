"""Account of paid worker time: the part spent on training, and the uses of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields


@dataclass
class TimeAccount:
    """Worker-seconds by activity. They add up to the time for which workers were paid."""

    training: float = 0.0
    """Computation of optimizer steps that were kept; its share is the goodput."""
    start: float = 0.0
    """Starting workers, importing libraries, loading model, data and checkpoint."""
    data_wait: float = 0.0
    """Waiting for batches."""
    communication: float = 0.0
    """Exchange between workers and waiting for slower workers, if ``train.communication_every`` measures it."""
    checkpoint: float = 0.0
    """Waiting for checkpoints to be saved."""
    evaluation: float = 0.0
    """Evaluations."""
    lost: float = 0.0
    """Work that was lost because the attempt failed after its last checkpoint."""
    other: float = 0.0
    """Reports, decisions about them, and the end of an attempt."""
    waiting: float = 0.0
    """Places without a trial while further trials were to start, and trials that waited for resources."""
    idle_tail: float = 0.0
    """Places without a trial at the end of the sweep, when no trials were left to start."""

    def add(self, other: TimeAccount) -> None:
        """Add another account to this one."""
        for name in NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def times(self, factor: float) -> TimeAccount:
        """Return the account multiplied by a number."""
        return TimeAccount(**{name: factor * seconds for name, seconds in asdict(self).items()})

    def move(self, seconds: float, source: str, target: str) -> float:
        """Move up to ``seconds`` from one activity to another; return how many were moved."""
        moved: float = max(0.0, min(seconds, getattr(self, source)))
        setattr(self, source, getattr(self, source) - moved)
        setattr(self, target, getattr(self, target) + moved)
        return moved

    @property
    def total(self) -> float:
        """All worker-seconds."""
        return float(sum(asdict(self).values()))

    @property
    def goodput(self) -> float:
        """Share of the time spent on training steps that were kept, from 0 to 1; 0 for an empty account."""
        total = self.total
        return self.training / total if total else 0.0

    def shares(self) -> dict[str, float]:
        """Each activity's share of the total, from 0 to 1; all 0 for an empty account."""
        total = self.total or 1.0
        return {name: seconds / total for name, seconds in asdict(self).items()}

    def metrics(self) -> dict[str, float]:
        """The account as MLflow metrics: ``time/goodput``, and the share of each other activity, such as
        ``time/start_share``."""
        return {
            "time/goodput" if name == "training" else f"time/{name}_share": each for name, each in self.shares().items()
        }

    def as_json(self) -> dict[str, float]:
        """Return the account as seconds by activity, to the millisecond, for a tag."""
        return {name: round(seconds, 3) for name, seconds in asdict(self).items()}

    @classmethod
    def from_json(cls, written: Mapping[str, float]) -> TimeAccount:
        """Return the account from the values of ``as_json``, without activities that this release does not know."""
        return cls(**{name: float(written[name]) for name in NAMES if name in written})


NAMES = tuple(field.name for field in fields(TimeAccount))
WORDS = {
    "data_wait": "waiting for data",
    "checkpoint": "checkpoints",
    "lost": "lost after failures",
    "waiting": "places without a trial",
    "idle_tail": "idle at the end",
}
"""Descriptions of the activities whose names do not explain themselves."""


def describe_rest(account: TimeAccount) -> str:
    """Describe the shares of time that were not goodput, largest first, from 1 % on: ``start 24%, evaluation 9%``."""
    rest = sorted(((share, name) for name, share in account.shares().items() if name != "training"), reverse=True)
    return ", ".join(f"{WORDS.get(name, name)} {share:.0%}" for share, name in rest if share >= 0.01)
