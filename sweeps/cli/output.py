"""Helpers of the verbs: load a sweep, run a plan with a live display, print results."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sweeps.cli.app import stderr, stdout
from sweeps.cli.exit_status import EXIT_STATUS, INTERRUPTED, NO_SUCCESS, exits_with

if TYPE_CHECKING:
    from rich.console import Console

    from sweeps.driver.sweep_state import View
    from sweeps.plan.plan import Plan
    from sweeps.tracking.record import SweepRecord


def run_and_show(
    start: Callable[[Plan, View], SweepRecord],
    plan: Plan,
    *,
    as_json: bool,
    then: Callable[[SweepRecord], object] = lambda _: None,
) -> None:
    """Run a plan with a live display, call ``then`` with its record, and print its outcome."""
    try:
        record = watched(start, plan)
    except KeyboardInterrupt:  # Ctrl-C before the search began, or again while it ended
        from sweeps.tracking.journal import Journal

        if Journal.is_in(plan.folder):
            say(f"{plan.name} was interrupted; `python -m sweeps resume {plan.name}` continues it")
        else:
            say(f"{plan.name} was interrupted before it began; nothing was recorded")
        exits_with(INTERRUPTED)
        return
    then(record)
    show_outcome(record, as_json=as_json)


def show_outcome(record: SweepRecord, *, as_json: bool, document: Any = None) -> None:
    """Print the outcome of a sweep, and set its exit status.

    Args:
        record: The sweep.
        as_json: Whether to print JSON.
        document: The JSON; default: that of the record.
    """
    from sweeps.report.terminal_tables import print_outcome

    exit_as(record)
    print_result(
        lambda: document or record.as_json(),
        lambda console: print_outcome(record, console, debug="--debug" in sys.argv),
        as_json=as_json,
    )
    if as_json and document is None and record.status in ("interrupted", "stopped"):
        say(f"{record.sweep} is {record.status}; `python -m sweeps resume {record.sweep}` continues it")


def exit_as(record: SweepRecord) -> None:
    """Set the exit status of this command to that of a sweep's outcome."""
    without_success = record.status == "stopped" and not record.counts["finished"]
    exits_with(NO_SUCCESS if without_success else EXIT_STATUS.get(record.status, 0))


def watched(start: Callable[[Plan, View], SweepRecord], plan: Plan) -> SweepRecord:
    """Run a plan with a live display on stderr."""
    from sweeps.driver.terminal_view import view_on
    from sweeps.service.notify.cli_notify import run_and_notify

    # Libraries may print while the sweep runs; stdout must hold the result only.
    with contextlib.redirect_stdout(sys.stderr), view_on(stderr) as view:
        return run_and_notify(start, plan, view)


def print_dry_run(plan: Plan, *, as_json: bool) -> None:
    """Print a plan with the warnings of its preflight, the memory that its trials will need, and their time."""
    from sweeps.plan.planned_memory import local_room, questions_worth_asking
    from sweeps.plan.preflight import Preflight
    from sweeps.report.expected_cost import cost_by_earlier_sweeps
    from sweeps.report.plan_summary import plan_document, print_plan

    asked = questions_worth_asking(plan)
    room = local_room(plan) if asked else None
    with Preflight(plan, asked, room) as preflight:
        warnings = preflight.result()
        memory = preflight.memory(room) if asked and plan.config.preflight.timeout_s else None
    expected, cost = cost_by_earlier_sweeps(plan)
    print_result(
        lambda: plan_document(plan, warnings, memory, expected),
        lambda console: print_plan(plan, console, warnings, memory, cost),
        as_json=as_json,
    )


def say(text: str) -> None:
    """Print a message on stderr."""
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def typed() -> str:
    """Return the command line that the user typed."""
    return shlex.join(["python", "-m", "sweeps", *sys.argv[1:]])


def print_result(document: Callable[[], Any], show: Callable[[Console], object], *, as_json: bool) -> None:
    """Print a result on stdout: its document as JSON, or a text for people."""
    if as_json:
        print_json(document())
    else:
        show(stdout)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity, which JSON does not have, are null."""
    finite = json.loads(json.dumps(document), parse_constant=lambda _: None)
    sys.stdout.write(json.dumps(finite, indent=2) + "\n")
