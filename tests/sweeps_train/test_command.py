"""Whole sweeps over a program that knows nothing of Sweeps: pruned, killed, resumed, copied, stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from processes import outputs
from ray_nodes import RayNodes
from running import Done, points, run, start
from waiting import wait_until

DEFAULTS = """\
defaults: [{task: command}, {search: optuna_asha}, {scaling: single_worker}, {checkpoint: best_and_last},
  {tracking: mlflow}, {cluster: local}, _self_]
name: program
seed: 0
output_dir: outputs
"""

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text())
out, kind, lr = Path(sys.argv[2]), config["model"]["kind"], config["lr"]
assert type(lr) is float and "RANK" not in os.environ, "of torchrun"
shared, first = Path(os.environ["SWEEPS_START_FOLDER"]), 1
if "--resume" in sys.argv:
    first = json.loads((Path(sys.argv[sys.argv.index("--resume") + 1]) / "state.json").read_text())["step"] + 1

def told(number, frame):
    (shared / f"{kind}.told").touch()  # and goes on, so that it must be killed

signal.signal(signal.SIGTERM, told)
print(f"{kind} starts at step {first}", file=sys.stderr)
while kind == "bad" and not ((shared / "good.done").exists() and (shared / "dies.done").exists()):
    time.sleep(0.1)
for step in range(first, 7):
    print({"loss": str(lr / step), "epoch": step / 2})
    if step % 2 == 0:
        print({"eval_loss": 1000.0 if kind == "bad" else lr / step, "eval_samples": "7"})
        folder = out / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state.json").write_text(json.dumps({"step": step}))
        (folder / "done").touch()
    if kind == "bad" and step == 2:
        time.sleep(600)
    if kind == "dies" and step == 5 and first == 1:
        time.sleep(3)
        sys.exit("KeyError: 'the last line'")
    time.sleep(float(os.environ.get("PAUSE_S", 0.05)))
(shared / f"{kind}.done").touch()
"""

TASK = """
task:
  command: python program.py {files.config} {trial.folder}/out
  options: {--resume: "{checkpoint}"}
  arguments: {lr: 0.5, kind: good}
  files: {config: {source: base.json, values: {lr: "{lr}", model.kind: "{kind}"}}}
  checkpoints: {folder: "{trial.folder}/out", complete: done}
  rename: {eval_loss: eval/loss}
  metrics: [eval/loss, loss]
  grace_s: 1
space:
  task.arguments.lr: {type: float, low: 0.1, high: 1.0}
  task.arguments.kind: {type: categorical, choices: [good, dies, bad]}
search: {metric: eval/loss, mode: min, num_trials: 3}
"""


def written(folder: Path, task: str = TASK) -> Path:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "base.json").write_text('{"lr": 1, "model": {"kind": null, "size": 3}}', encoding="utf-8")
    (folder / "mine.yaml").write_text(DEFAULTS + task, encoding="utf-8")
    return folder


def programs(folder: Path) -> list[psutil.Process]:
    """The programs that run in a folder."""
    return [
        each
        for each in psutil.process_iter(["cmdline", "status"])
        if str(folder / "program.py") in (each.info["cmdline"] or [])
    ]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = written(tmp_path_factory.mktemp("program"))
    kinds = [{"task.arguments.lr": 0.5, "task.arguments.kind": kind} for kind in ("good", "dies", "bad")]
    return run(folder, "conf=mine.yaml", points(*kinds), "search.default_first=false", "cluster.num_cpus=2", "--name=s")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_program_that_fails_is_started_again_with_its_newest_complete_checkpoint(sweep: Done) -> None:
    trial = sweep.document["trials"][1]
    assert (trial["state"], trial["attempts"]) == ("finished", 2)
    log = (sweep.folder / "outputs/s/trials/0001/logs/worker-0.log").read_text()
    assert "dies starts at step 1" in log
    assert "dies starts at step 5" in log
    assert "attempt 1 failed: task.command=python: ended with status 1: KeyError: 'the last line'" in sweep.err
    history = sweep.client.get_metric_history(trial["run_id"], "eval/loss")
    assert sorted({each.value for each in history}) == pytest.approx([0.5 / 6, 0.5 / 4, 0.5 / 2])
    history = sweep.client.get_metric_history(trial["run_id"], "loss")
    assert min(each.value for each in history) == pytest.approx(0.5 / 6)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pruned_program_gets_sigterm_and_then_sigkill(sweep: Done) -> None:
    trial = sweep.document["trials"][2]
    assert trial["state"] == "pruned"
    assert (sweep.folder / "bad.told").exists()
    assert programs(sweep.folder) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_its_checkpoint_is_the_trials_and_is_in_mlflow(sweep: Done) -> None:
    trial = sweep.document["trials"][0]
    assert (trial["state"], trial["value"]) == ("finished", pytest.approx(0.5 / 6))
    (kept,) = (sweep.folder / "outputs/s/trials/0000").glob("step-*")
    assert json.loads((kept / "files/checkpoint-6/state.json").read_text()) == {"step": 6}
    artifacts = [each.path for each in sweep.client.list_artifacts(trial["run_id"], "checkpoints/last")]
    assert artifacts == ["checkpoints/last/checkpoint-6"]
    written = json.loads((sweep.folder / "outputs/s/trials/0000/program/config.json").read_text())
    assert written == {"lr": 0.5, "model": {"kind": "good", "size": 3}}


