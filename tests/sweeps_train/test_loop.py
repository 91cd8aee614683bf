"""The training loop in one process: its reports, and messages about mistakes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from training_runs import IMAGES, STOP_AT_STEP_4, TEXT, configured, run, write_prompts

from sweeps_train.__main__ import main
from sweeps_train.config import TRAINING_CONFIG, Train
from sweeps_train.data.sample_order import SampleOrder, held_out_indices
from sweeps_train.one_batch_check import examine
from sweeps_train.reports.progress import Progress, count_steps
from sweeps_train.steps.optimizer import build_optimizer, learning_rate


@pytest.mark.parametrize("base", [IMAGES, TEXT], ids=["images", "text"])
def test_every_metric_of_the_task_is_reported(base: dict[str, Any], working_folder: Path) -> None:
    write_prompts(working_folder)
    config = configured(base, train={"max_steps": 2})
    recorder = run(config)
    assert set(config.task.metrics) <= set(recorder.final)
    assert all(math.isfinite(value) for value in recorder.final.values())


def test_records_and_reports_come_at_their_steps_and_the_end_is_always_one() -> None:
    recorder = run(configured(IMAGES, train={"max_steps": 7, "log_every": 2, "eval_every": 3}))
    assert list(recorder.logs) == [2, 4]
    assert [(step, done) for step, _, _, done in recorder.reports] == [(3, False), (6, False), (7, True)]
    assert not any(name.startswith("eval/") for name in recorder.logs[2])


def test_epochs_count_passes_over_the_data() -> None:
    recorder = run(configured(IMAGES, train={"max_steps": None, "epochs": 1.5}))
    assert recorder.reports[-1][0] == math.ceil(1.5 * 1707 / 400)
    assert recorder.final["train/epoch"] == pytest.approx(7 * 400 / 1707)


@pytest.mark.parametrize("size", [200, 400, 800])
def test_epochs_are_those_of_the_config_also_if_the_size_of_the_batch_changes_between(
    size: int, tmp_path: Path
) -> None:
    """As PBT changes it when a trial continues from the checkpoint of another one."""
    in_epochs = {"max_steps": None, "epochs": 1.5}
    run(configured(IMAGES, train=in_epochs), tmp_path, stop_when_asked=STOP_AT_STEP_4)
    recorder = run(configured(IMAGES, train=in_epochs | {"global_batch_size": size}), tmp_path)
    assert recorder.progress[-1].samples == 1600 + math.ceil((1.5 * 1707 - 1600) / size) * size


def test_a_training_is_no_step_longer_for_the_rounding_of_its_epochs() -> None:
    assert 1.1 * 50_000 / 100 > 550
    assert count_steps(Train(epochs=1.1), num_samples=50_000, global_batch_size=100, done=Progress()) == 550
    assert count_steps(Train(epochs=1.1), num_samples=50_001, global_batch_size=100, done=Progress()) == 551


@pytest.mark.parametrize(
    ("model", "optimizer", "lr"),
    [("conv_net", "adam", 1e-2), ("conv_net", "sgd", 1e-1), ("vision_transformer", "adamw", 1e-2)],
)
def test_every_optimizer_and_image_model_learns(model: str, optimizer: str, lr: float) -> None:
    config = configured(
        {**IMAGES, "model": {"kind": model}},
        train={"optimizer": optimizer, "lr": lr, "max_steps": 30, "global_batch_size": 32, "eval_every": 30},
    )
    assert run(config).final["eval/accuracy"] > 0.2  # by chance it would be 0.1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_trains_on_a_cpu_too(precision: str) -> None:
    recorder = run(
        configured(IMAGES, train={"precision": precision, "max_steps": 15, "global_batch_size": 64, "lr": 2e-2})
    )
    assert recorder.final["eval/loss"] < 2.0


def test_sequences_of_similar_length_share_micro_batches_and_nothing_else_changes(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.tasks.causal_lm import CausalLMTraining

    write_prompts(working_folder)
    processed: list[int] = []
    logits = CausalLMTraining.logits

    def counted(task: Any, model: Any, batch: Any) -> Any:
        processed[-1] += batch["input_ids"].numel()
        return logits(task, model, batch)

    monkeypatch.setattr(CausalLMTraining, "logits", counted)
    recorders = []
    for grouped in (False, True):
        processed.append(0)
        options = {"model": {"lora": {"r": 4}}, "data": {"group_by_length": grouped}}
        recorders.append(run(configured(TEXT, train={"micro_batch_size": 2, "max_steps": 4}, **options)))
    without, with_groups = (each.final for each in recorders)
    for name in ("train/loss", "eval/loss"):
        assert with_groups[name] == pytest.approx(without[name], rel=1e-5)
    assert processed[1] < 0.9 * processed[0]  # less padding


def test_the_same_seed_gives_the_same_training_and_another_one_another() -> None:
    losses = [run(TRAINING_CONFIG.validate_python({**IMAGES, "seed": seed})).final["eval/loss"] for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_batch_larger_than_the_data_is_an_error_that_names_the_key() -> None:
    with pytest.raises(ValueError, match=r"train.global_batch_size=2000 is more than the 1707 training samples"):
        run(configured(IMAGES, train={"global_batch_size": 2000}))


def test_a_metric_that_is_not_reported_is_an_error_that_lists_what_is() -> None:
    with pytest.raises(ValueError, match=r"search.metric=eval/f1 is not reported; use one of \['eval/accuracy'"):
        run(configured(IMAGES), metric="eval/f1")


class Centroids(nn.Module):
    """A user's own model of vectors, with a running mean that all workers share."""

    def __init__(self, classes: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)
        self.linear = nn.Linear(5, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(inputs))


