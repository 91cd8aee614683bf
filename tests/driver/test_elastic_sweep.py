"""Elastic trials in whole sweeps: survivors grow, waiting trials get workers back, and the training stays the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import outputs, run_python
from ray_nodes import RayNodes
from running import NO_PREFLIGHT, Done, points, run, start
from sweep_on_nodes import RunningSweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NET = """
import time
import torch

class Net(torch.nn.Module):
    \"\"\"A step sleeps for a time that the workers divide as they divide its samples.\"\"\"

    def __init__(self, seconds_per_sample):
        super().__init__()
        self.seconds_per_sample = seconds_per_sample
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.Linear(16, 10))

    def forward(self, images):
        if self.training:
            time.sleep(self.seconds_per_sample * len(images))
        return self.layers(images)
"""
SLEEPS = (
    *("conf=digits", "space=none", "model=custom", "model._target_=sleeping.Net", NO_PREFLIGHT),
    *("train.lr=interval(0.00001, 0.1)", "train.global_batch_size=32", "train.max_steps=320", "train.eval_every=40"),
    *("search.default_first=false", "cluster.num_cpus=4", "seed=3"),
)
GOOD = {"train.lr": 0.003}
BAD: list[dict[str, Any]] = [{"train.lr": 0.00002}, {"train.lr": 0.00003}, {"train.lr": 0.00004}]


def sleeps(seconds_per_sample: float) -> tuple[str, ...]:
    return *SLEEPS, f"model.arguments.seconds_per_sample={seconds_per_sample}"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, float]]:
    """Curves of the good trial with one worker from the begin to the end."""
    folder = made(tmp_path_factory.mktemp("undisturbed"))
    fixed = ("scaling.num_workers=1", "search=optuna", points(GOOD), "search.num_trials=1")
    return curves(run(folder, *sleeps(0.0), *fixed, within_s=900), "0000")


def made(folder: Path) -> Path:
    (folder / "sleeping.py").write_text(NET, encoding="utf-8")
    return folder


def history(done: Done, trial: str, name: str) -> list[tuple[int, float]]:
    return done.history(done.trial(trial).info.run_id, name)


def curves(done: Done, trial: str) -> dict[str, dict[int, float]]:
    """A trial's losses by metric and step; each step was recorded once."""
    found = {name: history(done, trial, name) for name in ("train/loss", "eval/loss", "train/lr")}
    assert all(len({step for step, _ in each}) == len(each) for each in found.values())
    return {name: dict(each) for name, each in found.items()}


def assert_same(found: dict[str, dict[int, float]], expected: dict[str, dict[int, float]]) -> None:
    """Compare curves up to the order of sums. A log has the mean of the steps since the one before, so that the first
    one after a change of the workers, which log when they stop, has no counterpart."""
    for name, values in expected.items():
        assert found[name].keys() >= values.keys()
        alike = [step for step in values if name == "eval/loss" or before(found[name], step) == before(values, step)]
        assert len(alike) > 0.8 * len(values)
        assert [found[name][step] for step in alike] == pytest.approx([values[step] for step in alike], rel=1e-4), name


def before(curve: dict[int, float], step: int) -> int:
    """The logged step before another one."""
    return max((each for each in curve if each < step), default=0)


def workers_of(done: Done, trial: str) -> list[int]:
    """Numbers of workers that a trial had, one after another."""
    numbers = [int(value) for _, value in history(done, trial, "train/num_workers")]
    return [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number]


