"""Runs that a user's own code starts in a trial, of a process that continues with the next one."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

import pytest

from sweeps.runtime.users_runs import RUN_TAGS, users_runs_ended


class Wandb(ModuleType):
    """A stand-in for W&B's package, which gives a process its open run again."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: list[str] | None = None

    def init(self) -> list[str]:
        self.run = self.run if self.run is not None else []
        return self.run

    def finish(self) -> None:
        self.run = None


def test_a_trial_does_not_log_into_the_run_that_the_one_before_has_left_open_at_weights_and_biases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    runs = []
    for trial in ("mine-0001", "mine-0002"):
        with users_runs_ended(trial):
            runs.append(wandb.init())
            runs[-1].append(trial)
    assert runs == [["mine-0001"], ["mine-0002"]]


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        (None, {"mlflow.runName": "mine-0001"}),
        ('{"team": "vision"}', {"mlflow.runName": "mine-0001", "team": "vision"}),
        ("vision", {"mlflow.runName": "mine-0001"}),  # which MLflow ignores, with a warning
        ("7", {"mlflow.runName": "mine-0001"}),
        ('[["team", "vision"]]', {"mlflow.runName": "mine-0001"}),
    ],
)
def test_runs_have_the_users_own_tags_unless_these_are_no_json_object(
    given: str | None, tags: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_TAGS, raising=False)
    if given is not None:
        monkeypatch.setenv(RUN_TAGS, given)
    with users_runs_ended("mine-0001"):
        assert json.loads(os.environ[RUN_TAGS]) == tags
    assert os.environ.get(RUN_TAGS) == given
