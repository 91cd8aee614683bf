"""Whole sweeps whose trials share their workers: each is recorded as if it had trained alone."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import NO_PREFLIGHT, Done, ended, points, run, start, verb
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS, EVALUATED = 16, 4
WITHIN_S = 500.0
"""Seconds that a sweep may take on a busy machine."""
SWEEP = (
    *("conf=llm_lora", f"train.max_steps={STEPS}", f"train.eval_every={EVALUATED}", "train.log_every=2"),
    *("search=random", "search.default_first=false", "cluster.num_cpus=2", "scaling.num_workers=2", NO_PREFLIGHT),
)
IN_LANES = ("scaling.trials_per_group=3",)
POINTS: list[dict[str, Any]] = [
    {
        "train.lr": lr,
        "model.lora.r": rank,
        "model.lora.alpha": 16,
        "model.lora.dropout": dropout,
        "model.lora.target_modules": target,
        "train.global_batch_size": 8,
        "train.schedule": schedule,
    }
    for lr, rank, dropout, target, schedule in [
        (0.005, 4, 0.1, "attention", "linear"),
        (0.003, 16, 0.05, "mlp", "linear"),
        (0.001, 2, 0.2, "mlp", "cosine"),
        (0.02, 8, 0.0, "all-linear", "constant"),  # the worst, which begins when others have been judged
    ]
]
TRIED = (points(*POINTS), f"search.num_trials={len(POINTS)}")


def losses(done: Done) -> list[dict[int, float]]:
    """Losses of each trial's evaluations by step, as MLflow has them; each step once."""
    found = []
    for trial in done.trials():
        history = done.client.get_metric_history(trial.info.run_id, "eval/loss")
        found.append({point.step: point.value for point in history})
        assert len(history) == len(found[-1])
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[int, float]]:
    """Losses of the trials one after another."""
    done = run(tmp_path_factory.mktemp("alone"), *SWEEP, *TRIED, within_s=WITHIN_S)
    assert done.document["counts"]["finished"] == len(POINTS)
    return losses(done)


