"""Actions on a sweep's page: each is a button that opens a form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeps.service.web.rows import Row
from sweeps.tracking.record import SweepRecord, TrialRecord


@dataclass(frozen=True, kw_only=True)
class Field:
    """Field of an action's form."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    required: bool = False
    choices: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Action:
    """Button and its form."""

    verb: str
    button: str
    title: str
    text: str
    href: str
    fields: Sequence[Field] = ()
    danger: bool = False


def actions_of(row: Row, status: str, record: SweepRecord | None) -> list[Action]:
    """Actions that a sweep's state allows.

    Args:
        row: The sweep's row in the list.
        status: Status of the sweep.
        record: Record of the sweep; None if it has not started.
    """
    found = list(_stop_actions(row, status, record))
    if row.waits:
        found += _queue_actions(row)
    elif record is not None:
        found += _resume_actions(row, status, record)
        if record.best is not None:
            found += _model_actions(row, record, record.best)
    return found


def _stop_actions(row: Row, status: str, record: SweepRecord | None) -> Iterator[Action]:
    if status in ("running", "starting"):
        text = "Its trials save their state first, so that it can be resumed."
        title, href = f"Stop {row.sweep}?", f"{row.href}/stop"
        yield Action(verb="stop", button="Stop", title=title, text=text, href=href, danger=True)
    running = [trial.trial for trial in record.trials if trial.state == "running"] if record is not None else []
    if status == "running" and running:
        text = "It saves its state first. The other trials continue, and another trial takes its place."
        title, href = f"Stop a trial of {row.sweep}", f"{row.href}/trials/stop"
        trial = Field(name="trial", label="Trial", choices=running, required=True)
        yield Action(
            verb="stop-trial", button="Stop a trial", title=title, text=text, href=href, fields=[trial], danger=True
        )


def _queue_actions(row: Row) -> Iterator[Action]:
    if row.latest is None:
        return
    title = f"Take {row.latest.verb} of {row.sweep} out of the queue?"
    text = "It has not started: only its place in the queue is lost."
    href = f"/jobs/{row.latest.id}/cancel"
    yield Action(verb="cancel", button="Cancel", title=title, text=text, href=href, danger=True)
    number = Field(
        name="priority", label="Priority", value=str(row.latest.priority), hint="A higher priority starts first."
    )
    title, href = f"Priority of {row.sweep}", f"/jobs/{row.latest.id}/priority"
    yield Action(verb="priority", button="Priority", title=title, text="", href=href, fields=[number])


def _resume_actions(row: Row, status: str, record: SweepRecord) -> Iterator[Action]:
    if status in ("stopped", "interrupted", "failed"):
        text = "Trials that had not ended continue from their newest checkpoints."
        title = f"Resume {row.sweep}?"
        yield Action(verb="resume", button="Resume", title=title, text=text, href=f"{row.href}/resume")
    field = Field(
        name="changes",
        label="Changes",
        value=f"search.num_trials={2 * (record.planned or len(record.trials) or 1)}",
        hint="As key=value, separated by spaces: search.num_trials, search.stop.*, train.max_steps …",
        required=True,
    )
    text = "It keeps its trials and continues from there."
    title = f"Extend {row.sweep}"
    yield Action(verb="extend", button="Extend", title=title, text=text, href=f"{row.href}/extend", fields=[field])


def _model_actions(row: Row, record: SweepRecord, best: TrialRecord) -> Iterator[Action]:
    trial = Field(name="trial", label="Trial", value=best.trial, hint="Its number; default: the best.", required=True)
    model = Field(name="model", label="Model", value=record.conf, hint="Name in MLflow's registry; empty: train only.")
    changes = Field(
        name="changes", label="Changes", hint="As key=value, separated by spaces: train.max_steps, data.path …"
    )
    text = "Trains it with its full budget as a sweep of its own, and registers the result."
    yield Action(
        verb="retrain",
        button="Retrain",
        title=f"Retrain a trial of {row.sweep}",
        text=text,
        href=f"{row.href}/retrain",
        fields=[trial, changes, model],
    )
    if any(each.checkpoint is not None for each in record.trials):
        named = Field(name="model", label="Model", value=record.conf, hint="Name in MLflow's registry.", required=True)
        alias = Field(name="alias", label="Alias", value="champion", hint="Moves to the new version.", required=True)
        yield Action(
            verb="register",
            button="Register",
            title=f"Register a trial of {row.sweep}",
            text="Its best checkpoint becomes a version of a model.",
            href=f"{row.href}/register",
            fields=[trial, named, alias],
        )
