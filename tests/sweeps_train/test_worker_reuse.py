"""Workers that train one trial after another: what an earlier trial has left neither stays nor is reported."""

from __future__ import annotations

import contextlib
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import IMAGES, TEXT, configured, on_two_workers, run, write_prompts

from sweeps_train.devices import system
from sweeps_train.workers import worker_cache


@pytest.mark.parametrize(
    "changed", [{"model": {"lora": None}}, pytest.param({"strategy": {"kind": "fsdp"}}, marks=pytest.mark.slow)]
)
def test_a_trial_that_cannot_use_the_cached_base_model_frees_it(changed: Any, working_folder: Path) -> None:
    write_prompts(working_folder)
    run(configured(TEXT, train={"max_steps": 1}))
    base = weakref.ref(worker_cache._cache["base model"][1]._model)
    assert base() is not None
    gc.freeze()  # as between two trials
    run(configured(TEXT, train={"max_steps": 1}, **changed))
    assert base() is None


@pytest.mark.parametrize("in_cycle", [False, True])
def test_frozen_objects_are_searched_only_if_weights_would_stay_in_memory(
    in_cycle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection of all that torch and transformers have made takes seconds."""

    def make() -> torch.nn.Module:
        model: Any = torch.nn.Linear(2, 2)
        model.kept = [model] if in_cycle else []
        return model

    collections: list[str] = []
    collect = gc.collect

    def collects() -> None:
        collections.append("of new objects")
        collect()

    monkeypatch.setattr(gc, "collect", collects)
    monkeypatch.setattr(gc, "unfreeze", lambda: collections.append("of all"))
    left = weakref.ref(worker_cache.cached("model", 1, make))
    worker_cache.evict("model")
    assert collections == ["of new objects"] * in_cycle
    assert left() is None


@pytest.mark.parametrize("optimizer", ["adamw", {"_target_": "torch.nn.Linear", "arguments": {"in_features": 1}}])
def test_the_next_trial_does_not_train_a_base_model_that_stays_compiled_by_one_that_ends_or_cannot_begin(
    optimizer: Any, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prompts(working_folder)
    compiled: list[Any] = []

    def remembered(function: Any, **_: Any) -> Any:
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", remembered)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    with contextlib.nullcontext() if optimizer == "adamw" else pytest.raises(ValueError, match=r"train\.optimizer"):
        run(configured(TEXT, train={"max_steps": 1, "compile": True, "optimizer": optimizer}))
    base = worker_cache._cache["base model"][1]._model
    assert compiled
    assert not any(each._compiled_call_impl for each in base.modules())


def size_of_base() -> int:
    size: int = worker_cache._cache["base model"][1].size
    return size


def test_a_relative_path_in_another_folder_is_another_object(tmp_path: Path) -> None:
    def read() -> str:
        return worker_cache.cached("text", "data.txt", Path("data.txt").read_text)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.txt").write_text(name)
    with contextlib.chdir(tmp_path / "a"):
        first = read()
        assert read() is first
    with contextlib.chdir(tmp_path / "b"):
        assert (first, read()) == ("a", "b")


def reads_of_two_trials() -> tuple[list[int], list[float]]:
    """How often each of three trials has read the base model, and the losses on rank 0; the last has no memory for it
    between trials, in its container: half of it would hold one copy, and not those of both workers."""
    from transformers import AutoModelForCausalLM

    from sweeps_train.tasks import causal_lm

    reads: list[int] = []
    losses: list[float] = []
    load = AutoModelForCausalLM.from_pretrained

    def counted(*args: Any, **options: Any) -> Any:
        reads[-1] += 1
        return load(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AutoModelForCausalLM, "from_pretrained", counted)
        for copies in (8, 3, 3):
            patched.setattr(causal_lm, "machine_memory", lambda copies=copies: copies * size_of_base())
            reads.append(0)
            recorder = run(configured(TEXT, train={"max_steps": 1, "eval_every": 1}, strategy={"kind": "fsdp"}))
            losses += recorder.eval_losses
    return reads, losses


@pytest.mark.slow
def test_a_second_trial_that_shards_the_base_model_does_not_read_it_again(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    (reads, losses), (others, _) = on_two_workers(reads_of_two_trials, tmp_path)
    assert reads == others == [1, 0, 1]
    assert len(losses) == 3
    assert losses == [losses[0]] * 3


def test_the_peak_of_an_earlier_trial_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {"allocated": 300, "reserved": 500}
    for name, value in {
        "counts_memory": lambda device: True,
        "peak_memory": lambda device: peak["allocated"] * 2**20,
        "peak_reserved_memory": lambda device: peak["reserved"] * 2**20,
        "reset_peak_memory": lambda device: peak.update(allocated=100, reserved=200),
    }.items():
        monkeypatch.setattr(system, name, value)
    metrics = run(configured(IMAGES, train={"max_steps": 1, "eval_every": 1})).final
    assert metrics["system/gpu_memory_mib"] == 100
    assert metrics["system/gpu_memory_reserved_mib"] == 200
