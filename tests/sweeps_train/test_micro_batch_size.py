"""The search for the largest micro batch where little fits, and what is kept of its answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_memory_errors import ERRORS, fail_above
from torch import nn
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.config import TrainingConfig
from sweeps_train.devices.system import memory_limit
from sweeps_train.errors import MicroBatchHalved
from sweeps_train.memory import device_memory, machine_memory, micro_batch_size
from sweeps_train.memory.device_memory import is_crowded, limit_memory, usable_memory
from sweeps_train.memory.micro_batch_cache import MAX_AGE_S, halved, recall, remember
from sweeps_train.workers.distributed import Workers

GIB = 2**30
AUTO: dict[str, Any] = {"micro_batch_size": "auto", "max_steps": 2, "global_batch_size": 8}


def auto(**changes: Any) -> TrainingConfig:
    return configured(IMAGES, model={"dropout": 0.0}, train=AUTO, **changes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path))
    return tmp_path / "micro_batch_sizes.json"


def test_where_two_samples_do_not_fit_the_micro_batch_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = fail_above("loss", 1, ERRORS["torch"], monkeypatch)
    assert run(auto()).final
    assert sizes == [1, 2, *[1] * 16]
    del sizes[:]
    assert run(auto()).final
    assert sizes == [1] * 16  # it is known now


def test_where_one_sample_does_not_fit_the_error_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_above("loss", 0, ERRORS["torch"], monkeypatch)
    with pytest.raises(torch.OutOfMemoryError, match=r"micro_batch_size=auto: one sample does not fit; use a shorter"):
        run(auto())


def on_small_devices() -> tuple[list[int], int, int]:
    """Train with ``ddp``, where the second worker's device takes one sample, and with ``fsdp``, where both do."""
    with pytest.MonkeyPatch.context() as patched:
        sizes = fail_above("loss", 1 if torch.distributed.get_rank() == 1 else 8, ERRORS["torch"], patched)
        run(auto())
    config = auto(strategy={"kind": "fsdp"})
    with pytest.MonkeyPatch.context() as patched:
        fail_above("loss", 1, ERRORS["torch"], patched)
        with pytest.raises(MicroBatchHalved) as raised:
            run(config)
        recorder = run(config, largest_micro_batch=raised.value.half)
    return sizes, raised.value.half, len(recorder.reports)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[int], int, int]]:
    return on_two_workers(on_small_devices, tmp_path_factory.mktemp("two-workers"))


def test_all_workers_take_the_size_of_the_smallest_device(two_workers: list[tuple[list[int], int, int]]) -> None:
    assert [sizes for sizes, _, _ in two_workers] == [[1, 2, *[1] * 8]] * 2


def test_workers_that_wait_for_each_other_begin_again_with_one_sample(
    two_workers: list[tuple[list[int], int, int]],
) -> None:
    assert [half for _, half, _ in two_workers] == [1, 1]
    assert [reports for _, _, reports in two_workers] == [1, 0]  # rank 0 reports


# --- what is kept --------------------------------------------------------------------------------------------


class Gpu:
    """A GPU of 80 GiB for torch's functions that ask about one."""

    def __init__(self, patched: pytest.MonkeyPatch):
        self.total, self.free, self.reserved, self.fraction = 80 * GIB, 79 * GIB, 0, 1.0
        self.name = "NVIDIA H100 80GB HBM3"
        patched.setattr(torch.cuda, "get_device_properties", lambda device: self._properties())
        patched.setattr(torch.cuda, "mem_get_info", lambda device: (self.free, self.total))
        patched.setattr(torch.cuda, "memory_reserved", lambda device: self.reserved)
        patched.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: self.fraction)
        patched.setattr(torch.cuda, "set_per_process_memory_fraction", self._limit)
        patched.setattr(device_memory, "worker_device", lambda: CUDA)
        patched.setattr(device_memory, "_share", None)

    def _properties(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.name, total_memory=self.total)

    def _limit(self, fraction: float, device: torch.device) -> None:
        self.fraction = fraction


CUDA = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def on_gpu() -> Any:
    """As much of a strategy as the key of a size depends on."""
    samples = SimpleNamespace(batch=lambda indices: {"inputs": torch.zeros(len(indices), 4)})
    return SimpleNamespace(
        workers=Workers(rank=0, size=1, device=CUDA), task=SimpleNamespace(model=nn.Linear(4, 2), train_samples=samples)
    )


def test_the_budget_is_a_part_of_the_total_and_not_what_is_free_now(gpu: Gpu) -> None:
    config, strategy = auto(), on_gpu()
    before = micro_batch_size._memory_limit(config, strategy)
    remember(config, strategy, 16)
    gpu.free = 2 * GIB
    assert micro_batch_size._memory_limit(config, strategy) == before == int(0.9 * 80 * GIB)
    assert recall(config, strategy) == 16


def test_half_a_gpu_has_half_the_budget_and_sizes_of_its_own(gpu: Gpu) -> None:
    config, strategy = auto(), on_gpu()
    remember(config, strategy, 16)
    limit_memory(0.5)
    assert gpu.fraction * gpu.total == pytest.approx(39.5 * GIB)  # CUDA's own half a GiB is not torch's
    assert usable_memory(CUDA) == pytest.approx(39.5 * GIB)
    assert recall(config, strategy) is None


