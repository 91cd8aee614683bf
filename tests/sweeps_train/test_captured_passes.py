"""The bookkeeping of CUDA graphs, with a stand-in for the graph itself; `test_gpu.py` has real ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sweeps_train.steps import captured_passes
from sweeps_train.steps.captured_passes import MOST_SHAPES, WARM_UP, CapturedPasses


class Replays:
    """Stands in for a graph: computes from the tensors of its own, as a graph does, and counts."""

    made = 0
    replayed = 0
    error: Exception | None = None

    def __init__(self, compute: Any, batch: Any, factor: torch.Tensor):
        if Replays.error is not None:
            raise Replays.error
        Replays.made += 1
        self._compute, self._batch, self._factor = compute, {k: v.clone() for k, v in batch.items()}, factor.clone()
        self._gradients: Any = None

    def replay(self, batch: Any, factor: torch.Tensor) -> torch.Tensor:
        for name, each in batch.items():
            self._batch[name].copy_(each)
        self._factor.copy_(factor)
        used = [each.grad for each in PARAMETERS if each.grad is not None]
        assert self._gradients is None or all(a is b for a, b in zip(self._gradients, used, strict=True))
        self._gradients = used  # always the same tensors
        Replays.replayed += 1
        loss: torch.Tensor = self._compute(self._batch, self._factor)
        return loss


MODEL = nn.Linear(3, 1)
UNUSED = nn.Parameter(torch.ones(2))
PARAMETERS = [*MODEL.parameters(), UNUSED]


def compute(batch: dict[str, torch.Tensor], factor: torch.Tensor) -> torch.Tensor:
    loss = MODEL(batch["x"]).square().sum()
    torch.autograd.backward(loss, factor)
    return loss.detach()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(captured_passes, "_Graph", Replays)
    for name, value in (("made", 0), ("replayed", 0), ("error", None)):
        monkeypatch.setattr(Replays, name, value)
    for each in PARAMETERS:
        each.grad = None
    return []


def steps(passes: CapturedPasses, number: int, *shapes: int) -> None:
    """Steps of a batch of each shape, whose losses and gradients are compared with those without graphs."""
    factor = torch.tensor(0.5)
    for _ in range(number):
        batches = [{"x": torch.randn(rows, 3)} for rows in shapes]
        expected = [compute(each, factor).item() for each in batches]
        gradients = [None if each.grad is None else each.grad.clone() for each in PARAMETERS]
        for each in PARAMETERS:
            each.grad = None
        passes.begin_step(batches)
        assert [passes(each, factor).item() for each in batches] == pytest.approx(expected)
        torch.testing.assert_close([each.grad for each in PARAMETERS], gradients)
        for each in PARAMETERS:
            each.grad = None


def test_passes_are_replayed_after_the_first_steps_with_the_same_losses_and_gradients(notes: list[str]) -> None:
    steps(CapturedPasses(compute, PARAMETERS, notes.append), WARM_UP + 3, 2)
    assert (Replays.made, Replays.replayed) == (1, 3)
    assert UNUSED.grad is None
    assert not notes


def test_micro_batches_of_several_shapes_add_to_the_same_gradients(notes: list[str]) -> None:
    passes = CapturedPasses(compute, PARAMETERS, notes.append)
    steps(passes, WARM_UP - 1, 2)
    steps(passes, 4, 2, 2, 1)  # those of one row are new
    assert (Replays.made, Replays.replayed) == (1, 6)
    steps(passes, 3, 1, 2)
    assert (Replays.made, Replays.replayed) == (2, 12)


def test_not_every_shape_has_a_graph(notes: list[str]) -> None:
    passes = CapturedPasses(compute, PARAMETERS, notes.append)
    for rows in range(1, MOST_SHAPES + 3):
        steps(passes, WARM_UP + 1, rows)
    assert Replays.made == MOST_SHAPES


def test_half_as_many_graphs_are_recorded_again_after_they_were_freed(notes: list[str]) -> None:
    passes = CapturedPasses(compute, PARAMETERS, notes.append)
    found = []
    for _ in range(5):
        for rows in range(1, MOST_SHAPES + 1):
            steps(passes, WARM_UP + 1, rows)
        found.append((Replays.made, passes.free()))
        Replays.made = 0
    assert found == [(4, True), (2, True), (1, True), (0, False), (4, True)]  # all, when that was not enough


def test_a_pass_that_cannot_be_recorded_is_computed_as_before_and_one_note_says_so(
    notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replays, "error", RuntimeError("operation not permitted\nmore"))
    steps(CapturedPasses(compute, PARAMETERS, notes.append), WARM_UP + 4, 2)
    (note,) = notes
    assert "because one cannot be recorded (operation not permitted); set train.cuda_graphs=false" in note
