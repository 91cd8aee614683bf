"""The parts that measure a GPU run with a tiny model on a CPU, keep their limits, and fill the documents."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sweeps_train.config import CausalLM, Lora
from sweeps_train.models.causal_lm import build_causal_lm

Run = Callable[..., subprocess.CompletedProcess[str]]

MACHINE = {
    "part": "machine",
    "what": "machine",
    "at": "2026-12-01 10:00:00",
    "card": "NVIDIA H200",
    "cores": 16,
    "python": "3.12.3",
    "versions": {"torch": "2.11.0", "ray": None},
    "commit": "abc1234",
    "tiny": False,
}


@pytest.fixture
def measure_sh(checkout: Path, tmp_path: Path) -> Run:
    """Runs the script and returns what it printed; results are in ``results(tmp_path)``."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(checkout / "benchmarks/gpu/measure.sh"), *arguments]
        environment = os.environ | {"OUT": str(tmp_path / "out"), "PYTHON": sys.executable}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def results(folder: Path, part: str) -> list[dict[str, Any]]:
    lines = (folder / "out/results.jsonl").read_text(encoding="utf-8").splitlines()
    return [each for line in lines if (each := json.loads(line))["part"] == part]


def of(found: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [each for each in found if each["what"] == what]


@pytest.fixture
def documents(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Writes results into a copy of the documents, and returns the texts of those that have changed."""
    monkeypatch.syspath_prepend(checkout / "benchmarks")
    shutil.copytree(checkout / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images", "*.py"))
    write = importlib.import_module("gpu.documents").write_documents

    def written(*found: dict[str, Any]) -> dict[str, str]:
        return {file.name: file.read_text(encoding="utf-8") for file in write([MACHINE, *found], tmp_path / "docs")}

    return written


def arm(title: str, tokens_per_second: float) -> dict[str, Any]:
    step = 16384 / tokens_per_second
    return {
        "part": "speed",
        "what": "arm",
        "model": "Qwen2.5 0.5B",
        "batch": "8 x 2,048",
        "arm": title,
        "tokens_per_second": tokens_per_second,
        "step_s": step,
        "blocks": [0.9 * step, step, 1.1 * step],
        "first_step_s": 3.0,
        "warm_s": 5.0,
        "peak_gpu_mib": 20480.0,
        "loss": 2.5,
        **({} if "Trainer" in title else {"utilization_per_speed": 4e-6}),
    }


@pytest.mark.slow
def test_a_part_that_exceeds_its_limit_is_ended_and_what_was_measured_is_kept(measure_sh: Run, tmp_path: Path) -> None:
    done = measure_sh("--tiny", "--parts", "snapshots", "--limit-factor", "0.0005")
    assert done.returncode == 1
    assert "snapshots limit" in done.stdout.splitlines()[-1]
    assert results(tmp_path, "machine")[0]["versions"]["torch"]
    (end,) = of(results(tmp_path, "snapshots"), "end")
    assert end["end"] == "limit"
    assert end["seconds"] < end["limit_s"] + 30


def test_a_document_is_written_part_by_part_and_others_stay_as_they_are(
    documents: Callable[..., dict[str, str]],
) -> None:
    (name, text), *others = documents(arm("`sweeps_train`", 110_000), arm("Hugging Face `Trainer`", 88_000)).items()
    assert (name, others) == ("training.md", [])
    assert "NVIDIA H200, 16 cores, Python 3.12.3, torch 2.11.0; commit abc1234; 2026-12-01" in text
    assert "| `sweeps_train` | 110,000 | **1.25** (1.14 to 1.39) | 44.0% | 20.0 GiB |" in text
    assert "1.25 times `Trainer`; the aim of 1.1 is reached" in text
    assert "44%, reached" in text


def test_an_arm_that_was_not_measured_leaves_the_rows_of_the_others(documents: Callable[..., dict[str, str]]) -> None:
    failure = {**arm("the same, `train.compile=true`", 1.0), "what": "failed", "error": "RuntimeError('no')"}
    text = documents(arm("Hugging Face `Trainer`", 88_000), failure)["training.md"]
    assert "| Hugging Face `Trainer` | 88,000 |  |  | 20.0 GiB |" in text
    assert "- Qwen2.5 0.5B, 8 x 2,048 tokens, the same, `train.compile=true`: failed, RuntimeError('no')" in text


def test_the_training_that_is_measured_builds_its_base_with_random_weights(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(checkout / "benchmarks")
    bases = importlib.import_module("gpu.bases")
    bases.TINY.write_config(tmp_path)
    with bases.random_weights(torch.device("cpu")):
        model = build_causal_lm(CausalLM(kind="causal_lm", path=str(tmp_path), dtype="bfloat16", lora=Lora(r=2)))
    kinds = {each.dtype: each.requires_grad for each in model.parameters()}
    assert kinds == {torch.bfloat16: False, torch.float32: True}


def test_results_of_a_cpu_are_refused_by_the_documents(measure_sh: Run, tmp_path: Path) -> None:
    file = tmp_path / "tiny.jsonl"
    file.write_text(json.dumps({**MACHINE, "tiny": True}), encoding="utf-8")
    done = measure_sh("--write", str(file))
    assert done.returncode == 2
    assert "results of --tiny" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_without_a_gpu_it_is_said_what_to_run_instead(measure_sh: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = measure_sh()
    assert done.returncode == 2
    assert "no GPU here; --tiny shows on CPUs" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_lent_machine_has_is_not_carried_and_the_rest_is(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(checkout / "benchmarks")
    carry = importlib.import_module("gpu.carry")
    there = set((checkout / "benchmarks/gpu/installed.txt").read_text(encoding="utf-8").split())
    assert {"pydantic", "pydantic-core", "datasets", "dill"} <= carry.needed(carry.TRAINING, there)
    everything = carry.needed(["ray-sweeps"], there)
    assert {"ray", "mlflow", "optuna", "hydra-core"} <= everything
    assert not {"torch", "transformers", "peft", "numpy", "pyarrow"} & everything


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_loops_memory_snapshots_and_lanes_are_measured_without_a_gpu(
    measure_sh: Run, tmp_path: Path, documents: Callable[..., dict[str, str]]
) -> None:
    done = measure_sh("--tiny", "--parts", "speed,memory,snapshots,lanes")
    assert done.returncode == 0, done.stdout + done.stderr
    loops = of(results(tmp_path, "speed"), "arm")
    assert len(loops) == 6
    for each in loops:
        assert each["tokens_per_second"] > 0
        assert each["loss"] == pytest.approx(loops[0]["loss"], abs=0.3)
    assert 0 < loops[0]["utilization_per_speed"] * loops[0]["tokens_per_second"] < 1
    assert of(results(tmp_path, "speed"), "profile")[0]["operators"] > 0
    assert len(of(results(tmp_path, "memory"), "case")) == 4
    lanes = {(each["rows"], each["arm"]): each["loss"] for each in of(results(tmp_path, "lanes"), "arm")}
    assert lanes[1, "2 lanes"] == pytest.approx(lanes[1, "one"], rel=0.02)
    assert set(lanes) == {(1, "one"), (1, "2 lanes"), (2, "2 lanes")}
    saved = of(results(tmp_path, "snapshots"), "save")
    assert {"Sweeps", "a plain copy in memory", "`torch.save`"} < {each["arm"] for each in saved}
    parts = [each for part in ("speed", "memory", "snapshots") for each in results(tmp_path, part)]
    changed = documents(*parts)
    assert set(changed) == {"training.md", "gpu_checklist.md", "checkpoint_speed.md"}
    assert "| tiny, LoRA, 2 x 32 |" in changed["gpu_checklist.md"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tests_and_a_sweep_are_measured_without_a_gpu(
    measure_sh: Run, tmp_path: Path, documents: Callable[..., dict[str, str]]
) -> None:
    done = measure_sh("--tiny", "--parts", "gpu_tests,sweep")
    assert done.returncode == 0, done.stdout + done.stderr
    tests = of(results(tmp_path, "gpu_tests"), "test")
    assert len(tests) >= 5
    assert {each["result"] for each in tests} == {"passed"}
    (sweep,) = of(results(tmp_path, "sweep"), "sweep")
    assert sweep["counts"]["finished"] == sweep["trials"] == 6
    assert sweep["computing_s"] > 0
    changed = documents(*results(tmp_path, "gpu_tests"), *results(tmp_path, "sweep"))
    assert "| every strategy trains alone in a process group[cpu] | passed |" in changed["gpu_checklist.md"]
    assert "| 6 |" in changed["performance.md"]
