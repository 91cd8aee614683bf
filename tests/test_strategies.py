"""Every strategy, on two and on four workers that talk over gloo, held to the training of one process."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
from training_runs import IMAGES, TEXT, Recorder, configured, on_workers, run, write_prompts

from sweeps_train.config import TrainingConfig

# Without dropout, so that only rounding is left between one worker and several.
TRAININGS: dict[str, TrainingConfig] = {
    "conv_net": configured(IMAGES, model={"dropout": 0.0}, train={"micro_batch_size": 100}),
    "vision_transformer": configured({**IMAGES, "model": {"kind": "vision_transformer"}}),
    "lora": configured(TEXT, model={"lora": {"r": 4, "target_modules": "all-linear"}}, train={"micro_batch_size": 2}),
    "all weights, tied embeddings": configured(TEXT, model={"lora": None}, train={"micro_batch_size": 2}),
}

STRATEGIES: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "fsdp": {"kind": "fsdp"},
        "fsdp with all options": {
            "kind": "fsdp",
            "cpu_offload": True,
            "activation_checkpointing": True,
            "reshard_after_forward": False,
        },
    },
    4: {"fsdp in two groups": {"kind": "fsdp", "shard_size": 2}},
}

CASES = [
    (number, strategy, training)
    for number, strategies in STRATEGIES.items()
    for strategy, training in itertools.product(strategies, TRAININGS)
]

Results = dict[tuple[str, str], Recorder]


def with_strategy(training: str, strategy: dict[str, Any]) -> TrainingConfig:
    config = TRAININGS[training]
    return configured(
        {
            "task": config.task,
            "model": config.model,
            "data": config.data,
            "train": config.train,
            "strategy": strategy,
            "checkpoint": {},
        }
    )


def scenario(number: int) -> Results:
    """Runs on each of the workers."""
    return {
        (strategy, training): run(
            with_strategy(training, STRATEGIES[number][strategy]), Path(f"{number} {strategy} {training}")
        )
        for of, strategy, training in CASES
        if of == number
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strategies")
    write_prompts(folder)
    return folder


@pytest.fixture(scope="module")
def by_workers(folder: Path) -> dict[int, Results]:
    """Of rank 0, by the number of workers."""
    return {number: on_workers(number, functools.partial(scenario, number), folder)[0] for number in STRATEGIES}


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Recorder]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {name: run(config, Path(f"1 {name}")) for name, config in TRAININGS.items()}


@pytest.mark.parametrize(("number", "strategy", "training"), CASES)
def test_a_strategy_has_the_losses_of_one_process(
    number: int, strategy: str, training: str, by_workers: dict[int, Results], alone: dict[str, Recorder]
) -> None:
    expected, actual = alone[training], by_workers[number][strategy, training]
    assert curve(actual) == pytest.approx(curve(expected), rel=1e-4)
    assert curve(expected)[0] != curve(expected)[-1]


def curve(recorder: Recorder) -> list[float]:
    """All losses, of training and of evaluations."""
    records = [*recorder.logs.values(), *(metrics for _, metrics, *_ in recorder.reports)]
    return [value for record in records for name, value in sorted(record.items()) if name.endswith("loss")]
