"""Checks of the section ``tracking``."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.storage.location import is_remote
from sweeps.texts.uri_passwords import holds_password, redact_uri


def tracking_mistakes(composition: Composition) -> Iterator[str]:
    """Yield one line for each mistake, with key, value and fix."""
    config = composition.config
    literals = [raw.get("tracking", {}).get("uri") for raw in composition.variants.values()]
    if any(isinstance(uri, str) and holds_password(uri) for uri in literals):
        yield (
            f"tracking.uri={redact_uri(config.tracking.uri)}: everybody who can list processes or read the config "
            "sees the password; set the environment variable MLFLOW_TRACKING_URI to the whole URI, or, for a server, "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if config.tracking.checkpoints == "reference" and not config.checkpoint.keep:
        yield (
            "tracking.checkpoints=reference: checkpoint.keep=[] keeps no checkpoint to refer to; use "
            "checkpoint.keep=[best], or tracking.checkpoints=none"
        )


def tracking_notes(config: SweepConfig) -> Iterator[str]:
    """Yield notes on settings that are valid but may be unintended."""
    if config.tracking.checkpoints == "reference" and not is_remote(config.output_dir):
        yield (
            f"tracking.checkpoints=reference: MLflow will refer to folders in output_dir={config.output_dir}; only "
            "machines that can read that folder can load the checkpoints, as long as they stay there"
        )
