"""Every strategy on two and on four gloo workers, compared with the training of one process."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from torch import nn
from training_runs import IMAGES, TEXT, Recorder, configured, on_workers, run, write_prompts
from training_runs import PACKED as IN_SEQUENCES

from sweeps_train.config import Strategy, TrainingConfig

STRATEGY: TypeAdapter[Strategy] = TypeAdapter(Strategy)

PACKED = "packed"
"""Training with several documents in each sequence, hidden from each other, and a sequence length that is odd; with
sgd, for which the size of a gradient matters."""

QWEN = "tiny_qwen3"
"""Folder of a model with an untied head and with norms of queries and keys."""

SHORT = {"max_steps": 4, "eval_every": 2, "log_every": 1}
STOP_AT_STEP_3 = 5
"""Number of times that the reporter of such a training is asked to stop until then."""

# Without dropout, so that only rounding is left between one worker and several; in micro batches.
TRAININGS: dict[str, TrainingConfig] = {
    "conv_net": configured(IMAGES, model={"dropout": 0.0}, train=SHORT | {"micro_batch_size": 50}),
    "vision_transformer": configured(
        {**IMAGES, "model": {"kind": "vision_transformer"}}, train=SHORT | {"micro_batch_size": 100}
    ),
    # Most sequences are cut, and so of one length: DTensor computes for seconds what it does with another one.
    "lora": configured(
        TEXT,
        model={"lora": {"r": 4, "target_modules": "all-linear"}},
        data={"sequence_length": 24},
        train=SHORT | {"micro_batch_size": 2},
    ),
    "tied embeddings": configured(TEXT, model={"lora": None}, train=SHORT | {"micro_batch_size": 2, "lr": 1e-3}),
    QWEN: configured(
        TEXT,
        model={"lora": None, "path": QWEN, "tokenizer": "builtin:tiny_llama"},
        train=SHORT | {"micro_batch_size": 2, "lr": 1e-3},
    ),
    PACKED: configured(
        TEXT,
        model={"lora": {"r": 4, "target_modules": "all-linear"}},
        data={**IN_SEQUENCES, "isolate_documents": True, "sequence_length": 33},
        train=SHORT | {"micro_batch_size": 2, "optimizer": "sgd", "lr": 0.5},
    ),
}

ON_GPUS = replace(TRAININGS["lora"].train, precision="fp32")

STRATEGIES: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "fsdp": {"kind": "fsdp"},
        "fsdp with all options": {
            "kind": "fsdp",
            "cpu_offload": True,
            "activation_checkpointing": True,
            "reshard_after_forward": False,
        },
        "tensor_parallel": {"kind": "tensor_parallel", "activation_checkpointing": True},
        "sequence_parallel": {"kind": "tensor_parallel", "sequence_parallel": True},
        "context_parallel": {"kind": "context_parallel"},
        "context_parallel with whole models": {
            "kind": "context_parallel",
            "shard_size": 1,
            "activation_checkpointing": True,
        },
        "1f1b": {"kind": "pipeline"},
        "gpipe": {"kind": "pipeline", "schedule": "gpipe", "activation_checkpointing": True},
    },
    4: {
        "fsdp in two groups": {"kind": "fsdp", "shard_size": 2},
        "tensor_parallel in two groups": {"kind": "tensor_parallel", "size": 2},
        "fsdp_tensor_parallel": {"kind": "fsdp_tensor_parallel", "tensor_size": 2},
        "fsdp_tensor_parallel with sequence_parallel": {
            "kind": "fsdp_tensor_parallel",
            "sequence_parallel": True,
            "activation_checkpointing": True,
        },
        "context_parallel in two groups": {"kind": "context_parallel", "size": 2},
        "two pipelines": {"kind": "pipeline", "stages": 2},
    },
}

OF_IMAGES = "conv_net", "vision_transformer"

Case = tuple[int, str, str]
ALL: list[Case] = [
    (number, strategy, training)
    for number, strategies in STRATEGIES.items()
    for strategy, options in strategies.items()
    for training in TRAININGS
    if not (training == "conv_net" and "tensor" in options["kind"])  # it has no plan
    and not (training in OF_IMAGES and "context" in options["kind"])  # which are no sequences
]
QUICK = [(2, strategy, "lora") for strategy in ("fsdp", "tensor_parallel", "1f1b")]
QUICK.append((2, "context_parallel", PACKED))
GROUPS = {"quick": QUICK, "two": [case for case in ALL if case[0] == 2 and case not in QUICK]}
GROUPS["four"] = [case for case in ALL if case[0] == 4]
CASES = [
    pytest.param(group, case, id=" ".join(map(str, case)), marks=[] if group == "quick" else [pytest.mark.slow])
    for group, cases in GROUPS.items()
    for case in cases
]

Results = dict[Case, tuple[Recorder, Recorder]]
"""A training until it was stopped, and its continuation under another strategy."""


def scenario(group: str) -> Results:
    """Run on each worker: every training is stopped and resumed with the next strategy in the table; on four workers
    from the checkpoint of two."""
    import torch.distributed as dist

    from sweeps_train.tasks import cross_entropy

    cross_entropy.CHUNK = 2**12  # several chunks in a micro batch, unlike in the training of one process
    results = {}
    for number, strategy, training in GROUPS[group]:
        folder = Path(f"{number} {strategy} {training}")
        recorder = run(with_strategy(training, number, strategy), folder, stop_when_asked=STOP_AT_STEP_3)
        resumed = folder.with_name(f"{folder.name} resumed")
        if dist.get_rank() == 0:
            shutil.copytree(folder if number == 2 else f"2 gpipe {training}", resumed)
        dist.barrier()
        others = [other for _, other, trained in GROUPS[group] if trained == training]
        successor = others[(others.index(strategy) + 1) % len(others)]
        results[number, strategy, training] = recorder, run(with_strategy(training, number, successor), resumed)
    return results


def with_strategy(training: str, number: int, strategy: str) -> TrainingConfig:
    return replace(TRAININGS[training], strategy=STRATEGY.validate_python(STRATEGIES[number][strategy]))


def write_qwen(folder: Path) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen3Config(vocab_size=384, tie_word_embeddings=False, max_position_embeddings=64, **sizes, **heads)
    Qwen3ForCausalLM(config).save_pretrained(folder / QWEN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strategies")
    write_prompts(folder)
    write_qwen(folder)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Callable[[str], Results]:
    """Runs the trainings of a group on its workers, once."""

    @functools.cache
    def found(group: str) -> Results:
        if group == "four":
            found("two")  # whose checkpoints are resumed
        return on_workers(GROUPS[group][0][0], functools.partial(scenario, group), folder)[0]

    return found


@pytest.fixture(scope="module")
def alone(folder: Path) -> Callable[[str], Recorder]:
    """Trains in this process; each training once, and only those that a test asks for."""

    @functools.cache
    def trained(name: str) -> Recorder:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            return run(TRAININGS[name])

    return trained


@pytest.mark.parametrize(("group", "case"), CASES)
def test_a_strategy_has_the_losses_of_one_process_and_resumes_from_anothers_checkpoint(
    group: str, case: Case, alone: Callable[[str], Recorder], results: Callable[[str], Results]
) -> None:
    begun, resumed = results(group)[case]
    expected = losses(alone(case[-1]))
    assert {step for step, _ in expected} == {1, 2, 3, 4}
    assert losses(begun) | losses(resumed) == pytest.approx(expected, rel=1e-4)
    assert expected[4, "eval/loss"] < expected[2, "eval/loss"]


def losses(recorder: Recorder) -> dict[tuple[int, str], float]:
    """Losses of training and of evaluations, by step and name."""
    records = [*recorder.logs.items(), *((step, metrics) for step, metrics, *_ in recorder.reports)]
    return {(step, name): value for step, record in records for name, value in record.items() if name.endswith("loss")}


def test_one_process_resumes_from_a_checkpoint_of_a_pipeline(
    results: Callable[[str], Results],
    folder: Path,
    alone: Callable[[str], Recorder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results("quick")
    monkeypatch.chdir(folder)
    shutil.copytree("2 1f1b lora", "alone")
    resumed = run(TRAININGS["lora"], Path("alone"))
    assert resumed.final["eval/loss"] == pytest.approx(alone("lora").final["eval/loss"], rel=1e-4)


def on_gpus() -> dict[str, Recorder]:
    """Run on each of the two workers."""
    return {name: run(replace(with_strategy("lora", 2, name), train=ON_GPUS)) for name in STRATEGIES[2]}


@pytest.mark.gpu
def test_two_gpus_have_the_losses_of_one_under_every_strategy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("workers of one training need a GPU each")
    monkeypatch.chdir(folder)
    expected = losses(run(replace(TRAININGS["lora"], train=ON_GPUS)))
    for recorder in on_workers(2, on_gpus, folder, backend="nccl")[0].values():
        assert losses(recorder) == pytest.approx(expected, rel=1e-3)


def test_one_worker_computes_activations_again_where_it_is_asked_to(
    alone: Callable[[str], Recorder], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    options = {"kind": "fsdp", "activation_checkpointing": True}
    again = run(replace(TRAININGS["lora"], strategy=STRATEGY.validate_python(options)))
    assert losses(again) == pytest.approx(losses(alone("lora")), rel=1e-6)


def test_attention_that_workers_cannot_share_is_refused() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    from sweeps_train.strategies.ulysses import attention_to_share

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 32}
    llama = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    assert attention_to_share(llama, 2) == "sdpa"
    with pytest.raises(
        ValueError, match=r"4 workers cannot share the 2 heads \(num_key_value_heads\) equally; set it to"
    ):
        attention_to_share(llama, 4)
    llama.set_attn_implementation("eager")
    with pytest.raises(ValueError, match=r"use model\.attention=sdpa"):
        attention_to_share(llama, 2)
    unknown = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=4, vocab_size=32))
    with pytest.raises(ValueError, match=r"layers of a GPT2LMHeadModel may mix .*; use strategy\.kind=fsdp"):
        attention_to_share(unknown, 2)


def test_stages_that_share_what_they_cannot_are_refused() -> None:
    from torch import nn

    from sweeps_train.strategies.pipeline_stages import Stage

    def layers() -> list[nn.Linear]:
        return [nn.Linear(2, 2) for _ in range(3)]

    first, middle, last = layers()
    last.weight = first.weight
    assert Stage(nn.Sequential(first, middle, last), 1, 3).shared == {"0.weight"}

    first, middle, last = layers()
    middle.weight = first.weight
    assert Stage(nn.Sequential(first, middle, last), 0, 2).shared == set()  # they are in one stage

    first, middle, last = layers()
    middle.weight = first.weight
    with pytest.raises(
        ValueError, match=r"0\.weight of a Sequential is used in stages 1, 2; .*use strategy\.kind=fsdp"
    ):
        Stage(nn.Sequential(first, middle, last), 2, 3)

    first, middle, last = layers()
    activation = nn.Tanh()
    with pytest.raises(ValueError, match=r"1 of a Sequential is used in stages 1, 2; .* stages cannot share modules"):
        Stage(nn.Sequential(first, activation, middle, activation, last), 0, 3)


def test_a_plan_with_names_that_the_model_lacks_is_refused() -> None:
    from torch import nn

    from sweeps_train.strategies.tensor_plan import tensor_plan

    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    model.tensor_parallel_plan = {"0": "colwise", "2": "rowwise"}
    with pytest.raises(ValueError, match=r"the plan of a Sequential names \['2'\], .* within \['0', '1'\]"):
        tensor_plan(model)


def first_is_frozen() -> Any:
    from torch import nn

    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    return layers if layers[1].requires_grad_(False) else None


def frozen_stage() -> str:
    model = {"kind": "custom", "_target_": "test_strategies.first_is_frozen"}
    config = configured({**IMAGES, "model": model}, strategy={"kind": "pipeline"}, train={"micro_batch_size": 20})
    with pytest.raises(ValueError, match="all weights of a stage are frozen") as raised:
        run(config)
    return str(raised.value)


def test_a_stage_with_nothing_to_train_is_refused_by_all_workers(tmp_path: Path) -> None:
    assert ["strategy.stages=2" in text for text in on_workers(2, frozen_stage, tmp_path)] == [True, True]


class Norms(nn.Sequential):
    """Model with running means on both stages of a pipeline. Its normalized layers have no bias: the gradient of one is
    nothing but rounding errors, which AdamW enlarges to whole steps."""

    def __init__(self) -> None:
        first, second = ([nn.Linear(size, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()] for size in (64, 16))
        super().__init__(nn.Flatten(1), *first, *second, nn.Linear(16, 10))


class Blocks(nn.Module):
    """The model ``Norms`` in layers, which can be sharded, or computed again, one by one."""

    def __init__(self) -> None:
        super().__init__()
        _, *layers, self.head = Norms()
        self.blocks = nn.ModuleList([nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:])])

    def forward(self, images: Any) -> Any:
        hidden = images.flatten(1)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def norms(model: str = "Norms", precision: str = "fp32", **strategy: Any) -> TrainingConfig:
    base = {**IMAGES, "model": {"kind": "custom", "_target_": f"test_strategies.{model}"}}
    return configured(base, train=SHORT | {"micro_batch_size": 100, "precision": precision}, strategy=strategy)


def pipelines() -> tuple[Recorder, list[Recorder]]:
    """A training of ``Norms``; and one with dropout, unbroken, until it was stopped, and continued."""
    transformer = {**IMAGES, "model": {"kind": "vision_transformer", "dropout": 0.2}}
    dropout = configured(transformer, train=SHORT, strategy={"kind": "pipeline"})
    stopped = run(dropout, Path("with dropout"), stop_when_asked=STOP_AT_STEP_3)
    return run(norms(kind="pipeline")), [run(dropout), stopped, run(dropout, Path("with dropout"))]


def test_a_pipeline_has_the_running_means_and_random_numbers_of_its_own_samples_alone(tmp_path: Path) -> None:
    with_norms, (unbroken, stopped, resumed) = on_workers(2, pipelines, tmp_path)[0]
    assert losses(with_norms) == pytest.approx(losses(run(norms())), rel=1e-4)
    assert losses(stopped) | losses(resumed) == losses(unbroken)


@pytest.mark.parametrize("model", ["Norms", "Blocks"])
def test_running_means_stay_in_float32_where_sharded_weights_are_gathered_in_16_bits(
    model: str, tmp_path: Path
) -> None:
    sharded = on_workers(2, functools.partial(run, norms(model, "bf16", kind="fsdp")), tmp_path)[0]
    together = on_workers(2, functools.partial(run, norms(model, "bf16", kind="ddp")), tmp_path)[0]
    assert losses(sharded) == pytest.approx(losses(together), rel=2e-2)


def test_running_means_change_once_a_step_where_activations_are_computed_again() -> None:
    again = run(norms("Blocks", kind="fsdp", activation_checkpointing=True))
    assert losses(again) == pytest.approx(losses(run(norms("Blocks", kind="fsdp"))), rel=1e-6)
