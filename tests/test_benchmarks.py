"""Benchmarks run, small, where there is no GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(checkout: Path, *arguments: str) -> str:
    """Output of a script of benchmarks/."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout / "benchmarks",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def measured(checkout: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    file = folder / "numbers.json"
    run(checkout, *arguments, "--json", str(file))
    numbers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["numbers"]
    return numbers


def test_benchmarks_call_only_what_the_product_has(checkout: Path) -> None:
    environment = os.environ | {"MYPYPATH": os.pathsep.join(map(str, (checkout, checkout / "src", checkout / "tests")))}
    options = ["--config-file", checkout / "pyproject.toml", "--exclude", "lines_of_code/"]
    command = [sys.executable, "-m", "mypy", *options, "."]
    done = subprocess.run(
        command, check=False, cwd=checkout / "benchmarks", env=environment, capture_output=True, text=True
    )
    assert "checked" in done.stdout, done.stderr
    call = r"\[call-arg]$|multiple values for keyword argument"
    wrong = re.compile(rf'{call}|module (?:named )?"sweeps.*(?:attr-defined|import-not-found)]$', re.IGNORECASE)
    assert [line for line in done.stdout.splitlines() if wrong.search(line)] == []


def test_head_masks_casts_and_padding_are_measured_with_the_same_losses(checkout: Path, tmp_path: Path) -> None:
    numbers = measured(checkout, tmp_path, "language_model.py", "--steps", "1")
    assert len(numbers) == 4
    for before, after in ((each["before"], each["after"]) for each in numbers.values()):
        assert after["loss"] == pytest.approx(before["loss"], rel=2e-3)
    head = next(each for name, each in numbers.items() if name.startswith("head"))
    assert head["after"]["mib"] < head["before"]["mib"] / 3


def test_two_workers_are_measured_beside_a_loop_written_by_hand(checkout: Path, tmp_path: Path) -> None:
    arguments = ("training.py", "--quick", "--workloads", "conv net", "--workers", "2")
    (numbers,) = measured(checkout, tmp_path, *arguments).values()
    assert set(numbers) == {"ours", "plain", "huggingface"}
    for arm in numbers.values():
        assert len(arm["blocks"]) == 2
        assert arm["peak_mib"] > 100
        assert arm["last"]["train/loss"] == pytest.approx(numbers["ours"]["last"]["train/loss"], abs=0.05)


def test_lanes_are_measured_beside_one_training_with_the_same_loss(checkout: Path, tmp_path: Path) -> None:
    numbers = measured(checkout, tmp_path, "lanes.py", "--tiny")
    (alone,), (two,) = numbers["1 1 0"], numbers["1 1 2"]
    assert two["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert all(each > 0 for run in (alone, two) for each in (*run["seconds"], run["peak_mib"]))


def test_saving_is_measured_beside_a_plain_copy_and_the_ways_of_torch(checkout: Path, tmp_path: Path) -> None:
    arguments = ("--sizes", "12", "--workers", "2", "--saves", "2", "--no-ray", "--folder", str(tmp_path))
    found = measured(checkout, tmp_path, "checkpoint.py", *arguments)["2"]["12"]
    assert len(found["saving"]) == 8
    assert all(arm["first"] > 0 and min(arm["next"]) > 0 for arm in found["saving"].values())
    assert found["recovery"]["snapshot_bytes"] == pytest.approx(found["recovery"]["state_bytes"], rel=0.01)
    assert all(min(found["recovery"][kind]) > 0 for kind in ("memory", "storage", "object store"))


def test_the_model_of_goodput_agrees_with_its_simulation(checkout: Path) -> None:
    printed = run(checkout, "goodput.py", "--simulate")
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| 1")]
    assert len(rows) == 5
    for *_, ours, ours_simulated, epochs, epochs_simulated in rows:
        for expected, simulated in ((ours, ours_simulated), (epochs, epochs_simulated)):
            assert float(simulated.strip(" %")) == pytest.approx(float(expected.strip(" %")), rel=0.01)


def tables(checkout: Path, folder: Path, names: list[str], *arguments: str) -> list[list[list[str]]]:
    """Rows of the tables that a benchmark writes between marks of a document."""
    document = folder / "document.md"
    document.write_text("".join(f"<!-- measured: {name} -->\n<!-- end of measured -->\n" for name in names))
    run(checkout, *arguments, "--write", str(document))
    written = re.findall(r"-->\n(.*?)\n<!-- end", document.read_text(encoding="utf-8"), re.S)
    return [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")][2:]
        for text in written
    ]


def mean_of(cell: str) -> float:
    return float(cell.split("±", maxsplit=1)[0])


def test_prior_knowledge_is_measured_where_it_is_right_and_wrong(checkout: Path, tmp_path: Path) -> None:
    arguments = ("prior_knowledge.py", "--seeds", "2", "--dimensions", "3")
    priors, earlier = tables(checkout, tmp_path, ["priors", "earlier sweeps"], *arguments)
    assert len(priors) == len(earlier) == 5
    for rows in (priors, earlier):
        after = {name: [mean_of(cell) for cell in cells] for _, name, *cells in rows}
        assert all(first >= second >= third >= 0 for first, second, third in after.values())
        near = next(name for name in after if "0.8" in name or "same" in name)
        assert after[near][0] < 0.5 * after["none"][0]
    assert priors[0] == earlier[0]  # the search that knows nothing is the same


def test_failures_are_measured_with_and_without_avoiding_them(checkout: Path, tmp_path: Path) -> None:
    arguments = ("failures.py", "--seeds", "2", "--samplers", "random", "--kinds", "learning rate", "chance")
    (rows,) = tables(checkout, tmp_path, ["failures"], *arguments)
    (_, _, share, *cells), (_, _, _, *by_chance) = rows
    assert share == "41%"
    failed, avoiding, *_ = map(mean_of, cells)
    assert avoiding < 0.3 * failed
    assert mean_of(by_chance[0]) == pytest.approx(mean_of(by_chance[1]), abs=5)


def test_the_costs_of_a_large_sweep_are_measured_without_its_processes(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    command = [sys.executable, checkout / "benchmarks/scale.py", "--sizes", "4x12", "--json", file]
    subprocess.run(command, check=True)
    (found,) = json.loads(file.read_text(encoding="utf-8"))["results"].values()
    assert found["trials"] == 12
    assert found["samples"][-1]["reports"] >= 12
    assert found["counts"]["finished"] + found["counts"]["pruned"] == 12