@pytest.mark.slow
def test_a_population_continues_from_checkpoints_of_its_best_programs(tmp_path: Path) -> None:
    done = run(
        written(tmp_path),
        "conf=mine.yaml",
        "+task.environment.PAUSE_S=0.4",  # checkpoints without steps that are found together are one report
        "search=pbt",
        "search.scheduler.mutate=[task.arguments.lr]",
        "search.num_trials=4",
        "~space.task.arguments.kind",
        "search.metric=eval/loss",
        "search.mode=min",
        "cluster.num_cpus=2",
    )
    assert done.document["counts"]["finished"] == 4
    copied = [each for each in done.trials() if any(key.startswith("param/") for key in each.data.metrics)]
    assert copied, done.err
    logs = "".join(path.read_text() for path in (tmp_path / "outputs").rglob("worker-0.log"))
    assert "starts at step 3" in logs or "starts at step 5" in logs


@pytest.mark.slow
def test_a_program_is_trained_in_stages_and_its_best_trials_again(tmp_path: Path) -> None:
    done = run(
        written(tmp_path),
        *("conf=mine.yaml", "search/scheduler=none", "search.num_trials=2", "~space.task.arguments.kind"),
        *("search.stages=[{overrides: ['task.arguments.kind=cheap'], num_trials: 2}]", "search.confirm=2"),
        *('task.options.--seed="{seed}"', "cluster.num_cpus=2"),
    )
    (stage,) = done.document["stages"]
    trained = [*stage["trials"], *done.document["trials"], *done.document["repeats"]]
    assert {each["trial"]: each["state"] for each in trained if each["state"] != "finished"} == {}, done.err
    assert done.document["confirmation"]["winner"] == done.document["best"]["trial"]


@pytest.mark.slow
def test_every_worker_starts_its_own_process_in_torchruns_environment(tmp_path: Path) -> None:
    task = """
task:
  command: python -m sweeps_train.examples.torchrun_digits --lr={lr} --epochs=3
  arguments: {lr: 0.01}
  environment: {SWEEPS_OUTPUT: "{trial.folder}/out"}
  processes: per_worker
  metrics: [accuracy]
scaling: {num_workers: 2}
space: {task.arguments.lr: {type: float, low: 0.001, high: 0.1}}
search: {metric: accuracy, mode: max, num_trials: 2}
"""
    done = run(written(tmp_path, task), "conf=mine.yaml", "cluster.num_cpus=2")
    assert done.document["counts"]["failed"] == 0
    best = done.document["best"]
    assert best["value"] > 0.8
    assert done.document["trials"][0]["steps"] == 3


@pytest.mark.slow
def test_a_program_ends_with_its_worker_and_is_tried_again(tmp_path: Path) -> None:
    """The worker is killed: nobody but the program's guard is left to end it."""
    folder = written(tmp_path)
    process = start(
        folder,
        "run",
        "conf=mine.yaml",
        points({"task.arguments.lr": 0.5, "task.arguments.kind": "bad"}),
        "search.default_first=false",
        "search.num_trials=1",
        "tracking.report=false",
        "cluster.num_cpus=1",
        "--name=s",
        "--json",
    )
    first = _wait_for_program(folder)
    parent = first.parent()
    assert parent is not None
    parent.kill()
    wait_until(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE, 30)
    assert _wait_for_program(folder).pid != first.pid
    os.kill(process.pid, signal.SIGINT)
    outputs(process, 120)
    assert process.returncode == 130
    wait_until(lambda: not programs(folder), 30)


def _wait_for_program(folder: Path) -> psutil.Process:
    def running() -> list[psutil.Process]:
        return [each for each in programs(folder) if each.status() != psutil.STATUS_ZOMBIE]

    wait_until(running, 180, every_s=0.2)
    return running()[0]


