"""Verbs that read recorded sweeps: ``list``, ``show``, ``compare`` and ``report``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sweeps.cli.app import EXIT_STATUS, as_json, server, stdout, tracking_uri, verb
from sweeps.cli.output import load, print_json, say
from sweeps.cli.remote import client_of, reader_of


@verb("list")
@as_json
@server
@tracking_uri
def list_(as_json: bool, server: str | None, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """List the sweeps, newest first."""
    from sweeps.redact import redact_uri
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import list_sweeps

    client = client_of(server, tracking_uri=tracking_uri)
    uri = tracking_uri or default_uri()
    sweeps = list_sweeps(uri) if client is None else client.sweeps()
    if as_json:
        print_json([each.as_json() for each in sweeps])
    else:
        from sweeps.report.tables import print_sweeps

        print_sweeps(sweeps, stdout, redact_uri(uri) if client is None else client.server)


@verb("show")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="Show one trial: parameters, attempts, checkpoints, the end of its logs.")
@click.option("--watch", is_flag=True, help="Update the table until the sweep has ended, or Ctrl-C.")
@as_json
@server
@tracking_uri
def show(
    sweep: str,
    trial: str | None,
    watch: bool,
    as_json: bool,
    server: str | None,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Show a sweep and its trials, best first.

    --watch follows a sweep that another process runs, also on another machine, and exits with the status of `run`.
    """
    if watch and as_json:
        raise click.UsageError("--watch has no JSON: remove --json, or use it when the sweep has ended")
    if trial is not None:
        if watch:
            raise click.UsageError("--watch shows a whole sweep: remove --trial; `logs --follow` follows one trial")
        _show_trial(sweep, trial, server, tracking_uri, as_json=as_json)
        return
    read = reader_of(server, tracking_uri)
    record = read(sweep)
    if watch and record.status == "running":
        from sweeps.report.watch import watch as follow

        record = follow(lambda: read(sweep), stdout)
    if as_json:
        print_json(record.as_json())
    else:
        from sweeps.report.tables import print_sweep

        print_sweep(record, stdout)
    sys.exit(EXIT_STATUS.get(record.status, 0) if watch else 0)


def _show_trial(sweep: str, trial: str, server: str | None, tracking_uri: str | None, *, as_json: bool) -> None:
    client = client_of(server, tracking_uri=tracking_uri)
    if client is None:
        from sweeps.plan.export import choose
        from sweeps.report.trial import trial_document

        record = load(sweep, tracking_uri)
        document = trial_document(record, choose(record, trial))
    else:
        document = client.trial(sweep, trial)
    if as_json:
        print_json(document)
    else:
        from sweeps.report.trial import print_trial

        print_trial(document, stdout, debug="--debug" in sys.argv)


@verb("compare")
@click.argument("names", nargs=-1, metavar="SWEEP SWEEP ...", required=True)
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path), help="File for a figure: .png, .svg, .pdf or .html."
)
@as_json
@server
@tracking_uri
def compare(
    names: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    server: str | None,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Compare sweeps of the same metric: best value by trials, time and GPU-hours, and how their configs differ."""
    from sweeps.report.comparison import compare_sweeps, print_comparison

    if output is not None:
        from sweeps.report.figures.comparison import check_output

        check_output(output)
    client, read = client_of(server, tracking_uri=tracking_uri), reader_of(server, tracking_uri)
    comparison = compare_sweeps([read(name) for name in names], None if client is None else client.config_text)
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
@server
@tracking_uri
def report(
    sweep: str, output: Path | None, server: str | None, tracking_uri: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Write the report of a sweep, a web page with figures, and attach it to the sweep's run in MLflow."""
    client = client_of(server, tracking_uri=tracking_uri)
    if client is not None:
        from sweeps.cli.remote import report as fetch

        page = fetch(client, sweep, output)
    else:
        record = load(sweep, tracking_uri)
        from sweeps.report.folder import make_folder, report_folder
        from sweeps.report.page.report import make_report

        page = make_report(record, make_folder(output or report_folder(record)))
    stdout.print(str(page), markup=False, highlight=False, soft_wrap=True)
