"""The verb that serves: ``serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sweeps.cli.app import stderr, verb


@verb("serve")
@click.argument("tokens", nargs=-1, metavar="[service=NAME] [key=value ...]")
def serve(tokens: tuple[str, ...], config_dirs: tuple[Path, ...]) -> None:
    """Serve schedules, a queue of sweeps, a REST API and web pages, until Ctrl-C: python -m sweeps serve

    On this machine alone and without a password, unless the config says otherwise. Its sweeps are processes of their
    own, which go on when it ends; the next `serve` picks them up again.
    """
    from sweeps.compose.service import compose_service
    from sweeps.service.app_context import AppContext
    from sweeps.service.serve import address, listen
    from sweeps.service.serve import serve as serve_until_told
    from sweeps.service.service_log import log_service

    config = compose_service(tokens, config_dirs)
    os.environ["MLFLOW_TRACKING_URI"] = config.tracking_uri  # sweeps are checked here as their drivers compose them
    listener = listen(config)
    log_service(config)
    service = AppContext(config, config_dirs)
    stderr.print(f"serves on {address(listener)} (Ctrl-C ends it; sweeps go on)", highlight=False)
    serve_until_told(service, listener)
