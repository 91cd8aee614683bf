"""The verbs ``backup`` and ``restore``."""

from __future__ import annotations

from pathlib import Path

import click

from sweeps.cli.app import of_service, verb
from sweeps.cli.output import say

archive = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@verb("backup")
@archive
@of_service
@click.option("--sweeps", is_flag=True, help="Add the folders of the sweeps, with checkpoints, and MLflow's artifacts.")
def backup(file: Path, tokens: tuple[str, ...], sweeps: bool, config_dirs: tuple[Path, ...]) -> None:
    """Back up the service while it runs: python -m sweeps backup sweeps-2026-11-27.tar.gz

    Writes its database (queue, firings, tokens), its saved schedules, and MLflow's records if they are an SQLite file.
    """
    from sweeps.compose.service_config import compose_service
    from sweeps.service.backup import backup as write

    contents = write(compose_service(tokens, config_dirs), file, sweeps=sweeps)
    say(f"{file}: {contents.describe()}")


@verb("restore")
@archive
@of_service
def restore(file: Path, tokens: tuple[str, ...], config_dirs: tuple[Path, ...]) -> None:
    """Restore a backup where there is no service yet: python -m sweeps restore sweeps-2026-11-27.tar.gz

    It replaces nothing. Stop the backed-up service before you start this one.
    """
    from sweeps.compose.service_config import compose_service
    from sweeps.service.backup import restore as write

    contents = write(compose_service(tokens, config_dirs), file)
    say(f"restored: {contents.describe()}; start it with `python -m sweeps serve`")
