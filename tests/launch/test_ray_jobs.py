"""Sweeps submitted to a real Ray cluster's job server, from a folder that the cluster does not see."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from mlflow import MlflowClient
from ray_nodes import RayNodes
from recording import Server, free_port, open_recorder
from records import sweep_record
from s3_server import BUCKET, s3_server
from small_http import Handler, serving_http
from stores import make_store
from verbs import refusal
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.launch import submission
from sweeps.launch.ray_jobs import ray_job
from sweeps.launch.submission import resumed_submission
from sweeps.plan.plan import make_plan
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import StateMirror
from sweeps.tracking.sweep_run import PARENT_FILE

MODULE = """
import json, tempfile, time
from pathlib import Path

import ray.train
import sweeps_train
from ray.train import Checkpoint

from mine import weight


def train(config):
    first = 1
    if (before := ray.train.get_checkpoint()) is not None:
        with before.as_directory() as folder:
            first = json.loads(Path(folder, "step.json").read_text()) + 1
    travelled = float("_ray_pkg" in sweeps_train.__file__)
    for step in range(first, 41):
        time.sleep(1.0)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step.json").write_text(json.dumps(step))
            report = {"loss": weight.WEIGHT * config["x"] / step, "travelled": travelled}
            ray.train.report(report, checkpoint=Checkpoint(folder))
