"""Training of a compiled model, compared with one that is not compiled."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch import nn
from training_runs import IMAGES, configured, on_two_workers, run


def losses() -> list[tuple[float, float] | None]:
    """Losses on rank 0, not compiled and compiled."""
    trained = [run(configured(IMAGES, model={"dropout": 0.0}, train={"compile": each})) for each in (False, True)]
    return [(each.final["train/loss"], each.final["eval/loss"]) if each.reports else None for each in trained]


def test_a_model_stays_compiled_after_the_step_whose_flops_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counting(graph: Any, inputs: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return graph(*arguments)

        return call

    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend=counting))
    train = {"max_steps": 6, "compile": True, "peak_tflops": 0.05, "eval_every": 6}
    metrics = run(configured(IMAGES, model={"dropout": 0.0}, train=train)).final
    assert calls >= 5  # all steps but the counted one
    assert metrics["train/flop_utilization"] > 0


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile wants a C++ compiler: apt-get install -y g++")
def test_two_workers_train_a_compiled_model_as_one_that_is_not(tmp_path: Path) -> None:
    plain, compiled = on_two_workers(losses, tmp_path)[0]
    assert compiled == pytest.approx(plain, rel=1e-3)


def test_a_strategy_that_cuts_the_model_refuses_to_compile_it() -> None:
    with pytest.raises(ValidationError, match=r"set train\.compile to false"):
        configured(IMAGES, train={"compile": True}, strategy={"kind": "fsdp"})
