"""Owners of registered models in a service: the user who registers a name first owns it, and only the owner's project
can add versions. The owner is determined when the model is registered, since two users may be allowed to use a name
that neither has registered yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps.constants import TAG_PROJECT, TAG_SWEEP, TAG_USER
from sweeps.errors import UserError
from sweeps.tracking.client import connect, first_cause, reading_from

if TYPE_CHECKING:
    from mlflow import MlflowClient

VARIABLE = "SWEEPS_MODEL_RIGHTS"
"""Environment variable with which a service passes the rights of a job's user to the job's process."""


@dataclass(frozen=True)
class ModelRights:
    """Rights of a user to registered models."""

    user: str
    project: str
    """Project of a model that the user registers first."""
    projects: tuple[str, ...] = ()
    """Projects whose models the user may add versions to."""
    is_admin: bool = False
    """Whether the user may add versions to every model."""

    @property
    def tags(self) -> dict[str, str]:
        """Tags of a model that the user registers first."""
        return {TAG_USER: self.user, TAG_PROJECT: self.project}

    def include(self, tags: Mapping[str, str]) -> bool:
        """Whether the user may add versions to the model with these tags."""
        return self.is_admin or tags.get(TAG_USER) == self.user or tags.get(TAG_PROJECT) in self.projects

    def as_environment(self) -> dict[str, str]:
        """Return the environment variable for a process that registers models for the user."""
        return {VARIABLE: _RIGHTS.dump_json(self).decode()}


_RIGHTS = TypeAdapter(ModelRights)


def rights_of_process() -> ModelRights | None:
    """Return the rights that a service has given to this process; None on a terminal, which has all rights."""
    text = os.environ.get(VARIABLE)
    return None if text is None else _RIGHTS.validate_json(text)


def check_owner(
    tracking_uri: str, model: str, rights: ModelRights, sweep_exists: Callable[[str], bool], *, adopt: bool
) -> None:
    """Check that a user may register a model version. A name that nobody has registered yet is checked again by
    ``claim``.

    A model without an owner, such as one of an earlier release, belongs to everybody who sees the sweeps of all its
    versions; with ``adopt``, the user becomes its owner. ``sweep_exists`` tells which sweeps are visible to the user.

    Raises:
        UserError: The model belongs to somebody else.
        TrackingUnreachable: The registry does not answer.
    """
    client = connect(tracking_uri)
    from mlflow.exceptions import MlflowException

    try:
        with reading_from(tracking_uri):
            tags = client.get_registered_model(model).tags
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return
        raise UserError(
            f"register={model}: its owner cannot be read from MLflow's registry: {first_cause(error)}"
        ) from error
    if rights.include(tags):
        return
    versions = [] if TAG_USER in tags else client.search_model_versions(f"name = '{model}'")
    if not versions or not all(sweep_exists(each.tags.get(TAG_SWEEP, "")) for each in versions):
        raise _not_yours(model)
    if adopt:
        for tag, value in rights.tags.items():
            client.set_registered_model_tag(model, tag, value)


def claim(client: MlflowClient, model: str, rights: ModelRights | None) -> None:
    """Create a registered model, or check that the user may add versions to an existing one.

    Raises:
        UserError: The model belongs to somebody else.
        MlflowException: The registry does not answer, or refuses the name.
    """
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(model, None if rights is None else rights.tags)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        if rights is not None and not rights.include(client.get_registered_model(model).tags):
            raise _not_yours(model) from None


def _not_yours(model: str) -> UserError:
    """Return the error about a model that belongs to another user."""
    return UserError(f"register={model}: the registry has a model of this name that is not yours; choose another")
