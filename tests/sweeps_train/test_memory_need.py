"""The memory of a training, computed without training, beside what real steps take and what is published of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from training_runs import TEXT, configured, on_two_workers

from sweeps_train.compat.fake_tensors import PeakMemory, fake_tensors
from sweeps_train.config import TrainingConfig
from sweeps_train.memory.memory_need import MemoryNeed, memory_need
from sweeps_train.models.causal_lm import build_causal_lm
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.strategies.dtensor import local_shard
from sweeps_train.tasks import blank_causal_lm
from sweeps_train.tasks.blank_causal_lm import BlankCausalLM
from sweeps_train.workers.distributed import Workers

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # of bitsandbytes' imports

MIB = 2**20
LENGTH, ROWS = 512, 4


def text(strategy: str = "ddp", lora: Any = None, model: dict[str, Any] | None = None, **train: Any) -> TrainingConfig:
    return configured(
        TEXT,
        model={"lora": lora, **(model or {})},
        data={"sequence_length": LENGTH},
        train={"global_batch_size": ROWS, **train},
        strategy={"kind": strategy} if "=" not in strategy else dict(each.split("=") for each in strategy.split()),
    )


def alone(config: TrainingConfig, **options: Any) -> MemoryNeed:
    return memory_need(config, 1, None, **{"use_gpu": False, **options})


# --- beside real steps ---------------------------------------------------------------------------------------


def real_step(config: TrainingConfig, workers: Workers, micro_batches: int = 1) -> tuple[int, int]:
    """Bytes of weights, and the peak of a real step on blank weights, as torch allocates them: of ``ddp`` one of the
    first, whose gradients are not in the buckets that torch sends."""
    precision = Precision("fp32", torch.device("cpu"))
    strategy = build_strategy(config.strategy, workers, precision)
    torch.manual_seed(0)
    task = BlankCausalLM(config, autocasts=False)
    strategy.parallelize(task)  # type: ignore[arg-type]
    batch = task.longest_batch(config.train.global_batch_size // strategy.data_parallel.size // micro_batches)
    buckets: dict[int, int] = {}
    if config.strategy.kind == "ddp" and workers.size > 1:
        strategy.backward([batch], 1.0)
        storages = [each.grad.untyped_storage() for each in strategy.parameters.values() if each.grad is not None]
        buckets = {each.data_ptr(): each.nbytes() for each in storages}
        strategy.zero_grad()
        del storages
    with PeakMemory() as memory:
        for tensor in [*task.model.parameters(), *task.model.buffers(), *scales(task.model)]:
            if not tensor.is_meta:
                memory.add(local_shard(tensor))
        weights = memory.now
        strategy.backward([batch] * micro_batches, 1.0, defer_grad_sync=bool(buckets))
    return weights, memory.peak + sum(buckets.values())


def scales(model: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors that bitsandbytes keeps beside quantized weights."""
    for each in model.parameters():
        state = getattr(each, "quant_state", None)
        kept = state.as_dict().values() if state is not None else [getattr(each, "SCB", None)]
        yield from (tensor for tensor in kept if isinstance(tensor, torch.Tensor))