def vectors(classes: int, train: int = 60, held_out: int = 21) -> tuple[TensorDataset, TensorDataset]:
    generator = torch.Generator().manual_seed(0)

    def some(count: int) -> TensorDataset:
        labels = torch.arange(count) % classes
        return TensorDataset(torch.eye(5)[labels] + 0.1 * torch.randn(count, 5, generator=generator), labels)

    return some(train), some(held_out)


def custom(**data: Any) -> dict[str, Any]:
    return {
        **IMAGES,
        "model": {"kind": "custom", "_target_": f"{__name__}.Centroids", "arguments": {"classes": 3}},
        "data": {"kind": "custom", "_target_": f"{__name__}.vectors", "arguments": {"classes": 3, **data}},
        "train": {"max_steps": 30, "global_batch_size": 20, "lr": 0.1},
    }


def test_a_users_own_model_and_data_are_trained(tmp_path: Path) -> None:
    from sweeps_train import load_model

    recorder = run(configured(custom()), tmp_path)
    assert recorder.final["eval/accuracy"] == 1.0
    inputs, labels = vectors(3)[1].tensors
    assert (load_model(tmp_path / "step-00000030")(inputs).argmax(dim=1) == labels).all()


class Pairs(list[tuple[torch.Tensor, Any]]):
    """A user's own data set, whose labels are as they are."""


def labels_of_type(dtype: str) -> tuple[Any, Any]:
    """Two classes, with labels as numpy, pandas' codes or a comparison make them; the held-out ones in a list."""
    train, held_out = vectors(2)
    inputs, labels = train.tensors
    as_given = labels.to(getattr(torch, dtype))
    pairs = [(each, label.to(as_given.dtype).numpy()[()]) for each, label in zip(*held_out.tensors, strict=True)]
    return TensorDataset(inputs, as_given), Pairs(pairs)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32"])
def test_classes_may_be_whole_numbers_of_any_type(dtype: str) -> None:
    config = custom()
    config["data"] |= {"_target_": f"{__name__}.labels_of_type", "arguments": {"dtype": dtype}}
    assert [each for each in examine(configured(config), num_workers=1) if each.kind == "mistake"] == []
    assert run(configured(config)).final["eval/accuracy"] == 1.0


class Tolerant(nn.Module):
    """A user's own model that takes samples of any shape, with gaps."""

    def __init__(self, values: int):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(values), nn.Linear(values, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(inputs.nan_to_num().view(len(inputs), -1)))


def with_a_gap(shape: list[int]) -> tuple[TensorDataset, TensorDataset]:
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    inputs.view(-1)[3] = math.nan
    samples = TensorDataset(inputs, torch.arange(len(inputs)) % 3)
    return samples, samples


@pytest.mark.parametrize("shape", [[20], [20, 5], [6, 5], [20, 1, 4, 4]], ids=str)
def test_a_gap_that_a_model_tolerates_is_a_warning_for_samples_of_any_shape_and_number(shape: list[int]) -> None:
    config = custom()
    config["data"] |= {"_target_": f"{__name__}.with_a_gap", "arguments": {"shape": shape}}
    config["model"] |= {"_target_": f"{__name__}.Tolerant", "arguments": {"values": math.prod(shape[1:])}}
    found = list(examine(configured(config), num_workers=1))
    assert [each.kind for each in found] == ["warning", "warning"]
    assert f"NaN or infinite in 1 of {shape[0]} samples, which the model tolerates" in found[0].text


def partly_labelled() -> tuple[TensorDataset, TensorDataset]:
    train, held_out = vectors(3)
    inputs, labels = held_out.tensors
    return train, TensorDataset(inputs, torch.where(torch.arange(len(labels)) < 14, -100, labels))


def labelled_part() -> tuple[TensorDataset, TensorDataset]:
    train, held_out = vectors(3)
    return train, TensorDataset(*(each[14:] for each in held_out.tensors))


def test_held_out_samples_with_the_label_that_the_loss_ignores_do_not_count() -> None:
    some, whole = (
        run(configured(custom(), data={"_target_": f"{__name__}.{each}", "arguments": {}}, train={"max_steps": 2}))
        for each in ("partly_labelled", "labelled_part")
    )
    assert some.final["eval/accuracy"] == whole.final["eval/accuracy"]
    assert some.final["eval/loss"] == pytest.approx(whole.final["eval/loss"])


def without_labels() -> tuple[TensorDataset, TensorDataset]:
    train, held_out = vectors(3)
    return train, TensorDataset(held_out.tensors[0], torch.full((21,), -100))


