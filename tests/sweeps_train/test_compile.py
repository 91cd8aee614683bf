"""Training of a compiled model, compared with one that is not compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError
from training_runs import IMAGES, configured, on_two_workers, run


def losses() -> list[tuple[float, float] | None]:
    """Losses on rank 0, not compiled and compiled."""
    trained = [run(configured(IMAGES, model={"dropout": 0.0}, train={"compile": each})) for each in (False, True)]
    return [(each.final["train/loss"], each.final["eval/loss"]) if each.reports else None for each in trained]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile wants a C++ compiler: apt-get install -y g++")
def test_two_workers_train_a_compiled_model_as_one_that_is_not(tmp_path: Path) -> None:
    plain, compiled = on_two_workers(losses, tmp_path)[0]
    assert compiled == pytest.approx(plain, rel=1e-3)


def test_a_strategy_that_cuts_the_model_refuses_to_compile_it() -> None:
    with pytest.raises(ValidationError, match=r"set train\.compile to false"):
        configured(IMAGES, train={"compile": True}, strategy={"kind": "fsdp"})
