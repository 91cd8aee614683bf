"""Variables of ``cluster.env`` reach the processes on all nodes of a running cluster; nothing shows their values."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest
import ray
from composing import composed_digits
from processes import run_python
from running import points, run

from sweeps.errors import ConfigError
from sweeps.provenance import redaction
from sweeps.provenance.redacted_text import redacted_log
from sweeps.runtime import cluster
from sweeps.runtime.cluster import connected
from sweeps.runtime.environment import chosen_variables, setting_up
from sweeps.validate.storage_checks import storage_notes

SECRET = "planted-value-7Q41"


def test_names_and_beginnings_choose_variables_but_not_those_that_ray_sets() -> None:
    environment = {
        "HF_TOKEN": SECRET,
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "3",
        "CUDA_HOME": "/c",
        "ZE_AFFINITY_MASK": "3",
        "HOME": "/",
    }
    assert chosen_variables(["HF_TOKEN", "NCCL_*", "CUDA_*", "ZE_*", "UNSET"], environment) == {
        "HF_TOKEN": SECRET,
        "NCCL_DEBUG": "INFO",
        "CUDA_HOME": "/c",
    }
    assert chosen_variables([], environment) == {}


def test_a_process_is_in_the_drivers_folder_if_its_node_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "another")
    monkeypatch.chdir(tmp_path)  # and back at the end
    (tmp_path / "there").mkdir()
    setting_up({"HF_TOKEN": SECRET}, str(tmp_path / "there"))()
    assert (os.environ["HF_TOKEN"], Path.cwd()) == (SECRET, tmp_path / "there")
    setting_up({}, str(tmp_path / "elsewhere"))()
    setting_up({}, None)()
    assert Path.cwd() == tmp_path / "there"


def test_ray_is_asked_to_set_the_variables_in_every_process_of_a_running_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", asked.update)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster, "alive_nodes", list)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with connected(composed_digits("cluster=auto", "cluster.env=[HF_TOKEN]").config):
        monkeypatch.delenv("HF_TOKEN")
    assert SECRET not in str(asked)
    asked["runtime_env"]["worker_process_setup_hook"]()
    assert os.environ["HF_TOKEN"] == SECRET


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("['*']", "'\\*' is not the name of an environment variable; give names, or prefixes"),
        ("['A*B']", "'A\\*B' is not the name"),
        ("['HF_TOKEN=hf_x']", "'HF_TOKEN' has a value; give only names"),
        ("[CUDA_VISIBLE_DEVICES]", "CUDA_VISIBLE_DEVICES is different for each worker"),
    ],
)
def test_other_names_are_refused(names: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^cluster: env: .*{message}"):
        composed_digits(f"cluster.env={names}")


def test_a_variable_that_is_not_set_is_noted_for_a_running_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.delenv("HF_TOKNE", raising=False)
    tokens = ["cluster.env=[HF_TOKEN, HF_TOKNE, 'NCCL_*']"]
    config = composed_digits("cluster=auto", *tokens).config
    assert list(storage_notes(config)) == [
        "cluster.env: HF_TOKNE: not set here, so the workers keep what their nodes have"
    ]
    assert list(storage_notes(composed_digits(*tokens).config)) == []


def test_values_of_variables_that_are_named_like_a_secret_are_hidden_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "not-a-secret")
    redaction.secret_values.cache_clear()
    try:
        assert redacted_log(f"one {SECRET} not-a-secret") == "one *** not-a-secret"
        assert redaction.redacted(f"run --x {SECRET}") == "run --x ***"
    finally:
        redaction.secret_values.cache_clear()


CLUSTER = """
import json, os, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
from ray.util.state import list_workers, list_actors, list_jobs
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.runtime.cluster import connected

cluster = Cluster()  # its processes have the environment of this one, which has no token yet
for _ in range(2):
    cluster.add_node(num_cpus=1, include_dashboard=False)
os.environ.update(HF_TOKEN=sys.argv[1], NCCL_DEBUG="INFO", UNNAMED_THING="unnamed")

def seen():
    return [os.environ.get(name) for name in ("HF_TOKEN", "NCCL_DEBUG", "UNNAMED_THING", "OWN")]

overrides = [f"cluster.address='{cluster.address}'", "cluster.env=[HF_TOKEN, 'NCCL_*']"]
with connected(compose_sweep("digits", overrides, ConfSearchPath()).config):
    found = {}
    for node in ray.nodes():
        on = ray.remote(num_cpus=1, scheduling_strategy=On(node["NodeID"], soft=False))
        plain = ray.get(on(seen).remote())
        own = ray.get(on(seen).options(runtime_env={"env_vars": {"OWN": "own"}}).remote())
        found[node["NodeID"]] = (plain, own)
    shown = str(ray.get_runtime_context().runtime_env) + ray.get_runtime_context().get_runtime_env_string()
folder = Path(cluster.head_node.get_session_dir_path(), "logs")
logs = "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
cluster.shutdown()
print(json.dumps([list(found.values()), shown, sys.argv[1] in logs]))
"""


@pytest.mark.slow
def test_they_reach_every_node_and_are_in_no_log_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    for name in ("HF_TOKEN", "NCCL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    done = run_python("-c", CLUSTER, SECRET, folder=tmp_path, within_s=230)
    nodes, shown, is_logged = json.loads(done.stdout.splitlines()[-1])
    assert nodes == [[[SECRET, "INFO", None, None], [SECRET, "INFO", None, "own"]]] * 2
    assert SECRET not in shown
    assert not is_logged


RECORDS = """
import os
from pathlib import Path
import torch

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 10))
        self.width, self.is_known = width, False

    def forward(self, images):
        found = os.environ.get("CUBLAS_WORKSPACE_CONFIG"), torch.are_deterministic_algorithms_enabled(), os.getpid()
        Path("{folder}", f"{self.width}-{os.environ['RANK']}").write_text(repr(found))
        return self.layers(images)
"""


@pytest.mark.slow
def test_a_trial_gets_processes_with_the_variables_that_its_switches_need(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS.replace("{folder}", str(tmp_path)), encoding="utf-8")
    tried = [(8, False), (9, True), (10, True), (11, False)]
    done = run(
        tmp_path,
        *("conf=digits", "space=none", "model=custom", "model._target_=records.Net", "+model.arguments.width=8"),
        "space.model.arguments.width={type: categorical, choices: [8, 9, 10, 11]}",
        "space.train.deterministic={type: categorical, choices: [false, true]}",
        points(*({"model.arguments.width": width, "train.deterministic": switch} for width, switch in tried)),
        *("search=random", "search.num_trials=4", "search.max_concurrent=1", "search.default_first=false"),
        *("train.max_steps=2", "train.eval_every=2", "cluster.num_cpus=2", "preflight.timeout_s=0"),
    )
    assert done.document["counts"]["finished"] == 4, done.err
    found = {
        width: [ast.literal_eval((tmp_path / f"{width}-{rank}").read_text()) for rank in (0, 1)] for width, _ in tried
    }
    for width, switch in tried:
        assert [each[:2] for each in found[width]] == [(":4096:8" if switch else None, switch)] * 2
    processes = [found[width][0][2] for width, _ in tried]
    assert processes[1] == processes[2]  # reused by a trial with the same switches
    assert len(set(processes)) == 3