@pytest.mark.parametrize("lora", [None, {"r": 4}])
def test_a_step_without_values_takes_what_a_real_one_takes(lora: Any) -> None:
    config = text(lora=lora)
    weights, peak = real_step(config, Workers(0, 1, torch.device("cpu")))
    need = alone(config)
    assert need.weights == weights
    assert need.weights + need.gradients + need.activations == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize(
    ("quantization", "use_dora"),
    [
        ("nf4", False),
        pytest.param("nf4", True, marks=pytest.mark.slow),
        pytest.param("int8", False, marks=pytest.mark.slow),
    ],
)
def test_a_step_on_a_quantized_base_takes_what_a_real_one_takes(
    quantization: str, use_dora: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora = {"r": 4, "target_modules": "all-linear", "use_dora": use_dora}
    config, plain = (text(lora=lora, model={"quantization": kind}) for kind in (quantization, "none"))
    need = alone(config)
    with monkeypatch.context() as patch:
        patch.setattr(blank_causal_lm, "build_blank_causal_lm", build_causal_lm)  # with values
        weights, peak = real_step(config, Workers(0, 1, torch.device("cpu")))
    assert need.weights == pytest.approx(weights, rel=0.01)
    assert need.weights + need.gradients + need.activations == pytest.approx(peak, rel=0.1)
    assert need.weights < 0.6 * alone(plain).weights
    assert need.gradients == alone(plain).gradients


KINDS = {
    "ddp": 1,
    "fsdp": 1,
    "tensor_parallel": 1,
    "kind=fsdp_tensor_parallel tensor_size=2": 1,
    "context_parallel": 1,
    "kind=pipeline schedule=gpipe": ROWS,
    "kind=pipeline schedule=1f1b": ROWS,
}
"""Strategies, and the micro batches of a step under each: those of a pipeline have one sample."""


def real_steps() -> dict[str, tuple[int, int]]:
    workers = Workers(dist.get_rank(), 2, torch.device("cpu"))
    return {kind: real_step(text(kind), workers, micro_batches) for kind, micro_batches in KINDS.items()}


@pytest.mark.slow
def test_workers_that_do_not_exist_take_what_real_ones_take(tmp_path: Path) -> None:
    both = on_two_workers(real_steps, tmp_path)
    for kind in KINDS:
        weights, peak = max((found[kind] for found in both), key=lambda each: each[1])
        need = memory_need(text(kind), 2, None, use_gpu=False)
        assert need.weights == pytest.approx(weights, rel=0.01), kind
        assert need.weights + need.gradients + need.activations == pytest.approx(peak, rel=0.1), kind


# --- by strategy and settings --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> MemoryNeed:
    return alone(text())


def test_adam_holds_two_numbers_for_each_trained_one_and_sgd_one(whole: MemoryNeed) -> None:
    assert whole.gradients == pytest.approx(whole.weights, rel=0.01)
    assert whole.optimizer == pytest.approx(2 * whole.gradients, rel=0.01)
    assert alone(text(optimizer="sgd")).optimizer == pytest.approx(whole.gradients, rel=0.01)


def test_logits_and_their_gradient_are_a_part_of_the_activations_where_they_are_there_at_once(
    whole: MemoryNeed,
) -> None:
    assert whole.logits == 0  # the loss takes a chunk of tokens at a time
    assert memory_need(text("tensor_parallel"), 2, None, use_gpu=False).logits == 0
    adapted = alone(text(lora={"r": 4, "target_modules": ["q_proj", "lm_head"]}))  # the head adds its adapter
    assert adapted.logits == 2 * 4 * ROWS * LENGTH * 384
    assert adapted.activations > adapted.logits


def test_adapters_have_gradients_and_the_base_model_has_none(whole: MemoryNeed) -> None:
    adapted = alone(text(lora={"r": 4}))
    in_16_bits = alone(configured(TEXT, model={"lora": {"r": 4}, "dtype": "bfloat16"}))
    assert 0.5 * adapted.weights < in_16_bits.weights < 0.6 * adapted.weights
    assert adapted.gradients < 0.1 * whole.gradients
    assert adapted.weights == pytest.approx(whole.weights + adapted.gradients, rel=0.01)


def test_fewer_samples_at_once_need_less_and_recomputation_too(whole: MemoryNeed) -> None:
    half = memory_need(text(), 1, ROWS // 2, use_gpu=False)
    assert 0.4 * whole.activations < half.activations < 0.8 * whole.activations
    recomputed = text(model={"gradient_checkpointing": True})
    assert alone(recomputed).activations < 0.7 * whole.activations
    assert alone(text(), use_gpu=True).activations < whole.activations  # computed in 16 bits


def test_gradients_of_earlier_micro_batches_are_there_beside_the_activations_of_the_next(whole: MemoryNeed) -> None:
    accumulated = alone(text(global_batch_size=2 * ROWS, micro_batch_size=ROWS))
    assert (accumulated.weights, accumulated.gradients) == (whole.weights, whole.gradients)
    assert accumulated.activations >= whole.activations + 0.5 * whole.gradients


def test_the_total_is_that_of_all_parts(whole: MemoryNeed) -> None:
    assert whole.total == whole.weights + whole.gradients + whole.optimizer + whole.activations
    assert min(whole.weights, whole.gradients, whole.optimizer, whole.activations) > MIB // 2


def test_a_micro_batch_is_what_is_configured_or_one_sample_where_that_is_searched() -> None:
    assert alone(text(micro_batch_size="auto")) == alone(text(micro_batch_size=1))


def test_each_replica_has_its_part_of_the_samples_and_a_second_copy_of_the_gradients() -> None:
    need = alone(text(global_batch_size=ROWS // 2))
    assert memory_need(text(), 2, None, use_gpu=False) == replace(need, gradients=2 * need.gradients)
    assert memory_need(text("kind=ddp compression=bf16"), 2, None, use_gpu=False) == need  # these are in the buckets


def test_samples_are_no_longer_than_the_models_positions_and_adapters_take_16_bits() -> None:
    config = configured(TEXT, data={"sequence_length": 4096})
    with fake_tensors():
        for autocasts in (False, True):
            task = BlankCausalLM(config, autocasts=autocasts)
            assert task.longest_batch(2)["input_ids"].shape == (2, 1024)
            casts = {each.cast_input_dtype_enabled for each in task.model.modules() if hasattr(each, "lora_A")}
            assert casts == {not autocasts}


@pytest.mark.parametrize(
    "strategy",
    [
        "fsdp",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("context_parallel", "kind=fsdp_tensor_parallel tensor_size=2")
        ),
    ],
)
def test_sharded_workers_hold_a_part_of_everything(strategy: str, whole: MemoryNeed) -> None:
    need = memory_need(text(strategy), 4, None, use_gpu=False)
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(need, part) == pytest.approx(getattr(whole, part) / 4, rel=0.3), part
    assert need.total < whole.total
    assert not dist.is_initialized()


@pytest.mark.slow
def test_the_largest_stage_of_a_pipeline_needs_less_than_the_model(whole: MemoryNeed) -> None:
    gpipe = text("kind=pipeline schedule=gpipe", micro_batch_size=1)
    in_turns = text("pipeline", micro_batch_size=1)
    turns = memory_need(in_turns, 2, None, use_gpu=False)
    assert 0.3 * whole.weights < turns.weights < 0.8 * whole.weights
    assert memory_need(gpipe, 2, None, use_gpu=False).total > turns.total
    recomputed = text("kind=pipeline activation_checkpointing=true", micro_batch_size=1)
    assert memory_need(recomputed, 2, None, use_gpu=False).activations < 0.8 * turns.activations


def test_the_last_stage_of_a_pipeline_may_need_most_for_its_logits(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | sizes | {"vocab_size": 32_000}), encoding="utf-8")
    config = text("pipeline", lora={"r": 4, "target_modules": ["q_proj", "lm_head"]}, model={"path": str(tmp_path)})
    need = memory_need(config, 2, None, use_gpu=False)
    assert need.activations > need.logits > 0


@pytest.mark.slow
def test_what_is_offloaded_is_in_the_machines_memory() -> None:
    plain, offloaded = (
        memory_need(text(f"kind=fsdp cpu_offload={offload}"), 2, None, use_gpu=True) for offload in (False, True)
    )
    assert offloaded.in_machine == plain.weights + plain.gradients + plain.optimizer
    assert offloaded.total == pytest.approx(plain.activations, rel=0.01)


def test_other_tasks_are_computed_on_their_own_data() -> None:
    from training_runs import IMAGES

    small, large = (alone(configured(IMAGES, model={"channels": channels})) for channels in (4, 16))
    assert 0 < small.weights < large.weights
    assert 2 * small.activations < large.activations


# --- beside what is published --------------------------------------------------------------------------------

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 32}
PUBLISHED: dict[str, tuple[int, dict[str, Any]]] = {
    "meta-llama/Llama-3.1-8B": (
        8_030_261_248,
        LLAMA
        | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_key_value_heads": 8}
        | {"vocab_size": 128256, "tie_word_embeddings": False},
    ),
    "meta-llama/Llama-3.2-1B": (
        1_235_814_400,
        LLAMA
        | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_key_value_heads": 8}
        | {"head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True},
    ),
    "HuggingFaceTB/SmolLM2-1.7B": (
        1_711_376_384,
        LLAMA
        | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_key_value_heads": 32}
        | {"vocab_size": 49152, "tie_word_embeddings": True},
    ),
    "Qwen/Qwen2.5-0.5B": (
        494_032_768,
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864}
        | {"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936}
        | {"tie_word_embeddings": True},
    ),
    "Qwen/Qwen3-4B": (
        4_022_468_096,
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728}
        | {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
        | {"vocab_size": 151936, "tie_word_embeddings": True},
    ),
}
"""Numbers of parameters, as the hub shows them from the headers of the safetensors files, and the sizes in the configs
of the models in ``conf/model/``."""


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-0.5B", *(pytest.param(each, marks=pytest.mark.slow) for each in PUBLISHED)]
)
def test_weights_are_those_that_are_published(name: str, tmp_path: Path) -> None:
    number, sizes = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    config = configured(TEXT, model={"path": str(tmp_path), "lora": None, "dtype": "bfloat16"})
    with fake_tensors():
        model = BlankCausalLM(config, autocasts=True).model
        assert sum(each.numel() for each in model.parameters()) == number
        # Trained weights are held in float32.
        assert sum(each.nbytes for each in model.parameters()) == 4 * number


PUBLISHED_MEMORY = {
    # model: bytes, tokens of the cache of keys and values in them, relative tolerance
    "HuggingFaceTB/SmolLM2-1.7B": (3422.76e6, 0, 1e-5),
    "meta-llama/Llama-3.2-1B": (2358 * MIB, 0, 1e-3),
    "Qwen/Qwen2.5-0.5B": (0.97 * 2**30, 2049, 0.03),
    "Qwen/Qwen3-4B": (7973 * MIB, 2049, 0.01),
}
"""Memory of the models in bf16: the model cards of SmolLM2 and of Llama 3.2 (the file of the baseline), and Qwen's
benchmarks of generating 2,048 tokens. docs/gpu_sizing.md has the addresses."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED_MEMORY)
def test_the_memory_of_models_in_16_bits_is_what_is_published(name: str, tmp_path: Path) -> None:
    published, cached, tolerance = PUBLISHED_MEMORY[name]
    sizes = PUBLISHED[name][1]
    (tmp_path / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    config = configured(TEXT, model={"path": str(tmp_path), "dtype": "bfloat16"}, data={"sequence_length": 64})
    need = alone(config, use_gpu=True)
    weights = need.weights - need.gradients  # without the adapters
    heads, width = sizes["num_attention_heads"], sizes["hidden_size"]
    cache = 2 * 2 * cached * sizes["num_hidden_layers"] * sizes["num_key_value_heads"]
    assert weights + cache * sizes.get("head_dim", width // heads) == pytest.approx(published, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("quantization", "published_gib"), [("none", 16.2), ("nf4", 7.4)])
def test_the_memory_of_fine_tuning_llama_8b_is_what_torchtune_measured(
    quantization: str, published_gib: float, tmp_path: Path
) -> None:
    """torchtune's README: two packed samples of 2,048 tokens, rank 8 on all layers, recomputed activations, chunked
    loss. It holds the 21 million weights of the adapters and their averages in bf16, and we in float32."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["meta-llama/Llama-3.1-8B"][1]), encoding="utf-8")
    config = configured(
        TEXT,
        model={"path": str(tmp_path), "dtype": "bfloat16", "gradient_checkpointing": True}
        | {"quantization": quantization, "lora": {"r": 8, "target_modules": "all-linear"}},
        data={"sequence_length": 2048, "packing": True, "prompt_field": None, "completion_field": None},
        train={"global_batch_size": 2},
    )
    need = alone(config, use_gpu=True)
    assert need.total / 2**30 == pytest.approx(published_gib, rel=0.1)
