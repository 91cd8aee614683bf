"""Cross-entropy over a large vocabulary: the same in chunks as in one call."""

from __future__ import annotations

import pytest
import torch

from sweeps_train.data.packing import IGNORED
from sweeps_train.tasks import cross_entropy
from sweeps_train.tasks.cross_entropy import chunked_cross_entropy, full_cross_entropy

TOKENS, VOCABULARY, SCALE = 7, 50, 0.3


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", 3 * VOCABULARY)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_loss_and_gradient_in_chunks_equal_those_in_one_call(kind: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    logits = 4 * torch.randn(TOKENS, VOCABULARY)
    targets = torch.randint(VOCABULARY, (TOKENS,))
    targets[[0, 4]] = IGNORED
    found = []
    for loss_of in (full_cross_entropy, chunked_cross_entropy):
        own = logits.to(kind).requires_grad_()
        loss = loss_of(own, targets)
        (SCALE * loss).backward()
        assert own.grad is not None
        assert own.grad.dtype == kind
        found.append((loss.detach(), own.grad))
    (whole, gradient), (in_pieces, gradient_in_pieces) = found
    assert in_pieces.dtype == torch.float32
    torch.testing.assert_close(in_pieces, whole, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient_in_pieces, gradient, rtol=tolerance, atol=1e-6)
    assert torch.equal(gradient_in_pieces[[0, 4]], torch.zeros(2, VOCABULARY, dtype=kind))


def test_a_held_out_loss_in_chunks_equals_that_in_one_call() -> None:
    logits, targets = torch.randn(TOKENS, VOCABULARY), torch.arange(TOKENS)
    with torch.no_grad():
        torch.testing.assert_close(chunked_cross_entropy(logits, targets), full_cross_entropy(logits, targets))
