"""The doctor on a healthy machine, and on a cluster with planted faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from processes import run_python
from ray_nodes import RayNodes
from s3_server import BUCKET, s3_server
from small_http import Handler, make_certificate, serving_http
from stores import make_store
from urllib3.exceptions import InsecureRequestWarning

from sweeps.cli import run_command
from sweeps.config.tracking import Tracking
from sweeps.doctor.machine_findings import EXPERIMENT, check_tracking
from sweeps.doctor.node_state import _reach
from sweeps.tracking.client import connect

AN_HOUR_AHEAD = "import time\nnow = time.time\ntime.time = lambda: now() + 3600\n"
"""A wrong clock for the Python processes of one node."""
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


def doctor(folder: Path, *overrides: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and findings."""
    done = run_python(
        "-m", "sweeps", "doctor", "--json", *overrides, folder=folder, environment=environment, status=None
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


def of(findings: list[dict[str, Any]], check: str, verdict: str = "failed") -> list[dict[str, Any]]:
    return [each for each in findings if each["check"] == check and each["verdict"] == verdict]


@pytest.mark.slow
def test_a_healthy_machine_passes_and_keeps_nothing_but_the_doctors_own_run(tmp_path: Path) -> None:
    make_store(tmp_path / "mlflow.db")
    began = time.monotonic()
    status, findings = doctor(tmp_path)
    print(f"took {time.monotonic() - began:.1f} s")
    assert status == 0, findings
    checks = {each["check"] for each in findings}
    assert checks == {"packages", "tracking", "storage", "nodes", "disk", "devices", "clock", "speed"}
    assert not [*(tmp_path / "outputs").iterdir()]


@pytest.mark.parametrize("asked", ["tracking.uri=http://127.0.0.1:9", "conf=mine.yaml"])
def test_what_cannot_be_reached_or_written_is_named_with_what_to_do(
    asked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    Path("mine.yaml").write_text(
        "defaults: [digits, _self_]\noutput_dir: ~/outputs\ntracking: {uri: 'http://127.0.0.1:9'}\n"
    )
    Path("outputs").write_text("a file where the folder should be")
    assert run_command(["doctor", "--json", asked]) == (1, None)
    findings = json.loads(capsys.readouterr().out)["findings"]
    (tracking,), (storage,) = of(findings, "tracking"), of(findings, "storage")
    assert "tracking.uri=http://127.0.0.1:9 does not answer" in tracking["found"]
    assert f"output_dir={Path('outputs').absolute()}" in storage["found"]
    assert storage["fix"]


def test_a_store_whose_experiment_of_the_doctor_was_deleted_is_still_one_that_can_be_written(uri: str) -> None:
    tracking = Tracking(uri=uri)
    assert [each.verdict for each in check_tracking(tracking)] == ["ok"]
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    assert [each.verdict for each in check_tracking(tracking)] == ["ok"]


def test_the_doctors_artifact_is_in_the_store_and_not_where_the_doctor_was_called(tmp_path: Path) -> None:
    store = tmp_path / "elsewhere" / "mlflow.db"
    store.parent.mkdir()
    assert [each.verdict for each in check_tracking(Tracking(uri=f"sqlite:///{store}"))] == ["ok"]
    assert not Path("mlruns").exists()
    assert list(store.parent.glob("mlruns/**/artifacts/*"))


class Healthy(Handler):
    def answer(self) -> None:
        self.send(200 if self.path.endswith(":5000/health") or self.path == "/health" else 500)


def test_a_node_reaches_the_tracking_server_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with serving_http(Healthy) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        assert _reach("http://tracking.invalid:5000/") == ""
        assert _reach("http://tracking.invalid:5001/") == "status 500"


def test_a_node_accepts_the_tracking_servers_certificate_if_mlflow_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_http(Healthy, files := make_certificate(tmp_path)) as url:
        assert "CERTIFICATE_VERIFY_FAILED" in _reach(url)
        with monkeypatch.context() as named:
            named.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(files[0]))
            assert _reach(url) == ""
        monkeypatch.setenv("MLFLOW_TRACKING_INSECURE_TLS", "true")
        with pytest.warns(InsecureRequestWarning):
            assert _reach(url) == ""


def test_a_node_shows_the_tracking_server_the_clients_certificate_that_mlflow_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make_certificate(tmp_path)
    own = tmp_path / "client.pem"
    own.write_bytes(b"".join(each.read_bytes() for each in files))
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(files[0]))
    with serving_http(Healthy, files, clients=files[0]) as url:
        assert _reach(url)
        monkeypatch.setenv("MLFLOW_TRACKING_CLIENT_CERT_PATH", str(own))
        assert _reach(url) == ""


def test_a_mistake_in_the_arguments_has_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    status, mistake = run_command(["doctor", "claster=auto"])
    assert (status, capsys.readouterr().out) == (2, "")
    assert "cluster" in str(mistake)