def test_survivors_grow_into_the_workers_of_trials_that_asha_has_stopped(
    tmp_path: Path, undisturbed: dict[str, dict[int, float]]
) -> None:
    asha = ("search=optuna_asha", "search.num_trials=4")
    elastic = ("scaling.num_workers={min: 1, max: 4}", points(GOOD, *BAD), *asha)
    done = run(made(tmp_path), *sleeps(0.1), *elastic, within_s=1500)
    print(done.err)
    survivor = next(trial for trial in done.document["trials"] if trial["params"] == GOOD)
    counts = done.document["counts"]
    assert counts["pruned"] >= 2
    assert counts["failed"] == 0
    assert survivor["state"] == "finished"
    assert {trial["attempts"] for trial in done.document["trials"]} == {1}, "a resize is no failure"
    numbers = workers_of(done, survivor["trial"])
    assert numbers[0] == 1
    assert numbers[-1] == 4
    assert f"trial {survivor['trial']} continues with 4 workers instead of" in done.err
    assert_same(curves(done, survivor["trial"]), undisturbed)
    shown = run_python(
        "-m", "sweeps", "show", done.document["sweep"], "--trial", survivor["trial"], "--json", folder=tmp_path
    )
    document = json.loads(shown.stdout)
    assert [len(span["workers"]) for span in document["spans"]] == numbers
    account = document["time_account"]
    held = sum(len(span["workers"]) * (span["ended"] - span["held"]) for span in document["spans"])
    assert sum(account.values()) == pytest.approx(held, rel=0.05), "each worker-second is counted once"
    assert account["lost"] < 0.05 * held


def test_a_trial_gives_workers_back_to_one_that_waits(tmp_path: Path, undisturbed: dict[str, dict[int, float]]) -> None:
    elastic = ("scaling.num_workers={min: 1, max: 4}", "search=optuna", points(GOOD), "search.num_trials=1")
    process = start(
        made(tmp_path), "run", *sleeps(0.05), *elastic, "--name", "gives", "tracking.report=false", "--json"
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "trial 0000 started" in line:
            break
    wait_for_steps(tmp_path, "gives", 10)
    extended = [sys.executable, "-m", "sweeps", "extend", "gives", "search.num_trials=2"]
    subprocess.run(extended, cwd=tmp_path, check=True, capture_output=True)
    out, err = outputs(process, 1500)
    print(*lines, err)
    done = Done(tmp_path, process.returncode, "".join(lines) + err, json.loads(out))
    assert done.document["counts"]["finished"] == 2
    assert {trial["attempts"] for trial in done.document["trials"]} == {1}
    assert workers_of(done, "0000")[:2] == [4, 2]
    assert workers_of(done, "0001")[0] == 2
    assert_same(curves(done, "0000"), undisturbed)


def test_a_trial_grows_onto_a_node_that_joins_and_outlives_one_that_dies(
    nodes: RayNodes, tmp_path: Path, undisturbed: dict[str, dict[int, float]]
) -> None:
    made(tmp_path)
    options = [token for token in sleeps(0.05) if not token.startswith(("conf=", "cluster."))]
    nodes.start(num_cpus=2)
    sweep = RunningSweep(
        tmp_path,
        nodes,
        *(*options, "cluster=ray", "scaling.num_workers={min: 1, max: 4}", "search=optuna"),
        *(points(GOOD), "search.num_trials=1", "tracking.report=false"),
        conf="digits",
    )
    sweep.wait_for("trial 0000 started", 400)
    wait_for_steps(tmp_path, "sweep", 10)
    dies = nodes.start(num_cpus=2)
    joined = time.monotonic()
    grown = sweep.wait_for("trial 0000 continues with 4 workers instead of 2", 400)
    print(f"it trained on the new node {grown - joined:.1f} s after that had joined")
    wait_for_steps(tmp_path, "sweep", 120)
    nodes.kill(dies)
    lost = time.monotonic()
    shrunk = sweep.wait_for("trial 0000 continues with 2 workers instead of 4", 400)
    print(f"it trained on {shrunk - lost:.1f} s after the other node had died")
    document = sweep.finish(900)
    print(sweep.text)
    done = Done(tmp_path, 0, sweep.text, document)
    assert [trial["attempts"] for trial in document["trials"]] == [1], "neither is a failure"
    assert workers_of(done, "0000") == [2, 4, 2]
    assert_same(curves(done, "0000"), undisturbed)


def wait_for_steps(folder: Path, sweep: str, steps: int) -> None:
    """Wait until the first trial of a sweep has logged a step."""
    log = folder / "outputs" / sweep / "trials" / "0000" / "reports.jsonl"
    until = time.monotonic() + 600
    while not (log.exists() and any(json.loads(line)["step"] >= steps for line in log.read_text().splitlines())):
        assert time.monotonic() < until
        time.sleep(0.2)
