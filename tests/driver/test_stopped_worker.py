"""A worker whose process is stopped (SIGSTOP) hangs its trial, which is tried again and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import NO_PREFLIGHT, own_network, points, run

USERS = """
import os, pathlib, signal
import torch

class Net(torch.nn.Module):
    def __init__(self, stopped_at=0):
        super().__init__()
        self.stopped_at, self.steps, self.layers = stopped_at, 0, torch.nn.Linear(64, 10)

    def forward(self, images):
        if self.training and os.environ.get("RANK") == "1":
            self.steps += 1
            stopped = pathlib.Path("FOLDER/stopped")
            if self.steps == self.stopped_at and not stopped.exists():
                stopped.touch()
                os.kill(os.getpid(), signal.SIGSTOP)
        return self.layers(images.flatten(1))
"""
HANG_S = 20


@pytest.mark.slow
@pytest.mark.timeout(300)  # waits until the worker is taken for hanging
def test_a_trial_with_a_stopped_worker_is_tried_again_and_has_the_curve_of_an_undisturbed_one(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *own_network(tmp_path, USERS.replace("FOLDER", str(tmp_path))),
        "+model.arguments.stopped_at=0",
        "space.model.arguments.stopped_at={type: categorical, choices: [0, 11]}",
        *("search=random", "search.num_trials=2", "search.default_first=false", "search.max_concurrent=1"),
        points({"model.arguments.stopped_at": 0}, {"model.arguments.stopped_at": 11}),
        *("train.max_steps=20", "train.eval_every=4", "train.log_every=1"),
        *("cluster.num_cpus=2", "scaling.num_workers=2", f"scaling.hang_timeout_s={HANG_S}", NO_PREFLIGHT),
    )
    assert (tmp_path / "stopped").exists()
    assert [(each["state"], each["attempts"]) for each in done.document["trials"]] == [
        ("finished", 1),
        ("finished", 2),
    ], done.err
    assert "its workers hang" in done.err
    for metric in ("train/loss", "eval/loss"):
        undisturbed, disturbed = (done.history(trial["run_id"], metric) for trial in done.document["trials"])
        assert len(undisturbed) >= 5
        assert disturbed == undisturbed, metric
