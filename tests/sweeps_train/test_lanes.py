"""Trainings that share their workers and their frozen base, each compared with the same training alone."""

from __future__ import annotations

import functools
import json
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from test_captured_passes import Replays
from torch.utils.checkpoint import checkpoint
from training_runs import PACKED, TEXT, Recorder, configured, on_two_workers, run, write_prompts

from sweeps_train.config import TrainingConfig
from sweeps_train.config.strategy import DDP, FSDP
from sweeps_train.memory.micro_batch_size import choose_micro_batch_size
from sweeps_train.reports.progress import Progress
from sweeps_train.training_request import TrainingRequest

pytestmark = pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # peft's, of an adapted head
OFTEN = {"max_steps": 4, "eval_every": 2, "log_every": 1, "global_batch_size": 4}


def text(lora: dict[str, Any], train: dict[str, Any], seed: int) -> TrainingConfig:
    config: dict[str, Any] = {**TEXT, "seed": seed}
    return configured(config, model={"lora": lora}, train=OFTEN | train)


TRAININGS = {
    "dropout": text({"r": 4, "dropout": 0.2, "target_modules": "attention"}, {"lr": 1e-2}, seed=0),
    "sgd, two rows, mlp": text(
        {"r": 8, "alpha": 4, "target_modules": "mlp"},
        {"optimizer": "sgd", "lr": 0.05, "max_grad_norm": None, "global_batch_size": 2, "schedule": "constant"},
        seed=1,
    ),
    "accumulation, all layers": text(
        {"r": 2, "dropout": 0.1, "target_modules": "all-linear"},
        {"global_batch_size": 4, "micro_batch_size": 1, "weight_decay": 0.1, "momentum": 0.8, "warmup_fraction": 0.5},
        seed=2,
    ),
    "short": text(
        {"r": 4, "alpha": 32, "target_modules": ["q_proj", "lm_head"]},
        {"optimizer": "adam", "max_steps": 3, "lr": 1e-3},
        seed=3,
    ),
}
UNEVEN = "accumulation, all layers"
LORA = {"r": 4, "target_modules": "attention"}
DIVERGES = text(LORA, {"optimizer": "sgd", "lr": 1e30, "max_grad_norm": None}, 4)


@dataclass
class Trainings:
    """A feed with a list of trainings."""

    waiting: list[TrainingRequest]
    ends: list[Exception | None] = field(default_factory=list)
    measures: bool = False
    may_train_alone: bool = False
    reasons: list[str] = field(default_factory=list)
    """Reasons why trainings train alone."""

    def has_next(self) -> bool:
        return bool(self.waiting)

    def next(self, free: int) -> Sequence[TrainingRequest]:
        given, self.waiting = self.waiting[:free], self.waiting[free:]
        return given

    def trains_alone(self, reason: str) -> bool:
        self.reasons.append(reason)
        return self.may_train_alone

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        pass

    def ended(self, request: TrainingRequest, error: Exception | None) -> None:
        self.ends.append(error)


def together(
    num_lanes: int,
    trainings: dict[str, tuple[TrainingConfig, Recorder, Path | None]],
    *,
    may_train_alone: bool = False,
    kind: type[Trainings] = Trainings,
) -> Trainings:
    """Train in lanes, in the given order; the recorders of rank 0 receive everything."""
    from sweeps_train.lanes.train_lanes import train_lanes
    from sweeps_train.steps import stop_schedule
    from sweeps_train.workers.distributed import Workers

    feed = kind(
        [
            TrainingRequest(config=config, reporter=recorder, checkpoint_folder=str(folder) if folder else None)
            for config, recorder, folder in trainings.values()
        ],
        may_train_alone=may_train_alone,
    )
    with mock.patch.object(stop_schedule, "ASK_WITHIN_S", 1e9):
        train_lanes(feed if Workers.current().rank == 0 else None, num_lanes)
    return feed


class OneAtFirst(Trainings):
    """A feed whose second training comes when the first has taken six steps."""

    steps = 0

    def has_next(self) -> bool:
        return super().has_next() and self.steps >= 5

    def next(self, free: int) -> Sequence[TrainingRequest]:
        return super().next(min(free, 1))

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        self.steps += 1


