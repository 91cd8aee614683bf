"""What comes after a search: its best trial as a config, trained again, registered, and run once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from running import SHORT, Done, run, start

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Two trials of which ASHA stops one; the model is among what is searched."""
    tokens = (*SHORT, "search.num_trials=3", "train.lr=0.01", "model.dropout=0.2")
    return run(tmp_path_factory.mktemp("searched"), "conf=digits", *tokens, "--name=searched")


def call(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=280)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return out, err


def curve(done: Done, run_id: str, metric: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in done.client.get_metric_history(run_id, metric))


def test_the_exported_best_trial_runs_as_it_is_and_gives_the_same_loss(searched: Done) -> None:
    out, err = call(searched.folder, "best", "searched", "--export", "winner.yaml", "--json")
    best = json.loads(out)
    assert best == searched.document["best"]
    assert "run conf=winner.yaml" in err
    config = yaml.safe_load((searched.folder / "winner.yaml").read_text(encoding="utf-8"))
    assert config["space"] == {}
    assert config["search"]["num_trials"] == 1

    again = run(searched.folder, "conf=winner.yaml", "--name=again")
    assert again.document["best"]["value"] == best["value"]
    assert again.document["mlflow"]["experiment_id"] == searched.document["mlflow"]["experiment_id"]
    before, after = (curve(searched, each["run_id"], "eval/loss") for each in (best, again.document["best"]))
    assert after[: len(before)] == before
    assert after[-1][0] == 40


def test_any_trial_can_be_shown_and_exported_and_mistakes_are_named(searched: Done) -> None:
    out, _ = call(searched.folder, "best", "searched", "--trial=1", "--export=second.yaml", "--json")
    assert json.loads(out)["trial"] == "0001"
    written = yaml.safe_load((searched.folder / "second.yaml").read_text(encoding="utf-8"))
    params: dict[str, Any] = searched.document["trials"][1]["params"]
    assert written["train"]["optimizer"] == params["train.optimizer"]
    assert written["model"]["kind"] == params["model"]

    assert "did you mean" in call(searched.folder, "best", "searched", "--trial=12", status=2)[1]
    assert ".yaml" in call(searched.folder, "best", "searched", "--export=best.json", status=2)[1]
    assert "cannot be written" in call(searched.folder, "best", "searched", "--export=no/best.yaml", status=2)[1]
    assert "no such file" in call(searched.folder, "run", "conf=nothing.yaml", status=2)[1]
