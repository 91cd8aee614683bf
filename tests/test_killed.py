"""Drivers that are killed again and again: what they leave is what nobody would have disturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from running import Done, run, start
from test_reopening import ONE_AT_ONCE, SEARCH, journal, verb

from sweeps.constants import NUMBER

KILLS = 20
MEASURED = ("per_second", "system/", "communication_share")
"""In the names of metrics that are another number each time."""


def metrics(done: Done) -> dict[str, dict[str, list[tuple[int, float | None]]]]:
    """Steps and values by trial and metric, in order of their step; of what is measured, the steps alone."""
    found: dict[str, dict[str, list[tuple[int, float | None]]]] = {}
    for trial in done.trials():
        of_trial = found.setdefault(trial.data.tags["sweeps.trial"], {})
        for name in trial.data.metrics:
            points = sorted(done.client.get_metric_history(trial.info.run_id, name), key=lambda point: point.step)
            varies = any(part in name for part in MEASURED)
            of_trial[name] = [(point.step, None if varies else point.value) for point in points]
    return found


def study(done: Done) -> list[tuple[Any, ...]]:
    storage = journal(done.folder / "outputs" / "often" / "optuna.log")
    trials = optuna.load_study(study_name="often", storage=storage).get_trials()
    return [(t.number, t.user_attrs.get(NUMBER), t.state, t.params, t.value, t.intermediate_values) for t in trials]


def recorded(done: Done) -> list[tuple[Any, ...]]:
    return [(trial["trial"], trial["state"], trial["params"], trial["value"]) for trial in done.document["trials"]]


def kill(process: subprocess.Popen[str], chance: random.Random, number: int) -> None:
    """At a random moment: of the search, or every fifth time of the start, too."""
    assert process.stderr is not None
    if number % 5:
        assert process.stderr.readline(), "it ended"
    time.sleep(chance.uniform(0, 9))
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_driver_killed_at_random_moments_leaves_the_record_of_an_undisturbed_sweep(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("SWEEPS_TEST_SEED", "0")))
    # By itself a training decides by the time that it takes after which steps it watches communication.
    steps = ("train.max_steps=400", "train.communication_every=200")
    arguments = (*SEARCH, *ONE_AT_ONCE, *steps, "search.num_trials=8", "--name", "often")
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for folder in (disturbed, undisturbed):
        folder.mkdir()
    process = start(disturbed, "run", *arguments)
    kill(process, chance, 1)
    for number in range(2, KILLS + 1):
        process = start(disturbed, "resume", "often")
        kill(process, chance, number)
    process = start(disturbed, "resume", "often")
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    status, err, document = verb(disturbed, "show", "often", "--json")
    assert document is not None
    killed, other = Done(disturbed, status, err, document), run(undisturbed, *arguments)
    assert document["counts"] == {"finished": 8, "pruned": 0, "failed": 0, "running": 0, "stopped": 0}
    assert sum(trial["attempts"] - 1 for trial in document["trials"]) <= KILLS
    assert recorded(killed) == recorded(other)
    assert metrics(killed) == metrics(other)
    assert study(killed) == study(other)
    best = (document["best"]["trial"], document["best"]["value"])
    assert best == (other.document["best"]["trial"], other.document["best"]["value"])
    assert [run.info.status for run in killed.trials()] == ["FINISHED"] * 8
    assert json.loads(killed.parent().data.tags["sweeps.counts"])["finished"] == 8
