"""Checks of ``tracking``."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.redact import holds_password, redact_uri


def tracking_mistakes(composition: Composition) -> Iterator[str]:
    """What cannot be recorded as asked, one line each."""
    config = composition.config
    literals = [raw.get("tracking", {}).get("uri") for raw in composition.variants.values()]
    if any(isinstance(uri, str) and holds_password(uri) for uri in literals):
        yield (
            f"tracking.uri={redact_uri(config.tracking.uri)}: a password there is seen by all who can list processes "
            "or read the config; put the whole URI into the environment as MLFLOW_TRACKING_URI, or, for a server, only "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if config.tracking.checkpoints == "reference" and not config.checkpoint.keep:
        yield (
            "tracking.checkpoints=reference: checkpoint.keep=[] keeps none that could be referred to; use "
            "checkpoint.keep=[best], or tracking.checkpoints=none"
        )


def tracking_notes(config: SweepConfig) -> Iterator[str]:
    """What is allowed, and may not be what was meant."""
    if config.tracking.checkpoints == "reference" and "://" not in config.output_dir:
        yield (
            f"tracking.checkpoints=reference: MLflow will name folders in output_dir={config.output_dir}; checkpoints "
            "can be loaded as long as they stay there, and by those who see that folder"
        )