def test_held_out_samples_that_all_have_the_label_that_the_loss_ignores_are_an_error() -> None:
    with pytest.raises(ValueError, match="all held-out labels are -100, which the loss ignores"):
        run(configured(custom(), data={"_target_": f"{__name__}.without_labels", "arguments": {}}))


def lazy(classes: int) -> nn.Module:
    return nn.LazyLinear(classes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"held_out": 0}}, "the held-out data is empty"),
        ({"data": {"fraction": 1}}, r"data.arguments=.* do not fit data._target_=.*'fraction'"),
        ({"model": {"_target_": "no.such.model"}}, "model._target_=no.such.model cannot be imported"),
        ({"model": {"_target_": f"{__name__}.vectors"}}, "returned tuple; it must be a torch Module"),
        ({"model": {"_target_": f"{__name__}.lazy"}}, "has lazy layers, .* call the module with a batch of zeros"),
    ],
)
def test_a_mistake_in_users_own_code_is_named(change: dict[str, Any], message: str) -> None:
    base = custom(**change.get("data", {}))
    base["model"] |= change.get("model", {})
    with pytest.raises(ValueError, match=message):
        run(configured(base))


# --- order and learning rate ---------------------------------------------------------------------------------


def test_every_epoch_is_another_permutation_and_the_next_follows_without_a_gap() -> None:
    order = SampleOrder(10, seed=0)
    first, second = order.take(0, 10), order.take(10, 10)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert order.take(7, 6) == first[7:] + second[:3]
    assert SampleOrder(10, seed=0).take(7, 6) == first[7:] + second[:3]
    assert SampleOrder(10, seed=1).take(0, 10) != first


def test_held_out_samples_are_a_fixed_part() -> None:
    train, held_out = held_out_indices(50, 0.1)
    assert len(held_out) == 5
    assert sorted(train + held_out) == list(range(50))
    assert held_out_indices(50, 0.1) == (train, held_out)
    assert held_out_indices(2, 0.01)[1] != []


def test_sgd_takes_a_step_in_which_a_parameter_has_its_first_gradient() -> None:
    early, late = (nn.Parameter(torch.ones(2)) for _ in range(2))
    sgd = build_optimizer([early, late], Train(max_steps=2, optimizer="sgd", lr=0.1))
    early.grad = torch.ones(2)
    sgd.step()
    late.grad = torch.ones(2)
    sgd.step()
    assert early.tolist() == pytest.approx([1 - 0.1 - 0.19] * 2)
    assert late.tolist() == pytest.approx([0.9] * 2)


def test_the_learning_rate_rises_over_the_warm_up_and_falls_to_nearly_zero() -> None:
    def rates(schedule: str) -> list[float]:
        config = Train(max_steps=10, lr=1.0, schedule=schedule, warmup_fraction=0.2)
        return [learning_rate(config, step, 10) for step in range(10)]

    assert rates("constant") == [0.5] + [1.0] * 9
    assert rates("linear") == pytest.approx([0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    assert rates("cosine")[2] == 1.0
    assert rates("cosine")[6] == pytest.approx(0.5)
    assert 0 < rates("cosine")[9] < 0.05


def test_the_warm_up_is_no_step_longer_for_the_rounding_of_its_part_of_all_steps() -> None:
    config = Train(max_steps=100, lr=1.0, schedule="constant", warmup_fraction=0.07)
    assert 0.07 * 100 > 7
    assert [learning_rate(config, step, 100) for step in (5, 6)] == pytest.approx([6 / 7, 1.0])


# --- off-cluster ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_torchrun_trains_a_config_on_two_workers(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**IMAGES, "train": {**IMAGES["train"], "max_steps": 2}}))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "sweeps_train"]
    done = subprocess.run(
        [*torchrun, str(file), "--checkpoints", str(tmp_path / "checkpoints")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    event = json.loads(done.stdout)
    assert (event["step"], event["done"], event["train/num_workers"]) == (2, True, 2.0)
    assert event["checkpoint"] == str(tmp_path / "checkpoints" / "step-00000002")
    assert Path(event["checkpoint"]).is_dir()


@pytest.mark.slow
def test_sigterm_lets_torchrun_save_a_checkpoint_and_end(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    train = {**IMAGES["train"], "max_steps": 100_000, "eval_every": 100_000, "log_every": 1}
    file.write_text(json.dumps({**IMAGES, "train": train}))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "sweeps_train"]
    command = [*torchrun, str(file), "--checkpoints", str(tmp_path / "checkpoints")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it trains
        process.terminate()
        last = json.loads(process.stdout.read().splitlines()[-1])
    (saved,) = (tmp_path / "checkpoints").iterdir()
    assert saved.name == f"step-{last['step']:08d}"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (None, "config.json: No such file"),
        ('{"task": {"kind": "none"}}', "config.json: task="),
        ("{", "config.json: Invalid JSON"),
    ],
)
def test_a_mistake_on_the_command_line_is_reported_with_status_2(
    written: str | None,
    message: str,
    working_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if written is not None:
        (working_folder / "config.json").write_text(written)
    monkeypatch.setattr(sys, "argv", ["sweeps_train", "config.json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
