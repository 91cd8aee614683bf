"""What registering a model leaves behind in the process that does it: nothing."""

from __future__ import annotations

import os

import mlflow
import pytest
from recording import record_small_sweep

from sweeps.errors import UserError
from sweeps.registry.register import register
from sweeps.tracking.reader import load_sweep


@pytest.mark.parametrize("variable", [None, "sqlite:///other.db"])
def test_mlflows_store_and_its_variable_are_as_they_were(
    uri: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    record_small_sweep(uri)
    sweep, before = load_sweep(uri, "digits-1"), mlflow.get_tracking_uri()
    with pytest.raises(UserError, match="checkpoint"):
        register(sweep, sweep.trials[0], "mine", None)
    assert os.environ.get("MLFLOW_TRACKING_URI") == variable
    assert mlflow.get_tracking_uri() == before
