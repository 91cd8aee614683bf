"""What verbs do alike: load a sweep, run a plan before a person's eyes, print."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sweeps.cli.app import EXIT_STATUS, INTERRUPTED, NO_SUCCESS, stderr, stdout

if TYPE_CHECKING:
    from sweeps.driver.state import View
    from sweeps.plan.plan import Plan
    from sweeps.registry.register import RegisteredModel
    from sweeps.tracking.record import SweepRecord, TrialRecord


def resume_plan(plan: Plan, *, as_json: bool) -> None:
    from sweeps.driver.run import resume

    drive(resume, plan, as_json=as_json)


def has_journal(folder: Path) -> bool:
    """Whether a sweep has begun to be recorded, so that it can be resumed."""
    from sweeps.tracking.journal import Journal

    return Journal.is_in(folder)


def drive(story: Callable[[Plan, View], SweepRecord], plan: Plan, *, as_json: bool) -> None:
    """Run a plan before a person's eyes, show how it came out, and leave with that status."""
    try:
        record = watched(story, plan)
    except KeyboardInterrupt:  # before the search began, or once more while it ended
        if has_journal(plan.folder):
            say(f"{plan.name} was interrupted; `python -m sweeps resume {plan.name}` goes on with it")
        else:
            say(f"{plan.name} was interrupted before it began; nothing is left of it")
        sys.exit(INTERRUPTED)
    show_outcome(record, as_json=as_json)


def show_outcome(record: SweepRecord, *, as_json: bool) -> NoReturn:
    """Show how a sweep came out, and leave with that status."""
    if as_json:
        print_json(record.as_json())
        if record.status in ("interrupted", "stopped"):
            say(f"{record.sweep} is {record.status}; `python -m sweeps resume {record.sweep}` goes on with it")
    else:
        from sweeps.report.tables import print_outcome

        print_outcome(record, stdout, debug="--debug" in sys.argv)
    leave_with(record)


def leave_with(record: SweepRecord) -> NoReturn:
    """Leave with the status of how a sweep came out."""
    without_success = record.status == "stopped" and not record.counts["finished"]
    sys.exit(NO_SUCCESS if without_success else EXIT_STATUS.get(record.status, 0))


def watched(story: Callable[[Plan, View], SweepRecord], plan: Plan) -> SweepRecord:
    from sweeps.driver.live import LiveView, PlainView
    from sweeps.service.notify.cli_notify import telling

    # Whatever a library prints while the sweep runs, stdout holds our result alone.
    with contextlib.redirect_stdout(sys.stderr), LiveView(stderr) if stderr.is_terminal else PlainView(stderr) as view:
        return telling(story, plan, view)


def print_dry_run(plan: Plan, *, as_json: bool) -> None:
    from sweeps.plan.preflight import Preflight
    from sweeps.report.plan_summary import plan_document, print_plan

    with Preflight(plan) as preflight:
        warnings = preflight.result()
    if as_json:
        print_json(plan_document(plan, warnings))
    else:
        print_plan(plan, stdout, warnings)


def register_model(record: SweepRecord, trial: TrialRecord, name: str, alias: str, *, merged: bool) -> RegisteredModel:
    from sweeps.registry.register import register

    with contextlib.redirect_stdout(sys.stderr):
        model = register(record, trial, name, alias, merged=merged, tell=lambda text: say(f"registering: {text}"))
    say(f"registered: version {model.version} of {name}, as {model.uri}")
    return model


def say(text: str) -> None:
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def typed() -> str:
    return shlex.join(["python", "-m", "sweeps", *sys.argv[1:]])


def load(name: str, tracking_uri: str | None) -> SweepRecord:
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import load_sweep

    return load_sweep(tracking_uri or default_uri(), name)


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
