"""A worker's share of its device's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from training_runs import IMAGES, configured

from sweeps.runtime import worker_loop
from sweeps.runtime.trial_assignment import Assignment
from sweeps_train import loop
from sweeps_train.memory import device_memory


def test_a_worker_is_limited_to_its_share_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float | None] = []
    monkeypatch.setattr(device_memory, "_share", None)
    monkeypatch.setattr(loop, "train", lambda *_, **__: shares.append(device_memory._share))
    broker: Any = SimpleNamespace(alive=lambda *_: None)
    assignment = Assignment(
        *("0000", 1, configured(IMAGES), ("eval/loss",), ("min",), "", "", None, None),
        waits_for_decision=False,
        last_delivered=None,
        broker=broker,
        hang_timeout_s=60.0,
        prepare_timeout_s=60.0,
        memory_share=0.5,
    )
    worker_loop._train(assignment, None, is_main=False)
    assert shares == [0.5]
