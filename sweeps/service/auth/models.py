"""Ownership of registered models: nobody adds a version to a model that comes from sweeps they may not see."""

from __future__ import annotations

from sweeps.constants import TAG_SWEEP
from sweeps.errors import UserError
from sweeps.service.auth.config_policy import SweepExists
from sweeps.tracking.client import connect


def check_model(tracking_uri: str, model: str, sweep_exists: SweepExists) -> None:
    """Check that a user may register a model version.

    Args:
        tracking_uri: Tracking URI of the registry.
        model: Name of the registered model.
        sweep_exists: Tells which sweeps are visible to the user.

    Raises:
        UserError: The model exists, and has versions from sweeps that are not visible to the user.
    """
    client = connect(tracking_uri)
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(model)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return
        raise UserError(f"register={model}: MLflow's registry does not answer; try again") from error
    versions = client.search_model_versions(f"name = '{model}'")
    if not versions or not all(sweep_exists(each.tags.get(TAG_SWEEP, "")) for each in versions):
        raise UserError(f"register={model}: the registry has a model of this name that is not yours; choose another")
