"""Metrics of speed: communication, FLOP utilisation, use of the machines."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from training_runs import PACKED, TEXT, Recorder, configured, on_two_workers, run, write_prompts

from sweeps_train.devices import system
from sweeps_train.measures.flops import FlopMeter
from sweeps_train.measures.train_metrics import TrainMetrics
from sweeps_train.steps.step_clock import StepClock
from sweeps_train.workers.communication import CommunicationMeter, covered
from sweeps_train.workers.distributed import Workers
from sweeps_train.workers.exchange import exchange_together

PEAK = 0.05
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp"},
    "fsdp": {"kind": "fsdp"},
    "recomputing": {"kind": "fsdp", "activation_checkpointing": True},
    "tensor_parallel": {"kind": "tensor_parallel"},
    "pipeline": {"kind": "pipeline"},
}
COMPRESSED = ("fp16", "bf16", "powersgd")
LENGTH = 32


def text(strategy: dict[str, Any], *, gradient_checkpointing: bool = False, **train: Any) -> Any:
    """Config with packed text: padding would be counted as FLOPs, but not as tokens."""
    settings = {"communication_every": 2, "peak_tflops": PEAK, "micro_batch_size": 2, **train}
    model = {"lora": None, "gradient_checkpointing": gradient_checkpointing}
    return configured(TEXT, model=model, data={**PACKED, "sequence_length": LENGTH}, strategy=strategy, train=settings)


def scenario() -> dict[str, Recorder]:
    runs = {name: run(text(strategy)) for name, strategy in STRATEGIES.items()}
    runs["recomputing model"] = run(text({"kind": "ddp"}, gradient_checkpointing=True))
    for compression in COMPRESSED:
        strategy = {"kind": "ddp", "compression": compression, "powersgd_start": 2}
        runs[compression] = run(text(strategy, lr=1e-3))
    return runs | {"none": run(text({"kind": "ddp"}, lr=1e-3))}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorder]:
    folder = tmp_path_factory.mktemp("speed")
    write_prompts(folder)
    return on_two_workers(scenario, folder)[0]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_share_of_communication_is_measured_under_every_strategy(strategy: str, runs: dict[str, Recorder]) -> None:
    for metrics in runs[strategy].logs.values():
        assert 0 < metrics["train/communication_share"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*STRATEGIES, "recomputing model"])
def test_flops_are_counted_once_and_without_recomputation(strategy: str, runs: dict[str, Recorder]) -> None:
    """FLOPs by hand (Llama, 3 layers of width 128, tied head of 384 rows): 6 for each weight of a matrix, and
    12 x layers x width x length for attention, which torch counts whole although half of it is masked."""
    layer = 4 * 128 * 128 + 3 * 128 * 384
    per_token = 6 * (3 * layer + 384 * 128) + 12 * 3 * 128 * LENGTH
    metrics = runs[strategy].final
    expected = per_token * metrics["train/tokens_per_second"] / (2 * PEAK * 1e12)
    # Recomputation is subtracted by a rule that ignores the head, which is a tenth of this model.
    assert metrics["train/flop_utilization"] == pytest.approx(expected, rel=0.15 if "recomputing" in strategy else 0.05)


@pytest.mark.slow
def test_each_workers_use_of_its_machine_is_reported_at_evaluations(runs: dict[str, Recorder]) -> None:
    metrics = runs["ddp"].final
    memory = [metrics[f"system/worker_{rank}/memory_mib"] for rank in (0, 1)]
    assert max(memory) == pytest.approx(metrics["system/memory_mib"])  # a limit is one of each worker
    assert sum(memory) == pytest.approx(metrics["system/total_memory_mib"])
    assert not any("worker_" in name for name in runs["ddp"].logs[2])


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSED)
def test_compressed_gradients_train_nearly_as_well(compression: str, runs: dict[str, Recorder]) -> None:
    plain, compressed = (runs[name].final["eval/loss"] for name in ("none", compression))
    assert compressed == pytest.approx(plain, rel=0.05 if compression == "powersgd" else 5e-3)
    assert compressed != plain


def test_overlapping_spans_are_counted_once() -> None:
    assert covered([(5, 9), (0, 3), (2, 4), (6, 7)]) == 8
    assert covered([]) == 0


def test_watching_takes_three_thousandths_of_the_time_at_most() -> None:
    meter = CommunicationMeter(Workers(rank=0, size=2, device=torch.device("cpu")), "auto", print)

    def steps_until_watched(cost: float) -> int:
        before = meter.measured
        for step in itertools.count():
            with meter.watching(step):
                time.sleep(1e-5)
            if watched := meter.since(before):
                assert watched[1] > 0
                meter.schedule_next(cost)
                return step + 1
        raise AssertionError

    assert steps_until_watched(7.5) == 200
    assert steps_until_watched(1.0) == 2500
    assert steps_until_watched(0.5) == 334
    assert steps_until_watched(0.5) == 200


def test_one_worker_has_no_communication(working_folder: Path) -> None:
    write_prompts(working_folder)
    metrics = run(text({"kind": "fsdp"}, max_steps=2)).final
    assert "train/communication_share" not in metrics
    assert not any("worker_" in name for name in metrics)


class TwoAlike(Workers):
    """Two workers with the same numbers, of which this process is one; counts the exchanges."""

    exchanges: ClassVar[list[int]] = []

    def all_gather(self, values: Sequence[float]) -> list[list[float]]:
        self.exchanges.append(len(values))
        return [[*values], [*values]]


def logged(measured: TrainMetrics) -> tuple[dict[str, float], list[float]]:
    """Metrics and votes after one step."""
    measured.start()
    measured.add_step(torch.tensor(3.0), 4, 8, 0.0)
    task: Any = SimpleNamespace(unit="samples")
    taking = measured.take(task, [1.0, 0.0], 0, FlopMeter(None, print), per_worker=True)
    numbers = next(taking)
    with pytest.raises(StopIteration) as taken:
        taking.send(exchange_together(TwoAlike(0, 2, torch.device("cpu")), [numbers])[0])
    metrics, _, votes = taken.value.value
    return metrics, votes


def test_trainings_of_a_group_that_log_at_the_same_step_have_the_same_use_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "LASTS_S", math.inf)
    workers = TwoAlike(0, 2, torch.device("cpu"))
    meter = CommunicationMeter(workers, 1, print)
    trainings = [TrainMetrics(workers, StepClock(), meter, print) for _ in range(2)]
    with meter.watching(0):
        pass
    trainings.append(TrainMetrics(workers, StepClock(), meter, print))  # begins after the measured step
    found = [logged(each)[0] for each in trainings]
    assert [each.get("train/communication_share") for each in found] == [0.0, 0.0, None]
    assert len({each["system/cpu_percent"] for each in found}) == 1
    assert "train/communication_share" not in logged(trainings[0])[0]


def test_a_log_is_one_exchange_between_the_workers() -> None:
    workers = TwoAlike(0, 2, torch.device("cpu"))  # any other exchange would fail, since there is no process group
    TwoAlike.exchanges.clear()
    metrics, votes = logged(TrainMetrics(workers, StepClock(), CommunicationMeter(workers, None, print), print))
    assert len(TwoAlike.exchanges) == 1
    assert (metrics["train/loss"], votes) == (1.5, [2.0, 0.0])
    assert metrics["system/total_memory_mib"] == 2 * metrics["system/memory_mib"]
    assert metrics["system/worker_1/memory_mib"] == metrics["system/memory_mib"]
    assert metrics["system/memory_limit_mib"] > 0
