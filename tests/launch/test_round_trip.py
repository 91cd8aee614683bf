"""Entrypoints of KubeRay manifests, run by hand on a real Ray cluster: they end as the sweep does on one machine."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from processes import run_python
from ray.cluster_utils import Cluster
from stores import make_store

from sweeps.launch.kuberay import manifests
from sweeps.launch.submission import new_submission

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MODULE = """
import ray.train


def train(config):
    for step in (1, 2):
        ray.train.report({"loss": (config["x"] - 0.25) ** 2 / step})
"""
TOKENS = (
    "conf=ray_train_function",
    "task._target_=mine.train",
    "~task.arguments",
    "~space",
    "+task.arguments.x=0.5",
    "task.arguments.x=interval(0.0, 1.0)",
    "search.metric=loss",
    "search.mode=min",
    "search.num_trials=3",
    "search.max_concurrent=1",
    "scaling.num_workers=1",
    "tracking.report=false",
)


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[str, list[tuple[Any, ...]]]:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    trials = [(each["trial"], each["state"], each["value"], each["params"]) for each in document["trials"]]
    return document["status"], trials


def test_what_the_manifest_runs_ends_as_the_sweep_does_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, pod, shared = (tmp_path / name for name in ("here", "pod", "shared"))
    for folder in (here, pod, shared):
        folder.mkdir()
    (here / "mine.py").write_text(MODULE)
    for name in ("mlflow.db", "local.db"):
        make_store(shared / name)
    stores = [f"output_dir={shared}/outputs", f"tracking.uri=sqlite:///{shared}/mlflow.db"]
    volume = f"cluster.kuberay.volumes=[{{claim: shared, path: {shared}}}]"
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    submitted = [*TOKENS, *stores, "cluster=kuberay", "cluster.kuberay.image=sweeps:1", volume]
    config_map, job = manifests(new_submission(submitted, [], "there", "submit", "kuberay"))

    # A pod: the ConfigMap at its place, the archive as working folder, and a cluster in which the entrypoint starts.
    (pod / "etc").mkdir()
    (pod / "etc" / "sweep.sh").write_text(config_map["data"]["sweep.sh"])
    zipfile.ZipFile(io.BytesIO(base64.b64decode(config_map["binaryData"]["code.zip"]))).extractall(pod / "work")
    (pod / "bin").mkdir()
    (pod / "bin" / "python").symlink_to(sys.executable)
    entrypoint = job["spec"]["entrypoint"].replace("/etc/sweeps", str(pod / "etc"))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        cluster.add_node(num_cpus=2)
        paths = f"{pod}/work:{os.environ.get('PYTHONPATH', '')}"  # Ray puts the working folder there
        environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": paths}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        command: dict[str, Any] = {"cwd": pod / "work", "env": environment, "capture_output": True, "text": True}
        there = outcome(subprocess.run(["bash", "-c", entrypoint], check=False, **command))
        # KubeRay retries a failed job with the same entrypoint: the sweep is continued, and here nothing is left to do.
        assert outcome(subprocess.run(["bash", "-c", entrypoint], check=False, **command)) == there
    finally:
        cluster.shutdown()

    local = [*TOKENS, f"output_dir={shared}/local", f"tracking.uri=sqlite:///{shared}/local.db", "cluster.num_cpus=2"]
    same = run_python("-m", "sweeps", "run", *local, "--name=there", "--json", folder=here, status=None)
    assert there == outcome(same)
    assert there[0] == "finished"
