"""An error that nobody foresaw ends the driver, and no trial: `resume` lets all of them go on."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from continuing import ONE_AT_ONCE, SPACE, histories
from raising import function_at
from running import NO_PREFLIGHT, SHORT, Done
from stores import make_store

PLACES = (
    "sweeps.driver.callbacks:LifecycleCallback.on_step_end",
    "sweeps.driver.callbacks:LifecycleCallback.on_trial_complete",
    "sweeps.driver.callbacks:LifecycleCallback.on_trial_start",
    "sweeps.driver.callbacks:ShutdownStopper.stop_all",
    "sweeps.driver.changing_capacity:Capacity.refit",
    "sweeps.driver.report_decisions:Decisions.ended",
    "sweeps.driver.sweep_searcher:SweepSearcher.on_trial_complete",
    "sweeps.driver.sweep_searcher:SweepSearcher.suggest",
    "sweeps.driver.session:Session._publish",
    "sweeps.driver.sweep_state:SweepState.front",
    "sweeps.driver.trial_lifecycle:TrialLifecycle._finish",
    "sweeps.driver.trial_lifecycle:TrialLifecycle.ended",
    "sweeps.driver.trial_lifecycle:TrialLifecycle.process",
    "sweeps.driver.trial_lifecycle:TrialLifecycle.started",
    "sweeps.driver.worker_events:WorkerEvents.take",
    "sweeps.search.point_source:PointSource.next",
    "sweeps.driver.pause_aware_limiter:PauseAwareLimiter.on_trial_complete",
    "sweeps.driver.pause_aware_limiter:PauseAwareLimiter.suggest",
    "sweeps.search.study_search:StudySearch.end",
    "sweeps.search.study_search:StudySearch.report",
    "sweeps.tracking.recorder:Recorder.update",
    "sweeps.tracking.trial_recorder:TrialRecorder.end",
    "sweeps.tracking.trial_recorder:TrialRecorder.log",
    "sweeps.tracking.trial_recorder:TrialRecorder.start",
    "mlflow:MlflowClient.log_batch",
    "optuna.storages:JournalStorage.set_trial_state_values",
    "ray.tune.execution.tune_controller:TuneController._on_training_result",
    "ray.tune.execution.tune_controller:TuneController.step",
)
NUMBER = int(os.environ.get("SWEEPS_TEST_ERRORS", "20"))
CHOSEN = random.Random(48)
CASES = [(place, CHOSEN.randint(1, 3)) for place in CHOSEN.sample(PLACES, min(NUMBER, len(PLACES)))]


@pytest.mark.parametrize("place", PLACES)
def test_errors_are_raised_in_functions_that_exist(place: str) -> None:
    assert callable(function_at(place)[2])


@pytest.mark.slow
@pytest.mark.timeout(600)  # up to two sweeps, and `show`
@pytest.mark.parametrize(("place", "call"), CASES)
def test_after_an_error_that_nobody_foresaw_every_trial_goes_on(tmp_path: Path, place: str, call: int) -> None:
    make_store(tmp_path / "mlflow.db")
    search = ("search/scheduler=none", "search.num_trials=3", *ONE_AT_ONCE, "scaling.isolation=warm")
    sweep = ("conf=digits", *SHORT, *SPACE, *search, NO_PREFLIGHT, "tracking.report=false", "--name=hurt")
    raising = [sys.executable, str(Path(__file__).with_name("raising.py")), place, str(call)]
    status, err = run([*raising, "run", *sweep], tmp_path)
    assert status in (0, 1), err
    if status == 1:
        assert "nobody foresaw this" in err
        assert "python -m sweeps resume hurt" in err
        (traceback,) = re.findall(r"the traceback is in (\S+),", err)
        assert "raising.py" in Path(traceback).read_text()
        assert Path(traceback).parent == tmp_path / "outputs" / "hurt"
        status, err = run([sys.executable, "-m", "sweeps", "resume", "hurt"], tmp_path)
        assert status == 0, err
    done = Done.of(tmp_path, "hurt")
    assert done.document["status"] == "finished", err
    assert done.document["counts"] == {"finished": 3, "pruned": 0, "failed": 0, "running": 0, "stopped": 0}
    found = histories(done)
    assert {trial: [step for step, _ in sorted(points)] for trial, points in found.items()} == {
        f"{number:04}": [10, 20, 30, 40] for number in range(3)
    }


def run(command: list[str], folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "SWEEPS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    return done.returncode, done.stderr
