"""Measurements that fail: the training goes on, says once what is left out, and all workers still exchange the same."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import flop_counter
from training_runs import IMAGES, PACKED, TEXT, Recorder, configured, on_two_workers, run, write_prompts

from sweeps_train.devices import system
from sweeps_train.lanes import group
from sweeps_train.memory import machine_memory, micro_batch_size
from sweeps_train.steps import batch_scaling
from sweeps_train.workers import communication

PEAK = {"peak_tflops": 0.05}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path))
    system._measurement.cache_clear()


def fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("this library is of another opinion")


def images(**train: Any) -> Any:
    return configured(IMAGES, model={"dropout": 0.0}, train={**PEAK, **train})


def losses(recorder: Recorder) -> list[float]:
    return [metrics["train/loss"] for metrics in recorder.logs.values()]


# --- grouped-query attention ---------------------------------------------------------------------------------

LENGTH, WIDTH, LAYERS, INNER, VOCABULARY = 32, 64, 2, 96, 384
HEADS, KEY_HEADS = 8, 2


def grouped_queries(folder: Path) -> Path:
    """A Llama, with weights, whose four query heads share a key head, as in Llama 3 and Qwen."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from sweeps_train.models.causal_lm import BUILTIN_MODELS

    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": INNER}
    sizes |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS}
    tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    config = LlamaConfig(**sizes, **tokens, max_position_embeddings=2 * LENGTH, tie_word_embeddings=True)
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUILTIN_MODELS["builtin:tiny_llama"]).save_pretrained(folder)
    return folder


def test_a_model_with_grouped_queries_trains_and_its_flops_are_counted(working_folder: Path) -> None:
    """FLOPs by hand: 6 for each weight of a matrix, and 12 x layers x width x length for attention, where every query
    head counts, whether it has a key head of its own or not."""
    write_prompts(working_folder)
    config = configured(
        TEXT,
        model={"path": str(grouped_queries(working_folder / "model")), "lora": None},
        data={**PACKED, "sequence_length": LENGTH},
        train={**PEAK, "max_steps": 4},
    )
    metrics = run(config).final
    layer = 2 * WIDTH * WIDTH * (1 + KEY_HEADS / HEADS) + 3 * WIDTH * INNER
    per_token = 6 * (LAYERS * layer + VOCABULARY * WIDTH) + 12 * LAYERS * WIDTH * LENGTH
    expected = per_token * metrics["train/tokens_per_second"] / (PEAK["peak_tflops"] * 1e12)
    assert metrics["train/flop_utilization"] == pytest.approx(expected, rel=0.01)


# --- one worker ----------------------------------------------------------------------------------------------


def test_a_formula_that_fails_in_the_middle_of_a_step_leaves_the_step_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = run(images())
    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.convolution, fail)
    failed = run(images())
    assert counted.final["train/flop_utilization"] > 0
    assert losses(failed) == losses(counted)
    assert not any("train/flop_utilization" in metrics for metrics in failed.logs.values())
    assert failed.notes == [
        "train/flop_utilization cannot be measured and is left out (AssertionError: this library is of another opinion)"
    ]


@functools.cache
def metrics_of_two_steps() -> frozenset[str]:
    return frozenset(run(images(max_steps=2)).final)


@pytest.mark.parametrize(
    ("owner", "name", "missing"),
    [
        (torch.compiler, "set_stance", {"train/flop_utilization"}),
        (group, "peak_of", set()),  # the config gives one
        (system._this_process, "memory", {"system/memory_mib", "system/total_memory_mib"}),
        (system._this_process, "processors", {"system/cpu_percent"}),
        (machine_memory.psutil, "virtual_memory", {"system/memory_limit_mib"}),
        (system, "reset_peak_memory", set()),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_a_library_cannot_tell_is_left_out(
    owner: Any, name: str, missing: set[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = metrics_of_two_steps()
    monkeypatch.setattr(owner, name, fail)
    recorder = run(images(max_steps=2))
    assert usual - set(recorder.final) == missing
    told = [each.message for each in caplog.records if "cannot be measured" in each.message]
    assert len(told) == len({text.split(" cannot ")[0] for text in told})
    assert bool(told) == bool(missing) or name == "reset_peak_memory"


def test_a_device_of_unknown_peak_has_no_utilization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "peak_of", fail)
    recorder = run(images(peak_tflops=None))
    assert "train/flop_utilization" not in recorder.final
    (note,) = recorder.notes
    assert note.startswith("the peak performance of the device cannot be measured")


# --- probes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name"), [(torch.autograd.graph, "saved_tensors_hooks"), (micro_batch_size, "usable_memory")]
)
def test_where_memory_cannot_be_measured_micro_batches_have_one_sample(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    auto = {"micro_batch_size": "auto", "max_steps": 2, "global_batch_size": 8}
    plain = run(images(**{**auto, "micro_batch_size": 1}))
    monkeypatch.setattr(owner, name, fail)
    assert run(images(**auto)).final["eval/loss"] == plain.final["eval/loss"]
    assert "train.micro_batch_size=auto" in caplog.text


def test_a_batch_whose_time_cannot_be_measured_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_scaling, "probe_step", fail)
    recorder = run(images(max_communication_share=0.1, max_global_batch_size=1600))
    assert recorder.final["train/global_batch_size"] == 400
    assert recorder.notes == ["train.global_batch_size=400 is kept: the time of a step could not be measured"]


# --- two workers, of which one fails -------------------------------------------------------------------------


def with_one_failing(owner: Any, name: str, **train: Any) -> Recorder:
    with pytest.MonkeyPatch.context() as patched:
        if torch.distributed.get_rank() == 1:
            patched.setattr(owner, name, fail)
        return run(images(communication_every=2, **train))


def scenario() -> dict[str, Recorder]:
    registry: Any = flop_counter.flop_registry
    runs = {"usual": run(images(communication_every=2))}
    with pytest.MonkeyPatch.context() as patched:
        if torch.distributed.get_rank() == 1:
            patched.setitem(registry, torch.ops.aten.convolution, fail)
            patched.setattr(system._this_process, "memory", fail)
        runs["formula, memory and profiler"] = with_one_failing(communication, "profile")
    runs["spans"] = with_one_failing(communication, "profiled_spans")
    runs["peak"] = with_one_failing(group, "peak_of", peak_tflops=None)
    runs["probe"] = with_one_failing(micro_batch_size, "probe_step", micro_batch_size="auto", global_batch_size=8)
    scaled = {"max_communication_share": 0.1, "max_global_batch_size": 1600}
    return runs | {"time": with_one_failing(batch_scaling, "probe_step", **scaled)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorder]:
    first: dict[str, Recorder] = on_two_workers(scenario, tmp_path_factory.mktemp("measurements"))[0]
    return first


@pytest.mark.parametrize(
    ("failing", "missing"),
    [
        (
            "formula, memory and profiler",
            {
                *("train/flop_utilization", "train/communication_share"),
                *("system/memory_mib", "system/total_memory_mib", "system/worker_1/memory_mib"),
            },
        ),
        ("spans", {"train/communication_share"}),
    ],
)
def test_what_one_worker_cannot_measure_is_left_out_for_all(
    failing: str, missing: set[str], runs: dict[str, Recorder]
) -> None:
    assert set(runs["usual"].final) - set(runs[failing].final) == missing
    assert losses(runs[failing]) == losses(runs["usual"])


@pytest.mark.parametrize("failing", ["peak", "probe", "time"])
def test_a_probe_that_fails_on_one_worker_ends_no_training(failing: str, runs: dict[str, Recorder]) -> None:
    assert runs[failing].final["eval/loss"] > 0