class FailingRecorder(Recorder):
    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        raise ArithmeticError("in a metric of the user's")


BAD_BATCH, NOT_SHAREABLE = text(LORA, {}, seed=5), text(LORA, {"precision": "fp16"}, seed=6)
NO_LAYER = text({**LORA, "target_modules": ["no_such_layer"]}, {}, seed=7)


def with_faults(strategy: DDP | FSDP) -> tuple[Recorder, list[Exception | None]]:
    """Train beside a reporter that fails, a batch that cannot be read on one worker, a config that cannot share, one
    whose layer does not exist, and a device that is full with three lanes where workers do not wait for each other;
    returns the recorder, and the ends of all trainings."""
    from torch import distributed

    from sweeps_train.data.global_batches import GlobalBatch, GlobalBatches
    from sweeps_train.lanes.joint_passes import JointPasses

    read, compute = GlobalBatches.next, JointPasses._compute
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    size = distributed.get_world_size() if distributed.is_initialized() else 1

    def reads_or_fails(self: GlobalBatches, position: int) -> GlobalBatch:
        if self._config.seed == BAD_BATCH.seed and position == 4 and rank == size - 1:
            raise OSError("a disk")
        return read(self, position)

    def computes_or_fails(self: JointPasses, strategies: Sequence[Any], *batch: Any) -> Any:
        if len(strategies) > 2 and strategy.kind == "ddp":
            raise torch.OutOfMemoryError("full")
        return compute(self, strategies, *batch)

    recorder = Recorder()
    with (
        mock.patch.object(GlobalBatches, "next", reads_or_fails),
        mock.patch.object(JointPasses, "_compute", computes_or_fails),
    ):
        feed = together(
            3,
            {
                "fails": (replace(TRAININGS["short"], strategy=strategy), FailingRecorder(), None),
                "reads": (replace(BAD_BATCH, strategy=strategy), Recorder(), None),
                "trains": (replace(TRAININGS["dropout"], strategy=strategy), recorder, None),
                "cannot share": (replace(NOT_SHAREABLE, strategy=strategy), Recorder(), None),
                "adapts no layer": (replace(NO_LAYER, strategy=strategy), Recorder(), None),
            },
        )
    return recorder, feed.ends


@dataclass
class Results:
    alone: dict[str, Recorder]
    lanes: dict[int, dict[str, Recorder]]
    """Recorders by number of lanes."""
    beside_nan: dict[str, Recorder]
    continued: dict[str, Recorder]
    """Trainings that were stopped in the middle: alone and continued in a lane, and the other way round."""
    ends: list[Exception | None]
    beside_faults: tuple[Recorder, list[Exception | None]] | None = None


def scenario(strategy: DDP | FSDP) -> Results:
    """Run on each worker."""
    configs = {name: replace(each, strategy=strategy) for name, each in (TRAININGS | {"diverges": DIVERGES}).items()}
    results = Results({name: run(config) for name, config in configs.items()}, {}, {}, {}, [])
    for number in (4,) if strategy.kind == "ddp" else (1, 2, 4):
        recorders = results.lanes[number] = {name: Recorder() for name in TRAININGS}
        feed = together(number, {name: (configs[name], recorders[name], None) for name in TRAININGS})
        results.ends += feed.ends
    results.beside_nan = {name: Recorder() for name in ("dropout", "diverges", "sgd, two rows, mlp", "short")}
    together(2, {name: (configs[name], each, None) for name, each in results.beside_nan.items()})

    dropout, other = configs["dropout"], configs[UNEVEN]
    run(dropout, Path("begun-alone"), stop_when_asked=4)
    stopped = Recorder(4)
    together(2, {"stops": (dropout, stopped, Path("begun-in-lane")), "neighbour": (other, Recorder(), None)})
    in_lane = Recorder()
    together(2, {"neighbour": (other, Recorder(), None), "goes on": (dropout, in_lane, Path("begun-alone"))})
    results.continued = {"in a lane": in_lane, "alone": run(dropout, Path("begun-in-lane"))}
    results.beside_faults = with_faults(strategy)
    return results


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1, DDP(kind="ddp")), id="1", marks=pytest.mark.slow),
        pytest.param((2, DDP(kind="ddp")), id="2"),
        pytest.param((2, FSDP(kind="fsdp")), id="2, sharded base", marks=pytest.mark.slow),
    ],
)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    num_workers, strategy = request.param
    folder = tmp_path_factory.mktemp("lanes")
    write_prompts(folder)
    if num_workers == 2:
        return on_two_workers(functools.partial(scenario, strategy), folder)[0]
    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(folder)
        return scenario(strategy)


