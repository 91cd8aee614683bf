"""Helpers of the verbs: load a sweep, run a plan with a live display, print results."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from sweeps.cli.app import stderr, stdout
from sweeps.cli.exit_status import EXIT_STATUS, INTERRUPTED, NO_SUCCESS

if TYPE_CHECKING:
    from sweeps.driver.sweep_state import View
    from sweeps.plan.plan import Plan
    from sweeps.tracking.record import SweepRecord


def run_and_exit(
    start: Callable[[Plan, View], SweepRecord],
    plan: Plan,
    *,
    as_json: bool,
    then: Callable[[SweepRecord], object] = lambda _: None,
) -> NoReturn:
    """Run a plan with a live display, call ``then`` with its record, print its outcome and exit with its status."""
    try:
        record = watched(start, plan)
    except KeyboardInterrupt:  # Ctrl-C before the search began, or again while it ended
        from sweeps.tracking.journal import Journal

        if Journal.is_in(plan.folder):
            say(f"{plan.name} was interrupted; `python -m sweeps resume {plan.name}` continues it")
        else:
            say(f"{plan.name} was interrupted before it began; nothing was recorded")
        sys.exit(INTERRUPTED)
    then(record)
    show_outcome(record, as_json=as_json)


def show_outcome(record: SweepRecord, *, as_json: bool, document: Any = None) -> NoReturn:
    """Print the outcome of a sweep, and exit with its status, also if nobody reads the outcome.

    Args:
        record: The sweep.
        as_json: Whether to print JSON.
        document: The JSON; default: that of the record.
    """
    with contextlib.suppress(BrokenPipeError):
        if as_json:
            print_json(document or record.as_json())
            if document is None and record.status in ("interrupted", "stopped"):
                say(f"{record.sweep} is {record.status}; `python -m sweeps resume {record.sweep}` continues it")
        else:
            from sweeps.report.terminal_tables import print_outcome

            print_outcome(record, stdout, debug="--debug" in sys.argv)
    exit_with_status(record)


def exit_with_status(record: SweepRecord) -> NoReturn:
    """Exit with the status for a sweep's outcome."""
    without_success = record.status == "stopped" and not record.counts["finished"]
    sys.exit(NO_SUCCESS if without_success else EXIT_STATUS.get(record.status, 0))


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
    if as_json:
        print_json(plan_document(plan, warnings, memory, expected))
    else:
        print_plan(plan, stdout, warnings, memory, cost)


def say(text: str) -> None:
    """Print a message on stderr."""
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def typed() -> str:
    """Return the command line that the user typed."""
    return shlex.join(["python", "-m", "sweeps", *sys.argv[1:]])


def print_json(document: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity, which JSON does not have, are null."""
    finite = json.loads(json.dumps(document), parse_constant=lambda _: None)
    sys.stdout.write(json.dumps(finite, indent=2) + "\n")
