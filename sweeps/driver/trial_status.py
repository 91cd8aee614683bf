"""Status of one trial of a running sweep."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sweeps.config.objectives import Values
from sweeps.tracking.trial_history import FailedAttempt, Span, TimedNote

if TYPE_CHECKING:
    from sweeps.plan.stage import PlannedStage

MOST_POINTS = 200
State = Literal["waiting", "running", "finished", "pruned", "failed", "stopped"]


@dataclass
class TrialStatus:
    """Status of one trial of a running sweep."""

    trial: str
    parameters: dict[str, Any]
    state: State = "waiting"
    attempt: int = 0
    """Number of attempts in this session, or since the trial was last reopened in it."""
    retries: int = 0
    """Number of attempts of this session that reused the actor of the previous one."""
    earlier_attempts: int = 0
    """Number of attempts before these."""
    step: int = 0
    last_step: int | None = None
    """Step at which the trial will end; None if unknown."""
    values: Values | None = None
    """Values of the objectives in the report with the best value of the first objective."""
    value_step: int | None = None
    """Step of the report with these values; None if unknown."""
    saved: Values | None = None
    """Values of the objectives in the best report whose weights were saved."""
    saved_step: int | None = None
    """Step of the trial's newest checkpoint; None if it has saved none."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Step and value of the first objective in the reports of this session, thinned to at most ``MOST_POINTS``."""
    eval_every: int = 0
    """Steps between two evaluations; 0 before the trial's first report."""
    has_reported: bool = False
    """Whether the trial has made a report that counts."""
    has_begun: bool = False
    """Whether the trial has made a report that counts beyond ``begins_at``, since its workers last started."""
    begins_at: int = 0
    """Step from which its workers continue; they may report this step again."""
    lineage: int = 0
    """Number of times that the trial had continued from another trial's state when its workers began."""
    is_pruned: bool = False
    """Whether the scheduler stopped the trial at its last report; values that its workers measure until they notice are
    discarded."""
    violation: str | None = None
    """The limit on a metric that the trial violated; the trial then cannot be the best."""
    first_reported: tuple[float, float] | None = None
    """Step at the trial's first metrics of this session, and seconds for which it had held workers; None before
    that."""
    reported: tuple[float, float] | None = None
    """Step at the trial's latest metrics, and seconds for which it had held workers."""
    speed: str = ""
    error: str | None = None
    holds: dict[str, float] = field(default_factory=dict)
    """Resources that the trial's workers reserve now; empty while the trial is paused."""
    assigned: float | None = None
    """Unix time of the trial's last start."""
    training_since: float | None = None
    """Unix time up to which ``train_s`` is counted; None while the trial's workers start."""
    train_s: float = 0.0
    failure: str | None = None
    """Description of the trial's last failed attempt."""
    failures: list[FailedAttempt] = field(default_factory=list)
    """The trial's attempts that failed or moved to other workers."""
    notes: list[TimedNote] = field(default_factory=list)
    """Notes of the trial's workers for the user."""
    spans: list[Span] = field(default_factory=list)
    """Periods in which the trial trained, and its workers."""
    needs: dict[str, float] = field(default_factory=dict)
    """Resources that all workers of the trial reserve together while it runs."""
    num_workers: int = 0
    """Number of the trial's workers."""
    pool: str | None = None
    """Pool in which the trial runs; None without pools."""
    hourly_cost: float = 0.0
    """Hourly cost of the resources that the trial reserves."""
    workers_attempt: int = 0
    """Number of the last attempt that trained in this session, as its workers count."""
    has_lost_events: bool = False
    """Whether events after the last recorded step are lost unless the trial's workers post them again."""
    is_unwanted: bool = False
    """Whether a person has asked to stop the trial for good."""
    ending: bool = False
    """Whether Tune has ended the trial while events of its workers are still being recorded."""
    repeat_of: str | None = None
    """Trial that this one repeats with another seed to confirm the winner."""
    stage: int | None = None
    """Number of the stage of the search that the trial belongs to; None: the search after its stages."""

    @property
    def attempts(self) -> int:
        """Number of attempts in all sessions, which is that of the current one."""
        return self.attempt + self.earlier_attempts

    def is_of(self, stage: PlannedStage | None) -> bool:
        """Whether the trial belongs to a stage of the search, or to the search after its stages; repeats do not."""
        return self.repeat_of is None and self.stage == (stage.number if stage is not None else None)

    def begin_again(self) -> None:
        """Begin the next attempt in the same actor."""
        self.attempt, self.retries, self.has_begun = self.attempt + 1, self.retries + 1, False
        self.assigned, self.training_since, self.holds = time.time(), None, self.needs

    def resize(self, num_workers: int) -> None:
        """Record a changed number of workers and the resources that they reserve."""
        factor = num_workers / self.num_workers
        self.needs = {name: amount * factor for name, amount in self.needs.items()}
        self.hourly_cost, self.num_workers = self.hourly_cost * factor, num_workers

    def kept(self, *, is_lost: bool) -> str:
        """Describe how much of the trial's work survives the end of its workers.

        Args:
            is_lost: Whether the workers could not save a checkpoint.
        """
        if self.saved_step is None:
            return "has saved no state"
        if is_lost or self.saved_step < self.step:
            return f"lost its work since its checkpoint of step {self.saved_step}"
        return "saved its state"

    def held_until(self, moment: float) -> float:
        """Return the seconds for which the trial had held workers until a time."""
        ends = [moment if span.ended is None else min(moment, span.ended) for span in self.spans]
        return sum(max(0.0, ended - span.held) for span, ended in zip(self.spans, ends, strict=True))

    def take_step(self, step: int, moment: float) -> None:
        """Record a step and its metrics."""
        self.step = step
        self.reported = (float(step), self.held_until(moment))
        if self.first_reported is None or self.first_reported[0] > step:
            self.first_reported = self.reported

    def add_point(self, step: int, value: float) -> None:
        """Add a report to the trial's learning curve. When it becomes long, every second point is dropped."""
        if self.curve and step < self.curve[-1][0]:  # it continues from another trial's earlier state
            self.curve = [point for point in self.curve if point[0] < step]
        self.curve.append((float(step), value))
        if len(self.curve) > MOST_POINTS:
            self.curve = [*self.curve[:-1:2], self.curve[-1]]

    @property
    def has_workers(self) -> bool:
        """Whether the workers of the last attempt that trained are still alive."""
        return bool(self.spans) and self.spans[-1].ended is None

    @property
    def has_ended(self) -> bool:
        """Whether the trial has ended: it neither runs nor waits."""
        return self.state not in ("waiting", "running")

    @property
    def is_paused(self) -> bool:
        """Whether the trial's workers have ended and no new ones are being started."""
        last = self.spans[-1].ended if self.spans and self.state == "running" and not self.holds else None
        return last is not None and last >= (self.assigned or 0)

    @property
    def is_starting(self) -> bool:
        """Whether the trial's workers do not train yet, because they are being started or import libraries."""
        return self.state == "running" and self.training_since is None

    @property
    def value(self) -> float | None:
        """Best value of the first objective so far."""
        return self.values[0] if self.values else None