"""
CONF = """# Test of Ray Jobs.
defaults: [ray_train_function, _self_]
name: own
task: {_target_: mine.training.train}
search: {metric: loss, mode: min, num_trials: 2, max_concurrent: 1, scheduler: {kind: none}}
scaling: {num_workers: 1}
tracking: {report: false}
"""


@pytest.fixture
def here(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    return working_folder


STORES = ("output_dir=/shared/outputs", "tracking.uri=http://mlflow:5000")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (STORES, ["cluster.address=local", "http://HOST:8265", "RAY_API_SERVER_ADDRESS"]),
        (
            ["cluster=ray", "cluster.address=http://127.0.0.1:1"],
            ["tracking.uri=sqlite:///mlflow.db", "output_dir=outputs"],
        ),
        ([*STORES, "cluster=ray", "cluster.address=http://127.0.0.1:1"], ["http://127.0.0.1:1", "ray[default]"]),
    ],
)
def test_mistakes_are_named_before_anything_is_submitted(here: Path, tokens: list[str], words: list[str]) -> None:
    message = refusal("submit", "conf=digits", *tokens, "--to=ray")
    assert all(word in message for word in words), message


class Refusal(Handler):
    """Answer of a job server to a token that it does not know."""

    def answer(self) -> None:
        self.send_error(403, "Invalid authentication token")


class NameIsTaken(Handler):
    """Job server that knows the job already; its head passes on the answer of an agent."""

    def answer(self) -> None:
        if self.path == "/api/version":
            self.send(200, json.dumps({"ray_version": ray.__version__}).encode())
        elif self.path == "/api/jobs/":
            own = 'Traceback (most recent call last):\n  File "x.py", line 1, in y\nValueError: Job with submission_id'
            of_agent = f"{own} mine already exists. Please use a different submission_id.\n"
            text = f"Traceback (most recent call last):\nRuntimeError: Request failed with status code 400: {of_agent}."
            self.send(500, f"{text}\n".encode())
        else:
            self.send(200, b"{}")


class ClosedUpload(Handler):
    """Job server behind a proxy that closes the connection while the code is uploaded, since it is too large."""

    def answer(self) -> None:
        if self.command == "PUT":
            self.close_connection = True
        elif self.path == "/api/version":
            self.send(200, json.dumps({"ray_version": ray.__version__}).encode())
        else:
            self.send_error(404, "Package gcs://_ray_pkg.zip does not exist.")


TAKEN = "(ValueError: Job with submission_id mine already exists. Please use a different submission_id.)"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Refusal, ["Authentication failed", "RAY_AUTH_TOKEN"]),
        (NameIsTaken, [TAKEN, "choose another --name, or `ray job delete --address http://127.0.0.1:"]),
        (ClosedUpload, ["RAY_AUTH_TOKEN"]),
    ],
)
def test_a_job_that_its_server_does_not_accept_is_told_with_the_reason_and_the_fix(
    here: Path, capsys: pytest.CaptureFixture[str], server: type[Handler], words: list[str]
) -> None:
    with serving_http(server) as uri:
        address = f"cluster.address={uri}"
        assert run_command(["submit", "conf=digits", *STORES, "cluster=ray", address, "--to=ray"])[0] == 2
    message = capsys.readouterr().err
    assert f"{address}: its job server does not accept the job (" in message
    assert all(word in message for word in words), message


def test_the_address_of_a_dashboard_is_refused_where_a_cluster_is_joined(here: Path) -> None:
    joined = ("cluster=ray", "cluster.address=http://host:8265")
    assert "submit --to ray" in refusal("run", "conf=digits", *joined, "--dry-run")


def test_a_print_shows_the_job_and_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.py").write_text("x = 1\n")
    tokens = ["conf=digits", *STORES, "cluster=ray", "cluster.address=http://head:8265"]
    assert run_command(["submit", *tokens, "--to=ray", "--name=mine", "--print"])[0] == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["address"] == "http://head:8265"
    assert shown["entrypoint"].startswith("python -m sweeps run conf=digits")
    assert {"mine.py", "sweeps/conf/digits.yaml", "sweeps/cli/run.py", "sweeps_train/loop.py"} <= set(shown["files"])


def test_a_resumed_sweep_whose_mlflow_has_a_password_gets_it_from_the_cluster(here: Path) -> None:
    tokens = ["conf=digits", *STORES, "cluster=ray", "cluster.address=http://127.0.0.1:1"]
    composition = make_plan(tokens, [], "mine", "submit", where="elsewhere").composition
    job = ray_job(resumed_submission(sweep_record(sweep="mine"), composition, "ray", "http://me:pa55@mlflow:5000"))
    assert job.entrypoint == "python -m sweeps resume mine --json"


@pytest.mark.parametrize("where", ["MLflow", "output_dir"])
def test_a_name_that_a_sweep_has_is_refused_since_the_job_would_continue_that_sweep_with_its_own_config(
    uri: str, tmp_path: Path, where: str
) -> None:
    places = {"MLflow": (uri, "/shared/outputs"), "output_dir": ("http://127.0.0.1:1", f"file://{tmp_path}/bucket")}
    store, output_dir = places[where]
    if where == "MLflow":
        open_recorder(uri, "mine").close("finished")
    else:
        folder = tmp_path / "driver"
        folder.mkdir()
        (folder / PARENT_FILE).write_text("{}")
        mirror = StateMirror(ObjectStore(f"{output_dir}/mine"), folder)
        mirror.start()
        mirror.close()
    tokens = [f"tracking.uri={store}", f"output_dir={output_dir}", "cluster=ray", "cluster.address=http://127.0.0.1:1"]
    message = refusal("submit", "conf=digits", *tokens, "--to=ray", "--name=mine")
    assert f"--name=mine: {store if where == 'MLflow' else output_dir} has a sweep of this name" in message
    named = store if where == "MLflow" else "URI"
    assert f"submit --resume=mine --to=ray --tracking-uri={named}" in message


def test_a_submission_does_not_wait_for_an_object_store_that_does_not_answer(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(submission, "newer_files", lambda *_, **__: (over.wait(), {}))
    monkeypatch.setattr(submission, "READ_WITHIN_S", 0.1)
    config: Any = SimpleNamespace(tracking=SimpleNamespace(uri=uri), output_dir="gs://bucket/outputs")
    submission.Submission("mine", "digits", config, ["run"]).check_is_new("ray")
    over.set()


@contextmanager
def machines(folder: Path, *hidden: str, **variables: str) -> Iterator[Machines]:
    if importlib.util.find_spec("aiohttp_cors") is None:
        pytest.skip("needs ray[default]: make test-ray-jobs")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("machines with folders of their own need root")
    running = Machines(folder, hidden, variables)
    try:
        yield running
    finally:
        running.cluster.stop()
        shutil.rmtree(running.temporary, ignore_errors=True)


class Machines:
    """A Ray cluster of two nodes with a job server, and two machines beside it: ``here`` submits, and ``other`` looks.

    The cluster's nodes see neither of these, nor each other's Ray folder; all see ``shared``, unless it is hidden.
    """

    def __init__(self, folder: Path, hidden: Sequence[str], variables: Mapping[str, str]) -> None:
        """
        Args:
            folder: Empty folder for the machines' own.
            hidden: Further folders in it that the nodes do not see.
            variables: Environment variables of all machines.
        """
        self.folder = folder
        self.here, self.other, self.shared = (folder / each for each in ("here", "other", "shared"))
        for each in (self.here / "mine", self.here / "my_conf", self.other, self.shared, folder / "nodes"):
            each.mkdir(parents=True)
        (self.here / "mine" / "__init__.py").touch()
        (self.here / "mine" / "weight.py").write_text("WEIGHT = 2.0\n")
        (self.here / "mine" / "training.py").write_text(MODULE)
        (self.here / "my_conf" / "own.yaml").write_text(CONF)
        self.cluster = RayNodes(folder / "nodes")
        dashboard = free_port()
        self.dashboard = f"http://127.0.0.1:{dashboard}"
        # The nodes have no Sweeps of this checkout; it must travel.
        checkout = Path(__file__).parents[2]
        known = os.environ.get("PYTHONPATH", "").split(":")
        paths = [each for each in known if not Path(each).is_relative_to(checkout)]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**variables, "PYTHONPATH": ":".join(paths), "PATH": path}
        agent = "--dashboard-agent-listen-port=0"
        # Ray gives jobs the address of the newest cluster in this folder, and sockets have long names.
        self.temporary = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        options = [f"--dashboard-port={dashboard}", "--include-dashboard=true", f"--temp-dir={self.temporary}", agent]
        own = [self.here, self.other, *(folder / each for each in hidden)]
        self.cluster.start(num_cpus=1, environment=environment, before=hiding(*own), options=options)
        self.cluster.start(num_cpus=1, environment=environment, before=hiding(*own, self.temporary), options=[agent])
        self.environment = {**os.environ, **self.cluster.environment, **variables}
        wait_until(lambda: answers(dashboard))

    def sweeps(self, machine: Path, *arguments: str, before: Sequence[str] = (), **variables: str) -> Any:
        """The document of a verb that succeeds."""
        done = subprocess.run(
            [*before, sys.executable, "-m", "sweeps", *arguments, "--json"],
            cwd=machine,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def here_goes_away(self) -> None:
        """The machine that has submitted ends; its code is checked out on the other one."""
        shutil.copytree(self.here / "mine", self.other / "mine")
        shutil.move(self.here, self.folder / "gone")


def hiding(*folders: Path) -> list[str]:
    """Command that runs another one, which sees empty folders in place of these."""
    mounts = "".join(f"mount -t tmpfs none {each} && " for each in folders)
    return ["unshare", "--mount", "sh", "-c", f'{mounts} exec "$@"', "node"]


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


OWN = (
    *("conf=own", "~task.arguments", "~space", "+task.arguments.x=0.5", "task.arguments.x=interval(0.0, 1.0)"),
    *("cluster=ray", "--config-dir=my_conf", "--to=ray", "--name=travelled"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_runs_on_a_cluster_and_is_watched_stopped_and_resumed_from_elsewhere(tmp_path: Path) -> None:
    with machines(tmp_path) as running:
        make_store(running.shared / "mlflow.db")
        store = f"sqlite:///{running.shared}/mlflow.db"
        submit_and_go_on(running, f"{running.shared}/outputs", store)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_s3_is_all_that_the_machines_share(tmp_path: Path) -> None:
    with s3_server() as variables:
        (tmp_path / "server").mkdir()
        server = Server(tmp_path / "server", artifacts=f"s3://{BUCKET}/artifacts", environment=variables)
        try:
            with machines(tmp_path, "shared", "server", **variables) as running:
                submit_and_go_on(running, f"s3://{BUCKET}/sweeps", server.uri)
        finally:
            server.kill()


def submit_and_go_on(running: Machines, output_dir: str, store: str) -> None:
    """Submit a sweep; then watch, stop and resume it from a machine that has only its code, and look at its points."""
    places = (f"output_dir={output_dir}", f"tracking.uri={store}", f"cluster.address={running.dashboard}")
    submitted = running.sweeps(running.here, "submit", *OWN, *places)
    assert submitted == {"sweep": "travelled", "job": "travelled", "address": running.dashboard}
    running.here_goes_away()

    def ask(*arguments: str, before: Sequence[str] = (), **variables: str) -> Any:
        return running.sweeps(running.other, *arguments, f"--tracking-uri={store}", before=before, **variables)

    def shown() -> dict[str, Any]:
        is_known = any(each["sweep"] == "travelled" for each in ask("list"))
        return dict(ask("show", "travelled")) if is_known else {"status": "unknown", "trials": []}

    def steps() -> int:
        return sum(trial["steps"] or 0 for trial in shown()["trials"])

    wait_until(lambda: steps() > 0, 240, every_s=1)
    assert ask("stop", "travelled")["status"] == "stopped"
    before = steps()
    again = ask("submit", "--resume=travelled", "--to=ray")
    assert again["address"] == running.dashboard  # as the sweep's record has it
    wait_until(lambda: steps() > before, 240, every_s=1)
    assert ask("stop", "travelled")["status"] == "stopped"
    # As on a node that has not run the jobs: Ray has unpacked no code there.
    unpacked = hiding(*running.temporary.glob("session_*/runtime_resources"))
    finished = ask("resume", "travelled", before=unpacked, RAY_ADDRESS=running.cluster.address)
    assert finished["status"] == "finished"
    assert [trial["state"] for trial in finished["trials"]] == ["finished", "finished"]
    client = MlflowClient(store)
    for trial in finished["trials"]:
        points = client.get_metric_history(trial["run_id"], "loss")
        assert [point.step for point in points] == list(range(1, 41))  # none is lost, and none recorded twice
    first = client.get_metric_history(finished["trials"][0]["run_id"], "travelled")[0]
    assert first.value == 1.0  # the workers had the Sweeps that was sent
