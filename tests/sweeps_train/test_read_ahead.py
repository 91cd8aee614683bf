"""``data.loader.num_workers=auto``: processes that read ahead come while workers wait for their batches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, get_worker_info
from training_runs import IMAGES, Recorder, configured, on_two_workers

from sweeps_train.config import TrainingConfig
from sweeps_train.config.loader import Loader
from sweeps_train.data import global_batches, read_ahead
from sweeps_train.data.images import ImageSamples
from sweeps_train.data.loader import load_micro_batches
from sweeps_train.data.read_ahead import ReadAhead, ReadAheadTuner
from sweeps_train.data.sample_order import SampleOrder
from sweeps_train.loop import train

STEPS = 150


def tuned(tuner: ReadAheadTuner, *shares: float) -> list[ReadAhead]:
    """Settings after the wait had each of these shares for long enough to be judged."""
    settings = []
    for share in shares:
        tuner.observe(read_ahead.SETTLE_S, share)  # not judged where a change came before
        tuner.observe(read_ahead.MEASURE_S, share)
        settings.append(tuner.setting)
    return settings


def test_processes_double_up_to_the_workers_processors_and_then_the_batches_that_each_keeps_ready() -> None:
    tuner = ReadAheadTuner(ReadAhead(1, 2), most=3)
    reached = [(2, 2), (3, 2), (3, 4), (3, 8), (3, 8)]
    assert tuned(tuner, 0.9, 0.6, 0.4, 0.3, 0.2) == [ReadAhead(*each) for each in reached]


def test_a_change_that_does_not_shorten_the_wait_is_undone_and_the_last_one() -> None:
    tuner = ReadAheadTuner(ReadAhead(1, 2), most=8)
    assert tuned(tuner, 0.5, 0.2, 0.19, 0.9) == [ReadAhead(2, 2), ReadAhead(4, 2), ReadAhead(2, 2), ReadAhead(2, 2)]


def test_nothing_changes_while_workers_hardly_wait() -> None:
    tuner = ReadAheadTuner(ReadAhead(0, 2), most=8)
    assert tuned(tuner, 0.04, 0.0, 0.04) == [ReadAhead(0, 2)] * 3


def test_a_number_of_processes_that_is_configured_stays() -> None:
    tuner = read_ahead.read_ahead(Loader(num_workers=1, prefetch=3), may_draw=False, most=8)
    assert tuned(tuner, 0.9, 0.9) == [ReadAhead(1, 3)] * 2


def test_the_start_of_processes_is_not_judged() -> None:
    tuner = ReadAheadTuner(ReadAhead(0, 2), most=8)
    assert tuner.observe(read_ahead.MEASURE_S, 0.5) is not None
    assert tuner.observe(read_ahead.SETTLE_S, 1.0) is None
    assert tuner.observe(read_ahead.MEASURE_S, 0.01) is None
    assert tuner.setting == ReadAhead(1, 2)


def test_a_list_of_threads_for_nested_regions_is_read_by_its_first_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert read_ahead.processors_of_a_worker() == 4


class Records(Dataset[Any]):
    """Records of one file, which is opened once."""

    def __init__(self, file: BinaryIO):
        self._file = file

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self._file.seek(index * RECORD)
        return torch.tensor(int.from_bytes(self._file.read(8))), 0


RECORD = 2**14
"""Bytes of a record: more than are read at once."""


def test_processes_that_read_an_open_file_ahead_get_its_records(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(index.to_bytes(8) + bytes(RECORD - 8) for index in range(1000)))
    ahead = ReadAhead(processes=2, prefetch=4)
    with path.open("rb") as file:
        samples = ImageSamples(Records(file))
        every, alone = range(0, 4000, 20), torch.device("cpu")
        batches = load_micro_batches(samples, lambda indices: indices, every, 20, ahead, False, alone, seed=0)
        read = [index for (batch,) in batches for index in batch["inputs"].tolist()]
    assert read == SampleOrder(1000, seed=0).take(0, 4000)


class SlowToRead(Dataset[Any]):
    """Images that draw random numbers, and take some time, when they are read. The process that reads leaves a file."""

    def __init__(self, readers: str):
        self._readers = Path(readers)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.01)
        if (process := get_worker_info()) is not None:
            (self._readers / f"{process.id + 1} of {process.num_workers}").touch()
        return torch.randn(1, 8, 8) + index, index % 10


def slow_to_read(readers: str) -> tuple[Dataset[Any], Dataset[Any]]:
    return SlowToRead(readers), TensorDataset(torch.zeros(2, 1, 8, 8), torch.tensor([0, 2]))


def slow_training(num_workers: int | str, readers: Path) -> TrainingConfig:
    source = {"kind": "custom", "_target_": f"{__name__}.slow_to_read", "arguments": {"readers": str(readers)}}
    data = {**source, "loader": {"num_workers": num_workers}}
    steps = {"max_steps": STEPS, "eval_every": STEPS, "log_every": 5, "global_batch_size": 8}
    return configured({**IMAGES, "data": data, "train": {**IMAGES["train"], **steps}})


def losses_and_readers(num_workers: int | str) -> tuple[list[float], set[str], list[str]]:
    """Losses at each log, processes that have read for either worker, and the notes, of one of two workers."""
    recorder = Recorder()
    readers = Path(f"readers {num_workers}").absolute()
    readers.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read_ahead, "SETTLE_S", 0.2)
        patched.setattr(read_ahead, "MEASURE_S", 0.4)
        patched.setattr(global_batches, "processors_of_a_worker", lambda: 4)
        train(slow_training(num_workers, readers), reporter=recorder, checkpoint_folder=None)
    losses = [recorder.logs[step]["train/loss"] for step in sorted(recorder.logs)]
    return losses, {process.name for process in readers.iterdir()}, recorder.notes


def both() -> tuple[Any, Any]:
    return losses_and_readers("auto"), losses_and_readers(1)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_that_wait_for_slow_data_get_processes_and_learn_the_same(tmp_path: Path) -> None:
    (losses, readers, notes), (fixed, fixed_readers, _) = on_two_workers(both, tmp_path)[0]
    assert losses == fixed
    assert any("2 processes to read ahead" in note for note in notes), notes
    assert readers >= {"1 of 1", "1 of 2", "2 of 2"}
    assert fixed_readers == {"1 of 1"}
