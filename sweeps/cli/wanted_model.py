"""The options that say whether to save or register a trial's model."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.app import PATH
from sweeps.cli.output import say
from sweeps.errors import UserError

if TYPE_CHECKING:
    from sweeps.config import SweepConfig
    from sweeps.operations.operations import Operations
    from sweeps.registry.register import RegisteredModel
    from sweeps.tracking.record import SweepRecord, TrialRecord

CHAMPION = "champion"
"""Alias of a new version, unless another is given."""


@dataclass(frozen=True)
class WantedModel:
    """Destination of a trial's model: MLflow's model registry, a folder, both or neither."""

    name: str | None
    """Name of the registered model."""
    alias: str | None
    """Alias of its new version; None for none."""
    folder: Path | None
    merged: bool
    """Whether LoRA adapters are merged into their base model."""

    def check(self, config: SweepConfig, *, is_trained: bool = False) -> None:
        from sweeps.registry.model_names import check_model

        check_model(config, self.name, self.alias, self.folder, merged=self.merged, is_trained=is_trained)

    def as_tag(self) -> dict[str, str]:
        """Return the tag with which ``register_left`` registers a retraining's model; empty if it is not to be
        registered."""
        if self.name is None:
            return {}
        from sweeps.registry.unregistered import Unregistered

        return Unregistered(self.name, self.alias, self.merged).as_tag()

    def save(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Write the model into the folder, if there is one, with progress on stderr."""
        if self.folder is None:
            return
        from sweeps.registry.model_folder import save_model

        with contextlib.redirect_stdout(sys.stderr):
            save_model(record, trial, self.folder, merged=self.merged, tell=lambda text: say(f"saving: {text}"))
        say(f"saved: {self.folder}, the model of trial {trial.trial}")

    def register(self, operations: Operations, record: SweepRecord, trial: TrialRecord) -> RegisteredModel | None:
        """Register the model, if it has a name, with progress on stderr."""
        if self.name is None:
            return None
        with contextlib.redirect_stdout(sys.stderr):
            model = operations.register(record, trial, self.name, self.alias, merged=self.merged)
        say(f"registered: version {model.version} of {self.name}, as {model.uri}")
        return model


def register_left(record: SweepRecord) -> RegisteredModel | None:
    """Register the model that a finished retraining has left unregistered, and return it; None if there is none.

    Raises:
        UserError: It cannot be registered; the message says how to do it later, without training again.
    """
    from sweeps.operations.local import Local
    from sweeps.registry.unregistered import mark_registered, unregistered

    left = unregistered(record)
    if left is None or record.status != "finished" or record.best is None:
        return None
    wanted = WantedModel(left.name, left.alias, None, left.merged)
    later = f"`python -m sweeps resume {record.sweep}` registers it without training again"
    try:
        model = wanted.register(Local(tell=say), record, record.best)
    except UserError as error:
        raise UserError(f"{error}; {later}") from error
    except KeyboardInterrupt:
        say(f"{record.sweep} has finished, but its model is not registered; {later}")
        raise
    mark_registered(record)
    return model


def registering(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options for saving and registering the model; the verb receives them as its argument ``wanted``."""

    @functools.wraps(function)
    def call(*, register: str | None, alias: str, save_model: Path | None, merged: bool, **options: Any) -> None:
        function(wanted=WantedModel(register, alias or None, save_model, merged), **options)

    for option in (
        click.option(
            "--save-model",
            metavar="DIR",
            type=PATH,
            help="New folder for the model, which transformers, PEFT and vLLM load.",
        ),
        click.option("--merge", "--merged", "merged", is_flag=True, help="Merge LoRA adapters into their base model."),
        click.option(
            "--alias", metavar="A", default=CHAMPION, show_default=True, help="Alias of the new version; '' for none."
        ),
        click.option("--register", metavar="NAME", help="Name of the model in MLflow's registry."),
    ):
        call = option(call)
    return call
