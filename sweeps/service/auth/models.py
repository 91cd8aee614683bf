"""Check before a model is registered: nobody may add a version to a model that belongs to another user."""

from __future__ import annotations

from sweeps.constants import TAG_SWEEP, TAG_USER
from sweeps.errors import UserError
from sweeps.registry.model_owners import ModelRights, not_yours
from sweeps.service.auth.config_policy import SweepExists
from sweeps.tracking.client import connect, first_cause, reading_from


def check_model(tracking_uri: str, model: str, rights: ModelRights, sweep_exists: SweepExists, *, adopt: bool) -> None:
    """Check that a user may register a model version. A name that nobody has registered yet is checked again when it is
    registered (``sweeps.registry.model_owners``).

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
        raise not_yours(model)
    if adopt:
        for tag, value in rights.tags.items():
            client.set_registered_model_tag(model, tag, value)
