"""Strategies that cannot work are refused on the driver, with what would fit."""

from __future__ import annotations

import pytest
from composing import checked

from sweeps.errors import ConfigError
from sweeps_train.config import Train, check_batch_split


@pytest.mark.parametrize(
    ("conf", "overrides", "message"),
    [
        ("digits", ["scaling.num_workers=4", "strategy=fsdp", "+strategy.shard_size=3"], r"use one of \[1, 2, 4\]"),
        (
            "digits",
            ["strategy=tensor_parallel"],
            "cannot be split within its layers; use strategy=ddp, fsdp or pipeline",
        ),
        ("digits", ["strategy=fsdp", "train.precision=fp16"], "use bf16, fp32, or strategy=ddp"),
        (
            "digits",
            ["strategy=fsdp", "+train.max_communication_share=0.1", "+train.max_global_batch_size=128"],
            "is for strategy=ddp",
        ),
        (
            "digits",
            ["strategy=pipeline", "+train.micro_batch_size=64"],
            r"train\.micro_batch_size to one of \[1, 2, 4, 8, 16, 32\]",
        ),
        (
            "digits",
            ["strategy=pipeline", "scaling.num_workers=4", "train.global_batch_size=2"],
            r"global_batch_size=2: with 2 micro batches for 4 stages .* set train\.global_batch_size to at least 4",
        ),
        ("digits", ["strategy=pipeline", "+train.micro_batch_size=auto"], "micro_batch_size=auto: .* set it to null"),
        (
            "digits",
            ["strategy=pipeline", "scaling.num_workers=6", "+train.micro_batch_size=1"],
            r"the model has 5 parts that can be stages, fewer than 6; set it to at most 5",
        ),
        (
            "llm_lora",
            ["strategy=tensor_parallel", "scaling.num_workers=8"],
            r"8 workers cannot share the 4 heads .* one of \[1, 2, 4\]",
        ),
        (
            "llm_lora",
            ["strategy=pipeline", "scaling.num_workers=4", "+train.micro_batch_size=1"],
            "has 3 parts that can be stages, fewer than 4",
        ),
        (
            "llm_lora",
            ["strategy=context_parallel", "scaling.num_workers=8"],
            r"strategy\.size: 8 workers cannot share the 4 heads .* one of \[1, 2, 4\]",
        ),
        (
            "llm_lora",
            ["strategy=context_parallel", "scaling.num_workers=4", "+strategy.shard_size=3"],
            r"strategy\.shard_size=3 does not divide .* one of \[1, 2, 4\]",
        ),
        ("llm_lora", ["strategy=context_parallel", "+model.attention=eager"], "use sdpa, flash_attention_2 or flex"),
        ("digits", ["strategy=context_parallel"], "only a model.kind=causal_lm has sequences that can be split"),
        ("llm_lora", ["strategy=fsdp_tensor_parallel", "scaling.num_workers=3"], "tensor_size=2 does not divide"),
        ("digits", ["scaling.num_workers=5", "strategy=fsdp"], "cannot be split over 5 workers"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_what_would_fit(conf: str, overrides: list[str], message: str) -> None:
    model = ["~space", "model=conv_net"] if conf == "digits" else ["~space"]
    with pytest.raises(ConfigError, match=message):
        checked(conf, *model, *overrides)


@pytest.mark.parametrize(
    "strategy", ["ddp", "fsdp", "tensor_parallel", "fsdp_tensor_parallel", "context_parallel", "pipeline"]
)
def test_every_strategy_that_ships_fits_a_language_model_on_two_workers(strategy: str) -> None:
    checked("llm_lora", f"strategy={strategy}")


@pytest.mark.parametrize(
    ("share", "stages", "micro"), [(64, 2, 8), (8, 2, 1), (6, 4, 1), (12, 2, 1), (9, 3, 1), (5, 1, 5)]
)
def test_a_pipeline_has_four_micro_batches_a_stage_as_far_as_its_batch_allows(
    share: int, stages: int, micro: int
) -> None:
    assert check_batch_split(Train(max_steps=1, global_batch_size=2 * share), 2, stages) == (micro, share // micro)


@pytest.mark.parametrize("conf", ["digits", "llm_lora"])
def test_a_pipeline_needs_no_other_option_with_the_sweeps_that_ship(conf: str) -> None:
    checked(conf, "strategy=pipeline")


def test_a_strategy_can_be_searched() -> None:
    overrides = ["strategy=choice(ddp, fsdp, tensor_parallel)"]
    assert "strategy" in checked("llm_lora", *overrides).config.space


def test_a_searched_strategy_that_cannot_work_is_refused() -> None:
    overrides = ["~space", "model=conv_net", "strategy=choice(ddp, tensor_parallel)"]
    with pytest.raises(ConfigError, match=r"strategy reaches 'tensor_parallel': .* cannot be split within its layers"):
        checked("digits", *overrides)
