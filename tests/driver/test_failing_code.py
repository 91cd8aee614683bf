"""Users' code that fails in every way: what the sweep, `logs` and `show --trial` say of it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from continuing import wait_for
from processes import run_python
from running import Done, ended, own_function, run, start, verb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

USERS = """
import ctypes, logging, subprocess, sys
import ray.train
import torch
import torch.distributed as dist

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 32), torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x))

def train(config):
    fault, rank = config["fault"], ray.train.get_context().get_world_rank()
    print("begins with", fault)
    ray.train.report({"loss": 1.0})
    if fault == "shape":
        Net()(torch.zeros(8, 8))
    if rank == 1 and fault == "second":
        raise KeyError("the label column")
    if rank == 1 and fault == "exit":
        sys.exit(3)
    if rank == 1 and fault == "crash":
        ctypes.string_at(0)
    while rank == 1 and fault == "loop":
        pass
    if fault == "prints":
        for line in range(1_000_000):
            sys.stdout.write(f"{line:099}\\n")
    logging.getLogger("users").info("logged")
    subprocess.run(["echo", "from a child process"])
    dist.all_reduce(torch.zeros(1))
    ray.train.report({"loss": 0.5})
"""


def at(function: str, source: str) -> str:
    """The place of a line of the user's code, as it is told."""
    number = next(number for number, line in enumerate(USERS.splitlines(), 1) if line.strip() == source)
    return f"users.py:{number} in {function}: {source}"


SAID = {
    "shape": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x32 and 64x10) (at "
    + at("forward", "return self.head(self.body(x))"),
    "second": f"""KeyError: 'the label column' (at {at("train", 'raise KeyError("the label column")')}); worker 1""",
    "exit": "sys.exit(3) ended the worker; return from the function instead (at " + at("train", "sys.exit(3)"),
    "crash": "crashed: Segmentation fault (at " + at("train", "ctypes.string_at(0)"),
    "loop": f"its workers hang (worker 0 at {at('train', 'dist.all_reduce(torch.zeros(1))')}; worker 1 at users.py:",
}


def sweeps(folder: Path, *arguments: str) -> str:
    return run_python("-m", "sweeps", *arguments, folder=folder, within_s=120).stdout


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("failing")
    faults = ", ".join([*SAID, "prints"])
    return run(
        folder,
        *own_function(folder, USERS, "{fault: none}"),
        "scaling.hang_timeout_s=15",
        "--name=told",
        f"task.arguments.fault=choice({faults})",
        "search=grid",
        f"search.num_trials={len(SAID) + 1}",
        "search.max_retries=0",
        "cluster.num_cpus=2",
        within_s=900,  # a minute and a half on an idle machine
    )


def trial_of(done: Done, fault: str) -> dict[str, Any]:
    return next(each for each in done.document["trials"] if each["params"]["task.arguments.fault"] == fault)


@pytest.mark.parametrize("fault", list(SAID))
def test_the_cause_is_told_with_its_line_and_all_of_it_is_in_the_logs(done: Done, fault: str) -> None:
    trial = trial_of(done, fault)["trial"]
    assert trial_of(done, fault)["state"] == "failed"
    assert SAID[fault] in done.err
    assert "Traceback" not in done.err
    assert "begins with" not in done.err
    shown = json.loads(sweeps(done.folder, "show", "told", "--trial", trial, "--json"))
    (failed,) = shown["failed_attempts"]
    assert SAID[fault] in failed["error"]
    assert "users.py" in shown["traceback"]
    for worker in (0, 1):
        assert f"begins with {fault}" in sweeps(done.folder, "logs", "told", "--trial", trial, "--worker", str(worker))


def test_what_was_printed_is_bounded_and_has_children_and_logs(done: Done) -> None:
    trial = trial_of(done, "prints")
    assert trial["state"] == "finished"
    log = done.folder / "outputs" / "told" / "trials" / trial["trial"] / "logs" / "worker-1.log"
    assert log.stat().st_size <= 4 * 2**20
    lines = sweeps(done.folder, "logs", "told", "--trial", trial["trial"], "--worker", "1").splitlines()
    assert lines[1] == "begins with prints"
    assert sum("bytes are left out here]" in line for line in lines) == 1
    assert lines[-1] == "from a child process"
    assert lines[-2].endswith("INFO users: logged")
    run_id = trial["run_id"]
    names = [Path(each.path).name for each in done.client.list_artifacts(run_id, "logs")]
    assert names == ["worker-0.log", "worker-1.log"]


