"""Cross-entropy over a large vocabulary: the same in chunks as in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from training_runs import on_two_workers

from sweeps_train.data.packing import IGNORED
from sweeps_train.tasks import cross_entropy
from sweeps_train.tasks.cross_entropy import chunked_cross_entropy, full_cross_entropy, linear_cross_entropy

TOKENS, VOCABULARY, WIDTH, SCALE = 7, 50, 4, 0.3


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


def of_all_logits(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
) -> torch.Tensor:
    return full_cross_entropy(functional.linear(hidden, weight, bias), targets)


@pytest.mark.parametrize("trained", [(True, True, True), (True, False, False), (False, True, True)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "autocast", "tolerance"),
    [(torch.float32, False, 1e-5), (torch.bfloat16, False, 2e-2), (torch.float32, True, 2e-2)],
)
def test_the_head_in_chunks_has_the_loss_and_the_gradients_of_all_logits(
    dtype: torch.dtype, autocast: bool, tolerance: float, trained: tuple[bool, ...]
) -> None:
    torch.manual_seed(0)
    values = torch.randn(TOKENS, WIDTH), torch.randn(VOCABULARY, WIDTH), torch.randn(VOCABULARY)
    targets = torch.randint(VOCABULARY, (TOKENS,))
    targets[[0, 4]] = IGNORED
    found = []
    for loss_of in (of_all_logits, linear_cross_entropy):
        inputs = [each.to(dtype).requires_grad_(used) for each, used in zip(values, trained, strict=True)]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = loss_of(*inputs, targets)
        (SCALE * loss).backward()
        assert loss.dtype == torch.float32
        found.append((loss.detach(), [each.grad for each in inputs]))
    (whole, gradients), (in_chunks, gradients_in_chunks) = found
    torch.testing.assert_close(in_chunks, whole, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradients_in_chunks, gradients, rtol=tolerance, atol=tolerance)
    assert [each is not None for each in gradients_in_chunks] == list(trained)


def test_a_held_out_loss_of_the_head_in_chunks_equals_that_of_all_logits() -> None:
    inputs = torch.randn(TOKENS, WIDTH), torch.randn(VOCABULARY, WIDTH), None, torch.arange(TOKENS)
    torch.testing.assert_close(linear_cross_entropy(*inputs), of_all_logits(*inputs))


class LargestTensor(TorchDispatchMode):
    """Watches for the largest tensor that any operation makes, in numbers."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        sizes = [each.numel() for each in made if isinstance(each, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


@pytest.mark.parametrize(("loss_of", "expected"), [(of_all_logits, 21 * VOCABULARY), (linear_cross_entropy, 200)])
def test_all_logits_are_never_there_at_once(loss_of: Any, expected: int) -> None:
    hidden, weight = (torch.randn(number, WIDTH, requires_grad=True) for number in (21, VOCABULARY))
    with LargestTensor() as watched:
        loss_of(hidden, weight, None, torch.arange(21)).backward()
    assert watched.numbers == expected  # with chunks, that is the weight


def test_on_a_gpu_ligers_kernel_computes_the_loss_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fused(*tensors: Any, **options: Any) -> torch.Tensor:
        asked.append(options)
        return torch.zeros(())

    monkeypatch.setattr(cross_entropy, "_liger_loss", lambda: fused)
    with torch._subclasses.FakeTensorMode():
        for device in ("cpu", "cuda"):
            hidden = torch.empty(TOKENS, WIDTH, device=device, requires_grad=True)
            weight = torch.empty(VOCABULARY, WIDTH, device=device)
            linear_cross_entropy(hidden, weight, None, torch.empty(TOKENS, dtype=torch.int64, device=device))
    assert asked == [{"ignore_index": IGNORED, "reduction": "sum", "accum_dtype": torch.float32}]


UNEVEN = VOCABULARY + 1
"""Words, which two workers cannot divide equally."""


def losses_of_a_sharded_head() -> list[tuple[Any, ...]]:
    """Loss and gradients of all logits on one worker and of a head whose words two workers share, and the largest
    number of logits of one token and more that the latter had at a time."""
    cross_entropy.CHUNK = 3 * (UNEVEN // 2 + 1)  # three tokens at a time
    mesh = init_device_mesh("cpu", (2,))
    found = []
    for dtype, autocast in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        torch.manual_seed(0)
        values = torch.randn(TOKENS, WIDTH), torch.randn(UNEVEN, WIDTH), torch.randn(UNEVEN)
        targets = torch.randint(UNEVEN, (TOKENS,))
        targets[[0, 4]] = IGNORED
        hidden, weight, bias = (each.to(dtype).requires_grad_() for each in values)
        own_hidden = hidden.detach().clone().requires_grad_()
        shards = [distribute_tensor(each.detach(), mesh, [Shard(0)]).requires_grad_() for each in (weight, bias)]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            whole = of_all_logits(hidden, weight, bias, targets)
            with LargestTensor() as watched:
                sharded = linear_cross_entropy(own_hidden, shards[0], shards[1], targets)
            with torch.no_grad():
                held_out = linear_cross_entropy(own_hidden, shards[0], shards[1], targets)
        (SCALE * whole).backward()
        (SCALE * sharded).backward()
        gradients = [own_hidden.grad, *(each.grad.full_tensor() for each in shards)]  # type: ignore[union-attr]
        expected = [each.grad for each in (hidden, weight, bias)]
        found.append((whole.detach(), sharded.detach(), held_out, expected, gradients, watched.numbers))
    return found


def test_a_head_that_workers_share_has_the_loss_and_the_gradients_of_all_logits(tmp_path: Path) -> None:
    for by_type in on_two_workers(losses_of_a_sharded_head, tmp_path):
        for (whole, sharded, held_out, expected, gradients, largest), tolerance in zip(
            by_type, (1e-5, 2e-2, 2e-2), strict=True
        ):
            torch.testing.assert_close(sharded, whole, rtol=tolerance / 10, atol=0)
            torch.testing.assert_close(held_out, sharded)
            torch.testing.assert_close(gradients, expected, rtol=tolerance, atol=tolerance)
            assert largest <= (UNEVEN // 2 + 1) * WIDTH  # this worker's part of the weight; not 7 tokens' logits
