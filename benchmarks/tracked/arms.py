"""One arm in its own process: ``python -m tracked.arms ARM URI FOLDER`` prints its measurements as JSON.

A step computes for about ten milliseconds and then logs ten metrics. Measured is the time between the end of a step's
computation and the beginning of the next one's.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEP_S = 0.010
STEPS = 500
AT_MOST_S = 20.0
"""Longest training, for the arms that wait for each answer."""
METRICS = 10
POINTS = 1_000_000
"""Points of the throughput measurement, in calls of twenty metrics for ten trials in turn."""
CONFIG = "train:\n  lr: 0.01\n"

Log = Callable[[int, dict[str, float]], object]


def train(log: Log) -> dict[str, float]:
    """Run steps of about ten milliseconds, and measure the calls of ``log``."""
    rounds = _rounds_of_a_step()
    added, whole = [], []
    began = time.perf_counter()
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        _compute(rounds)
        computed = time.perf_counter()
        log(step, {f"train/metric_{number}": step / (number + 1) for number in range(METRICS)})
        end = time.perf_counter()
        added.append(end - computed)
        whole.append(end - start)
        if end - began > AT_MOST_S:
            break
    return {
        "steps": len(added),
        "added_ms": 1e3 * statistics.fmean(added),
        "median_ms": 1e3 * statistics.median(added),
        "worst_ms": 1e3 * max(added),
        "step_ms": 1e3 * statistics.median(whole),
    }


def none(*_: object) -> dict[str, float]:
    """Train without tracking."""
    return train(lambda step, metrics: None)


def ours(uri: str, folder: Path) -> dict[str, float]:
    """Train in a worker with the reporter of a sweep's workers, while a driver passes its events to the recorder."""
    import ray

    from sweeps.runtime.driver_side import DriverSide
    from sweeps.runtime.events import Log as Logged
    from sweeps.runtime.trial_assignment import Assignment
    from sweeps.runtime.trial_reporter import BrokerReporter
    from sweeps_train.reports.progress import Progress

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    broker = DriverSide()
    begun = broker.of_trials.begin("0000", saves_when_asked=True, lost=None)
    training: Any = None
    assignment = Assignment(
        trial="0000",
        attempt=begun.attempt,
        training=training,
        metrics=("train/metric_0",),
        modes=("min",),
        checkpoint_folder=str(folder / "trials" / "0000"),
        log_folder=str(folder / "trials" / "0000" / "logs"),
        origin=None,
        waits_for_decision=False,
        last_delivered=None,
        broker=broker.of_trials.workers,
        largest_micro_batch=None,
        hang_timeout_s=600.0,
        prepare_timeout_s=600.0,
    )

    def work(assignment: Assignment) -> dict[str, float]:
        reporter = BrokerReporter(assignment)
        measured = train(lambda step, metrics: reporter.log(Progress(step=step), metrics))
        reporter.flush()
        return measured

    recorder = _recorder(uri, folder)
    recorder.trials.start("0000", {"train.lr": 0.01}, CONFIG, 1)
    trained = threading.Event()

    def follow() -> None:
        while True:
            last = trained.is_set()
            for event in broker.drain(0.01 if last else 0.5) or ():
                if isinstance(event, Logged):
                    recorder.trials.log(event.trial, event.step, event.metrics, event.timestamp_ms)
            if last:
                return

    driver = threading.Thread(target=follow)
    driver.start()
    measured: dict[str, float] = ray.get(ray.remote(num_cpus=1)(work).remote(assignment))
    trained.set()
    driver.join()
    recorder.trials.end("0000", "finished", int(measured["steps"]), 1)
    assert not recorder.close("finished")
    return measured


def stock(uri: str, folder: Path) -> dict[str, float]:
    """Train with Ray's ``MLflowLoggerCallback`` in a function trainable that reports each step."""
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    result = folder / "measured.json"

    def trainable(_: dict[str, Any]) -> None:
        measured = train(lambda step, metrics: tune.report(metrics))
        result.write_text(json.dumps(measured))

    callback = MLflowLoggerCallback(tracking_uri=uri, experiment_name="stock")
    run_config = tune.RunConfig(storage_path=str(folder), name="tune", callbacks=[callback], verbose=0)
    tune.Tuner(trainable, run_config=run_config).fit()
    measured: dict[str, float] = json.loads(result.read_text())
    return measured


def direct(uri: str, _: Path) -> dict[str, float]:
    """Train with ``mlflow.log_metrics`` in every step."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("direct")
    with mlflow.start_run():
        return train(lambda step, metrics: mlflow.log_metrics(metrics, step=step))


def sustained(uri: str, folder: Path) -> dict[str, float]:
    """Measure the throughput in points a second, into the journal and through to MLflow."""
    recorder = _recorder(uri, folder)
    trials, each = 10, 20
    for trial in range(trials):
        recorder.trials.start(str(trial), {"train.lr": 0.1 * trial}, CONFIG, 1)
    began = time.perf_counter()
    for step in range(POINTS // trials // each):
        for trial in range(trials):
            recorder.trials.log(str(trial), step, {f"train/metric_{number}": step + number for number in range(each)})
    written = time.perf_counter()
    assert not recorder.close("finished")
    delivered = time.perf_counter()
    return {"journal": POINTS / (written - began), "mlflow": POINTS / (delivered - began)}


def _recorder(uri: str, folder: Path) -> Any:
    from sweeps.config.objectives import Objectives
    from sweeps.tracking.recorder import Recorder
    from sweeps.tracking.sweep_run import SweepInfo

    objectives = Objectives(("train/metric_0",), ("min",))
    info = SweepInfo(name="bench", conf="bench", objectives=objectives, folder=folder / "sweep", config_yaml=CONFIG)
    return Recorder.open(uri, "ours", info)


def _rounds_of_a_step() -> int:
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < 0.5:
        _compute(10)
        rounds += 10
    return round(rounds * STEP_S / 0.5)


def _compute(rounds: int) -> int:
    return sum(sum(range(1000)) for _ in range(rounds))


if __name__ == "__main__":
    arms = {arm.__name__: arm for arm in (none, ours, stock, direct, sustained)}
    print("MEASURED", json.dumps(arms[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))))
