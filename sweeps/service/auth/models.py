"""Whose a registered model is: nobody registers over a model that came from sweeps which they do not see."""

from __future__ import annotations

from sweeps.constants import TAG_SWEEP
from sweeps.errors import UserError
from sweeps.service.auth.config_policy import SweepExists
from sweeps.tracking.client import connect


def check_model(tracking_uri: str, model: str, sees: SweepExists) -> None:
    """
    Args:
        tracking_uri: Of the registry.
        model: Name that a new version is to have.
        sees: Which sweeps exist for the principal.

    Raises:
        UserError: The model is there, and is not made of the principal's sweeps alone.
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
    if not versions or not all(sees(each.tags.get(TAG_SWEEP, "")) for each in versions):
        raise UserError(f"register={model}: the registry has a model of this name that is not yours; choose another")
