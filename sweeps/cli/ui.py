"""The verbs ``ui`` and ``conf``."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from sweeps.cli.app import as_json, server, stderr, stdout, tracking_uri, verb
from sweeps.cli.output import print_json
from sweeps.cli.source import client_of
from sweeps.errors import UserError


@verb("ui")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port on 127.0.0.1.")
@tracking_uri
def ui(port: int, tracking_uri: str | None) -> None:
    """Start the MLflow UI for the sweeps of this folder."""
    from sweeps.redact import redact_uri
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import list_sweeps

    uri = tracking_uri or default_uri()
    is_server = uri.startswith(("http://", "https://"))
    address = redact_uri(uri).rstrip("/") if is_server else f"http://127.0.0.1:{port}"
    experiments = {each.experiment: each.experiment_id for each in list_sweeps(uri)}
    if not is_server:
        _check_free(port)
    stderr.print(f"MLflow UI on {address}" + ("" if is_server else " (Ctrl-C ends it)"), soft_wrap=True)
    for name, number in sorted(experiments.items()):
        # The address without this part leads to MLflow's pages for language-model applications.
        page = f"{address}/#/experiments/{number}?workflowType=machine_learning"
        stderr.print(f"{name}: {page}", markup=False, highlight=False, soft_wrap=True)
    if is_server:
        return
    # Not an argument: every user can list those, and the URI may have a password.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    arguments = ["-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - becomes the server, so that signals reach it


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
