"""What Ray's processes inherit is ours only while Ray starts."""

from __future__ import annotations

import os

import pytest

from sweeps.cluster import _environment


def test_variables_for_ray_are_taken_back_and_those_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "1")
    monkeypatch.delenv("RAY_CHDIR_TO_TRIAL_DIR", raising=False)
    with _environment({"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_CHDIR_TO_TRIAL_DIR": "0"}):
        assert os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "1"
        assert os.environ["RAY_CHDIR_TO_TRIAL_DIR"] == "0"
    assert os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "1"
    assert "RAY_CHDIR_TO_TRIAL_DIR" not in os.environ
