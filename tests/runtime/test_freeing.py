"""Resources of a trial are free as soon as it has ended, also beside another Ray cluster and without a dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import outputs
from running import Done, own_function, points, run

from sweeps.runtime.worker_group import RELEASE_TIMEOUT_S

pytestmark = pytest.mark.timeout(400)

USERS = """
import json, os, time
from pathlib import Path
import ray, ray.train

def train(config):
    notes, what = Path(config["notes"]), config["what"]
    note(notes, what, "begins")
    if what == "bad":
        while "good reports" not in notes.read_text():  # it is to be compared with it
            time.sleep(0.1)
    ray.train.report({"loss": 1.0 if what == "bad" else 0.0})
    note(notes, what, "reports")
    if what == "bad":
        time.sleep(config["sleep_s"])
        while True:  # until it is stopped
            ray.train.report({"loss": 1.0})
            time.sleep(0.1)
    if what == "long":
        for _ in range(1200):
            free = ray.available_resources().get("CPU", 0)
            if free >= 2 and "last reports" in notes.read_text():
                note(notes, what, "sees others' CPUs free")
                break
            time.sleep(0.1)

def note(notes, what, happens):
    if ray.train.get_context().get_world_rank() == 0:
        with notes.open("a") as file:
            file.write(json.dumps({"event": f"{what} {happens}", "time": time.time(), "pid": os.getpid()}) + "\\n")
"""


@pytest.fixture(scope="module")
def another_cluster() -> Iterator[None]:
    """Ray's State API, by which stock Ray frees workers, may ask the wrong one."""
    code = "import ray; ray.init(address='local', num_cpus=1); print('up', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-3, text=True)
    assert process.stdout is not None
    assert any("up" in line for line in process.stdout)
    yield
    outputs(process, 60, given="\n")


def sweep(folder: Path, trials: list[str], *tokens: str, sleep_s: float = 0.0) -> tuple[Done, dict[str, Any]]:
    """A sweep over these, and the first of each kind of event in it."""
    notes = folder / "notes"
    notes.touch()
    done = run(
        folder,
        *own_function(folder, USERS, f"{{what: good, sleep_s: {sleep_s}, notes: {notes}}}"),
        f"task.arguments.what=choice({', '.join(trials)})",
        points(*({"task.arguments.what": what} for what in trials)),
        f"search.num_trials={len(trials)}",
        *tokens,
    )
    lines = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    return done, {line["event"]: line for line in reversed(lines)}


@pytest.mark.slow
@pytest.mark.usefixtures("another_cluster")
def test_a_slot_that_no_trial_needs_is_given_back_while_the_last_one_still_trains(tmp_path: Path) -> None:
    trials = ["good", "bad", "third", "long", "last"]
    done, events = sweep(tmp_path, trials, "scaling.isolation=warm", "cluster.num_cpus=4")
    states = {trial["params"]["task.arguments.what"]: trial["state"] for trial in done.document["trials"]}
    assert states == {**dict.fromkeys(trials, "finished"), "bad": "pruned"}, done.err
    assert events["long sees others' CPUs free"]["time"] - events["last reports"]["time"] < 20
    assert len({event["pid"] for event in events.values()}) == 2  # all of them in the two slots
    # A warm trial's workers are free at its next report, which is its first if it is compared at once.
    compared = max(events["bad begins"]["time"], events["good reports"]["time"])
    assert events["third begins"]["time"] - compared < 10


@pytest.mark.slow
@pytest.mark.usefixtures("another_cluster")
def test_a_stopped_trials_own_processes_end_whatever_they_do_though_they_are_asked_first(tmp_path: Path) -> None:
    done, events = sweep(tmp_path, ["good", "bad", "last"], "cluster.num_cpus=2", sleep_s=10_000)
    states = {trial["params"]["task.arguments.what"]: trial["state"] for trial in done.document["trials"]}
    assert states == {"good": "finished", "bad": "pruned", "last": "finished"}, done.err
    assert len({event["pid"] for event in events.values()}) == 3
    assert not psutil.pid_exists(events["bad begins"]["pid"])
    # Both are the start of fresh processes, and the end of those before.
    usual_s = events["bad begins"]["time"] - events["good reports"]["time"]
    assert events["last begins"]["time"] - events["bad reports"]["time"] < RELEASE_TIMEOUT_S + 2 * usual_s + 10
