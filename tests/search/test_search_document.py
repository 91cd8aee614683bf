"""Example of docs/search.md: it runs as it is, with nothing of Sweeps but the searcher."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from sweeps.constants import NUMBER

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def study(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> optuna.Study:
    """Study that the example has written."""
    (example,) = re.findall(r"```python\n(.*?)```", (checkout / "docs" / "search.md").read_text(encoding="utf-8"), re.S)
    folder = tmp_path_factory.mktemp("example")
    (folder / "example.py").write_text(example, encoding="utf-8")
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


def test_conditions_hold(study: optuna.Study) -> None:
    assert all(("momentum" in trial.params) == (trial.params["optimizer"] == "sgd") for trial in study.trials)
