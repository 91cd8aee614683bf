"""Ray Train's own way: the first worker writes the state with ``torch.save``, and all report it."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

RAY_REPORT = "Ray Train's `report`"
RAY_SAVES = 4
"""Largest number of saves of each size, which take seconds."""
PAUSE_S = 3.0
"""Seconds between two saves. Train's controller takes reports every two seconds, and a report waits until the one
before has been taken: a training that saves less often does not notice."""


def measure_ray_report(ranks: int, sizes: list[int], saves: int, folder: Path) -> dict[int, Any]:
    """Seconds for which saving and reporting blocks a Ray Train function, by the size of the state in MiB."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init("local", num_cpus=ranks + 1, include_dashboard=False, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as storage:
            numbers = Path(storage) / "numbers.json"
            TorchTrainer(
                report_states,
                train_loop_config={"sizes": sizes, "saves": saves, "numbers": str(numbers)},
                scaling_config=ScalingConfig(num_workers=ranks),
                run_config=RunConfig(name="report", storage_path=storage),
            ).fit()
            found = json.loads(numbers.read_text(encoding="utf-8"))
    finally:
        ray.shutdown()
    return {int(mib): each for mib, each in found.items()}


def report_states(config: dict[str, Any]) -> None:
    """The train function."""
    import ray.train
    import torch

    from sweeps_train.workers.distributed import Workers

    torch.set_num_threads(1)
    workers = Workers.current()
    found: dict[int, dict[str, Any]] = {}
    for mib in config["sizes"]:
        state = {str(number): torch.ones(2**18) for number in range(mib)} if workers.rank == 0 else {}
        seconds = []
        for number in range(config["saves"]):
            workers.sum([0.0])
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as written:
                checkpoint = None
                if workers.rank == 0:
                    torch.save(state, Path(written) / "state.pt")
                    checkpoint = ray.train.Checkpoint.from_directory(written)
                ray.train.report({"step": number}, checkpoint=checkpoint)
            seconds.append(workers.max([time.perf_counter() - began])[0])
            time.sleep(PAUSE_S)
        found[mib] = {"first": seconds[0], "next": seconds[1:]}
    if workers.rank == 0:
        Path(config["numbers"]).write_text(json.dumps(found), encoding="utf-8")
