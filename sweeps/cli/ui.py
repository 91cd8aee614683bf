"""The verbs ``ui`` and ``conf``."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from sweeps.cli.app import as_json, server, stderr, stdout, tracking_uri, verb
from sweeps.cli.output import print_json
from sweeps.cli.source import client_of
from sweeps.errors import UserError


@verb("ui")
@click.argument("sweep", required=False)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port on 127.0.0.1.")
@tracking_uri
def ui(sweep: str | None, port: int, tracking_uri: str | None) -> None:
    """Start the MLflow UI for the sweeps of this folder, and print addresses of their trials and charts.

    With SWEEP, those of one sweep; by default, those of the newest sweep of each experiment.
    """
    from sweeps.redact import redact_uri
    from sweeps.tracking import default_uri

    uri = tracking_uri or default_uri()
    is_server = uri.startswith(("http://", "https://"))
    address = redact_uri(uri).rstrip("/") if is_server else f"http://127.0.0.1:{port}"
    pages = list(_pages(uri, sweep))
    if not is_server:
        _check_free(port)
    stderr.print(f"MLflow UI on {address}" + ("" if is_server else " (Ctrl-C ends it)"), soft_wrap=True)
    for name, page in pages:
        stderr.print(f"{name}: {address}/{page}", markup=False, highlight=False, soft_wrap=True)
    if is_server:
        return
    # Not an argument: every user can list those, and the URI may have a password.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    arguments = ["-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - becomes the server, so that signals reach it


def _pages(uri: str, name: str | None) -> Iterator[tuple[str, str]]:
    """Yield names and addresses of pages of one sweep, or of the newest of each experiment.

    Raises:
        UnknownName: There is no such sweep.
    """
    from sweeps.tracking.mlflow_pages import all_sweeps_page, trials_page
    from sweeps.tracking.reader import list_sweeps, load_sweep
    from sweeps.tracking.saved_views import save_missing_views

    if name is not None:
        record = load_sweep(uri, name)
        save_missing_views(record)
        chosen = [(record.experiment, record.mlflow.experiment_id, record.sweep)]
    else:
        newest = {each.experiment_id: each for each in reversed(list_sweeps(uri))}.values()
        chosen = sorted((each.experiment, each.experiment_id, each.sweep) for each in newest)
    for experiment, number, sweep in chosen:
        yield f"{sweep}, trials", trials_page(number, sweep)
        yield f"{sweep}, charts", trials_page(number, sweep, charts=True)
        yield f"all sweeps of {experiment}", all_sweeps_page(number)


def _check_free(port: int) -> None:
    """
    Raises:
        UserError: Another process listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"--port={port}: cannot listen on 127.0.0.1 ({error.strerror}); choose another port, or end "
                "the process that uses it"
            ) from None


@verb("conf")
@click.argument("group", required=False)
@as_json
@server
def conf(group: str | None, as_json: bool, server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """List the configs that can be run and the options of each group, with a description."""
    from sweeps.report.choices import choices_document, print_choices

    client = client_of(server, config_dir=config_dirs)
    document = choices_document(config_dirs, group) if client is None else client.confs(group)
    if as_json:
        print_json(document)
    else:
        print_choices(document, stdout)
