"""Example of docs/searcher.md: it runs as it is, with nothing of Sweeps but the searcher."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from sweeps.constants import NUMBER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def folder(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with that example and the one of a warm start (docs/prior_knowledge.md), in which the search has run."""
    example, warm_start = (
        re.findall(r"```python\n(.*?)```", (checkout / "docs" / document).read_text(encoding="utf-8"), re.S)[0]
        for document in ("searcher.md", "prior_knowledge.md")
    )
    folder = tmp_path_factory.mktemp("example")
    (folder / "example.py").write_text(example, encoding="utf-8")
    (folder / "warm_start.py").write_text(warm_start, encoding="utf-8")
    environment = {**os.environ, "RAY_ADDRESS": "local", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "8 trials were started" in done.stdout
    return folder


@pytest.fixture(scope="module")
def study(folder: Path) -> optuna.Study:
    """Study that the example has written."""
    return optuna.load_study(study_name="example", storage=f"sqlite:///{folder}/study.db")


def test_exactly_as_many_trials_started_as_were_asked_for(study: optuna.Study) -> None:
    numbers = [trial.user_attrs[NUMBER] for trial in study.trials if NUMBER in trial.user_attrs]
    assert sorted(numbers) == list(range(8))


def test_the_study_was_told_which_trials_came_to_their_end(study: optuna.Study) -> None:
    trials = [trial for trial in study.trials if NUMBER in trial.user_attrs]
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    assert len(complete) + len(pruned) == 8
    assert complete
    assert pruned
    assert all(max(trial.intermediate_values) == 9 for trial in complete)
    assert all(0 < max(trial.intermediate_values) < 9 for trial in pruned)
    assert all(trial.value == min(trial.intermediate_values.values()) for trial in complete)


def test_the_example_of_a_warm_start_learns_from_that_study(
    folder: Path, study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ran = runpy.run_path("warm_start.py")
    best = min(study.trials, key=lambda trial: min(trial.intermediate_values.values(), default=float("inf")))
    assert ran["earlier"][0].points[0] == {"lr": best.params["lr"]}


def test_conditions_hold(study: optuna.Study) -> None:
    assert all(("momentum" in trial.params) == (trial.params["optimizer"] == "sgd") for trial in study.trials)
