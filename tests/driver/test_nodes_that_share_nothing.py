"""Clusters whose nodes have folders of their own: named with a plain folder, and enough with an object store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import run_python
from ray_nodes import RayNodes
from s3_server import BUCKET, s3_server

import sweeps
import sweeps_train
from sweeps.storage.committed_folder import committed
from sweeps.storage.object_store import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts need root"),
]

OWN_FUNCTION = "from sweeps_train.examples.ray_train_digits import train as own\n"


def hidden(folder: Path) -> list[str]:
    """Command whose processes have an empty folder of their own in place of this one."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "node"]


def run(folder: Path, nodes: RayNodes, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ("-m", "sweeps", "run", "--json", *arguments, f"cluster.address={nodes.address}")
    return run_python(*command, folder=folder, environment={**nodes.environment, **environment}, status=None)


def test_a_node_that_does_not_share_the_folder_is_named_before_anything_starts(nodes: RayNodes, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    nodes.start()
    nodes.start(before=hidden(outputs))
    done = run(tmp_path, nodes, "conf=digits", "--name", "named")
    assert done.returncode == 2, done.stderr
    assert "output_dir=outputs: nodes do not see it (" in done.stderr
    assert "or leave these nodes out with `run --check-nodes`" in done.stderr
    assert not (outputs / "named").exists()


WITH_THE_DRIVERS_CODE = """
import sweeps_train
from sweeps_train.examples.ray_train_digits import train

def own(config):
    assert "_ray_pkg" in sweeps_train.__file__, sweeps_train.__file__
    train(config)
"""


def test_a_node_with_another_checkout_of_the_same_release_trains_with_the_drivers_code(
    nodes: RayNodes, tmp_path: Path
) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    (work / "mine.py").write_text(WITH_THE_DRIVERS_CODE)
    for package in (sweeps, sweeps_train):
        assert package.__file__ is not None
        shutil.copytree(Path(package.__file__).parent, other / package.__name__)
    with (other / "sweeps_train" / "loop.py").open("a") as file:
        file.write("# another checkout\n")
    nodes.start()
    nodes.start(environment={"PYTHONPATH": str(other)})
    done = run(
        work,
        nodes,
        *("conf=ray_train_function", "task._target_=mine.own", "search.num_trials=1", "--name", "spread"),
        *("scaling.num_workers=2", "scaling.placement=STRICT_SPREAD", "tracking.report=false"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["finished"] == 1


def test_a_trial_spans_nodes_that_share_only_an_object_store_and_gets_the_users_own_modules(
    nodes: RayNodes, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "mine.py").write_text(OWN_FUNCTION)
    with s3_server() as environment:
        nodes.start(environment={"SWEEPS_CACHE": str(tmp_path / "cache-1")})
        nodes.start(environment={"SWEEPS_CACHE": str(tmp_path / "cache-2")}, before=hidden(work))
        done = run(
            work,
            nodes,
            *("conf=ray_train_function", "task._target_=mine.own", "search.num_trials=1", "--name", "spread"),
            *("scaling.num_workers=2", "scaling.placement=STRICT_SPREAD", "tracking.report=false"),
            *(f"output_dir=s3://{BUCKET}/sweeps", "cluster.env=['AWS_*']"),
            **environment,
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["counts"]["finished"] == 1
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            store = ObjectStore(f"s3://{BUCKET}/sweeps/spread/trials/0000")
            assert committed(store.names())
            assert {"logs/worker-0.log", "logs/worker-1.log"} <= set(store.names())
