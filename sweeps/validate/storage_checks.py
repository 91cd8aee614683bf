"""Checks of where a sweep is kept: ``tracking``, ``output_dir``, and the environment in which its nodes reach them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.storage.location import is_remote
from sweeps.texts.uri_passwords import holds_password, redact_uri
from sweeps.tracking.uris import why_no_store


def storage_mistakes(composition: Composition) -> Iterator[str]:
    """Yield one line for each mistake in ``tracking`` and ``output_dir``, with key, value and fix."""
    config, output_dir = composition.config, composition.config.output_dir
    literals = [raw.get("tracking", {}).get("uri") for raw in composition.variants.values()]
    if any(isinstance(uri, str) and holds_password(uri) for uri in literals):
        yield (
            f"tracking.uri={redact_uri(config.tracking.uri)}: everybody who can list processes or read the config "
            "sees the password; set the environment variable MLFLOW_TRACKING_URI to the whole URI, or, for a server, "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if (reason := why_no_store(config.tracking.uri)) is not None:
        yield f"tracking.uri={redact_uri(config.tracking.uri)}: {reason}"
    if (address := re.fullmatch(r"([a-z][a-z0-9+.-]*):/([^/].*)", output_dir)) is not None:
        meant = f"/{address[2]}" if address[1] == "file" else f"{address[1]}://{address[2]} for an object store"
        yield (
            f"output_dir={output_dir}: would be a folder of this machine named {address[1]}:; write {meant}, or "
            f"./{output_dir} for the folder"
        )
    if config.tracking.checkpoints == "reference" and not config.checkpoint.keep:
        yield (
            "tracking.checkpoints=reference: checkpoint.keep=[] keeps no checkpoint to refer to; use "
            "checkpoint.keep=[best], or tracking.checkpoints=none"
        )
    if is_remote(output_dir) and holds_password(output_dir):
        yield (
            f"output_dir={redact_uri(output_dir)}: everybody who can read the config sees the key; give it in the "
            "environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and to the nodes of a cluster with "
            "cluster.env=['AWS_*']"
        )


def storage_notes(config: SweepConfig) -> Iterator[str]:
    """Yield notes on settings of storage that are valid but may be unintended."""
    if config.tracking.checkpoints == "reference" and not is_remote(config.output_dir):
        yield (
            f"tracking.checkpoints=reference: MLflow will refer to folders in output_dir={config.output_dir}; only "
            "machines that can read that folder can load the checkpoints, as long as they stay there"
        )
    if "$" in config.output_dir:
        yield f"output_dir={config.output_dir}: $ is part of the name; for a variable write ${{oc.env:NAME}}"
    if config.cluster.address == "local":
        return
    missing = [name for name in config.cluster.env if not name.endswith("*") and name not in os.environ]
    if missing:
        yield f"cluster.env: {', '.join(missing)}: not set here, so the workers keep what their nodes have"
    if is_remote(config.output_dir) and not config.cluster.env:
        yield (
            f"output_dir={config.output_dir}: the nodes reach it with their own credentials; "
            "cluster.env=['AWS_*'] gives them yours"
        )
