"""The verbs ``ui`` and ``conf``."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from sweeps.cli.app import as_json, server, tracking_uri, verb
from sweeps.cli.output import print_result, say
from sweeps.cli.source import service_at
from sweeps.errors import UserError
from sweeps.operations.local import Local

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord

QUIET = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "PYTHONWARNINGS": "ignore",
}
"""Environment of MLflow's server: without processes for evaluations of language models, which Sweeps does not use and
which print tracebacks at Ctrl-C, and without messages about its own parts."""
POLL_EVERY_S = 0.2
ANSWER_WITHIN_S = 5.0


@verb("ui")
@click.argument("sweeps", nargs=-1, metavar="[SWEEP ...]")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port on 127.0.0.1.")
@tracking_uri
def ui(sweeps: tuple[str, ...], port: int, tracking_uri: str | None) -> None:
    """Start the MLflow UI for the sweeps of this folder, and print addresses of trials and charts when it answers.

    Addresses are those of the given sweeps; by default, of the newest sweep of each experiment.
    """
    from sweeps.texts.uri_passwords import redact_uri

    uri = Local(tracking_uri).uri
    is_server = uri.startswith(("http://", "https://"))
    address = redact_uri(uri).rstrip("/") if is_server else f"http://127.0.0.1:{port}"
    pages = list(_pages(uri, sweeps))
    lines = [f"MLflow UI on {address}{'' if is_server else ' (Ctrl-C ends it)'}"]
    lines += [f"{name}: {address}/{page}" for name, page in pages]
    if is_server:
        say("\n".join(lines))
        return
    _check_free(port)
    say("starting the MLflow UI; its addresses follow when it answers")
    if os.fork() == 0:  # the child prints the addresses: this process becomes the server
        _say_once_it_answers(address, lines, os.getppid())
        os._exit(0)
    # Not an argument: every user can list those, and the URI may have a password.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    os.environ.setdefault("MLFLOW_REGISTRY_STORE_URI", uri)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if "MLFLOW_GUNICORN_OPTS" not in os.environ:  # MLflow takes only one of these
        os.environ.setdefault("MLFLOW_UVICORN_OPTS", "--log-level=warning")
    arguments = ["-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - becomes the server, so that signals reach it


def _say_once_it_answers(address: str, lines: Sequence[str], server: int) -> None:
    """Print lines once a server answers; print nothing if its process has ended."""
    from urllib.error import URLError
    from urllib.request import ProxyHandler, build_opener

    opener = build_opener(ProxyHandler({}))  # a proxy knows nothing of this machine's addresses
    with contextlib.suppress(KeyboardInterrupt):
        while os.getppid() == server:
            try:
                opener.open(f"{address}/health", timeout=ANSWER_WITHIN_S).close()
            except (URLError, OSError):
                time.sleep(POLL_EVERY_S)
            else:
                say("\n".join(lines))
                return


def _pages(uri: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and addresses of MLflow's pages for the given sweeps, or for the newest of each experiment.

    Raises:
        UnknownName: There is no such sweep.
    """
    from sweeps.tracking.mlflow_pages import experiment_page, trials_page
    from sweeps.tracking.reader import list_sweeps, load_sweep
    from sweeps.tracking.record import SweepSummary

    chosen: list[SweepRecord | SweepSummary] = [load_sweep(uri, name) for name in dict.fromkeys(names)]
    if not names:
        newest = {each.experiment_id: each for each in reversed(list_sweeps(uri))}.values()
        chosen = sorted(newest, key=lambda each: each.experiment)
    experiments = {}
    for each in chosen:
        number = each.experiment_id if isinstance(each, SweepSummary) else each.mlflow.experiment_id
        which = number, each.sweep, each.metrics[0], each.modes[0]
        yield f"{each.sweep}, trials", trials_page(*which)
        yield f"{each.sweep}, charts", trials_page(*which, charts=True)
        experiments[number] = each.experiment
    for number, experiment in experiments.items():
        yield f"all sweeps of {experiment}", experiment_page(number)


def _check_free(port: int) -> None:
    """Check that no other process listens on a port.

    Raises:
        UserError: Another process uses the port.
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

    service, path = service_at(server, config_dir=config_dirs), "confs" if group is None else f"confs/{quote(group)}"
    document = choices_document(config_dirs, group) if service is None else service.get(path)
    print_result(lambda: document, partial(print_choices, document), as_json=as_json)
