"""Contract with the private names of Ray Tune that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

import inspect
import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
import ray.tune.tune
from processes import run_python
from ray.air.execution._internal import TrackedActor
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.air.execution.resources import placement_group
from ray.train._internal.storage import StorageContext
from ray.tune import Callback, PlacementGroupFactory
from ray.tune.callback import CallbackList
from ray.tune.execution import tune_controller
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from sweeps.compat import ray_tune

RESULT = {"step": 3}
ADAPTED = partial(
    ray_tune.adapted_tune,
    ends_within_s=60,
    max_deaths=lambda trial: 5,
    before_step=lambda: None,
    releases=lambda: True,
)


@pytest.fixture
def storage(tmp_path: Path) -> StorageContext:
    return StorageContext(str(tmp_path), "tune")


@pytest.fixture
def trial(storage: StorageContext) -> Trial:
    return Trial("contract", stub=True, storage=storage)


@pytest.fixture
def controller(storage: StorageContext, monkeypatch: pytest.MonkeyPatch) -> TuneController:
    """A controller without Ray, whose actors have an hour to end."""
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "1")  # else it asks the cluster
    with ADAPTED(ends_within_s=3600):
        made: TuneController = vars(ray.tune.tune)["TuneController"](storage=storage)
    return made


def test_the_controller_can_keep_more_idle_actors(controller: Any, trial: Trial) -> None:
    trial.placement_group_factory = PlacementGroupFactory([{"CPU": 1}])
    before = controller._actor_cache.total_max_objects
    ray_tune.keep_idle_actor(controller, trial)
    assert controller._actor_cache.total_max_objects == before + 1, "TuneController._actor_cache.increase_max"


def test_tune_keeps_no_state_of_a_trial_for_its_own_file(controller: Any, trial: Trial) -> None:
    controller.add_trial(trial)
    assert controller._get_trial_checkpoints() == {}, "TuneController._mark_trial_to_checkpoint"


def test_the_search_goes_on_while_an_actor_takes_long_to_end(controller: Any) -> None:
    controller._actor_manager = MagicMock()
    controller._actor_manager.next.side_effect = AssertionError("waits until the actor has ended")
    for since_s, is_killed in ((700, False), (3700, True)):
        controller._stopping_actors["actor"] = controller._earliest_stopping_actor = time.monotonic() - since_s
        controller.on_step_end()
        assert controller._actor_manager.remove_actor.called is is_killed, "_actor_cleanup_timeout"


def test_the_last_result_of_a_trial_that_has_failed_for_good_is_not_asked_of_its_dead_actor(
    controller: Any, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_: Any) -> None:
        raise ray.exceptions.OutOfMemoryError("low on memory")

    class Asks(Callback):
        def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
            results.append(trial.last_result)

    results: list[Any] = []
    controller._callbacks = CallbackList([Asks()])
    monkeypatch.setattr(trial, "handle_error", lambda _: None)  # it writes a file into the folder of Ray's session
    monkeypatch.setattr(trial, "should_recover", lambda: False)
    controller.add_trial(trial)
    controller._set_trial_status(trial, Trial.RUNNING)
    trial.set_ray_actor(MagicMock(get_auto_filled_metrics=MagicMock(remote=lambda **_: ray.ObjectRef.from_random())))
    monkeypatch.setattr(ray, "get", get)
    controller._trial_task_failure(trial, ray.exceptions.RayActorError())
    assert (trial.status, results) == (Trial.ERROR, [{"trial_id": trial.trial_id}]), "Trial._default_result_or_future"


def test_an_actor_that_ray_kills_because_memory_runs_out_is_a_lost_one() -> None:
    assert "self._actor_manager = RayActorManager(" in inspect.getsource(TuneController.__init__), "_actor_manager"
    errors: list[Exception] = []
    actor = TrackedActor(0, on_error=lambda _, error: errors.append(error))
    task = TrackedActorTask(actor, on_error=lambda _, error: errors.append(error))
    with ADAPTED():
        manager = vars(tune_controller)["RayActorManager"](resource_manager=MagicMock())
    for fails, what in ((manager._actor_task_failed, task), (manager._actor_start_failed, actor)):
        manager._live_actors_to_ray_actors_resources[actor] = MagicMock(), MagicMock()
        fails(what, ray.exceptions.OutOfMemoryError("low on memory\nadvice"))
    assert [(type(each), str(each)) for each in errors] == [(ray.exceptions.RayActorError, "low on memory")] * 3


def test_tune_leaves_the_handlers_of_signals_and_never_ends_its_loop_by_one() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with ADAPTED():
            assert not ray.tune.tune._setup_signal_catching().is_set(), "ray.tune.tune._setup_signal_catching"
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("releases", [True, False])
def test_a_search_after_a_sweep_is_tunes_own_and_the_rest_of_the_sweep_asks_no_cluster_that_is_lost(
    monkeypatch: pytest.MonkeyPatch, *, releases: bool
) -> None:
    removed: list[Any] = []
    monkeypatch.setattr(placement_group, "remove_placement_group", removed.append)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    before = {**vars(ray.tune.tune)}, {**vars(tune_controller)}
    with ADAPTED(releases=lambda: releases):
        left = vars(tune_controller)["PlacementGroupResourceManager"]()
    assert (vars(ray.tune.tune), vars(tune_controller)) == before
    left._acquired_pgs |= {"group", "freed"}
    left._pg_to_request["freed"] = None
    left.free_resources(MagicMock(placement_group="freed"))
    assert removed == (["freed"] if releases else []), "PlacementGroupResourceManager.free_resources"
    left._acquired_pgs.discard("freed")
    del left
    assert removed == (["freed", "group"] if releases else []), "PlacementGroupResourceManager.clear"


@pytest.mark.filterwarnings("ignore")  # of a fit to few rows
def test_pb2s_process_chooses_values_in_their_range_and_adds_a_row_for_them() -> None:
    rows = [(trial, time, 0.2 + 0.1 * trial, 0.5, trial * time) for time in (1.0, 2.0, 3.0) for trial in (1, 2)]
    observed = pd.DataFrame(rows, columns=["Trial", "Time", "lr", "decay", "Reward"]).astype({"Trial": str})
    bounds = {"lr": (0.0, 1.0), "decay": (0.0, 1.0)}
    for chosen in (None, np.array([[0.1, 0.2]])):
        new, after = ray_tune.explore_by_pb2(observed, bounds, chosen, "2", "1", {"lr": 0.4, "decay": 0.5})
        assert all(0 <= new[name] <= 1 for name in bounds), "ray.tune.schedulers.pb2._explore"
        assert after.iloc[-1].tolist() == ["1", 3.0, *new.values(), 6.0], "ray.tune.schedulers.pb2._explore"
    unseen, after = ray_tune.explore_by_pb2(observed, bounds, None, "3", "1", {"lr": 0.4, "decay": 0.5})
    assert (unseen, len(after)) == ({"lr": 0.4, "decay": 0.5}, len(observed)), "ray.tune.schedulers.pb2._explore"


ENDS = """
import time
import ray
from ray import tune
from sweeps.compat.ray_tune import adapted_tune

