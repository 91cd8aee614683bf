"""Checks of ``output_dir`` in an object store."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.config import SweepConfig
from sweeps.storage.location import is_remote
from sweeps.texts.uri_passwords import holds_password, redact_uri


def storage_mistakes(config: SweepConfig) -> Iterator[str]:
    """Yield one line for each mistake, with key, value and fix."""
    uri = config.output_dir
    if is_remote(uri) and holds_password(uri):
        yield (
            f"output_dir={redact_uri(uri)}: everybody who can read the config sees the key; give it in the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and to the nodes of a cluster with cluster.env=['AWS_*']"
        )


def storage_notes(config: SweepConfig) -> Iterator[str]:
    """Yield notes on settings that are valid but may be unintended."""
    if is_remote(config.output_dir) and config.cluster.address != "local" and not config.cluster.env:
        yield (
            f"output_dir={config.output_dir}: the nodes reach it with their own credentials; "
            "cluster.env=['AWS_*'] gives them yours"
        )
