"""Drivers that are killed again and again leave what nobody would have disturbed, under every scheduler."""

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
from continuing import ONE_AT_ONCE, SPACE, journal
from running import Done, run, start, verb

from sweeps.constants import NUMBER
from sweeps.search.schedulers.decisions import DecisionLog

KILLS = int(os.environ.get("SWEEPS_TEST_KILLS", "20"))
MEASURED = ("per_second", "system/", "communication_share", "data_wait_share", "time/")
"""In the names of metrics that are another number each time."""
# By itself a training decides by the time that it takes after which steps it watches communication.
SMALL = ("conf=digits", *SPACE, "model=vision_transformer", "train.log_every=1", "train.communication_every=1000")
STEPS = ("train.max_steps=36", "train.eval_every=4", "search.metric=eval/loss", "search.mode=min")
POPULATION = (
    "search/sampler=random",
    "search.scheduler.quantile=0.5",
    "train.schedule=constant",
    "search.num_trials=4",
)
SWEEPS: dict[str, tuple[str, ...]] = {
    "none": ("search.num_trials=5", *ONE_AT_ONCE),
    "asha": ("search.num_trials=14", *ONE_AT_ONCE),
    "hyperband": ("search.num_trials=14", *ONE_AT_ONCE),
    "freeze_thaw": ("search.num_trials=14", "train.max_steps=144", "train.eval_every=16", *ONE_AT_ONCE),
    "pbt": (*POPULATION, *ONE_AT_ONCE),
    "pb2": (*POPULATION, *ONE_AT_ONCE),
    # Which trials of a bracket go on depends on all their values at the rung, and not on who came there first; what the
    # random sampler draws depends on the trial's number alone. So it is all determined, however two trials interleave.
    "hyperband, two at once": (
        *("search.num_trials=14", "search/sampler=random", "cluster.num_cpus=2", "scaling.num_workers=1"),
    ),
}
NO_MEASURED_STARTS = """
import importlib.abc, importlib.util, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "sweeps.search.schedulers.trial_overhead":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            begin = module.TrialOverhead.begin
            module.TrialOverhead.begin = lambda self, trial, *, counts: begin(self, trial, counts=False)

        spec.loader.exec_module = executed
        return spec

sys.meta_path.insert(0, Finder())
"""
"""Module ``sitecustomize`` with which no start is measured. Freeze-thaw weighs the time of starts against that of a
training; after the starts of killed drivers, which take longer, it decides otherwise."""


def metrics(done: Done) -> dict[str, dict[str, list[tuple[int, float | None]]]]:
    """Steps and values by trial and metric, in order of their step; of what is measured, the steps alone."""
    found: dict[str, dict[str, list[tuple[int, float | None]]]] = {}
    for trial in done.trials():
        of_trial = found.setdefault(trial.data.tags["sweeps.trial"], {})
        for name in trial.data.metrics:
            points = done.client.get_metric_history(trial.info.run_id, name)
            varies = any(part in name for part in MEASURED)
            of_trial[name] = sorted((point.step, None if varies else point.value) for point in points)
    return found


def study(done: Done) -> list[tuple[Any, ...]]:
    trials = load(done).get_trials()
    return [(t.number, t.user_attrs.get(NUMBER), t.state, t.params, t.value, t.intermediate_values) for t in trials]


def decisions(done: Done, *, in_order: bool) -> list[str]:
    """Every decision of the scheduler, without the place that it has among them. In no order: the values at every rung,
    since whether a trial waited there, or came last and heard at once that it stops, depends on the order."""
    events = DecisionLog(load(done)).events
    if not in_order:
        keys = ("event", "reached", "value")
        events = [(trial, {key: event[key] for key in keys}) for trial, event in events if event["event"] == "arrived"]
    compared = [(trial, {key: value for key, value in event.items() if key != "order"}) for trial, event in events]
    found = [json.dumps(each, sort_keys=True) for each in compared]
    return found if in_order else sorted(found)


def load(done: Done) -> optuna.Study:
    return optuna.load_study(study_name="often", storage=journal(journal_file(done.folder)))


def journal_file(folder: Path) -> Path:
    return folder / "outputs" / "often" / "optuna.log"


class Written:
    """Lines that were written to a study's journal, also by drivers before: one that begins writes the journal anew in
    fewer lines, if the driver before it died while it sampled a trial."""

    def __init__(self, folder: Path) -> None:
        self._journal = journal_file(folder)
        self._now = self._before = 0

    def count(self) -> int:
        """All lines so far; called often while a driver begins, so that no journal in fewer lines is missed."""
        try:
            now = self._journal.read_bytes().count(b"\n")
        except FileNotFoundError:
            now = 0
        self._before += max(0, self._now - now)
        self._now = now
        return self._before + now


def recorded(done: Done) -> list[tuple[Any, ...]]:
    keys = ("trial", "state", "params", "value", "steps")
    return [tuple(trial[key] for key in keys) for trial in done.document["trials"]]


def kill(process: subprocess.Popen[str], written: Written, lines: int, chance: random.Random) -> None:
    """Once the study has so many lines; if the driver before has got there, at a random moment of the start."""
    if written.count() >= lines:
        begun = time.monotonic() + chance.uniform(0, 4)
        while time.monotonic() < begun:
            written.count()
            time.sleep(0.001)
    while written.count() < lines and process.poll() is None:
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("case", SWEEPS)
def test_a_driver_killed_at_random_moments_leaves_the_record_of_an_undisturbed_sweep(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_MEASURED_STARTS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    chance = random.Random(int(os.environ.get("SWEEPS_TEST_SEED", "0")))
    scheduler = f"search/scheduler={case.partition(',')[0]}"
    arguments = (*SMALL, *STEPS, scheduler, *SWEEPS[case], "--name", "often")
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for folder in (disturbed, undisturbed):
        folder.mkdir()
    other = run(undisturbed, *arguments)
    assert other.status == 0, other.err
    if case in ("pbt", "pb2"):
        assert "continues from trial" in other.err, "nothing is taken over"
    moments = sorted(chance.sample(range(1, Written(undisturbed).count() - 2), KILLS))
    written = Written(disturbed)
    kill(start(disturbed, "run", *arguments), written, moments[0], chance)
    for moment in moments[1:]:
        kill(start(disturbed, "resume", "often"), written, moment, chance)
    verb(disturbed, "resume", "often", within_s=600)
    killed, counts = verb(disturbed, "show", "often", "--json"), other.document["counts"]
    document = killed.document
    assert document["counts"] == counts
    # One that is paused is started again by each session in which its turn comes.
    assert all(trial["attempts"] <= KILLS + 1 for trial in document["trials"])
    at_once = "at once" in case
    assert decisions(killed, in_order=not at_once) == decisions(other, in_order=not at_once)
    assert study(killed) == study(other)
    assert recorded(killed) == recorded(other)
    assert metrics(killed) == metrics(other)
    best = (document["best"]["trial"], document["best"]["value"])
    assert best == (other.document["best"]["trial"], other.document["best"]["value"])
    assert [run.info.status for run in killed.trials()] == [run.info.status for run in other.trials()]
    assert json.loads(killed.parent().data.tags["sweeps.counts"]) == counts
