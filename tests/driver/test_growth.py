"""A trial that grows into the workers of one that has ended: what happens, and in which order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import NO_PREFLIGHT, own_network, points, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NET = """
import json
import time
from pathlib import Path

import psutil
import torch

from sweeps.runtime.spare_processes import origin


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        self.has_begun = False

    def forward(self, images):
        if self.training:
            if not self.has_begun:
                self.has_begun = True
                process = psutil.Process()
                told = {"began": process.create_time(), "first_step": time.time(), "was_spare": origin().was_spare}
                Path(f"{process.pid}-{time.time()}.json").write_text(json.dumps(told))
            time.sleep(0.04 * len(images))
        return self.layers(images)
"""


def shown(folder: Path, sweep: str, trial: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "sweeps", "show", sweep, "--trial", trial, "--json"]
    document: dict[str, Any] = json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout)
    return document


def test_the_processes_of_its_new_workers_wait_for_the_end_of_the_other_trial(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *(*own_network(tmp_path, NET), "search=random", NO_PREFLIGHT),
        *("train.max_steps=choice(90, 240)", points({"train.max_steps": 90}, {"train.max_steps": 240})),
        *("search.num_trials=2", "search.default_first=false", "train.global_batch_size=32", "train.eval_every=30"),
        *("scaling.num_workers={min: 2, max: 4}", "cluster.num_cpus=4"),
        within_s=800,
    )
    assert done.document["counts"]["finished"] == 2, done.err
    assert [trial["attempts"] for trial in done.document["trials"]] == [1, 1], "a resize is no failure"
    ids = {trial["params"]["train.max_steps"]: trial["trial"] for trial in done.document["trials"]}
    ended, grown = shown(tmp_path, done.document["sweep"], ids[90]), shown(tmp_path, done.document["sweep"], ids[240])
    before, after = grown["spans"]
    assert (len(before["workers"]), len(after["workers"])) == (2, 4)
    freed = ended["spans"][-1]["ended"]
    asked = next(note["at"] for note in grown["notes"] if "it changes from 2 to 4 workers" in note["text"])
    processes = [json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.glob("*-*.json")]
    new = [each for each in processes if each["first_step"] >= after["trained"]]
    assert len(new) == 4
    for each in new:
        assert each["was_spare"]
        assert each["began"] < freed, "it was started while the other trial still trained"
    first_step = max(each["first_step"] for each in new)
    assert freed < asked < before["ended"] < after["trained"] < first_step
    print(f"it trains with four workers {first_step - freed:.1f} s after the other trial's end, and ", end="")
    print(f"{first_step - asked:.1f} s after it was asked; it stood still for {first_step - before['ended']:.1f} s")
