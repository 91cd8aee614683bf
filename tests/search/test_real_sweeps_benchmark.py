"""Benchmark of real sweeps: which sweeps it runs, in what order, and its table; the sweeps themselves are replaced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import real_sweeps


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that were run; ``search=sweeps`` finds more, the higher its seed."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        commands.append(command)
        value = 0.9 + 0.01 * int(argument(command, "seed")) if "search=sweeps" in command else 0.9
        counts = {"finished": 4, "pruned": 10, "failed": 0}
        best = {"value": value, "params": {"train.lr": 0.1, "train.optimizer": "sgd"}}
        document = {"metric": "eval/accuracy", "mode": "max", "best": best, "counts": counts}
        document["trials"] = [{"value": value - 0.1}, {"value": value - 0.3}]
        return SimpleNamespace(stdout=json.dumps(document))

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def argument(command: list[str], name: str) -> str:
    return next(each.removeprefix(f"{name}=") for each in command if each.startswith(f"{name}="))


def measure(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["real_sweeps.py", "--conf", "digits", "--seconds", "36", *arguments])
    real_sweeps.main()


def test_each_seed_runs_all_choices_in_the_same_time_in_another_order(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(monkeypatch, "--choices", "sweeps", "asha", "--seeds", "3", "--set", "train.max_steps=40", "seed_data=1")
    order = [(argument(each, "search"), argument(each, "seed")) for each in ran]
    assert order == [("sweeps", "0"), ("asha", "0"), ("asha", "1"), ("sweeps", "1"), ("sweeps", "2"), ("asha", "2")]
    for command in ran:
        assert float(argument(command, "search.stop.wall_hours")) == 0.01
        assert {"train.max_steps=40", "seed_data=1", "--json"} <= {*command}
    rows = capsys.readouterr().out.splitlines()
    ours = "| digits | `search=sweeps` | eval/accuracy (max) | **0.9100** ±0.0248 | 1.17 | 4.0 | 10.0 |  |"
    assert rows[2] == ours
    assert rows[3].startswith("| digits | `search=asha` | eval/accuracy (max) | 0.9000 ±0.0000 | 1.83 |")
    assert rows[-1] == "(3 seeds, 36 s, 2 trials at once)"


def test_the_best_configuration_is_trained_again_with_other_seeds(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(monkeypatch, "--choices", "sweeps", "--seeds", "2", "--again", "2")
    again = [command for command in ran if "space=none" in command]
    assert len(again) == 2
    for command in again:
        assert {"train.lr=0.1", 'train.optimizer="sgd"', "search.num_trials=2"} <= {*command}
        assert "+space={seed: {type: categorical, choices: [101, 102]}}" in command
    assert capsys.readouterr().out.splitlines()[2].endswith("| 0.7000 ±0.0000 |")


def test_sweeps_that_ran_before_do_not_run_again(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "sweeps.json"
    measure(monkeypatch, "--choices", "asha", "--seeds", "1", "--to", str(file))
    measure(monkeypatch, "--choices", "asha", "--seeds", "2", "--to", str(file))
    assert [argument(each, "seed") for each in ran] == ["0", "1"]
    measure(monkeypatch, "--choices", "asha", "--seeds", "2", "--to", str(file), "--workers", "4")
    assert len(ran) == 4


def test_a_sweep_without_a_value_ends_the_benchmark(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    empty = {"metric": "eval/accuracy", "mode": "max", "best": None, "counts": {"finished": 0, "pruned": 0}}
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: SimpleNamespace(stdout=json.dumps(empty)))
    with pytest.raises(SystemExit, match="no trial has a value; give more --seconds"):
        measure(monkeypatch, "--seeds", "1")
