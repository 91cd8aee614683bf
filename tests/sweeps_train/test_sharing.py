"""Trainings that may share workers and a base, and the key that forbids it to others."""

from __future__ import annotations

from typing import Any

import pytest
from training_runs import IMAGES, TEXT, configured

from sweeps_train.config.sharing import forbids_sharing

LORA = {"r": 4, "target_modules": "attention"}
DROPOUT = {**LORA, "dropout": 0.1}
CONFIG: dict[str, Any] = {**TEXT, "model": {**TEXT["model"], "lora": LORA}}


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"lr": 1.0, "schedule": "linear", "warmup_fraction": 0.5, "weight_decay": 0.1, "momentum": 0.5}},
        {"train": {"optimizer": "sgd", "max_grad_norm": None, "global_batch_size": 32, "micro_batch_size": 4}},
        {"train": {"max_steps": None, "epochs": 3, "eval_every": 1, "log_every": 7, "on_divergence": "skip"}},
        {"model": {"lora": {"r": 64, "alpha": 1, "dropout": 0.5, "target_modules": "all-linear", "use_rslora": True}}},
        {"checkpoint": {"every": 1, "keep": ["last"]}},
    ],
    ids=str,
)
def test_settings_of_the_optimizer_the_adapters_and_the_duration_may_differ(changes: dict[str, Any]) -> None:
    assert forbids_sharing([configured(CONFIG), configured({**CONFIG, "seed": 7}, **changes)]) is None


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("model", {"model": {"path": "org/other"}}),
        ("model", {"model": {"dtype": "bfloat16"}}),
        ("data", {"data": {"sequence_length": 32}}),
        ("train.precision", {"train": {"precision": "bf16"}}),
        ("train.tf32", {"train": {"tf32": True}}),
        ("train.deterministic", {"train": {"deterministic": True}}),
        ("strategy", {"strategy": {"kind": "fsdp"}}),
        ("strategy", {"strategy": {"kind": "fsdp", "activation_checkpointing": True}}),
    ],
)
def test_what_all_compute_together_must_be_the_same(key: str, changes: dict[str, Any]) -> None:
    other = configured(CONFIG, **changes)
    assert forbids_sharing([configured(CONFIG), other]) == key
    assert forbids_sharing([other, other]) is None


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("model.lora", {"model": {"lora": None}}),
        ("model.lora.use_dora", {"model": {"lora": {**LORA, "use_dora": True}}}),
        ("model.lora.modules_to_save", {"model": {"lora": {**LORA, "modules_to_save": ["lm_head"]}}}),
        ("model.quantization", {"model": {"quantization": "nf4"}}),
        ("model.trust_remote_code", {"model": {"trust_remote_code": True}}),
        ("model.gradient_checkpointing", {"model": {"gradient_checkpointing": True, "lora": DROPOUT}}),
        ("strategy.kind", {"strategy": {"kind": "tensor_parallel"}}),
        ("strategy.compression", {"strategy": {"compression": "fp16"}}),
        ("strategy.cpu_offload", {"strategy": {"kind": "fsdp", "cpu_offload": True}}),
        (
            "strategy.activation_checkpointing",
            {"strategy": {"kind": "fsdp", "activation_checkpointing": True}, "model": {"lora": DROPOUT}},
        ),
        ("train.precision", {"train": {"precision": "fp16"}}),
        ("train.compile", {"train": {"compile": True}}),
        ("train.corruption_check_every", {"train": {"corruption_check_every": 5, "deterministic": True}}),
        ("train.max_communication_share", {"train": {"max_communication_share": 0.5, "max_global_batch_size": 64}}),
    ],
)
def test_some_trainings_share_with_none(key: str, changes: dict[str, Any]) -> None:
    assert forbids_sharing([configured(CONFIG, **changes)]) == key


def test_images_are_no_task_of_lanes() -> None:
    assert forbids_sharing([configured(IMAGES)]) == "task.kind"