def losses(recorder: Recorder) -> dict[tuple[str, int], float]:
    """Losses and norms of gradients, by metric and step."""
    watched = ("train/loss", "eval/loss", "train/grad_norm", "train/lr")
    records = [*recorder.logs.items(), *((step, metrics) for step, metrics, *_ in recorder.reports)]
    return {(name, step): metrics[name] for step, metrics in records for name in watched if name in metrics}


def assert_same(found: Recorder, expected: Recorder, *, after: int = 0, relative: float = 1e-5) -> None:
    wanted = {key: each for key, each in losses(expected).items() if key[1] >= after}
    assert losses(found) == pytest.approx(wanted, rel=relative, nan_ok=True)
    assert wanted


def test_every_loss_is_that_of_the_training_alone(results: Results) -> None:
    for recorders in results.lanes.values():
        for name, recorder in recorders.items():
            assert_same(recorder, results.alone[name])
            assert [done for *_, done in recorder.reports][-1]
    assert results.ends == [None] * 4 * len(results.lanes)


def with_unused_adapters() -> tuple[dict[str, Any], dict[str, Any]]:
    """Adapters of a training alone, and of the same training in a lane, with a model that does not use all of them."""
    from safetensors.torch import load_file
    from transformers.models.llama.modeling_llama import LlamaMLP

    def gated(self: Any, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down_proj(self.act_fn(self.gate_proj(x)))
        return made

    config = text({"r": 4, "target_modules": "mlp"}, {"weight_decay": 0.5, "max_steps": 2}, seed=7)
    with mock.patch.object(LlamaMLP, "forward", gated):
        run(config, Path("alone"))
        together(2, {"lane": (config, Recorder(), Path("lane"))})
    torch.distributed.barrier()  # the first worker has saved both
    alone, lane = (next(Path(each).rglob("step-00000002/**/adapter_model.safetensors")) for each in ("alone", "lane"))
    return load_file(alone), load_file(lane)


def test_adapters_that_no_worker_uses_are_left_alone(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    for alone, lane in on_two_workers(with_unused_adapters, tmp_path):
        unused = [name for name in alone if "up_proj" in name]
        assert unused
        assert all((alone[name] == lane[name]).all() for name in unused)


def with_sharded_base() -> tuple[dict[str, Recorder], dict[str, Recorder]]:
    """Three trainings alone, and in two lanes, whose own models stay on the CPU: NCCL does not send such tensors."""

    def refuses(*_: Any, **__: Any) -> None:
        raise RuntimeError("No backend type associated with device type cpu")

    configs = {name: replace(TRAININGS[name], strategy=FSDP(kind="fsdp")) for name in ("dropout", "short", UNEVEN)}
    recorders = {name: Recorder() for name in configs}
    with mock.patch("torch.distributed.broadcast", refuses):
        together(2, {name: (each, recorders[name], None) for name, each in configs.items()})
    return recorders, {name: run(each) for name, each in configs.items()}


def test_every_loss_is_that_of_the_training_alone_where_the_base_is_sharded(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    recorders, alone = on_two_workers(with_sharded_base, tmp_path)[0]
    for name, recorder in recorders.items():
        assert_same(recorder, alone[name])


def test_a_training_that_diverges_ends_alone(results: Results) -> None:
    assert results.beside_nan["diverges"].notes == results.alone["diverges"].notes != []
    for name, recorder in results.beside_nan.items():
        assert_same(recorder, results.alone[name])


@pytest.mark.parametrize("where", ["in a lane", "alone"])
def test_a_checkpoint_continues_in_a_lane_and_alone(results: Results, where: str) -> None:
    recorder = results.continued[where]
    first = recorder.reports[0][0]
    assert 0 < first < 4
    assert_same(recorder, results.alone["dropout"], after=first)


def test_a_fault_of_one_training_ends_that_one(results: Results) -> None:
    assert results.beside_faults is not None
    recorder, ends = results.beside_faults
    assert_same(recorder, results.alone["dropout"])
    no_layer, refused = sorted(str(each) for each in ends if isinstance(each, ValueError))
    assert no_layer.startswith("model.lora.target_modules=['no_such_layer']: ")
    assert refused == "train.precision: this training cannot share its workers with others"
    by_kind = {type(each): str(each) for each in ends if not isinstance(each, ValueError)}
    assert by_kind.pop(type(None)) == "None"
    assert by_kind.pop(ArithmeticError) == "in a metric of the user's"
    (reason,) = by_kind.values()
    assert reason == "a disk" or reason.startswith("another worker could not read its batch")


def with_a_damaged_file() -> tuple[Recorder, list[Exception | None]]:
    """Train beside a training whose data is damaged on the second worker; run on each worker."""
    from torch import distributed

    from sweeps_train.tasks.causal_lm import CausalLMTraining

    def builds(config: TrainingConfig, *arguments: Any) -> Any:
        if config.seed == BAD_BATCH.seed and distributed.get_rank() == 1:
            json.loads("{")
        return CausalLMTraining(config, *arguments)

    recorder = Recorder()
    with mock.patch("sweeps_train.lanes.shared_group.CausalLMTraining", builds):
        feed = together(2, {"damaged": (BAD_BATCH, Recorder(), None), "trains": (TRAININGS["short"], recorder, None)})
    return recorder, feed.ends


def test_a_file_that_is_damaged_on_one_worker_ends_the_training_that_needs_it(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    recorder, ends = on_two_workers(with_a_damaged_file, tmp_path)[0]
    assert recorder.final
    assert "could not be prepared by worker 1: JSONDecodeError: Expecting property name" in str(ends[0])
    assert ends[1:] == [None]


def test_a_training_for_which_memory_is_too_small_alone_has_smaller_micro_batches_or_ends(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    from sweeps_train.lanes.joint_passes import JointPasses

    monkeypatch.setenv("SWEEPS_CACHE", str(working_folder))
    write_prompts(working_folder)
    compute, too_large = JointPasses._compute, text({"r": 5, "target_modules": "attention"}, {}, seed=9)

    def computes_or_fails(self: JointPasses, strategies: Sequence[Any], parts: Any, *batch: Any) -> Any:
        if parts[-1].rows.stop > 1 or any(each.task.model.peft_config["default"].r == 5 for each in strategies):
            raise torch.OutOfMemoryError("full")
        return compute(self, strategies, parts, *batch)

    fits = {name: Recorder() for name in ("short", "sgd, two rows, mlp")}
    with monkeypatch.context() as patched:
        patched.setattr(JointPasses, "_compute", computes_or_fails)
        feed = together(
            3,
            {
                **{name: (TRAININGS[name], each, None) for name, each in fits.items()},
                "ends": (too_large, Recorder(), None),
            },
        )
    for name, recorder in fits.items():
        assert_same(recorder, run(TRAININGS[name]))
    assert "micro batches have 1 samples from now on, instead of 2" in fits["short"].notes[-1]
    assert [type(each) for each in feed.ends] == [torch.OutOfMemoryError, type(None), type(None)]
    assert "train.micro_batch_size=1 does not fit" in str(feed.ends[0])


def test_one_worker_of_a_sharding_strategy_recomputes_activations_in_lanes_too(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.strategies import layers

    write_prompts(working_folder)
    recomputed: list[bool] = []

    def checkpoints(*arguments: Any, **options: Any) -> Any:
        recomputed.append(torch.is_grad_enabled())
        return checkpoint(*arguments, **options)

    monkeypatch.setattr(layers, "checkpoint", checkpoints)
    config, recorder = text(LORA, {"max_steps": 2}, seed=11), Recorder()
    config = replace(config, strategy=FSDP(kind="fsdp", activation_checkpointing=True))
    together(1, {"lane": (config, recorder, None)})
    in_lane = sum(recomputed)
    assert_same(recorder, run(config))
    assert in_lane == sum(recomputed) - in_lane > 0


def test_time_in_which_another_training_is_prepared_is_none_of_a_trainings(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.steps import step_clock
    from sweeps_train.tasks.causal_lm import CausalLMTraining

    write_prompts(working_folder)
    built: list[int] = []

    def builds(*arguments: Any) -> Any:
        built.append(1)
        return CausalLMTraining(*arguments)

    monkeypatch.setattr("sweeps_train.lanes.shared_group.CausalLMTraining", builds)
    clock = SimpleNamespace(perf_counter=lambda: time.perf_counter() + 1e6 * len(built))  # preparing takes days
    monkeypatch.setattr(step_clock, "time", clock)
    seldom = text(LORA, {"max_steps": 8, "log_every": 8, "eval_every": 8}, seed=10)
    recorders = {name: Recorder() for name in ("long", "short", "sgd, two rows, mlp")}
    together(2, {name: (TRAININGS.get(name, seldom), each, None) for name, each in recorders.items()})
    assert len(built) == 3
    assert all(0 < each.progress[-1].seconds < 1e5 for each in recorders.values())


def test_positions_and_speeds_are_reported_for_each_lane(results: Results) -> None:
    recorder = results.lanes[4]["sgd, two rows, mlp"]
    assert recorder.progress == [
        Progress(each.step, each.epochs, each.samples, each.tokens, mine.seconds)
        for each, mine in zip(results.alone["sgd, two rows, mlp"].progress, recorder.progress, strict=True)
    ]
    assert recorder.final["train/tokens_per_second"] > 0


class Timed(Trainings):
    """A feed that keeps the durations of steps."""

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        self.seconds = seconds


def test_a_step_that_is_measured_ends_when_its_device_has_computed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweeps_train.lanes import feed
    from sweeps_train.workers.distributed import Workers

    monkeypatch.setattr(feed, "synchronize", lambda _: time.sleep(0.1))  # a GPU still computes what was launched
    for measures in (True, False):
        timed = Timed([], measures=measures)
        feed.FeedOfAll(timed, Workers.current()).stepped(1, 2, time.perf_counter())
        assert (timed.seconds >= 0.1) is measures


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_passes_of_the_same_lanes_are_replayed_until_other_lanes_come(
    precision: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.lanes import lane
    from sweeps_train.lanes.lane_strategy import LaneStrategy
    from sweeps_train.steps import captured_passes

    class Graph(Replays):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            graphs.add(self)

    graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
    at_starts: list[int] = []
    """Graphs that held memory as a training chose the size of its micro batches."""

    def chooses(*arguments: Any) -> int:
        at_starts.append(len(graphs))
        return choose_micro_batch_size(*arguments)

    monkeypatch.setattr(lane, "choose_micro_batch_size", chooses)
    write_prompts(working_folder)
    monkeypatch.setattr(captured_passes, "_Graph", Graph)
    monkeypatch.setattr(Replays, "replayed", 0)
    monkeypatch.setattr(LaneStrategy, "capture_passes", lambda self, note: setattr(self, "capture_note", note))
    base: dict[str, Any] = {**TEXT, "data": {**TEXT["data"], **PACKED, "sequence_length": 16}}
    model = {"lora": LORA, "dtype": "bfloat16" if precision == "bf16" else "float32"}
    configs = {
        str(steps): configured(
            {**base, "seed": steps}, model=model, train=OFTEN | {"max_steps": steps, "precision": precision}
        )
        for steps in (14, 9)
    }
    recorders = {name: Recorder() for name in configs}
    together(2, {name: (configs[name], recorders[name], None) for name in configs}, kind=OneAtFirst)
    assert Replays.replayed == (6 - 4) + (14 - 6 - 4)
    assert at_starts == [0, 0]
    for name, config in configs.items():
        assert_same(recorders[name], run(config), relative=1e-5 if precision == "fp32" else 0.02)


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "factor": 2.0,
}
SMALL = {"vocab_size": 384, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
POSITIONS = {"intermediate_size": 16, "num_key_value_heads": 2, "max_position_embeddings": 64}
PHI = {**POSITIONS, "original_max_position_embeddings": 32, "rope_parameters": LONG_ROPE}
OPT = {"ffn_dim": 16, "word_embed_proj_dim": 16, "dropout": 0.1}
MOE = {
    **POSITIONS,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "num_experts": 2,
    "num_experts_per_tok": 1,
}
JAMBA = {
    **POSITIONS,
    "num_experts": 1,
    "num_experts_per_tok": 1,
    "mamba_d_state": 4,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "use_mamba_kernels": False,
}
GPT2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def of_model(folder: Path, kind: str, options: dict[str, Any], targets: str = "attention") -> dict[str, Any]:
    """Save a small model of this kind in the working folder, and return its config."""
    import transformers as untyped

    transformers: Any = untyped
    write_prompts(folder)
    shape = transformers.AutoConfig.for_model(kind, **SMALL, **options)
    transformers.AutoModelForCausalLM.from_config(shape).save_pretrained(kind)
    return {"path": kind, "tokenizer": "builtin:tiny_llama", "lora": LORA | {"target_modules": targets}}


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set")  # by peft for GPT-2
@pytest.mark.parametrize(
    ("kind", "options", "targets", "length", "reason"),
    [
        ("opt", OPT, "attention", 64, "model.path=opt draws random numbers"),
        ("phi3", PHI, "attention", 64, "data.sequence_length=64: model.path=phi3 encodes"),
        ("phi3", PHI, "attention", 32, None),
        ("gpt2", GPT2, "attention", 64, "model.lora.target_modules: transformer.h.0.attn.c_attn is not a linear layer"),
        (
            "qwen2_moe",
            MOE,
            "all-linear",
            64,
            "model.lora.target_modules: the inputs of model.layers.0.mlp.shared_expert",
        ),
        ("jamba", JAMBA, "all-linear", 64, None),  # which reads the weight of a layer instead of calling it
    ],
)
def test_a_base_in_which_rows_of_one_training_change_those_of_another_is_not_shared(
    kind: str,
    options: dict[str, Any],
    targets: str,
    length: int,
    reason: str | None,
    working_folder: Path,
) -> None:
    model = of_model(working_folder, kind, options, targets)
    config = configured(TEXT, model=model, data={"sequence_length": length}, train=OFTEN | {"max_steps": 1})
    (error,) = together(2, {"training": (config, Recorder(), None)}).ends
    assert (error is None) is (reason is None)
    assert reason is None or str(error).startswith(reason)


def test_a_gpu_whose_own_precision_is_fp16_trains_one_training_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps_train.steps.precision._best", lambda device: "fp16")
    config = text(LORA, {"precision": "auto"}, seed=0)
    feed = together(2, {"training": (config, Recorder(), None)})
    (reason,) = feed.reasons
    assert reason.startswith("train.precision=auto is fp16 on this GPU")
    assert str(feed.ends[0]).endswith("; use scaling.trials_per_group=1, or train.precision=fp32")


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set")
@pytest.mark.parametrize(("kind", "options"), [("opt", OPT), ("gpt2", GPT2)])
def test_trainings_whose_base_cannot_be_shared_train_one_after_another_if_the_feed_allows_it(
    kind: str, options: dict[str, Any], working_folder: Path
) -> None:
    model = of_model(working_folder, kind, options)
    configs = [configured({**TEXT, "seed": seed}, model=model, train=OFTEN) for seed in (1, 2, 3)]
    recorders = [Recorder(), FailingRecorder(), Recorder()]
    pairs = zip(configs, recorders, strict=True)
    given: dict[str, tuple[TrainingConfig, Recorder, Path | None]]
    given = {str(config.seed): (config, recorder, None) for config, recorder in pairs}
    feed = together(2, given, may_train_alone=True)
    assert len(feed.reasons) == 1
    assert "scaling.trials_per_group" not in feed.reasons[0]
    assert [type(error) for error in feed.ends] == [type(None), ArithmeticError, type(None)]
    for each in (0, 2):
        assert_same(recorders[each], run(configs[each]), relative=0.0)
