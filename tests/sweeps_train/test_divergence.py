"""Trainings that diverge end, leave out steps, or go back to a checkpoint, as the config says."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checkpoints import tensors_of
from test_checkpoint_evaluation import Late
from torch import nn
from training_runs import IMAGES, STOP_AT_STEP_6, Recorder, configured, on_two_workers, run

from sweeps_train.config import Train
from sweeps_train.memory.out_of_memory import OutOfMemoryHandler
from sweeps_train.steps.divergence import DivergenceGuard

ALL = range(1000)
UNSCALED = torch.amp.GradScaler("cpu", enabled=False)


def poisoned(monkeypatch: pytest.MonkeyPatch, calls: Collection[int], *, loss_too: bool = True) -> None:
    """Make the gradients of some backward passes NaN, counted from 1, and their loss unless told otherwise."""
    backward, called = OutOfMemoryHandler.backward, []

    def with_poison(self: OutOfMemoryHandler, *arguments: Any) -> torch.Tensor:
        loss = backward(self, *arguments)
        called.append(loss)
        if len(called) not in calls:
            return loss
        for parameter in self._strategy.parameters.values():
            assert parameter.grad is not None
            parameter.grad.fill_(math.nan)
        return loss * math.nan if loss_too else loss

    monkeypatch.setattr(OutOfMemoryHandler, "backward", with_poison)


def train(folder: Path, reaction: str, **more: Any) -> Recorder:
    return run(configured(IMAGES, train={"on_divergence": reaction, **more}), folder)


@pytest.mark.parametrize("stop_when_asked", [None, STOP_AT_STEP_6, STOP_AT_STEP_6 + 1])
def test_a_training_that_diverges_ends_with_its_next_log_also_if_it_is_to_stop_there_or_at_its_report(
    stop_when_asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, [5])
    config = configured(IMAGES, train={"on_divergence": "stop", "max_steps": 20})
    recorder = run(config, tmp_path, stop_when_asked=stop_when_asked)
    assert [(step, done) for step, *_, done in recorder.reports] == [(4, False), (6, True)]
    assert math.isnan(recorder.final["eval/loss"])
    assert recorder.reports[-1][2] is None  # no checkpoint of such weights
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000004"]
    assert recorder.notes == [
        "step 6: the training loss or its gradients are not finite; the training ends (train.on_divergence=stop)"
    ]


def test_a_training_may_go_on_whatever_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, [5])
    recorder = train(tmp_path, "continue")
    assert [step for step, *_ in recorder.reports] == [4, 8]
    assert math.isnan(recorder.final["eval/loss"])


def test_a_step_whose_gradients_are_not_finite_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, [3, 5, 6])
    recorder = train(tmp_path, "skip")
    assert [step for step, *_ in recorder.reports] == [4, 8]
    assert math.isfinite(recorder.final["eval/loss"])
    assert recorder.final["train/skipped_steps"] == 3
    assert math.isfinite(recorder.reports[0][1]["train/loss"])
    assert math.isnan(recorder.logs[6]["train/loss"])  # both of its steps were left out
    assert recorder.notes == []


@pytest.mark.parametrize(
    ("precision", "halvings"),
    [("fp32", 0), ("fp16", 16)],  # of a loss scale of 65536, until it is 1
)
def test_a_training_that_would_leave_out_every_step_ends(
    precision: str, halvings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, ALL)
    recorder = train(tmp_path, "skip", precision=precision, max_steps=100, eval_every=50)
    assert [(step, done) for step, *_, done in recorder.reports] == [(halvings + 10, True)]
    assert math.isfinite(recorder.final["eval/loss"])


def test_a_search_for_the_loss_scale_of_fp16_is_no_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, range(1, 15))
    recorder = train(tmp_path, "skip", precision="fp16", max_steps=16, eval_every=16)
    assert recorder.final["train/skipped_steps"] == 14
    assert math.isfinite(recorder.final["eval/loss"])


def test_a_training_goes_back_and_leaves_out_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, [6])
    recorder = train(tmp_path, "restore")
    assert [(step, done) for step, *_, done in recorder.reports] == [(4, False), (8, True)]
    assert math.isfinite(recorder.final["eval/loss"])
    assert [progress.samples for progress in recorder.progress] == [4 * 400, (4 + 2 + 4) * 400]
    (note,) = recorder.notes
    assert note.endswith("not finite; the training goes back to its last checkpoint and leaves these samples out")


def test_a_training_in_epochs_has_all_of_its_steps_after_it_has_left_samples_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, [6])
    recorder = train(tmp_path, "restore", max_steps=None, epochs=8 * 400 / 1707)
    assert [(step, done) for step, *_, done in recorder.reports] == [(4, False), (8, True)]
    longer = train(tmp_path, "restore", max_steps=None, epochs=12 * 400 / 1707)
    assert [(step, done) for step, *_, done in longer.reports] == [(8, False), (12, True)]


@pytest.mark.parametrize("max_grad_norm", [1.0, None])
@pytest.mark.parametrize("reaction", ["restore", "stop"])
def test_no_checkpoint_has_the_weights_of_a_step_whose_gradients_alone_are_not_finite(
    reaction: str, max_grad_norm: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, [8], loss_too=False)  # a training that goes back would go back to these weights
    recorder = train(tmp_path, reaction, max_steps=12, log_every=4, max_grad_norm=max_grad_norm)
    if reaction == "restore":
        assert [(step, done) for step, *_, done in recorder.reports] == [(4, False), (8, False), (12, True)]
        assert all(math.isfinite(metrics["eval/loss"]) for _, metrics, *_ in recorder.reports)
    else:
        assert [(step, done) for step, *_, done in recorder.reports] == [(4, False), (8, True)]
    weights = [each for path in tmp_path.glob("step-*") for each in tensors_of(path).values()]
    assert weights
    assert all(each.isfinite().all() for each in weights if each.is_floating_point())


def test_a_training_that_goes_back_makes_the_evaluations_that_it_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, [6])
    train = {"on_divergence": "restore", "eval_every": 2, "log_every": 2}
    recorder = run(configured(IMAGES, train=train), tmp_path, evaluator=Late(times=6))
    assert [(step, done) for step, *_, done in recorder.reports] == [(2, False), (4, False), (6, False), (8, True)]


def test_a_training_that_always_diverges_ends_after_three_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, ALL)
    recorder = train(tmp_path, "restore")
    assert [(step, done) for step, *_, done in recorder.reports] == [(2, True)]
    assert len(recorder.notes) == 4
    assert recorder.notes[-1].endswith("the training ends (train.on_divergence=restore)")


class FaultyOnce(nn.Module):
    """The outputs of one training step are multiplied on rank 1 only."""

    def __init__(self, step: int, factor: float) -> None:
        super().__init__()
        self.layer, self.steps = nn.Linear(64, 10), 0
        self.step, self.factor = step, factor

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(images.flatten(1))
        self.steps += self.training
        return logits * self.factor if self.training and self.steps == self.step and dist.get_rank() == 1 else logits


def faulty_once(step: int, factor: float) -> dict[str, Any]:
    arguments = {"step": step, "factor": factor}
    return {**IMAGES, "model": {"kind": "custom", "_target_": f"{__name__}.FaultyOnce", "arguments": arguments}}


def with_one_that_diverges() -> dict[str, Recorder]:
    base = faulty_once(step=6, factor=math.nan)
    reactions = ("stop", "skip", "restore")
    found = {each: run(configured(base, train={"on_divergence": each}), Path(each)) for each in reactions}
    spikes = configured(faulty_once(step=10, factor=1000), train={"max_steps": 12, "log_every": 1})
    return found | {"spikes": run(spikes, Path("spikes"))}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorder]:
    return on_two_workers(with_one_that_diverges, tmp_path_factory.mktemp("two-workers"))[0]


def test_all_workers_react_alike_if_only_one_diverges(two_workers: dict[str, Recorder]) -> None:
    found = two_workers
    assert [(step, done) for step, *_, done in found["stop"].reports] == [(4, False), (6, True)]
    assert found["skip"].final["train/skipped_steps"] == 1
    assert found["skip"].progress[-1].samples == 8 * 400
    assert found["restore"].progress[-1].samples == (4 + 2 + 4) * 400, "the samples of two steps are left out"
    assert all(math.isfinite(found[each].final["eval/loss"]) for each in ("skip", "restore"))


def test_a_spike_on_one_of_two_workers_is_told_with_its_step(two_workers: dict[str, Recorder]) -> None:
    found = two_workers["spikes"]
    (note,) = found.notes
    assert note.startswith("step 10 or shortly before: a spike of the gradients' norm, ")
    largest = {step: metrics["train/grad_norm_max"] for step, metrics in found.logs.items()}
    assert max(largest, key=lambda step: largest[step]) == 10
    assert all(largest[10] > 10 * norm for step, norm in largest.items() if step < 10)


def test_a_spike_of_the_gradients_norm_is_told_and_does_not_become_usual() -> None:
    notes: list[str] = []
    guard = DivergenceGuard(Train(max_steps=1), notes.append)
    for step in range(1, 20):
        for norm in (1.0, 3.0):
            guard.keeps(torch.tensor(50.0 * norm if step in (8, 9) else norm), UNSCALED)
        metrics = guard.metrics(step)
        if step not in (8, 9):
            assert metrics == {"train/grad_norm": 2.0, "train/grad_norm_max": 3.0}
    assert notes == [
        f"step {step} or shortly before: a spike of the gradients' norm, 150, 75 times the usual one" for step in (8, 9)
    ]


def test_norms_that_are_not_finite_are_left_out_of_the_mean() -> None:
    guard = DivergenceGuard(Train(max_steps=1), print)
    for norm in (1.0, math.inf, 2.0, math.nan):
        assert guard.keeps(torch.tensor(norm), UNSCALED)
    assert guard.metrics(4) == {"train/grad_norm": 1.5, "train/grad_norm_max": 2.0}
    assert guard.metrics(8) == {}
