"""The verb ``serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sweeps.cli.app import stderr, verb
from sweeps.cli.output import say


@verb("serve")
@click.argument("tokens", nargs=-1, metavar="[service=NAME] [key=value ...]")
def serve(tokens: tuple[str, ...], config_dirs: tuple[Path, ...]) -> None:
    """Run the service: schedules, a queue of sweeps, a REST API and web pages. Ends with Ctrl-C.

    Listens on this machine only and without a password, unless the config says otherwise. Its sweeps are separate
    processes, which continue when the service ends; the next `serve` manages them again.
    """
    from sweeps.compose.service_config import compose_service
    from sweeps.service.app_context import AppContext
    from sweeps.service.auth.command_policy import CommandPolicy
    from sweeps.service.serve import address, listen
    from sweeps.service.serve import serve as run_service
    from sweeps.service.service_log import log_service

    config = compose_service(tokens, config_dirs)
    os.environ["MLFLOW_TRACKING_URI"] = config.tracking_uri  # configs that refer to it are composed as in the drivers
    listener = listen(config)
    log_service(config)
    service = AppContext(config, config_dirs)
    for note in CommandPolicy(config.access, config_dirs).notes:
        say(note)
    stderr.print(f"serves on {address(listener)} (Ctrl-C ends it; sweeps continue)", highlight=False)
    run_service(service, listener)
