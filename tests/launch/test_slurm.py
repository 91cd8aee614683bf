"""Sweeps on a real Slurm of two nodes: requeued at their time limit, after lost nodes and failures; several at once.

``make test-slurm`` installs what they need and runs them; neither ``make test`` nor ``make test-slow`` does.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient
from slurm_cluster import SlurmCluster, missing
from stores import make_store

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

TWO_NODES = ("scaling.placement=STRICT_SPREAD", "cluster.slurm.nodes=2", "cluster.slurm.cpus_per_node=1")
SLOW = """
import json, tempfile, time
from pathlib import Path

import ray.train
from ray.train import Checkpoint


def train(config):
    first = 1
    if (before := ray.train.get_checkpoint()) is not None:
        with before.as_directory() as folder:
            first = json.loads(Path(folder, "step.json").read_text()) + 1
    for step in range(first, config["steps"] + 1):
        time.sleep(1.0)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step.json").write_text(json.dumps(step))
            ray.train.report({"loss": config["x"] / step, "reported": step}, checkpoint=Checkpoint(folder))
"""


class Sweeps:
    """Sweeps submitted from one folder."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        make_store(folder / "mlflow.db")
        (folder / "slow.py").write_text(SLOW)

    def submit(self, name: str, *tokens: str) -> str:
        """Submit a sweep; return the number of its job."""
        done = self.sweeps("submit", *tokens, "tracking.report=false", "--to=slurm", f"--name={name}", "--json")
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["job"])

    def slow(self, name: str, steps: int, *tokens: str, trials: int = 1) -> str:
        """Submit a sweep of trials of so many seconds on one node."""
        return self.submit(
            name,
            *("conf=ray_train_function", "task._target_=slow.train", "~task.arguments", "~space"),
            *("+task.arguments.x=1.0", f"+task.arguments.steps={steps}", "task.arguments.x=interval(0.0, 1.0)"),
            *("search.metric=loss", "search.mode=min", f"search.num_trials={trials}", "search.scheduler.kind=none"),
            *("scaling.num_workers=1", *tokens),
        )

    def in_place(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a verb inside of a job of one node."""
        return self.sweeps(*arguments, before=("salloc", "--nodes=1", "--cpus-per-task=2"))

    def sweeps(self, *arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, sys.executable, "-m", "sweeps", *arguments],
            cwd=self.folder,
            env={**self.cluster.environment, "SWEEPS_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )

    def log(self, name: str) -> str:
        file = self.folder / "outputs" / ".submitted" / name / "slurm.log"
        return file.read_text() if file.exists() else ""

    def wait_for(self, text: str, name: str, within_s: float = 300, job: str = "") -> None:
        """Wait for a line of the log. A requeued job, which Slurm would hold back for two minutes, starts at once."""
        deadline = time.monotonic() + within_s
        while re.search(text, self.log(name)) is None:
            assert time.monotonic() < deadline, f"no {text!r} within {within_s} s in the log:\n{self.log(name)}"
            if job and self.cluster.job(job).get("Reason") == "BeginTime":
                self.cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
            time.sleep(1)

    def show(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.sweeps("show", name, "--json").stdout))

    def steps(self, run_id: str, metric: str) -> list[int]:
        client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        return [point.step for point in client.get_metric_history(run_id, metric)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), ["n1", "n2"])
    yield cluster
    cluster.close()


@pytest.fixture
def sweeps(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Sweeps]:
    yield Sweeps(cluster, tmp_path)
    cluster.ask("scancel", "--user=root")
    cluster.wait(lambda: cluster.ask("squeue", "-h") == "", 60, "empty queue")


def test_a_sweep_runs_as_a_job_and_the_next_commands_are_shown(sweeps: Sweeps) -> None:
    tokens = ("conf=digits", "search.num_trials=2", "train.max_steps=20", "tracking.report=false")
    done = sweeps.sweeps("submit", *tokens, "--to=slurm", "--name=quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "quick\n"
    log = sweeps.folder / "outputs/.submitted/quick/slurm.log"
    assert f"log       tail -F {log}" in done.stderr
    for command in ("show quick --watch", "stop quick", "submit --resume=quick --to=slurm"):
        assert f"python -m sweeps {command}" in done.stderr
    sweeps.wait_for("the sweep has ended", "quick", 400)
    assert sweeps.show("quick")["counts"]["finished"] == 2


def test_a_sweep_on_two_nodes_is_requeued_at_its_time_limit_and_continues_by_itself(sweeps: Sweeps) -> None:
    length = ("search.num_trials=150", "train.max_steps=150", "train.eval_every=25")
    options = ("cluster.slurm.time_limit=1:00:00", "cluster.slurm.stop_before_limit_s=120")
    job = sweeps.submit("limited", "conf=digits", *TWO_NODES, *options, *length)
    sweeps.wait_for(r"\[\d+/150\] trial 0002 ", "limited", 600)
    hours, minutes, _ = sweeps.cluster.job(job)["RunTime"].split(":")
    limit = int(hours) * 60 + int(minutes) + 4  # now, however long all this took on a busy machine
    sweeps.cluster.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={limit}")
    sweeps.wait_for("the time limit is near", "limited", 240)
    sweeps.wait_for("saved their state; the job goes back into the queue", "limited", 110)
    sweeps.wait_for(rf"job {job}-1: runs on", "limited", 120, job)
    interrupted = sweeps.show("limited")
    assert interrupted["status"] in ("interrupted", "running")
    sweeps.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    sweeps.wait_for(rf"job {job}-1: the sweep has ended", "limited", 900)
    found = sweeps.show("limited")
    assert found["status"] == "finished"
    assert {trial["state"] for trial in found["trials"]} <= {"finished", "pruned"}
    assert len(found["trials"]) == 150
    for trial in found["trials"]:  # no step is lost, and none is recorded twice
        steps = sweeps.steps(trial["run_id"], "eval/loss")
        assert steps == list(range(25, steps[-1] + 1, 25))
    assert not list((sweeps.folder / "outputs" / ".submitted" / "limited").glob("failures-*"))
    assert sweeps.cluster.job(job)["Restarts"] == "1"


def test_a_sweep_survives_a_node_that_is_lost(sweeps: Sweeps) -> None:
    job = sweeps.slow("lost", 30)
    sweeps.wait_for("trial 0000 started", "lost", 300)
    time.sleep(12)
    node = sweeps.cluster.job(job)["BatchHost"]
    sweeps.cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        sweeps.wait_for(rf"job {job}-1: runs on", "lost", 120, job)
        assert sweeps.cluster.job(job)["BatchHost"] != node
        sweeps.wait_for(rf"job {job}-1: the sweep has ended", "lost", 300)
    finally:
        sweeps.cluster.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    (trial,) = sweeps.show("lost")["trials"]
    assert trial["state"] == "finished"
    assert sweeps.steps(trial["run_id"], "reported") == list(range(1, 31))
    assert not list((sweeps.folder / "outputs" / ".submitted" / "lost").glob("failures-*"))


def test_a_preemption_with_time_of_grace_puts_the_job_back_into_the_queue_and_is_no_failure(sweeps: Sweeps) -> None:
    """Slurm sends SIGTERM to the processes of the steps, and the job is still running."""
    job = sweeps.slow("preempted", 30, "cluster.slurm.max_failures=0", "cluster.slurm.options=['--nodelist=n1']")
    sweeps.wait_for("trial 0000 started", "preempted", 300)
    time.sleep(12)
    urgent = ("--partition=urgent", "--nodelist=n1", "--cpus-per-task=2", f"--output={sweeps.folder}/urgent.log")
    sweeps.cluster.ask("sbatch", *urgent, "--wrap=sleep 1")
    sweeps.wait_for("preempted by another job; the job goes back into the queue", "preempted", 60)
    sweeps.wait_for(rf"job {job}-1: runs on", "preempted", 120, job)
    assert sweeps.cluster.job(job)["PreemptTime"] == "None", "a later failure counts"
    sweeps.wait_for(rf"job {job}-1: the sweep has ended", "preempted", 300)
    (trial,) = sweeps.show("preempted")["trials"]
    assert trial["state"] == "finished"
    assert sweeps.steps(trial["run_id"], "reported") == list(range(1, 31))
    assert not list((sweeps.folder / "outputs" / ".submitted" / "preempted").glob("failures-*"))


def drivers(name: str) -> list[psutil.Process]:
    """Processes that run the driver of a sweep."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[:3] == [sys.executable, "-m", "sweeps"] and f"--name={name}" in words:
            found.append(process)
    return found


def test_a_failure_is_retried_and_counted_and_a_mistake_is_not(sweeps: Sweeps) -> None:
    job = sweeps.slow("killed", 20, "cluster.slurm.max_failures=1")
    sweeps.wait_for("trial 0000 started", "killed", 300)
    for process in drivers("killed"):
        process.send_signal(signal.SIGKILL)
    sweeps.wait_for("failure 1 of at most 1", "killed", 60)
    sweeps.wait_for(rf"job {job}-1: runs on", "killed", 60, job)
    sweeps.wait_for("trial 0000 (started|continues), attempt 2", "killed", 300)
    for process in drivers("killed"):
        process.send_signal(signal.SIGKILL)
    sweeps.wait_for("failure 2 .*given up", "killed", 60)

    wrong = sweeps.submit("wrong", "conf=digits", "cluster.slurm.nodes=1", "cluster.slurm.cpus_per_node=2")
    sweeps.cluster.ask("scancel", wrong)
    script = sweeps.folder / "outputs" / ".submitted" / "wrong" / "job.sh"
    script.write_text(script.read_text().replace("conf=digits", "conf=digit"))
    number = sweeps.cluster.ask("sbatch", "--parsable", str(script))
    sweeps.wait_for(rf"job {number}-0: the sweep cannot run", "wrong", 120)


def test_two_jobs_on_one_node_do_not_meet(sweeps: Sweeps) -> None:
    jobs = [sweeps.slow(name, 25, "cluster.slurm.options=['--nodelist=n1']") for name in ("left", "right")]
    for name in ("left", "right"):
        sweeps.wait_for("trial 0000 started", name, 300)
    assert [sweeps.cluster.job(job)["JobState"] for job in jobs] == ["RUNNING", "RUNNING"]
    for name in ("left", "right"):
        sweeps.wait_for("the sweep has ended", name, 300)
        (trial,) = sweeps.show(name)["trials"]
        assert (trial["state"], trial["attempts"]) == ("finished", 1)
    assert [path.name for job in jobs for path in Path("/tmp").glob(f"ray-{job}-*")] == []


def test_jobs_of_one_name_wait_for_each_other_and_mails_are_sent(sweeps: Sweeps) -> None:
    own = ("cluster.slurm.singleton=true", "cluster.slurm.job_name=alone", "cluster.slurm.mail_to=me@example.org")
    first, second = (sweeps.slow(name, 3, *own) for name in ("one", "two"))
    sweeps.cluster.wait(lambda: sweeps.cluster.job(first)["JobState"] == "RUNNING", 60, "first job")
    assert sweeps.cluster.job(second)["Reason"] == "Dependency"
    sweeps.wait_for("the sweep has ended", "two", 400)
    assert sweeps.cluster.job(first)["EndTime"] <= sweeps.cluster.job(second)["StartTime"]
    mails = (sweeps.cluster.folder / "mails").read_text()
    assert f"Job_id={first}" in mails
    assert "me@example.org" in mails


def test_a_stopped_sweep_is_continued_by_another_job_and_in_place(sweeps: Sweeps) -> None:
    def steps() -> int:
        return sum(trial["steps"] or 0 for trial in sweeps.show("again")["trials"])

    sweeps.slow("again", 40)
    sweeps.wait_for("trial 0000 started", "again", 300)
    sweeps.cluster.wait(lambda: steps() > 0, 60, "report")
    assert sweeps.sweeps("stop", "again").returncode == 0
    before = steps()
    resume = ("submit", "--resume=again", "--to=slurm")
    job = json.loads(sweeps.sweeps(*resume, "--json").stdout)["job"]
    sweeps.wait_for(f"job {job}-0: runs on", "again", 120)
    sweeps.cluster.wait(lambda: steps() > before, 240, "report of the second job")
    assert sweeps.sweeps("stop", "again").returncode == 0
    done = sweeps.in_place(*resume)
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = sweeps.show("again")["trials"]
    assert trial["state"] == "finished"
    assert sweeps.steps(trial["run_id"], "reported") == list(range(1, 41))


def test_inside_of_a_job_the_sweep_runs_in_place(sweeps: Sweeps) -> None:
    tokens = ("conf=digits", "search.num_trials=2", "train.max_steps=20", "tracking.report=false")
    done = sweeps.in_place("submit", *tokens, "--to=slurm", "--name=inside")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it runs here" in done.stderr
    assert sweeps.show("inside")["status"] == "finished"
