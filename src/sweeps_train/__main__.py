"""Training without Ray: ``python -m sweeps_train CONFIG.json``, or ``torchrun --nproc-per-node 2 -m sweeps_train ...``.

CONFIG.json is a ``TrainingConfig``, such as the ``training.json`` in every checkpoint. Each event is printed as a line
of JSON. On SIGTERM, the training saves a checkpoint and ends.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
from pathlib import Path

import torch.distributed as dist
from pydantic import ValidationError

from sweeps_train.config import TRAINING_CONFIG
from sweeps_train.config.process import process_environment
from sweeps_train.devices.worker_device import select_own
from sweeps_train.loop import train
from sweeps_train.reports.reporter import PrintReporter, Stop


class TerminableReporter(PrintReporter):
    """Reporter that asks the training to save a checkpoint and stop once the process has received SIGTERM. torchrun
    passes the signal to all processes; rank 0 decides."""

    def __init__(self) -> None:
        self._terminated = False
        signal.signal(signal.SIGTERM, self._terminate)

    def should_stop(self, *, can_save: bool = True) -> Stop:
        return Stop.SAVE if self._terminated else Stop.NO

    def _terminate(self, *_: object) -> None:
        self._terminated = True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sweeps_train", description="Train one config.")
    parser.add_argument("config", type=Path, metavar="CONFIG.json")
    parser.add_argument("--checkpoints", metavar="DIR", help="save checkpoints there, and continue from the newest one")
    arguments = parser.parse_args()
    try:
        config = TRAINING_CONFIG.validate_json(arguments.config.read_bytes())
    except OSError as error:
        parser.error(f"{arguments.config}: {error.strerror}")
    except ValidationError as error:
        mistakes = (
            f"{'.'.join(map(str, each['loc']))}={each['input']}: {each['msg']}" if each["loc"] else each["msg"]
            for each in error.errors()  # without a location, one of the whole file
        )
        parser.error(f"{arguments.config}: {'; '.join(mistakes)}")

    try:
        os.environ.update(process_environment(config.train, os.environ))  # before CUDA starts
        select_own(int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError as error:
        parser.error(str(error))
    distributed = "WORLD_SIZE" in os.environ  # torchrun sets it
    if distributed:
        dist.init_process_group()  # gloo for tensors on CPUs, NCCL for those on GPUs
    try:
        train(config, reporter=TerminableReporter(), checkpoint_folder=arguments.checkpoints)
    finally:
        if distributed:
            gc.collect()  # a wrapped model in a reference cycle keeps the threads of the process group alive
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