def test_a_trial_that_reports_only_nan_says_so(tmp_path: Path) -> None:
    source = "import ray.train\n\ndef train(config):\n    ray.train.report({'loss': float('nan')})\n"
    task = own_function(tmp_path, source, "{lr: 0.1}")
    done = run(tmp_path, *task, "--name=nan", "search.num_trials=1", "cluster.num_cpus=2")
    assert "trial 0000 pruned at step 1; it reported no finite loss" in done.err
    assert "trial 0000 reported no finite loss" in sweeps(tmp_path, "show", "nan")


STEPS = """
import json, tempfile, time
from pathlib import Path
import ray.train

def train(config):
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            start = int((Path(folder) / "step").read_text())
    for step in range(start + 1, 9):
        time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step))
            kept = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": config["lr"] / step}, checkpoint=kept)
"""


def test_trials_that_cannot_continue_since_the_code_is_broken_continue_when_it_is_mended(tmp_path: Path) -> None:
    task = own_function(tmp_path, STEPS, "{lr: 0.1}")
    placed = ("cluster.num_cpus=2", "scaling=single_worker", "search/scheduler=none", "tracking.report=false")
    process = start(
        tmp_path, "run", *task, *placed, "task.arguments.lr=interval(0.1,0.5)", "search.num_trials=5", "--name=b"
    )
    wait_for(tmp_path, "b", lambda record: sum(each.steps >= 2 for each in record.trials) == 2, process)
    process.send_signal(signal.SIGINT)
    ended(tmp_path, process, status=130)
    (tmp_path / "users.py").write_text(f"import no_such_library\n{STEPS}", encoding="utf-8")
    broken = verb(tmp_path, "resume", "b", status=1)
    assert "3 trials failed at their first step with the same error: task._target_=users.train cannot be" in broken.err
    assert "`python -m sweeps resume b` continues it" in broken.err
    left = Done.of(tmp_path, "b").document
    assert left["status"] == "interrupted"
    assert [each["state"] for each in left["trials"]][:2] == ["stopped", "stopped"]
    (tmp_path / "users.py").write_text(STEPS, encoding="utf-8")
    mended = verb(tmp_path, "resume", "b", "--json").document
    assert mended["counts"]["finished"] == 4
    assert [each["steps"] for each in mended["trials"] if each["state"] == "finished"] == [8] * 4


SEARCHES = {
    "auto": ("search=auto",),
    "asha": ("search=optuna_asha", "search.scheduler.grace=2"),
    "hyperband": ("search=optuna_asha", "search/scheduler=hyperband", "search.scheduler.longest=8"),
    "pbt": ("search=pbt", "search.scheduler.mutate=[task.arguments.lr]", "search.scheduler.interval=3"),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_failed_trials_are_tried_again_with_further_retries_once_the_code_is_mended(
    search: str, tmp_path: Path
) -> None:
    at = "        with tempfile.TemporaryDirectory() as folder:\n            (Path"
    bug = f"        if step == 3 and config['lr'] > 0.3:\n            raise KeyError('a bug')\n{at}"
    broken = STEPS.replace("time.sleep(0.5)", "time.sleep(0.1)").replace(at, bug)
    task = own_function(tmp_path, broken, "{lr: 0.1}")
    placed = ("cluster.num_cpus=2", "scaling=single_worker", "search.max_retries=0", *SEARCHES[search])
    space = ("task.arguments.lr=interval(0.2, 0.5)", "search.num_trials=6")
    first = run(tmp_path, *task, *placed, *space, "--name=b").document
    failed = {each["trial"] for each in first["trials"] if each["state"] == "failed"}
    assert failed
    (tmp_path / "users.py").write_text(broken.replace("'lr'] > 0.3", "'lr'] > 3"), encoding="utf-8")
    again = verb(tmp_path, "extend", "b", "search.max_retries=1", "--json")
    states = {each["trial"]: each["state"] for each in again.document["trials"]}
    assert again.document["status"] == "finished"
    assert "failed" not in states.values()
    assert "finished" in {states[trial] for trial in failed}
    for trial in (each for each in again.document["trials"] if each["trial"] in failed):
        assert [step for step, _ in again.history(trial["run_id"], "loss")] == list(range(1, trial["steps"] + 1))
        assert f"trial {trial['trial']} started, attempt 2" in again.err
    kept = ("trial", "state", "value", "steps")
    for before, after in zip(first["trials"], again.document["trials"], strict=True):
        assert before["trial"] in failed or [before[each] for each in kept] == [after[each] for each in kept]
