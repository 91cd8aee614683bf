"""Workers that train one trial after another: what an earlier trial has left neither stays nor is reported."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import TEXT, configured, run, write_prompts

from sweeps_train import worker_cache
from sweeps_train.system import begin_measurement, system_metrics


@pytest.mark.parametrize("changed", [{"model": {"lora": None}}, {"strategy": {"kind": "fsdp"}}])
def test_a_trial_that_cannot_use_the_cached_base_model_frees_it(changed: Any, working_folder: Path) -> None:
    write_prompts(working_folder)
    run(configured(TEXT, train={"max_steps": 1}))
    base = weakref.ref(worker_cache._cache["base model"][1]._model)
    assert base() is not None
    run(configured(TEXT, train={"max_steps": 1}, **changed))
    assert base() is None


def test_the_peak_of_an_earlier_trial_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {"allocated": 300, "reserved": 500}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["allocated"] * 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: peak["reserved"] * 2**20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update(allocated=100, reserved=200))
    device = torch.device("cuda", 0)
    begin_measurement(device)
    metrics = system_metrics(device)
    assert metrics["system/gpu_memory_mib"] == 100
    assert metrics["system/gpu_memory_reserved_mib"] == 200
