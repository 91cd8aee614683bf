"""Workers of a process that loads no torch itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import run_python

ASKED = """
import json, sys
import psutil
import ray
from ray.train import RunConfig, ScalingConfig
from sweeps.compat.ray_train import LeanTrainer
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.runtime.broker_actor import BrokerActor
from sweeps.runtime.cluster import connected
from sweeps.runtime.torch_process_group import ProcessGroup

NAMED = ("ray.tune", "torch", "sklearn", "scipy", "mlflow", "optuna", "datasets", "transformers")

def modules(_=None):
    return [name for name in NAMED if name in sys.modules]

def train(config):
    import os
    import torch
    import torch.distributed as group
    variables = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "RANK", "WORLD_SIZE", "ACCELERATE_TORCH_DEVICE")
    total = torch.ones(1)
    group.all_reduce(total)
    told = [group.get_world_size(), group.get_backend(), total.item(), [os.environ[name] for name in variables]]
    with open(f"{config['folder']}/{group.get_rank()}", "w") as file:
        json.dump([modules(), told], file)

class Actor:
    def __init__(self):
        import sweeps.runtime.trainable

    def train(self, folder):
        trainer = LeanTrainer(
            train,
            train_loop_config={"folder": folder},
            backend_config=ProcessGroup("gloo", 60),
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(name="test", storage_path=folder),
        )
        trainer.cluster_grows = False
        trainer.fit()

with connected(compose_sweep("digits", ["cluster.num_cpus=2"], ConfSearchPath()).config):
    broker, actor = ray.remote(num_cpus=0)(BrokerActor).remote(), ray.remote(num_cpus=0)(Actor).remote()
    ray.get(actor.train.remote(sys.argv[1]))
    found = {"broker": ray.get(broker.__ray_call__.remote(modules))}
    found["actor"] = ray.get(actor.__ray_call__.remote(modules))
    found["named actors"] = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    commands = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
    left_out = ("monitor.py", "log_monitor.py", "dashboard.py")
    found["left out"] = [each for each in commands if any(name in each for name in left_out)]
print(json.dumps(found))
"""


FOUND = {"broker": [], "actor": ["ray.tune"], "named actors": [], "left out": []}


@pytest.mark.slow
def test_only_workers_load_torch_and_ray_starts_no_process_of_no_use(tmp_path: Path) -> None:
    done = run_python("-c", ASKED, str(tmp_path), within_s=250)
    assert json.loads(done.stdout.splitlines()[-1]) == FOUND
    for rank in range(2):
        loaded, told = json.loads((tmp_path / str(rank)).read_text())
        assert set(loaded) - {"ray.tune"} == {"torch"}
        assert told == [2, "gloo", 2.0, [str(rank), "2", "0", str(rank), "2", "cpu"]]
