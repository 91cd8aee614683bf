"""Contract with the private names of Ray Train and Ray Data that Sweeps uses: a failure here says which has moved."""

from __future__ import annotations

import inspect
from typing import Any

from ray.actor import ActorClass
from ray.train import RunConfig, ScalingConfig
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import create_scaling_policy
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.worker import ActorMetadata, RayTrainWorker

from sweeps.compat.ray_train import REQUESTS, ControllerHooks, LeanTrainer, without_retries
from sweeps.compat.ray_train_workers import health_check_error


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_controller_calls_these_hooks_of_its_callbacks() -> None:
    assert parameters(WorkerGroupCallback.after_worker_group_start) == ["self", "worker_group"]
    assert parameters(WorkerGroupCallback.before_worker_group_shutdown) == ["self", "worker_group"]
    assert issubclass(ControllerHooks, (ControllerCallback, WorkerGroupCallback))


def test_a_trainer_makes_its_callbacks_by_a_method_that_can_leave_some_out(tmp_path: Any) -> None:
    storage = RunConfig(name="contract", storage_path=str(tmp_path))
    trainer = LeanTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=1), run_config=storage)
    usual: Any = super(LeanTrainer, trainer)
    left_out = (PlacementGroupCleanerCallback, DatasetsCallback)
    assert {type(each) for each in usual._create_default_callbacks()} > set(left_out), "Ray starts them elsewhere"
    assert not [each for each in trainer._create_default_callbacks() if isinstance(each, left_out)]


def test_a_worker_group_names_its_workers_and_its_placement_group() -> None:
    assert parameters(WorkerGroup.get_workers) == ["self"]
    assert parameters(WorkerGroup.get_worker_group_state) == ["self"]
    assert {"hostname", "node_id", "pid", "gpu_ids"} <= {*ActorMetadata.__annotations__, *dir(ActorMetadata)}
    assert parameters(RayTrainWorker.get_metadata) == ["self"]
    assert parameters(RayTrainWorker.execute)[:2] == ["self", "fn"]


def test_a_controller_can_run_outside_of_an_actor() -> None:
    controller: Any = TrainController
    assert not isinstance(controller, ActorClass)
    assert inspect.iscoroutinefunction(controller.run)
    assert parameters(controller.get_result) == parameters(controller.get_worker_group) == ["self"]
    assert parameters(WorkerGroup.abort) == ["self"]
    usual: Any = super(LeanTrainer, LeanTrainer)
    assert parameters(usual._initialize_and_run_controller) == ["self", "controller_init_kwargs"]


def test_the_policy_of_a_trainer_tells_the_autoscaler_by_methods_that_can_be_left_out() -> None:
    policy: Any = create_scaling_policy(ScalingConfig(num_workers=1))
    for method in REQUESTS:
        assert parameters(getattr(policy, method)) == [], "Ray's actor for the autoscaler would be started"


def test_a_failed_health_check_carries_the_error_of_the_workers_actor() -> None:
    death = RuntimeError("dead")
    assert health_check_error(WorkerHealthCheckFailedError("not healthy", failure=death)) is death
    assert health_check_error(RuntimeError("another failure")) is None


def test_a_worker_group_is_not_retried_by_ray_train() -> None:
    limits = without_retries()
    assert limits.max_failures == 0
    assert getattr(limits, "max_preemption_failures", 0) == 0  # unlimited by default, from Ray 2.58 on