class Trainable(tune.Trainable):
    def step(self):
        return {"value": 1, "done": True}

    def save_checkpoint(self, folder):
        return {}

    def load_checkpoint(self, checkpoint):
        pass

    def cleanup(self):
        time.sleep(11)
        open("{folder}/ended", "w").close()

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
tuner = tune.Tuner(
    Trainable,
    tune_config=tune.TuneConfig(reuse_actors=True),
    run_config=tune.RunConfig(storage_path="{folder}/tune", verbose=0),
)
with adapted_tune(ends_within_s=60, max_deaths=lambda trial: 5, before_step=lambda: None, releases=lambda: True):
    tuner.fit()
"""


@pytest.mark.slow
def test_the_last_actor_ends_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(ENDS.replace("{folder}", str(tmp_path)), encoding="utf-8")
    run_python(script)
    assert (tmp_path / "ended").exists(), "_actor_force_cleanup_timeout"


DIES = """
import json, os, time
import ray
from ray import tune
from sweeps.compat.ray_tune import adapted_tune

class Trainable(tune.Trainable):
    def setup(self, config):
        pass

    def reset_config(self, config):
        with open("{folder}/resets", "a") as file:
            file.write(".")
        if os.path.getsize("{folder}/resets") in {deaths}:
            os._exit(1)
        return True

    def step(self):
        time.sleep(0.3)
        return {"value": 1, "done": True}

    def save_checkpoint(self, folder):
        return {}

    def load_checkpoint(self, checkpoint):
        pass

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
tuner = tune.Tuner(
    tune.with_resources(Trainable, {"cpu": 0.5}),
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(reuse_actors=True, num_samples=8, max_concurrent_trials=2),
    run_config=tune.RunConfig(
        storage_path="{folder}/tune", failure_config=tune.FailureConfig(max_failures={most}), verbose=0
    ),
)
with adapted_tune(ends_within_s=60, max_deaths=lambda trial: {most}, before_step=lambda: None, releases=lambda: True):
    results = tuner.fit()
print(json.dumps([None if each.error else each.metrics["value"] for each in results]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [(1,), (1, 2, 4)])
def test_a_trial_whose_actor_dies_as_it_takes_it_is_retried_and_each_death_counts_once(
    tmp_path: Path, deaths: tuple[int, ...]
) -> None:
    script = tmp_path / "dies.py"
    values = {"{folder}": str(tmp_path), "{deaths}": repr(deaths), "{most}": str(len(deaths))}
    text = DIES
    for name, value in values.items():
        text = text.replace(name, value)
    script.write_text(text, encoding="utf-8")
    done = run_python(script)
    assert json.loads(next(line for line in done.stdout.splitlines() if line.startswith("["))) == [1] * 8
    assert (tmp_path / "resets").stat().st_size >= max(deaths), "no actor has died"


AFTER_A_SWEEP = """
import json
import ray
import sweeps
from ray import tune

def train(config):
    tune.report({"loss": config["x"]})
    if config["x"] == 1:
        raise ValueError("of the user")

if __name__ == "__main__":
    sweeps.run("digits", ["space=none", "search.num_trials=1", "train.max_steps=4", "cluster.num_cpus=2"], name="first")
    ray.init(num_cpus=2, include_dashboard=False)
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(storage_path="{folder}/tune", verbose=0),
    )
    results = tuner.fit()
    print(json.dumps([len(results.errors), [len(each.metrics_dataframe) for each in results]]))
"""


@pytest.mark.slow
def test_a_search_of_the_user_s_own_after_a_sweep_in_the_same_process_is_tunes_own(tmp_path: Path) -> None:
    script = tmp_path / "after.py"
    script.write_text(AFTER_A_SWEEP.replace("{folder}", str(tmp_path)), encoding="utf-8")
    done = run_python(script, folder=tmp_path, within_s=300)
    assert json.loads(done.stdout.splitlines()[-1]) == [1, [1, 1]]