ON_NODES = """
import json, os, torch, torch.distributed

torch.distributed.init_process_group("gloo")
value = torch.tensor(float(torch.distributed.get_rank()))
torch.distributed.all_reduce(value)
world = torch.distributed.get_world_size()
local = int(os.environ["LOCAL_WORLD_SIZE"])
print(json.dumps({"sum": value.item(), "world": world, "local": local, "node": int(os.environ["GROUP_RANK"])}))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_node_starts_its_own_torchrun(nodes: RayNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = """
task:
  command: >-
    torchrun --nnodes {num_nodes} --node-rank {node_rank} --nproc-per-node {workers_per_node}
    --master-addr {master_address} --master-port {master_port} train.py --lr {lr}
  arguments: {lr: 0.01}
  processes: per_node
  metrics: [sum, world, local, node]
scaling: {num_workers: 4, placement: SPREAD}
space: {task.arguments.lr: {type: float, low: 0.001, high: 0.1}}
search: {metric: sum, mode: min, num_trials: 1}
"""
    folder = written(tmp_path, task)
    (folder / "train.py").write_text(ON_NODES)
    for ip in ("127.0.0.1", "127.0.0.2"):  # Ray Train takes nodes of one address for one
        nodes.start(num_cpus=2, options=[f"--node-ip-address={ip}"])
    for name, value in nodes.environment.items():
        monkeypatch.setenv(name, value)
    done = run(folder, "conf=mine.yaml", f"cluster.address={nodes.address}")
    assert done.status == 0, done.err
    best = done.document["best"]
    assert best["value"] == 0 + 1 + 2 + 3, "of all ranks"
    metrics = done.client.get_run(best["run_id"]).data.metrics
    assert (metrics["world"], metrics["local"], metrics["node"]) == (4, 2, 0)


@pytest.mark.slow
def test_the_error_of_a_program_under_torchrun_is_its_own_exception(tmp_path: Path) -> None:
    task = """
task:
  command: torchrun --nproc-per-node {num_workers} --master-port {master_port} train.py
  arguments: {lr: 0.01}
  options: {--lr: "{lr}"}
  metrics: [loss]
scaling: {num_workers: 2}
space: {task.arguments.lr: {type: float, low: 0.001, high: 0.1}}
search: {metric: loss, mode: min, num_trials: 1, max_retries: 0}
"""
    folder = written(tmp_path, task)
    (folder / "train.py").write_text("import os\nif os.environ['RANK'] == '1':\n    raise ValueError('of one rank')\n")
    done = run(folder, "conf=mine.yaml", "cluster.num_cpus=2")
    assert done.status == 1
    assert "ended with status 1 on worker 0: ValueError: of one rank" in done.err


OWN = """
import sys
from pathlib import Path
given = dict(each.removeprefix("--").split("=", 1) for each in sys.argv[1:])
file = Path(given["out_dir"], "ckpt.pt")
file.parent.mkdir(parents=True, exist_ok=True)
first = int(file.read_text()) + 1 if given["init_from"] == "resume" else 0
for step in range(first, 6):
    print(f"step {step}: train loss {1 / (step + 1)}, val loss {2 / (step + 1)}", flush=True)
    file.write_text(str(step))
    if step == 3 and first == 0:
        __import__("time").sleep(2)
        sys.exit("RuntimeError: lost")
with Path("starts").open("a") as starts:
    starts.write(f"{given['init_from']} {first}\\n")
"""


@pytest.mark.slow
def test_a_program_that_looks_for_its_own_checkpoint_continues_from_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OWN, encoding="utf-8")
    task = """
task:
  command: python train.py
  options: {--init_from=: "{checkpoint?resume:scratch}", --out_dir=: "{trial.folder}/out", --lr=: "{lr}"}
  arguments: {lr: 0.5}
  read: [{kind: regex, pattern: 'step (?P<step>\\d+): train loss (?P<loss>[\\d.]+), val loss (?P<val_loss>[\\d.]+)'}]
  checkpoints: {folder: "{trial.folder}/out", pattern: ckpt.pt, put_back: true, settled_s: 0.2}
space: {task.arguments.lr: {type: float, low: 0.1, high: 1.0}}
search: {metric: val_loss, mode: min, num_trials: 1}
"""
    (tmp_path / "mine.yaml").write_text(DEFAULTS + task, encoding="utf-8")
    done = run(tmp_path, "conf=mine.yaml", "cluster.num_cpus=2", "--name=own")
    (trial,) = done.document["trials"]
    assert (trial["state"], trial["attempts"], trial["steps"]) == ("finished", 2, 5)
    (starts,) = (tmp_path / "outputs").rglob("starts")
    assert starts.read_text().split() == ["resume", "4"]
