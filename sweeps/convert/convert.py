"""Converts a file of any supported tool."""

from __future__ import annotations

import re
from pathlib import Path

from sweeps.convert.conversion import Conversion
from sweeps.convert.hydra_optuna import is_hydra_optuna, read_hydra_optuna
from sweeps.convert.source_file import SourceFile
from sweeps.convert.wandb_sweep import is_wandb_sweep, read_wandb_sweep
from sweeps.errors import UserError

IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
OTHER_SUFFIXES = (".ipynb", ".db", ".sqlite", ".sqlite3", ".log")
"""Suffixes of notebooks and of Optuna's storages, whose mistakes as YAML would mislead."""


def read_search(source: str, tune_config: str | None = None) -> Conversion:
    """Read the search of another tool.

    Args:
        source: A YAML file (a W&B sweep, a config of Hydra's Optuna sweeper), or ``module:name`` of
            a ``param_space`` of Ray Tune.
        tune_config: ``module:name`` of a ``TuneConfig``, besides a ``param_space``.

    Raises:
        UserError: The source has a mistake.
    """
    if IMPORT_PATH.fullmatch(source) and not Path(source).exists():
        from sweeps.convert.ray_tune import read_ray_tune

        conversion = read_ray_tune(source, tune_config)
    else:
        if tune_config is not None:
            raise UserError(f"--tune-config={tune_config}: is only for a param_space of Ray Tune (MODULE:NAME)")
        path = Path(source)
        if path.suffix == ".py" and not path.is_dir():
            raise UserError(
                f"{source}: is a Python file; of a param_space of Ray Tune give MODULE:NAME, for a script with options "
                f"type `python -m sweeps init --from {source}`; an Optuna objective becomes a function that reports "
                "(docs/migrate.md)"
            )
        if path.suffix in OTHER_SUFFIXES and path.is_file():
            raise _unknown(source)
        file = SourceFile(path)
        if is_hydra_optuna(file.values):
            conversion = read_hydra_optuna(file)
        elif is_wandb_sweep(file.values):
            conversion = read_wandb_sweep(file)
        else:
            raise _unknown(source)
    if not conversion.space:
        told = (f"note: {note}" for note in conversion.notes)  # perhaps of a range that cannot be carried over
        raise UserError(
            "\n".join([f"{source}: searches nothing; a sweep needs one parameter with several values", *told])
        )
    conversion.complete()
    return conversion


def _unknown(source: str) -> UserError:
    return UserError(
        f"{source}: is neither a W&B sweep (method, parameters) nor a config of Hydra's Optuna sweeper "
        "(hydra.sweeper); the trials of an Optuna study are read by search.warm_start (docs/migrate.md)"
    )