def workers() -> list[psutil.Process]:
    """The worker processes of the sweeps that this process has started."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if each.cmdline()[:1] and each.cmdline()[0].startswith("ray::RayTrainWorker"):
                found.append(each)
    return found


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_trials_that_share_their_workers_are_pruned_and_measured_as_those_alone(
    tmp_path: Path, alone: list[dict[int, float]], strategy: str
) -> None:
    asha = ("search/scheduler=asha", "search.scheduler.eta=2")
    done = run(tmp_path, *SWEEP, *TRIED, *IN_LANES, *asha, f"strategy={strategy}", within_s=WITHIN_S)
    counts = done.document["counts"]
    assert counts["finished"] + counts["pruned"] == len(POINTS)
    assert counts["pruned"] > 0
    assert len(list((tmp_path / "outputs").glob("*/ray_train/slot-*"))) == 1
    for trial, (found, expected) in enumerate(zip(losses(done), alone, strict=True)):
        assert found == pytest.approx({step: expected[step] for step in found}, rel=1e-5), trial
    for trial in done.document["trials"]:
        log = next((tmp_path / "outputs").glob(f"*/trials/{trial['trial']}/logs/worker-0.log"))
        assert "shares them with other trials" in log.read_text(encoding="utf-8")
    assert list((tmp_path / "outputs").glob("*/groups/*/worker-1.log"))


@pytest.mark.parametrize("search", [("search=auto",), ("search=random", "search/scheduler=hyperband")])
def test_a_paused_trial_leaves_its_lane_and_goes_on_in_any(
    tmp_path: Path, alone: list[dict[int, float]], search: tuple[str, ...]
) -> None:
    sweep = [each for each in SWEEP if each != "search=random"]
    done = run(tmp_path, *sweep, *search, *TRIED, *IN_LANES, "tracking.report=false")
    counts = done.document["counts"]
    assert counts["finished"] + counts["pruned"] == len(POINTS)
    assert counts["finished"] > 0
    for trial, (found, expected) in enumerate(zip(losses(done), alone, strict=True)):
        assert found == pytest.approx({step: expected[step] for step in found}, rel=1e-5), trial
    reported = [path.read_text(encoding="utf-8") for path in tmp_path.glob("outputs/*/trials/*/reports.jsonl")]
    if "search=random" in search:  # the default search may leave the paused ones alone
        assert any('"attempt": 2' in each for each in reported), "no trial was paused and went on"


def test_a_killed_worker_costs_no_lane_an_attempt_or_a_value(tmp_path: Path, alone: list[dict[int, float]]) -> None:
    process = start(tmp_path, "run", *SWEEP, *TRIED, *IN_LANES, "tracking.report=false", "--name=kills", "--json")
    reports = tmp_path / "outputs" / "kills" / "trials" / "0001" / "reports.jsonl"
    wait_until(lambda: reports.exists() and '"Report"' in reports.read_text(encoding="utf-8"), 200)
    workers()[-1].kill()
    done = ended(tmp_path, process)
    assert done.document["counts"]["finished"] == len(POINTS)
    assert {trial["attempts"] for trial in done.document["trials"]} == {1}
    assert done.err.count("trains alone until its next report") == 3
    for found, expected in zip(losses(done), alone, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_a_trial_that_kills_its_workers_fails_after_its_own_retries_and_the_others_lose_no_value(
    tmp_path: Path, alone: list[dict[int, float]]
) -> None:
    process = start(tmp_path, "run", *SWEEP, *TRIED, *IN_LANES, "tracking.report=false", "--name=kills", "--json")
    log = tmp_path / "outputs" / "kills" / "trials" / "0001" / "logs" / "worker-0.log"
    for attempt in range(1, 4):  # with others, and twice alone
        wait_until(lambda: log.exists() and log.read_text(encoding="utf-8").count("shares them") == attempt, 200)  # noqa: B023
        workers()[-1].kill()
    done = ended(tmp_path, process)
    states = [(trial["state"], trial["attempts"]) for trial in done.document["trials"]]
    assert states == [("finished", 1), ("failed", 2), ("finished", 1), ("finished", 1)]
    for trial, (found, expected) in enumerate(zip(losses(done), alone, strict=True)):
        assert found == pytest.approx({} if trial == 1 else expected, rel=1e-5)


@pytest.mark.parametrize("trials_per_group", [1, 3])
def test_an_interrupted_sweep_goes_on_where_its_lanes_were_also_alone(
    tmp_path: Path, alone: list[dict[int, float]], trials_per_group: int
) -> None:
    process = start(tmp_path, "run", *SWEEP, *TRIED, *IN_LANES, "tracking.report=false", "--name=stops", "--json")
    reports = tmp_path / "outputs" / "stops" / "trials" / "0001" / "reports.jsonl"
    wait_until(lambda: reports.exists() and '"Report"' in reports.read_text(encoding="utf-8"), 200)
    process.send_signal(signal.SIGINT)
    ended(tmp_path, process, status=130, within_s=100)
    goes_on = ("resume", "stops") if trials_per_group == 3 else ("extend", "stops", "scaling.trials_per_group=1")
    done = verb(tmp_path, *goes_on, "--json")
    assert done.document["counts"]["finished"] == len(POINTS)
    for found, expected in zip(losses(done), alone, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_the_number_of_trials_at_a_time_is_found_while_they_train(tmp_path: Path) -> None:
    tried = ("search=random", "search.default_first=false", "search.num_trials=24", "train.global_batch_size=2")
    length = ("train.max_steps=150", "train.eval_every=75", "train.log_every=75", "tracking.report=false")
    found_while = ("scaling.trials_per_group=auto", "cluster.num_cpus=2", NO_PREFLIGHT)
    done = run(tmp_path, "conf=llm_lora", *tried, *length, *found_while, within_s=WITHIN_S)
    assert done.document["counts"]["finished"] == 24
    found = done.parent().data.tags["sweeps.trials_per_group"]
    assert re.fullmatch(r"\d+ trials? a worker group: 1 trains [\d,]+; 2 train .* tokens a second", found)
    assert f"scaling.trials_per_group=auto: {found}" in done.err


def test_the_workers_of_a_group_are_chosen_by_trainings_before_the_search(tmp_path: Path) -> None:
    tried = ("search=random", "search.num_trials=2", "train.global_batch_size=2", "train.max_steps=4")
    measured = ("scaling.trials_per_group=auto", "scaling.measure_workers=true", "cluster.num_cpus=2", NO_PREFLIGHT)
    done = run(tmp_path, "conf=llm_lora", *tried, *measured, "--name=measured", within_s=WITHIN_S)
    assert done.document["counts"]["finished"] == 2
    found = done.parent().data.tags["sweeps.trials_per_group"]
    chosen = re.fullmatch(r"(\d) trials? a worker group, in \d groups? of (\d) workers?: (.*)", found)
    assert chosen is not None, found
    one = r"1 group of 2 workers 1=[\d.]+,2=[\d.]+"
    two = r"2 groups of 1 worker 1=[\d.]+"
    assert re.fullmatch(rf"{one}; {two} \(trials in each group=steps per second of all\)", chosen[3]), found
    assert f"measured: {found}" in done.err
    sweep = tmp_path / "outputs" / "measured"
    scaling = json.loads((sweep / "sweep.json").read_text(encoding="utf-8"))["composition"]["config"]["scaling"]
    assert [scaling["trials_per_group"], scaling["num_workers"]] == [int(chosen[1]), int(chosen[2])]
    assert not (sweep / "measured").exists()


KILLS = int(os.environ.get("SWEEPS_TEST_KILLS", "20"))


def written(sweep: Path) -> int:
    """Lines that the workers have written of all trials: each session of a driver adds some."""
    return sum(path.read_bytes().count(b"\n") for path in sweep.glob("trials/*/reports.jsonl"))


def kill_at_random_moment(process: subprocess.Popen[str], sweep: Path, chance: random.Random) -> bool:
    """Kill a driver as it starts, or once its workers have written up to two lines; returns False if it has ended."""
    lines = chance.randint(0, 2)
    until = written(sweep) + lines
    while written(sweep) < until and process.poll() is None:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 1 if lines else 4))
    if process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    return True


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scheduler", ["asha", "freeze_thaw"])
def test_drivers_killed_at_random_moments_lose_no_value_of_any_lane(
    tmp_path: Path, alone: list[dict[int, float]], scheduler: str
) -> None:
    chance = random.Random(int(os.environ.get("SWEEPS_TEST_SEED", "0")))
    how = (f"search/scheduler={scheduler}", "tracking.report=false", "--name=killed")
    process = start(tmp_path, "run", *SWEEP, *TRIED, *IN_LANES, *how)
    sweep = tmp_path / "outputs" / "killed"
    lanes = "trials/*/reports.jsonl"  # each trial is in its lane
    wait_until(lambda: len(list(sweep.glob(lanes))) == 3 or process.poll() is not None, 200)
    killed = 0
    while killed < KILLS and kill_at_random_moment(process, sweep, chance):
        killed += 1
        process = start(tmp_path, "resume", "killed")
    ended(tmp_path, process, within_s=300)
    assert killed >= KILLS // 2
    done = verb(tmp_path, "show", "killed", "--json")
    counts = done.document["counts"]
    assert counts["finished"] + counts["pruned"] == len(POINTS)
    for trial, (found, expected) in enumerate(zip(losses(done), alone, strict=True)):
        assert found == pytest.approx({step: expected[step] for step in found}, rel=1e-5), trial
    for trial in done.document["trials"]:
        assert trial["steps"] == max(losses(done)[int(trial["trial"])])
        assert trial["value"] == pytest.approx(min(losses(done)[int(trial["trial"])].values()))
