"""All weights of a model in 16 bits are trained in float32, stored in 16 bits, and resumed exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from training_runs import DURING_EVALUATION_AT_STEP_4, TEXT, configured, on_two_workers, run, write_prompts

from sweeps_train import load_model
from sweeps_train.checkpoints.integrity import SEAL_FILE, seal
from sweeps_train.checkpoints.training_state import TENSORS_FILE
from sweeps_train.config import TrainingConfig
from sweeps_train.config.strategy import FSDP
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies import fsdp, tensor_parallel
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.strategies.strategy import Capabilities, Strategy
from sweeps_train.tasks.causal_lm import CausalLMTraining
from sweeps_train.workers.distributed import Workers
from sweeps_train.workers.worker_cache import evict

STRATEGIES: dict[str, dict[str, Any]] = {
    "fsdp": {},
    "tensor_parallel": {},
    "pipeline": {"schedule": "gpipe"},
}


@pytest.fixture
def folder(working_folder: Path) -> Path:
    """The working folder, with data and a base model of 16 bits."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from sweeps_train.models.causal_lm import BUILTIN_MODELS

    write_prompts(working_folder)
    shipped = BUILTIN_MODELS["builtin:tiny_llama"]
    AutoModelForCausalLM.from_pretrained(shipped, dtype=torch.bfloat16).save_pretrained("base")
    AutoTokenizer.from_pretrained(shipped).save_pretrained("base")
    return working_folder


def whole(kind: str = "ddp", **options: Any) -> TrainingConfig:
    strategy = {"kind": kind, **options}
    # At such a learning rate most steps are smaller than the rounding to 16 bits.
    return configured(TEXT, model={"path": "./base", "lora": None}, train={"lr": 1e-4}, strategy=strategy)


def uninterrupted_and_resumed(config: TrainingConfig, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Last metrics of a training, and of one that was stopped after step 4 and continued; empty on other ranks."""
    whole_run = run(config, folder / "whole").reports
    run(config, folder / "parts", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    resumed = run(config, folder / "parts", resume=True).reports
    return tuple(metrics_of(each[-1][1]) if each else {} for each in (whole_run, resumed))  # type: ignore[return-value]


def metrics_of(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in ("eval/loss", "train/loss") if name in metrics}


def check_stored(checkpoint: Path) -> None:
    """The model is stored in 16 bits, and its state has what the rounding takes away."""
    model = load_model(checkpoint)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}
    assert json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["dtype"] == "bfloat16"
    state = load_file(checkpoint / TENSORS_FILE)
    masters = {name.partition(":")[2]: each for name, each in state.items() if name.startswith("trained weight:")}
    assert masters.keys() == dict(model.named_parameters()).keys()
    for name, each in model.named_parameters():
        assert masters[name].dtype == torch.float32
        assert torch.equal(masters[name].bfloat16(), each)
    assert any(not torch.equal(masters[name], each.float()) for name, each in model.named_parameters())


@pytest.mark.slow
def test_the_model_is_stored_in_16_bits_and_a_resumed_training_ends_with_the_same_losses(folder: Path) -> None:
    before, after = uninterrupted_and_resumed(whole(), folder)
    assert before == after
    check_stored(folder / "whole" / "step-00000008")

    # What is held against: without the weights as they were trained, the training goes on from rounded ones.
    run(whole(), folder / "rounded", stop_when_asked=DURING_EVALUATION_AT_STEP_4)
    file = folder / "rounded" / "step-00000004" / TENSORS_FILE
    save_file({name: each for name, each in load_file(file).items() if not name.startswith("trained weight:")}, file)
    (file.parent / SEAL_FILE).unlink()
    seal(file.parent)
    assert metrics_of(run(whole(), folder / "rounded", resume=True).final) != before


def on_each_strategy() -> dict[str, Any]:
    return {kind: uninterrupted_and_resumed(whole(kind, **options), Path(kind)) for kind, options in STRATEGIES.items()}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sharded_models_are_stored_and_resumed_alike(folder: Path) -> None:
    first, _ = on_two_workers(on_each_strategy, folder)
    for kind, (before, after) in first.items():
        assert before == after, kind
        assert before["eval/loss"] > 0
        check_stored(folder / kind / "whole" / "step-00000008")


SHARDING = {"fsdp": (fsdp, "fully_shard"), "tensor_parallel": (tensor_parallel, "parallelize_module")}


def float32_while_sharding() -> dict[str, list[float]]:
    """Weights in float32 that are not sharded, whenever a part of the model is, as parts of all weights."""
    found: dict[str, list[float]] = {}
    for kind, (module, name) in SHARDING.items():
        for dtype in ("auto", "float32"):
            config = configured(TEXT, model={"path": "./base", "lora": None, "dtype": dtype}, strategy={"kind": kind})
            task = CausalLMTraining(config, None)
            parts = found[f"{kind}, {dtype}"] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, name, counting(getattr(module, name), task.model, parts))
                taken_by_strategy(config, task)
    return found


def counting(shard: Callable[..., Any], model: nn.Module, parts: list[float]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        weights = list(model.parameters())
        whole = [each for each in weights if not isinstance(each, DTensor) and each.dtype == torch.float32]
        parts.append(sum(each.numel() for each in whole) / sum(each.numel() for each in weights))
        return shard(*args, **options)

    return counted


def taken_by_strategy(config: TrainingConfig, task: CausalLMTraining) -> list[nn.Parameter]:
    """Weights of this worker, when the strategy has taken the model."""
    workers = Workers.current()
    build_strategy(config.strategy, workers, Precision("fp32", workers.device)).parallelize(task)
    own = [each for each in task.model.parameters() if not each.is_meta]
    assert {each.dtype for each in own} == {torch.float32}
    return own


def test_no_worker_holds_a_whole_model_in_float32_while_it_is_sharded(folder: Path) -> None:
    for found in on_two_workers(float32_while_sharding, folder):
        assert found.keys() == {f"{kind}, {dtype}" for kind in SHARDING for dtype in ("auto", "float32")}
        for name, parts in found.items():
            assert len(parts) > 2, name
            assert max(parts[:-1]) < 0.4, f"{name}: one layer"
            assert parts[-1] < 0.6, f"{name}: the embeddings"


def allocated_by_a_pipeline() -> list[tuple[int, int]]:
    """Most bytes that are allocated at a time while a pipeline takes a model, and those of this worker's weights."""
    found = []
    for dtype in ("auto", "float32"):
        config = configured(TEXT, model={"path": "./base", "lora": None, "dtype": dtype}, strategy={"kind": "pipeline"})
        task = CausalLMTraining(config, None)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            own = taken_by_strategy(config, task)
        found.append((peak_bytes(profiled), sum(each.nbytes for each in own)))
    return found


def peak_bytes(profiled: Any) -> int:
    events = [each for each in profiled.profiler.kineto_results.events() if each.name() == "[memory]"]
    return max(accumulate(each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())))