def test_a_slice_of_a_gpu_has_its_own_memory_and_sizes_of_its_own(gpu: Gpu) -> None:
    config, strategy = auto(), on_gpu()
    remember(config, strategy, 16)
    gpu.name, gpu.total, gpu.free = "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB, 9 * GIB
    assert recall(config, strategy) is None
    assert micro_batch_size._memory_limit(config, strategy) == int(0.9 * 10 * GIB)
    assert memory_limit(CUDA) == ("system/gpu_memory_limit_mib", 10 * 1024)
    limit_memory(0.5)
    assert usable_memory(CUDA) == pytest.approx(4.5 * GIB)


def test_a_whole_gpu_is_not_limited(gpu: Gpu) -> None:
    limit_memory(1.0)
    assert gpu.fraction == 1.0
    assert usable_memory(CUDA) == 80 * GIB


def test_a_size_that_a_neighbour_has_caused_is_not_kept(gpu: Gpu) -> None:
    config, strategy = auto(), on_gpu()
    gpu.free, gpu.reserved = GIB, 30 * GIB  # others hold 49 GiB
    assert is_crowded(CUDA)
    halved(config, strategy, 4)
    assert recall(config, strategy) is None
    gpu.reserved = 78 * GIB
    halved(config, strategy, 8)
    assert recall(config, strategy) == 4


def test_neighbours_that_keep_to_their_share_are_none_of_the_causes(gpu: Gpu) -> None:
    limit_memory(0.5)
    gpu.free, gpu.reserved = GIB, 39 * GIB
    assert not is_crowded(CUDA)


def test_a_trial_that_shares_its_workers_has_sizes_of_its_own(gpu: Gpu) -> None:
    class LaneStrategy(SimpleNamespace):
        pass

    alone = on_gpu()
    beside_others: Any = LaneStrategy(**vars(alone))
    remember(auto(), beside_others, 2)
    assert recall(auto(), alone) is None
    remember(auto(), alone, 16)
    assert recall(auto(), beside_others) == 2


def test_sizes_age(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    config, strategy = auto(), on_gpu()
    remember(config, strategy, 16)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + MAX_AGE_S - 60)
    assert recall(config, strategy) == 16
    monkeypatch.setattr(time, "time", lambda: now + MAX_AGE_S + 60)
    assert recall(config, strategy) is None
    limit_memory(0.5)
    remember(config, strategy, 8)
    assert [entry["size"] for entry in json.loads(cache.read_text()).values()] == [8]  # the old one is gone


@pytest.mark.parametrize("content", ["{", "[]", '{"KEY": 7}', '{"KEY": {"size": 7}}'])
def test_a_file_that_is_torn_or_of_an_earlier_version_counts_as_empty(content: str, gpu: Gpu, cache: Path) -> None:
    config, strategy = auto(), on_gpu()
    remember(config, strategy, 3)
    key = next(iter(json.loads(cache.read_text())))
    cache.write_text(content.replace("KEY", key))
    assert recall(config, strategy) is None
    remember(config, strategy, 5)
    assert recall(config, strategy) == 5


# --- the memory that a worker may use ------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "expected"), [(0.25, 0.25), (1.0, 1.0)])
def test_a_worker_on_cpus_has_its_share_of_the_machine(
    share: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "_share", None)
    limit_memory(share)
    assert usable_memory(torch.device("cpu")) == pytest.approx(expected * machine_memory.machine_memory(), rel=1e-6)


@pytest.mark.parametrize("own", ["0::/{}\n", "5:cpu,cpuacct:/\n4:memory:/{}\n0::/\n"])
@pytest.mark.parametrize("limited", ["", "slurm/job_7"], ids=["container", "job"])
def test_a_container_or_job_has_the_memory_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, limited: str
) -> None:
    for name, version in machine_memory._VERSIONS.items():
        monkeypatch.setitem(machine_memory._VERSIONS, name, version._replace(root=str(tmp_path)))
    file = machine_memory._VERSIONS["memory" if "memory" in own else ""].limit
    monkeypatch.setattr(machine_memory, "_OWN", tmp_path / "own")
    (tmp_path / "own").write_text(own.format("slurm/job_7/step_0"))
    (tmp_path / "slurm" / "job_7" / "step_0").mkdir(parents=True)
    (tmp_path / "slurm" / "job_7" / "step_0" / file).write_text("max\n")
    whole = machine_memory.machine_memory()
    (tmp_path / limited / file).write_text(f"{whole // 4}\n")
    assert machine_memory.machine_memory() == whole // 4


def test_evaluations_report_the_memory_that_a_worker_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "_share", 0.5)
    recorder = run(configured(IMAGES))
    expected = machine_memory.machine_memory() * 0.5 / 2**20
    assert recorder.final["system/memory_limit_mib"] == pytest.approx(expected, rel=1e-6)
    assert not any("limit" in name for metrics in recorder.logs.values() for name in metrics)
