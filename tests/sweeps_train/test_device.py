"""Accelerators are used by torch's own interfaces: none is refused for its name, and what nobody has tried is said."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sweeps_train.devices import worker_device as devices
from sweeps_train.devices.device_operations import counts_memory, empty_cache, pins_memory, sum_type, synchronize
from sweeps_train.devices.system import begin_measurement, system_metrics
from sweeps_train.devices.worker_device import select_own, worker_device
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.random_state import random_state, set_random_state

XPU, MPS, CPU = torch.device("xpu", 0), torch.device("mps", 0), torch.device("cpu")


class Accelerator:
    """Torch's module of an accelerator that this machine does not have, with what was called."""

    def __init__(self, kind: str) -> None:
        self.called: list[str] = []
        self.state = torch.arange(4, dtype=torch.uint8)
        if kind == "xpu":
            self.max_memory_allocated = lambda device: 3 * 2**20
            self.max_memory_reserved = lambda device: 5 * 2**20
            self.reset_peak_memory_stats = lambda device: self.called.append("reset")

    def empty_cache(self) -> None:
        self.called.append("empty_cache")

    def get_rng_state(self, *device: torch.device) -> torch.Tensor:
        return self.state

    def set_rng_state(self, state: torch.Tensor, *device: torch.device) -> None:
        self.state = state


@pytest.fixture(params=["xpu", "mps"])
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.device, Accelerator]:
    device, module = torch.device(request.param, 0), Accelerator(request.param)
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(request.param))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: module.called.append("synchronize"))
    devices._note_untried.cache_clear()
    return device, module


def test_the_accelerator_of_torch_is_used_and_said_once_to_be_untried(
    accelerator: tuple[torch.device, Accelerator], caplog: pytest.LogCaptureFixture
) -> None:
    device, module = accelerator
    with caplog.at_level(logging.WARNING, "sweeps_train.devices.worker_device"):
        assert [worker_device(), worker_device()] == [device, device]
    assert [record.getMessage() for record in caplog.records] == [
        f"Sweeps has not been tested on {device.type} devices yet; `make test-gpu` shows what works"
    ]
    synchronize(device)
    empty_cache(device)
    assert module.called == ["synchronize", "empty_cache"]


def test_memory_is_measured_where_torch_counts_it(accelerator: tuple[torch.device, Accelerator]) -> None:
    device, module = accelerator
    begin_measurement(device)
    measured = system_metrics(device)
    if counts_memory(device):
        assert module.called == ["reset"]
        assert (measured["system/gpu_memory_mib"], measured["system/gpu_memory_reserved_mib"]) == (3, 5)
    else:
        assert device.type == "mps"
        assert "system/gpu_memory_mib" not in measured


def test_random_numbers_of_an_accelerator_continue_on_one_of_its_kind(
    accelerator: tuple[torch.device, Accelerator],
) -> None:
    device, module = accelerator
    saved: dict[str, Any] = random_state(device)
    before, module.state = module.state, torch.zeros(4, dtype=torch.uint8)
    set_random_state(saved, CPU)
    assert not module.state.any()
    set_random_state(saved, device)
    assert torch.equal(module.state, before)
    module.state = torch.zeros(4, dtype=torch.uint8)
    set_random_state({**random_state(CPU), "cuda": None}, device)  # as versions before have saved on a CPU
    assert not module.state.any()


def test_a_workers_device_is_the_one_that_ray_has_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert worker_device() == CPU


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    selected: list[int] = []
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", selected.append)
    select_own(1, 2)
    with pytest.raises(ValueError, match=r"--nproc-per-node=3: each process needs a GPU .* has 2; start 2, or"):
        select_own(2, 3)
    select_own(0, 3)  # as one that sees its own GPU alone
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    select_own(2, 3)
    assert selected == [1, 0]


def test_types_and_pinning_follow_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "xpu", SimpleNamespace(is_bf16_supported=lambda including_emulation: True))
    assert Precision("auto", XPU).type is torch.bfloat16
    assert Precision("auto", MPS).type is None
    assert Precision("auto", CPU).type is None
    assert [sum_type(device) for device in (XPU, MPS, CPU)] == [torch.float64, torch.float32, torch.float64]
    assert [pins_memory(device) for device in (XPU, MPS, CPU, torch.device("cuda"))] == [True, False, False, True]


def test_random_states_of_earlier_versions_are_restored() -> None:
    """They have Python's random state as numbers instead of a tensor."""
    state = random_state(CPU)
    version, words, gauss = state["python"]
    drawn = random.random()
    random.seed(1)
    set_random_state({**state, "python": (version, tuple(words.tolist()), gauss)}, CPU)
    assert random.random() == drawn