def test_a_worker_of_a_pipeline_converts_the_weights_of_its_stage_alone(folder: Path) -> None:
    for found in on_two_workers(allocated_by_a_pipeline, folder):
        for peak, own in found:
            assert own <= peak < 1.1 * own


@dataclass
class Short:
    """A task with a model of 16 bits."""

    model: nn.Module = field(default_factory=lambda: nn.Linear(4, 4, dtype=torch.bfloat16))

    @property
    def stored_types(self) -> dict[str, torch.dtype]:
        return dict.fromkeys(dict(self.model.named_parameters()), torch.bfloat16)


def by_ddp(task: Short, gpu: torch.device, precision: Precision) -> None:
    Strategy(Workers(0, 1, gpu), precision, Capabilities(random_stream=0)).parallelize(task)  # type: ignore[arg-type]


def by_fsdp(task: Short, gpu: torch.device, precision: Precision) -> None:
    mesh: Any = SimpleNamespace(device_type=gpu.type)
    fsdp.wrap_fsdp(task.model, mesh, FSDP(kind="fsdp"), precision, task.stored_types)


@pytest.mark.parametrize("take", [by_ddp, by_fsdp])
def test_weights_go_to_a_gpu_in_16_bits_and_become_float32_there(
    take: Callable[[Short, torch.device, Precision], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, precision = Short(), Precision("fp32", torch.device("cpu"))
    moved: list[torch.dtype] = []

    def to(tensor: torch.Tensor, *args: Any, **_: Any) -> torch.Tensor:
        assert args[0].type == "cuda"
        moved.append(tensor.dtype)
        return tensor

    monkeypatch.setattr(fsdp, "fully_shard", lambda *_, **__: None)
    monkeypatch.setattr(torch.Tensor, "to", to)
    take(task, torch.device("cuda", 0), precision)
    assert moved[:2] == [torch.bfloat16] * 2
    assert {each.dtype for each in task.model.parameters()} == {torch.float32}


def test_weights_of_16_bits_that_are_read_for_float32_are_stored_in_float32(folder: Path) -> None:
    config = configured(TEXT, model={"path": "./base", "lora": None, "dtype": "float32"}, train={"max_steps": 1})
    run(config, folder / "whole")
    checkpoint = folder / "whole" / "step-00000001"
    assert {each.dtype for each in load_model(checkpoint).parameters()} == {torch.float32}
    assert json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["dtype"] == "float32"
    assert not [name for name in load_file(checkpoint / TENSORS_FILE) if name.startswith("trained weight:")]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's
def test_merged_adapters_have_the_type_of_their_base(folder: Path) -> None:
    changes = {"path": "./base", "lora": {"r": 4, "target_modules": "attention"}}
    run(configured(TEXT, model=changes, train={"max_steps": 1, "eval_every": 1}), folder / "adapted")
    model = load_model(folder / "adapted" / "step-00000001", merge=True)
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's
def test_modules_trained_as_a_whole_beside_adapters_continue_without_rounding(working_folder: Path) -> None:
    write_prompts(working_folder)
    lora = {"r": 2, "target_modules": "attention", "modules_to_save": ["embed_tokens"]}
    config = configured(TEXT, model={"dtype": "bfloat16", "lora": lora})
    task = CausalLMTraining(config, None)
    trained = {name: each for name, each in task.model.named_parameters() if each.requires_grad}
    for each in trained.values():
        each.data += 1e-4 * torch.randn_like(each)
    (working_folder / "checkpoint").mkdir()
    task.save(working_folder / "checkpoint", None)
    expected = {name: each.detach().clone() for name, each in trained.items()}
    task.close()
    resumed = dict(CausalLMTraining(config, working_folder / "checkpoint").model.named_parameters())
    for name, each in expected.items():
        assert torch.equal(resumed[name], each), name
    evict("base model")
