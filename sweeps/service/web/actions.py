"""What a person may do to a sweep: buttons, and what each asks before it acts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeps.service.web.rows import Row
from sweeps.tracking.record import SweepRecord, TrialRecord


@dataclass(frozen=True, kw_only=True)
class Field:
    """What a person types for an action, or chooses."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    required: bool = False
    choices: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Action:
    """A button, and what it asks before it acts."""

    verb: str
    button: str
    title: str
    text: str
    href: str
    fields: Sequence[Field] = ()
    danger: bool = False


def actions_of(row: Row, status: str, record: SweepRecord | None) -> list[Action]:
    """
    Args:
        row: The sweep's line of the list.
        status: Of the sweep.
        record: As the store has it; None before it has begun.
    """
    found = list(_endings(row, status, record))
    if row.waits:
        found += _in_the_queue(row)
    elif record is not None:
        found += _continuations(row, status, record)
        if record.best is not None:
            found += _uses(row, record, record.best)
    return found


def _endings(row: Row, status: str, record: SweepRecord | None) -> Iterator[Action]:
    if status in ("running", "starting"):
        text = "Its trials save their state first, so that it can go on later."
        title, href = f"Stop {row.sweep}?", f"{row.href}/stop"
        yield Action(verb="stop", button="Stop", title=title, text=text, href=href, danger=True)
    running = [trial.trial for trial in record.trials if trial.state == "running"] if record is not None else []
    if status == "running" and running:
        text = "It saves its state first. The others go on, and another trial takes its place."
        title, href = f"Stop a trial of {row.sweep}", f"{row.href}/trials/stop"
        trial = Field(name="trial", label="Trial", choices=running, required=True)
        yield Action(
            verb="stop-trial", button="Stop a trial", title=title, text=text, href=href, fields=[trial], danger=True
        )


def _in_the_queue(row: Row) -> Iterator[Action]:
    if row.latest is None:
        return
    title = f"Take {row.latest.verb} of {row.sweep} out of the queue?"
    text = "It has not started, so nothing is lost but its place."
    href = f"/jobs/{row.latest.id}/cancel"
    yield Action(verb="cancel", button="Cancel", title=title, text=text, href=href, danger=True)
    number = Field(name="priority", label="Priority", value=str(row.latest.priority), hint="The higher starts first.")
    title, href = f"Priority of {row.sweep}", f"/jobs/{row.latest.id}/priority"
    yield Action(verb="priority", button="Priority", title=title, text="", href=href, fields=[number])


def _continuations(row: Row, status: str, record: SweepRecord) -> Iterator[Action]:
    if status in ("stopped", "interrupted", "failed"):
        text = "Trials that had not ended go on from their newest checkpoints."
        title = f"Go on with {row.sweep}?"
        yield Action(verb="resume", button="Resume", title=title, text=text, href=f"{row.href}/resume")
    field = Field(
        name="changes",
        label="Changes",
        value=f"search.num_trials={2 * (record.planned or len(record.trials) or 1)}",
        hint="As key=value, several apart by spaces: search.num_trials, search.stop.*, train.max_steps …",
        required=True,
    )
    text = "What it has learned is kept, and it goes on from there."
    title = f"Let {row.sweep} go further"
    yield Action(verb="extend", button="Extend", title=title, text=text, href=f"{row.href}/extend", fields=[field])


def _uses(row: Row, record: SweepRecord, best: TrialRecord) -> Iterator[Action]:
    trial = Field(name="trial", label="Trial", value=best.trial, hint="Its number; here the best.", required=True)
    model = Field(
        name="model", label="Model", value=record.conf, hint="Name in MLflow's registry; empty: it is trained only."
    )
    changes = Field(
        name="changes", label="Changes", hint="As key=value, several apart by spaces: train.max_steps, data.path …"
    )
    text = "It is trained with its full budget as a sweep of its own, and registered when it has ended."
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
