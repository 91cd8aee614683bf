"""Message of a sweep on a trial that Tune has given up."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_reason_is_that_of_the_last_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.train._internal.storage import StorageContext
    from ray.tune import TuneError
    from ray.tune.experiment import Trial

    from sweeps.driver.retries import failure_reason

    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep", trial_dir_name="trial")
    trial = Trial("__fake", storage=storage, stub=True)
    trial.init_local_path()
    assert failure_reason(trial) == "unknown error"
    for number in (1, 2):
        trial.handle_error(TuneError(f"Traceback\nsweeps.errors.TrialFailed: RuntimeError: number {number}"))
        assert failure_reason(trial) == f"RuntimeError: number {number}"
