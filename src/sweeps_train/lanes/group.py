"""A group of workers, and everything that its lanes share."""

from __future__ import annotations

from pathlib import Path

from sweeps_train.config import TrainingConfig
from sweeps_train.devices.peak_performance import peak_of
from sweeps_train.devices.system import begin_measurement
from sweeps_train.measures.flops import FlopMeter
from sweeps_train.measures.measurement import Measurement
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.step_clock import StepClock
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.tasks import Task, build_task
from sweeps_train.training_request import TrainingRequest
from sweeps_train.workers.communication import CommunicationMeter
from sweeps_train.workers.distributed import Workers


class Group:
    """Workers that train a single lane, with its own model and strategy."""

    def __init__(self, request: TrainingRequest):
        """Measure steps as the config of the first training says."""
        self.workers = Workers.current()
        begin_measurement(self.workers.device)
        train, note = request.config.train, request.reporter_on(self.workers.rank).note
        self.clock = StepClock()
        self.communication = CommunicationMeter(self.workers, train.communication_every, note)
        device, is_float8 = self.workers.device, train.precision == "fp8"
        peak = train.peak_tflops or Measurement("the peak performance of the device", note).value(
            lambda: peak_of(device, Precision(train.precision, device).type, float8=is_float8), None
        )
        self.flops = FlopMeter(peak, note)

    def build_strategy(self, config: TrainingConfig, precision: Precision) -> Strategy:
        """Build the strategy of a lane; every worker must call it."""
        return build_strategy(config.strategy, self.workers, precision)

    def build_task(self, config: TrainingConfig, state: Path | None) -> Task:
        """Build model and data of a lane, from scratch or from a checkpoint."""
        return build_task(config, state)

    def prepare(self, request: TrainingRequest, state: Path | None) -> Task:
        """Build model and data of a lane, and wait until all workers have done so, since other nodes may still be
        downloading or tokenizing."""
        task = self.build_task(request.config, state)
        request.on_prepared()
        self.workers.meet()
        return task
