"""Verbs that read recorded sweeps: ``list``, ``show``, ``compare`` and ``report``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import PATH, as_json, stdout, verb
from sweeps.cli.exit_status import NO_SUCCESS, exits_with
from sweeps.cli.output import exit_as, print_json, print_result, say
from sweeps.cli.source import service_of, sweep_operations
from sweeps.report.plain_console import print_lines

if TYPE_CHECKING:
    from sweeps.operations.operations import Operations
    from sweeps.tracking.record import SweepRecord


@verb("list")
@as_json
@sweep_operations
def list_(as_json: bool, operations: Operations) -> None:
    """List the sweeps, newest first."""
    sweeps, service = operations.sweeps(), service_of(operations)
    jobs = [] if service is None else service.unrecorded_jobs(sweeps)
    if as_json:
        print_json([each.as_json() for each in sweeps])
    elif sweeps or not jobs:
        from sweeps.report.terminal_tables import print_sweeps

        print_sweeps(sweeps, stdout, "" if sweeps else operations.address)  # it may be asked for over a network
    for job in jobs:
        yet, error = " yet" if job["ended"] is None else "", f": {job['error']}" if job["error"] else ""
        say(f"{job['sweep']} has no record{yet}: its job {job['id']} is {job['state']}{error}")


@verb("show")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="Show one trial: parameters, attempts, checkpoints, the end of its logs.")
@click.option("--why", is_flag=True, help="With --trial: why it was suggested, and why it was stopped or continued.")
@click.option("--watch", is_flag=True, help="Update the table until the sweep has ended, or Ctrl-C.")
@click.option(
    "--curves",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the learning curves of its trials into this Parquet file, for run --simulate.",
)
@as_json
@sweep_operations
def show(
    sweep: str, trial: str | None, why: bool, watch: bool, curves: Path | None, as_json: bool, operations: Operations
) -> None:
    """Show a sweep and its trials, best first.

    --watch follows a sweep that another process runs, also on another machine, and exits with the status of `run`.
    """
    if watch and as_json:
        raise click.UsageError("--watch does not print JSON: remove --json, or use it when the sweep has ended")
    if curves is not None and curves.suffix == ".csv":
        raise click.UsageError(f"--curves={curves}: is written as Parquet; name it {curves.stem}.parquet")
    if curves is not None:
        _write_curves(sweep, curves, operations)
    if trial is not None:
        if watch:
            raise click.UsageError("--watch shows a whole sweep: remove --trial; `logs --follow` follows one trial")
        _show_trial(sweep, trial, operations, why=why, as_json=as_json)
        return
    if why:
        raise click.UsageError("--why is about one trial: add --trial ID")
    record = operations.record(sweep)
    if watch and record.status == "running":
        from sweeps.report.watch import watch as follow

        record = follow(lambda: operations.record(sweep), stdout)
    if watch:
        exit_as(record)
    from sweeps.report.terminal_tables import print_sweep

    print_result(record.as_json, partial(print_sweep, record), as_json=as_json)


def _write_curves(sweep: str, file: Path, operations: Operations) -> None:
    from sweeps.report.curve_table import write_curve_table

    if service_of(operations, curves=file) is None:
        write_curve_table(operations.record(sweep), file)
        say(f"curves: {file}")


def _show_trial(sweep: str, trial: str, operations: Operations, *, why: bool, as_json: bool) -> None:
    service_of(operations, why=why)
    document = operations.trial(sweep, trial, settled=not as_json)
    if why:
        document["why"] = _reasons(operations.record(sweep), document["trial"])
    if as_json:
        print_json(document)
    else:
        from sweeps.report.trial_details import print_trial

        print_trial(document, stdout, debug="--debug" in sys.argv)


def _reasons(record: SweepRecord, trial: str) -> list[str]:
    from sweeps.plan.resume import reopened
    from sweeps.simulate.why import why

    return why(reopened(record, {}), trial)


@verb("replay")
@click.argument("sweep")
@as_json
@sweep_operations
def replay(sweep: str, as_json: bool, operations: Operations) -> None:
    """Repeat all suggestions and scheduler decisions of a sweep from its record, without training.

    Exits with status 1 if one of them is different now.
    """
    from sweeps.plan.resume import reopened

    service_of(operations, replay=True)
    plan = reopened(operations.record(sweep), {})
    # This imports Ray and Optuna, which takes seconds; a sweep that does not exist was reported above.
    from sweeps.simulate.replay import replay as replay_sweep

    result = replay_sweep(plan)
    if result.differences:
        exits_with(NO_SUCCESS)
    print_result(
        result.as_json,
        lambda console: print_lines(console, *result.differences, result.describe()),
        as_json=as_json,
    )


@verb("compare")
@click.argument("names", nargs=-1, metavar="SWEEP SWEEP ...", required=True)
@click.option("--output", metavar="FILE", type=PATH, help="File for a figure: .png, .svg, .pdf or .html.")
@as_json
@sweep_operations
def compare(names: tuple[str, ...], output: Path | None, as_json: bool, operations: Operations) -> None:
    """Compare sweeps of the same metric: best value by trials, time and GPU-hours, and how their configs differ."""
    from sweeps.report.comparison import print_comparison

    if output is not None:
        from sweeps.report.figures.comparison import check_output

        check_output(output)
    comparison = operations.compare(names)
    if output is not None:
        from sweeps.report.figures.comparison import write_comparison

        write_comparison(comparison, output)
        say(f"figure: {output}")
    print_result(comparison.as_json, partial(print_comparison, comparison), as_json=as_json)


@verb("report")
@click.argument("sweep")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the page and its images; default: report/ in the sweep's folder.",
)
@sweep_operations
def report(sweep: str, output: Path | None, operations: Operations) -> None:
    """Write the report of a sweep, a web page with figures, and attach it to the sweep's run in MLflow."""
    page = operations.report(sweep, output)
    print_lines(stdout, str(page))
