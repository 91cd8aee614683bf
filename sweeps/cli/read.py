"""Verbs that read recorded sweeps: ``list``, ``show``, ``compare`` and ``report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import EXIT_STATUS, NO_SUCCESS, as_json, stdout, verb
from sweeps.cli.output import print_json, say
from sweeps.cli.source import Source, sweep_source

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord


@verb("list")
@as_json
@sweep_source
def list_(as_json: bool, source: Source) -> None:
    """List the sweeps, newest first."""
    from sweeps.texts.redact import redact_uri
    from sweeps.tracking.reader import list_sweeps

    client, uri = source.client(), source.uri
    sweeps = list_sweeps(uri) if client is None else client.sweeps()
    if as_json:
        print_json([each.as_json() for each in sweeps])
    else:
        from sweeps.report.terminal_tables import print_sweeps

        print_sweeps(sweeps, stdout, redact_uri(uri) if client is None else client.server)


@verb("show")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="Show one trial: parameters, attempts, checkpoints, the end of its logs.")
@click.option("--why", is_flag=True, help="With --trial: why it was suggested, and why it was stopped or went on.")
@click.option("--watch", is_flag=True, help="Update the table until the sweep has ended, or Ctrl-C.")
@click.option(
    "--curves",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the learning curves of its trials into this Parquet file, for run --simulate.",
)
@as_json
@sweep_source
def show(
    sweep: str, trial: str | None, why: bool, watch: bool, curves: Path | None, as_json: bool, source: Source
) -> None:
    """Show a sweep and its trials, best first.

    --watch follows a sweep that another process runs, also on another machine, and exits with the status of `run`.
    """
    if watch and as_json:
        raise click.UsageError("--watch has no JSON: remove --json, or use it when the sweep has ended")
    if curves is not None:
        _write_curves(sweep, curves, source)
    if trial is not None:
        if watch:
            raise click.UsageError("--watch shows a whole sweep: remove --trial; `logs --follow` follows one trial")
        _show_trial(sweep, trial, source, why=why, as_json=as_json)
        return
    if why:
        raise click.UsageError("--why is about one trial: add --trial ID")
    record = source.read(sweep)
    if watch and record.status == "running":
        from sweeps.report.watch import watch as follow

        record = follow(lambda: source.read(sweep), stdout)
    if as_json:
        print_json(record.as_json())
    else:
        from sweeps.report.terminal_tables import print_sweep

        print_sweep(record, stdout)
    sys.exit(EXIT_STATUS.get(record.status, 0) if watch else 0)


def _write_curves(sweep: str, file: Path, source: Source) -> None:
    from sweeps.report.curve_table import write_curve_table

    if source.client(curves=file) is None:
        write_curve_table(source.read(sweep), file)
        say(f"curves: {file}")


def _show_trial(sweep: str, trial: str, source: Source, *, why: bool, as_json: bool) -> None:
    client = source.client(why=why)
    if client is None:
        from sweeps.plan.export import choose
        from sweeps.report.trial_details import trial_document

        record = source.read(sweep)
        if not as_json:
            record = record.settled()
        chosen = choose(record, trial)
        document = trial_document(record, chosen)
        if why:
            document["why"] = _reasons(record, chosen.trial)
    else:
        document = client.trial(sweep, trial)
    if as_json:
        print_json(document)
    else:
        from sweeps.report.trial_details import print_trial

        print_trial(document, stdout, debug="--debug" in sys.argv)


def _reasons(record: SweepRecord, trial: str) -> list[str]:
    from sweeps.plan.saved_sweep import reopened
    from sweeps.simulate.why import why

    return why(reopened(record, {}), trial)


@verb("replay")
@click.argument("sweep")
@as_json
@sweep_source
def replay(sweep: str, as_json: bool, source: Source) -> None:
    """Make all suggestions and all decisions of the scheduler again, from their record, without training.

    Exits with status 1 if one of them is different now.
    """
    from sweeps.plan.saved_sweep import reopened

    source.client(replay=True)
    plan = reopened(source.read(sweep), {})
    # This imports Ray and Optuna, which takes seconds; a sweep that does not exist is answered before.
    from sweeps.simulate.replay import replay as replay_sweep

    result = replay_sweep(plan)
    if as_json:
        print_json(result.as_json())
    else:
        for difference in result.differences:
            stdout.print(difference, markup=False, highlight=False, soft_wrap=True)
        stdout.print(result.describe(), markup=False, highlight=False, soft_wrap=True)
    sys.exit(NO_SUCCESS if result.differences else 0)


@verb("compare")
@click.argument("names", nargs=-1, metavar="SWEEP SWEEP ...", required=True)
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path), help="File for a figure: .png, .svg, .pdf or .html."
)
@as_json
@sweep_source
def compare(names: tuple[str, ...], output: Path | None, as_json: bool, source: Source) -> None:
    """Compare sweeps of the same metric: best value by trials, time and GPU-hours, and how their configs differ."""
    from sweeps.report.comparison import compare_sweeps, print_comparison

    if output is not None:
        from sweeps.report.figures.comparison import check_output

        check_output(output)
    client = source.client()
    comparison = compare_sweeps([source.read(name) for name in names], None if client is None else client.config_text)
    if output is not None:
        from sweeps.report.figures.comparison import write_comparison

        write_comparison(comparison, output)
        say(f"figure: {output}")
    if as_json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison, stdout)


@verb("report")
@click.argument("sweep")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the page and its images; default: report/ in the sweep's folder.",
)
@sweep_source
def report(sweep: str, output: Path | None, source: Source) -> None:
    """Write the report of a sweep, a web page with figures, and attach it to the sweep's run in MLflow."""
    client = source.client()
    if client is not None:
        from sweeps.cli.remote import report as fetch

        page = fetch(client, sweep, output)
    else:
        import sweeps

        page = sweeps.write_report(sweep, output, tracking_uri=source.tracking_uri)
    stdout.print(str(page), markup=False, highlight=False, soft_wrap=True)