needs_root = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts need root")


@pytest.mark.slow
@needs_root
def test_planted_faults_of_nodes_are_named_with_the_node(nodes: RayNodes, tmp_path: Path) -> None:
    work, temporary, packages = tmp_path / "work", tmp_path / "temporary", tmp_path / "packages"
    for folder in (work / "outputs", temporary, packages / "optuna-9.9.9.dist-info"):
        folder.mkdir(parents=True)
    (packages / "optuna-9.9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: optuna\nVersion: 9.9.9\n")
    nodes.start()
    path = os.environ.get("PYTHONPATH", "")
    mounts = f'mount -t tmpfs -o size=64m none {temporary} && mount -t tmpfs none {work / "outputs"} && exec "$@"'
    nodes.start(
        environment={"PYTHONPATH": f"{packages}:{path}"},
        before=["unshare", "--mount", "sh", "-c", mounts, "node"],
    )
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text(AN_HOUR_AHEAD)
    nodes.start(environment={"PYTHONPATH": f"{ahead}:{path}"})
    began = time.monotonic()
    status, findings = doctor(work, f"cluster.address={nodes.address}", TMPDIR=str(temporary), **nodes.environment)
    print(f"took {time.monotonic() - began:.1f} s", json.dumps(findings, indent=1))
    assert status == 1
    (storage,), (disk,), (package,), (clock,) = (
        of(findings, each) for each in ("storage", "disk", "packages", "clock")
    )
    assert storage["where"] == disk["where"] == package["where"] != clock["where"]
    assert "optuna 9.9.9, here" in package["found"]
    assert "its clock is 36" in clock["found"]
    assert clock["found"].endswith("ahead")


@pytest.mark.slow
@pytest.mark.skipif(not os.access(CPU_GROUPS, os.W_OK), reason="needs control groups of processors")
def test_a_slow_node_is_named(nodes: RayNodes, tmp_path: Path) -> None:
    nodes.start()
    nodes.start()
    group = CPU_GROUPS / f"sweeps-doctor-{os.getpid()}"
    group.mkdir()
    try:
        nodes.start(before=["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "node"])
        found = []
        with subprocess.Popen(
            [sys.executable, "-u", "-m", "sweeps", "doctor", f"cluster.address={nodes.address}"],
            cwd=tmp_path,
            env={**os.environ, **nodes.environment, "COLUMNS": "300"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found.append(line)
                if "3 answer" in line:  # it would start too slowly
                    (group / "cpu.cfs_quota_us").write_text("5000")  # a twentieth of one processor
        (slow,) = (line for line in found if "a matrix product takes" in line)
        assert "times the usual" in slow, found
        assert process.returncode == 0, found
    finally:
        nodes.stop()
        group.rmdir()


@pytest.mark.slow
def test_a_node_that_does_not_reach_the_object_store_is_named(nodes: RayNodes, tmp_path: Path) -> None:
    with s3_server() as store:
        nodes.start(environment=store)
        arguments = (f"cluster.address={nodes.address}", f"output_dir=s3://{BUCKET}/sweeps")
        status, findings = doctor(tmp_path, *arguments, **nodes.environment, **store)
        assert status == 0, findings
        (storage,) = of(findings, "storage", "ok")
        assert storage["found"] == f"output_dir=s3://{BUCKET}/sweeps can be written"
        nodes.start(environment={**store, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
        status, findings = doctor(tmp_path, *arguments, **nodes.environment, **store)
        print(json.dumps(findings, indent=1))
        assert status == 1
        (storage,) = of(findings, "storage")
        assert storage["where"]
        assert storage["found"].startswith(f"output_dir=s3://{BUCKET}/sweeps: cannot be used")
        assert "cluster.env" in storage["fix"]
        client = boto3.client("s3", endpoint_url=store["AWS_ENDPOINT_URL"], **KEYS)
        left = {each["Key"] for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", [])}
        assert left <= {"sweeps/"}, "more than Arrow's mark of an empty folder"


@pytest.mark.slow
@needs_root
def test_a_sweep_leaves_out_a_node_that_does_not_share_its_folder(nodes: RayNodes, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    nodes.start()
    nodes.start()
    mount = f'mount -t tmpfs none {outputs} && exec "$@"'
    nodes.start(before=["unshare", "--mount", "sh", "-c", mount, "node"])
    done = run_python(
        *("-m", "sweeps", "run", "--json", "conf=digits", "search.num_trials=3", "train.max_steps=24"),
        *(f"cluster.address={nodes.address}", "--check-nodes", "scaling.placement=STRICT_SPREAD"),
        folder=tmp_path,
        environment=nodes.environment,
    )
    assert done.stderr.count("leaves out") == 1
    assert "does not share output_dir" in done.stderr
    assert "2 workers of 1 CPU; 2 at once" in done.stderr
    assert json.loads(done.stdout)["counts"]["failed"] == 0
