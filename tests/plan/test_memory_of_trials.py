"""Memory of trials in a dry run: which configs are asked about, and what is said of those that do not fit."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from composing import planned

from sweeps.plan import planned_memory as plan_memory
from sweeps.plan.plan import Plan
from sweeps.plan.planned_memory import (
    GIB,
    MemoryReport,
    gpu_room,
    local_room,
    memory_questions,
    memory_report,
    questions_worth_asking,
)
from sweeps.plan.preflight import Preflight
from sweeps.runtime import gpu_memory
from sweeps.runtime.gpu_memory import visible_gpu_memory

GPU = ("cluster.num_gpus=2", "cluster.num_cpus=8")


@cache
def plan(*tokens: str) -> Plan:
    return planned(*tokens)


@pytest.fixture
def own_model(working_folder: Path) -> str:
    """A model of 1 billion parameters of which only the config is there."""
    folder = working_folder / "model"
    folder.mkdir()
    sizes = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 16}
    sizes |= {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "vocab_size": 32000}
    sizes |= {"max_position_embeddings": 131072}
    (folder / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    return f"model.path={folder}"


# --- what is asked -------------------------------------------------------------------------------------------


def test_the_configs_own_trial_is_asked_first_then_the_largest_sizes_together() -> None:
    first, *others = memory_questions(
        plan(
            "conf=llm_lora", "data.sequence_length=choice(128, 1024)", "scaling.num_workers=choice(1, 2)", "space=none"
        )
    )
    assert first.values == {}
    assert others[0].values == {"data.sequence_length": 1024, "scaling.num_workers": 1}
    assert {"data.sequence_length": 1024} in [each.values for each in others]


def test_each_choice_that_is_no_number_is_asked_with_the_largest_numbers() -> None:
    asked = [each.values for each in memory_questions(plan("conf=llm_lora"))]
    chosen = [each.get("model.lora.target_modules") for each in asked]
    assert {"attention", "mlp", "all-linear"} <= set(chosen)
    assert all("train.lr" not in each and "train.schedule" not in each for each in asked)
    assert len(asked) <= plan_memory.MAX_QUESTIONS


def test_a_combination_that_a_constraint_excludes_is_not_asked() -> None:
    tokens = (
        "conf=llm_lora",
        "space=none",
        "data.sequence_length=choice(128, 1024)",
        "train.global_batch_size=choice(8, 32)",
    )
    constraint = "search.constraints=['data.sequence_length * train.global_batch_size <= 8192']"
    both = {"data.sequence_length": 1024, "train.global_batch_size": 32}
    assert both in [each.values for each in memory_questions(plan(*tokens))]
    assert both not in [each.values for each in memory_questions(plan(*tokens, constraint))]


@pytest.mark.parametrize(
    "tokens", [("conf=llm_lora",), ("conf=digits",), ("conf=ray_train_function",), ("conf=tabular",)]
)
def test_the_models_that_ship_with_sweeps_are_not_asked_about(tokens: tuple[str, ...]) -> None:
    assert questions_worth_asking(plan(*tokens)) == []


def test_a_model_of_which_nothing_is_on_this_machine_is_named_without_starting_a_process() -> None:
    checked = plan("conf=llm_lora_hub", *GPU)
    asked = questions_worth_asking(checked)
    with Preflight(checked, asked) as preflight:
        assert preflight._process is None
        assert preflight.result() == []
        summary = preflight.memory(None).summary
    assert summary.startswith(
        "could not be computed: the config of model.path=Qwen/Qwen2.5-0.5B is not on this machine"
    )


# --- what is said --------------------------------------------------------------------------------------------


def report(room: float | None, *needs: tuple[dict[str, Any], float, float]) -> MemoryReport:
    asked = [plan_memory.MemoryQuestion(values, plan("conf=llm_lora").config) for values, *_ in needs]
    parts = dict.fromkeys(("gradients", "optimizer", "activations"), GIB)
    parts |= {"weights": 2 * GIB, "logits": GIB // 2, "in_machine": 0}
    answers = [{"parts": parts, "total": total * GIB, "of_one": of_one * GIB} for _, total, of_one in needs]
    return memory_report(asked, answers, None if room is None else room * GIB)


def test_what_fits_is_summed_up_in_a_line() -> None:
    found = report(24, ({}, 5, 4), ({"train.global_batch_size": 32}, 9, 4))
    assert found.summary == (
        "5.0 GiB a worker (weights 2.0, gradients 1.0, optimizer 1.0, activations 1.0, of which logits 0.5), up to 9.0 "
        "with train.global_batch_size=32; a worker has 24"
    )
    assert found.notes == []


def test_the_values_that_do_not_fit_are_named_and_no_combination_with_them() -> None:
    notes = report(
        8,
        ({}, 5, 4),
        ({"model.width": 64, "data.sequence_length": 4096}, 40, 30),
        ({"data.sequence_length": 4096}, 30, 20),
        ({"train.global_batch_size": 32}, 9, 4),
    ).notes
    assert len(notes) == 2
    assert notes[0].startswith(
        "memory: with data.sequence_length=4096 a worker needs about 20 GiB even with micro batch"
    )
    assert "it cannot be trained" in notes[0]
    assert (
        "with train.global_batch_size=32 a worker needs about 9.0 GiB, and has 8.0; smaller micro batches" in notes[1]
    )


def test_a_room_that_is_not_known_is_said_and_nothing_is_refused() -> None:
    found = report(None, ({}, 500, 400))
    assert found.summary.endswith("the memory of a worker is unknown (set cluster.gpu_memory_gib)")
    assert found.notes == []


# --- what a worker has ---------------------------------------------------------------------------------------


class Driver:
    """A driver of GPUs of these sizes in bytes."""

    def __init__(self, *sizes: int):
        self.cuInit = lambda flags: 0
        self.cuDeviceGetCount = lambda count: self._set(count, len(sizes))
        self.cuDeviceGet = self._set
        self.cuDeviceTotalMem_v2 = lambda size, device: self._set(size, sizes[device.value])

    def _set(self, reference: Any, value: int) -> int:
        reference._obj.value = value
        return 0


def test_the_driver_is_asked_for_the_memory_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory.ctypes, "CDLL", lambda name: Driver(80 * GIB, 24 * GIB))
    assert visible_gpu_memory() == [80 * GIB, 24 * GIB]


def test_amds_driver_is_asked_where_there_is_none_of_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(192 * GIB)
    amd = SimpleNamespace(
        hipInit=driver.cuInit,
        hipGetDeviceCount=driver.cuDeviceGetCount,
        hipDeviceGet=driver.cuDeviceGet,
        hipDeviceTotalMem=driver.cuDeviceTotalMem_v2,
    )

    def load(name: str) -> Any:
        if "hip" not in name:
            raise OSError(name)
        return amd

    monkeypatch.setattr(gpu_memory.ctypes, "CDLL", load)
    assert visible_gpu_memory() == [192 * GIB]


def test_the_smallest_gpu_of_a_machine_or_a_cluster_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(stdout=f"{80 * GIB} {24 * GIB}\n")
    monkeypatch.setattr(gpu_memory.subprocess, "run", lambda *_, **__: answer)
    assert gpu_memory.local_gpu_memory() == 24 * GIB

    by_node = {"node:10.0.0.1": [80 * GIB], "node:10.0.0.2": [80 * GIB, 40 * GIB]}
    asking: Any = lambda **options: SimpleNamespace(remote=lambda: next(iter(options["resources"])))  # noqa: E731
    monkeypatch.setattr(ray, "remote", lambda _: SimpleNamespace(options=asking))
    monkeypatch.setattr(ray, "wait", lambda asked, **_: (asked, []))
    monkeypatch.setattr(ray, "get", lambda done: [by_node[each] for each in done])
    nodes = [{"GPU": 2.0, name: 1.0} for name in by_node] + [{"CPU": 4.0, "node:10.0.0.3": 1.0}]
    assert gpu_memory.cluster_gpu_memory(nodes) == 40 * GIB


def test_without_a_driver_nothing_is_known() -> None:
    assert visible_gpu_memory() == []
    assert gpu_memory.local_gpu_memory() is None


def test_a_worker_has_its_share_of_the_gpu_less_what_cuda_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_memory, "local_gpu_memory", lambda: 24 * GIB)
    assert local_room(plan("conf=llm_lora", *GPU)) == 23.5 * GIB
    shared = plan("conf=digits", "scaling=single_worker", "scaling.resources_per_worker={CPU: 1, GPU: 0.5}", *GPU)
    assert local_room(shared) == 11.5 * GIB
    assert gpu_room(plan("conf=llm_lora", "cluster.gpu_memory_gib=40", *GPU), 80 * GIB) == 39.5 * GIB


def test_a_worker_without_a_gpu_has_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_memory, "machine_memory", lambda: 16 * GIB)
    room = local_room(plan("conf=llm_lora", "cluster.num_cpus=4", "search.num_trials=10"))
    assert room == pytest.approx(4 * GIB - 0.7 * GIB)


# --- the whole -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dry_run_names_the_part_of_the_space_that_cannot_fit(own_model: str) -> None:
    checked = plan(
        "conf=llm_lora_hub", own_model, "space=none", "data.sequence_length=choice(512, 65536)",
        "train.global_batch_size=2", "model.gradient_checkpointing=false", "cluster.gpu_memory_gib=16", *GPU,
    )  # fmt: skip
    asked, room = questions_worth_asking(checked), local_room(checked)
    with Preflight(checked, asked, room) as preflight:
        preflight.result()
        found = preflight.memory(room)
    assert found.failure is None
    assert [answer.values for answer in found.answers] == [{}, {"data.sequence_length": 65536}]
    assert len(found.notes) == 1
    assert "data.sequence_length=65536" in found.notes[0]
