"""The global batch: the same for any number of workers, and when a device runs out of memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset
from training_runs import IMAGES, TEXT, Recorder, configured, on_workers, run, write_prompts

from sweeps_train.config import TRAINING_CONFIG, Train, check_batch_split
from sweeps_train.memory.micro_batch_size import largest_divisor
from sweeps_train.steps.micro_batches import split_batches
from sweeps_train.tasks.causal_lm import CausalLMTraining
from sweeps_train.tasks.image_classification import ImageClassification

# Without dropout: other micro batches would draw other masks.
NO_DROPOUT = configured(IMAGES, model={"dropout": 0.0})
TEXT_NO_DROPOUT = configured(TEXT, model={"lora": {"r": 4, "target_modules": "attention"}})
ACCUMULATED = configured(IMAGES, model={"dropout": 0.0}, train={"micro_batch_size": 100})


def learned(recorder: Recorder) -> list[Any]:
    found = [(step, metrics["train/loss"]) for step, metrics in recorder.logs.items()]
    return found + [(step, metrics["train/loss"], metrics["eval/loss"]) for step, metrics, *_ in recorder.reports]


# --- a device that runs out of memory ------------------------------------------------------------------------


class SmallDevice:
    """Makes one rank run out of memory if more samples than ``takes`` pass through at once."""

    def __init__(self, takes: int, *, rank: int, where: str, after: int = 0):
        self.takes, self.rank, self.where, self.after = takes, rank, where, after
        self.calls = self.failures = 0

    def __enter__(self) -> SmallDevice:
        self._losses = {kind: kind.loss for kind in (ImageClassification, CausalLMTraining)}
        for kind in self._losses:
            kind.loss = self._failing(self._losses[kind])  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        for kind, loss in self._losses.items():
            kind.loss = loss  # type: ignore[method-assign]

    def _failing(self, loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def of_device(task: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
            if not logits.requires_grad:
                return loss(task, logits, batch)
            self.calls += 1
            too_large = len(logits) > self.takes and self.calls > self.after
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            if too_large and rank == self.rank:
                self.failures += 1
                if self.where == "forward":
                    raise torch.OutOfMemoryError("out of memory, in the forward pass")
                first = next(each for each in task.model.parameters() if each.requires_grad)
                self._handle = first.register_hook(self._fail)  # the last gradient that a backward pass comes to
            return loss(task, logits, batch)

        return of_device

    def _fail(self, gradient: torch.Tensor) -> None:
        self._handle.remove()
        raise torch.OutOfMemoryError("out of memory, in the backward pass")


CASES = {
    "forward": (NO_DROPOUT, {"takes": 100, "where": "forward"}, 1),
    "backward": (NO_DROPOUT, {"takes": 100, "where": "backward"}, 1),
    "twice": (NO_DROPOUT, {"takes": 50, "where": "backward"}, 2),
    "later": (NO_DROPOUT, {"takes": 100, "where": "forward", "after": 4}, 1),
    "accumulated, later": (ACCUMULATED, {"takes": 50, "where": "forward", "after": 9}, 1),
    "text": (TEXT_NO_DROPOUT, {"takes": 2, "where": "backward"}, 1),
}


def out_of_memory() -> dict[str, tuple[list[Any], list[Any], int, list[float]]]:
    """Train on large and on small devices, on each of two workers."""
    large = {id(config): learned(run(config)) for config in (NO_DROPOUT, ACCUMULATED, TEXT_NO_DROPOUT)}
    found = {}
    for name, (config, device, _) in CASES.items():
        with SmallDevice(rank=1, **device) as small_device:
            small = run(config)
        halvings = [metrics.get("train/out_of_memory", 0.0) for metrics in small.logs.values()]
        halvings += [metrics.get("train/out_of_memory", 0.0) for _, metrics, *_ in small.reports]
        found[name] = large[id(config)], learned(small), small_device.failures, halvings
    return found


@pytest.fixture(scope="module")
def small_devices(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("small-devices")
    write_prompts(folder)
    return on_workers(2, out_of_memory, folder)


@pytest.mark.parametrize("name", CASES)
def test_out_of_memory_on_one_worker_halves_micro_batches_and_changes_nothing_else(
    name: str, small_devices: list[dict[str, Any]]
) -> None:
    large, small, _, halvings = small_devices[0][name]
    assert len(large) == len(small) == 4
    for expected, actual in zip(large, small, strict=True):
        assert actual == pytest.approx(expected, rel=2e-4)
    failures = [ranks[name][2] for ranks in small_devices]
    assert failures == [0, CASES[name][2]]  # and never again, after it was halved
    assert sum(halvings) == CASES[name][2]


def test_micro_batches_are_cut_without_losing_a_sample() -> None:
    whole = {"inputs": torch.arange(10).reshape(5, 2), "labels": torch.arange(5)}
    for size in range(1, 6):
        pieces = split_batches(split_batches([whole], 3), size)
        assert max(len(piece["labels"]) for piece in pieces) <= size
        for name, tensor in whole.items():
            assert torch.equal(torch.cat([piece[name] for piece in pieces]), tensor)


def test_a_sample_that_does_not_fit_is_an_error_with_advice(working_folder: Path) -> None:
    write_prompts(working_folder)
    message = r"train.micro_batch_size=1 does not fit .*model.gradient_checkpointing=true or strategy=fsdp"
    with SmallDevice(0, rank=0, where="forward"), pytest.raises(torch.OutOfMemoryError, match=message):
        run(TEXT_NO_DROPOUT)


# --- the largest micro batch that fits -----------------------------------------------------------------------


def activations(config: Any) -> int:
    """Largest number of samples of which a training holds activations."""
    heights: list[int] = []
    loss = ImageClassification.loss

    def measured(task: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        if logits.requires_grad:
            heights.append(len(logits))
        return loss(task, logits, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageClassification, "loss", measured)
        run(config)
    return max(heights)


def test_the_largest_micro_batch_that_fits_is_found_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path))
    sizes = []
    for mib in (0.2, 1, 400):
        train = {"micro_batch_size": "auto", "memory_limit_gib": mib / 1024, "max_steps": 2}
        config = configured(IMAGES, model={"dropout": 0.0}, train=train)
        sizes.append(activations(config))
        first = run(config)
        with monkeypatch.context() as patch:
            patch.setattr("sweeps_train.memory.micro_batch_size._memory", lambda *_: pytest.fail("it was found before"))
            assert learned(run(config)) == learned(first)
    assert sizes == sorted(set(sizes))
    assert all(400 % size == 0 for size in sizes)
    assert sizes[-1] == 400
    assert learned(first) == learned(run(configured(IMAGES, model={"dropout": 0.0}, train={"max_steps": 2})))


CUT = {"fsdp": {}, "tensor_parallel": {"sequence_parallel": True}, "context_parallel": {}}
"""Strategies that shard what a worker keeps, and their options."""


def found_and_given() -> list[tuple[list[Any], list[Any]]]:
    """Train with a micro batch that is found and with a given one, by strategy, on each of two workers."""
    results = []
    for kind, options in CUT.items():
        found, given = (
            configured(
                TEXT, model={"lora": {"r": 4}}, strategy={"kind": kind, **options}, train={"max_steps": 2, **size}
            )
            for size in ({"micro_batch_size": "auto", "memory_limit_gib": 0.01}, {"micro_batch_size": 1})
        )
        results.append((learned(run(found)), learned(run(given))))
    return results


@pytest.mark.slow
def test_the_largest_micro_batch_is_found_where_workers_keep_a_part(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    for found, given in on_workers(2, found_and_given, tmp_path)[0]:
        assert len(found) == len(given) > 0
        for one, other in zip(found, given, strict=True):
            assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(("share", "most", "size"), [(12, 7, 6), (12, 12.9, 12), (7, 6, 1), (8, 0, 1)])
def test_a_micro_batch_divides_a_workers_share(share: int, most: float, size: int) -> None:
    assert largest_divisor(share, most) == size


@pytest.mark.parametrize(
    ("batch", "micro", "workers", "message"),
    [
        (32, None, 3, "train.global_batch_size=32 cannot be split over 3 .*; use 30 or 33"),
        (2, None, 3, "train.global_batch_size=2 cannot be split over 3 .*; use 3"),
        (32, 6, 2, r"train.micro_batch_size=6 does not divide the 16 samples .*; use one of \[1, 2, 4, 8, 16\]"),
        (33, "auto", 2, "train.global_batch_size=33 cannot be split over 2 .*; use 32 or 34"),
    ],
)
def test_a_global_batch_that_cannot_be_divided_is_refused_with_sizes_that_fit(
    batch: int, micro: Any, workers: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_batch_split(Train(max_steps=1, global_batch_size=batch, micro_batch_size=micro), workers)


# --- labels that the loss ignores ----------------------------------------------------------------------------

LABELLED = 24


class Listed(Dataset[tuple[torch.Tensor, int]]):
    """A data set of a user's own, whose labels only reading it tells."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor):
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.inputs[index], int(self.labels[index])


def partly_labelled(ignored: int, listed: bool) -> tuple[Dataset[Any], Dataset[Any]]:
    from torch.utils.data import TensorDataset

    labels = torch.arange(LABELLED) % 3
    inputs = torch.eye(5)[labels] + 0.1 * torch.randn(LABELLED, 5, generator=torch.Generator().manual_seed(0))
    both = torch.cat([inputs, torch.ones(ignored, 5)]), torch.cat([labels, torch.full((ignored,), -100)])
    return Listed(*both) if listed else TensorDataset(*both), TensorDataset(inputs, labels)


def of_labels(ignored: int, *, listed: bool = False, **train: Any) -> list[Any]:
    """Losses with plain gradient descent, whose steps on all samples are as large as the gradients."""
    base = {
        **IMAGES,
        "model": {"kind": "custom", "_target_": "torch.nn.Linear", "arguments": {"in_features": 5, "out_features": 3}},
        "data": {"kind": "custom", "_target_": f"{__name__}.partly_labelled", "arguments": {}},
        "train": {"max_steps": 4, "eval_every": 2, "log_every": 1, "optimizer": "sgd", "lr": 1.0, "momentum": 0.0},
    }
    changes = {"global_batch_size": LABELLED + ignored, "max_grad_norm": None, **train}
    return learned(run(configured(base, data={"arguments": {"ignored": ignored, "listed": listed}}, train=changes)))


def with_labels_that_are_ignored() -> list[list[Any]]:
    return [
        of_labels(0),
        *(of_labels(3 * LABELLED, listed=listed, micro_batch_size=8) for listed in (False, True)),
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_samples_with_the_label_that_the_loss_ignores_do_not_make_the_gradients_smaller(
    workers: int, tmp_path: Path
) -> None:
    labelled, *partly = on_workers(workers, with_labels_that_are_ignored, tmp_path)[0]
    for each in partly:
        assert len(each) == len(labelled) == 4
        for actual, expected in zip(each, labelled, strict=True):
            assert actual == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("listed", [False, True])
def test_a_batch_of_nothing_but_ignored_labels_changes_nothing(listed: bool) -> None:
    losses = of_labels(LABELLED, listed=listed, global_batch_size=1, max_steps=2 * LABELLED, eval_every=2 * LABELLED)
    assert len(losses) == 2 * LABELLED
    assert 0.0 in [loss for _, loss, *_ in losses]


# --- the data's position -------------------------------------------------------------------------------------


class Numbered(Dataset[tuple[torch.Tensor, int]]):
    """Data set that records the indices it is asked for."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Path(f"asked-{os.getppid()}-{os.getpid()}").open("a") as file:
            file.write(f"{index}\n")
        return torch.full((5,), float(index)), index % 3


def numbered() -> tuple[Dataset[Any], Dataset[Any]]:
    from torch.utils.data import TensorDataset

    return Numbered(), TensorDataset(torch.zeros(2, 5), torch.tensor([0, 2]))


NUMBERED = {
    **IMAGES,
    "model": {"kind": "custom", "_target_": "torch.nn.Linear", "arguments": {"in_features": 5, "out_features": 3}},
    "data": {"kind": "custom", "_target_": f"{__name__}.numbered"},
    "train": {"max_steps": 20, "global_batch_size": 12, "eval_every": 2, "log_every": 1},
}
"""240 samples: nearly five epochs of 50."""


def attempt(folder: Path, rank: int, size: int, kill_at: int | None) -> None:
    """Train as one worker, which kills itself at a record if it is told to."""
    import torch.distributed as dist

    asked = folder / f"rank-{rank}"
    asked.mkdir()
    os.chdir(asked)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)

    class Killer(Recorder):
        def log(self, progress: Any, metrics: Any) -> None:
            if progress.step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    from sweeps_train.loop import train

    train(configured(NUMBERED), reporter=Killer(), checkpoint_folder=str(folder.parent / "checkpoints"))
    dist.destroy_process_group()


def samples_of_steps(folder: Path, size: int, first_step: int) -> dict[int, list[int]]:
    """Samples that all workers together have read for each step; before the first, each looks at one sample."""
    share = 12 // size
    files = [sorted((folder / f"rank-{rank}").glob("asked-*")) for rank in range(size)]
    asked = [[int(line) for file in each for line in file.read_text().split()[1:]] for each in files]
    found = {}
    for place in range(max(map(len, asked)) // share):
        own = [each[place * share : (place + 1) * share] for each in asked]
        if all(len(each) == share for each in own):
            # Ranks take turns.
            found[first_step + place] = [own[index % size][index // size] for index in range(12)]
    return found


def train_with(folder: Path, size: int, kill_at: int | None = None) -> None:
    folder.mkdir(parents=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sweeps_train.loop", __name__])  # torch once, and not in seven processes
    workers = [context.Process(target=attempt, args=(folder, rank, size, kill_at)) for rank in range(size)]
    for worker in workers:
        worker.start()
    workers[0].join()
    assert workers[0].exitcode == (0 if kill_at is None else -signal.SIGKILL)
    for worker in workers[1:]:
        worker.kill()  # it waits for the one that is gone
        worker.join()


@pytest.mark.slow
def test_a_killed_training_resumes_at_the_exact_sample_with_any_number_of_workers(tmp_path: Path) -> None:
    train_with(tmp_path / "undisturbed" / "one", 1)
    expected = samples_of_steps(tmp_path / "undisturbed" / "one", 1, first_step=1)
    assert sorted(expected) == list(range(1, 21))
    in_order = list(itertools.chain.from_iterable(expected[step] for step in sorted(expected)))
    assert sorted(in_order[:50]) == sorted(in_order[50:100]) == list(range(50))

    found: dict[int, list[int]] = {}
    for size, kill_at, saved in ((2, 7, 0), (3, 15, 6), (1, None, 14)):
        train_with(tmp_path / f"with-{size}", size, kill_at)
        found |= samples_of_steps(tmp_path / f"with-{size}", size, first_step=saved + 1)
    assert found == expected


@pytest.mark.parametrize(
    "base", [pytest.param(IMAGES, id="images"), pytest.param(TEXT, id="text", marks=pytest.mark.slow)]
)
def test_processes_that_read_ahead_change_nothing(base: dict[str, Any], working_folder: Path) -> None:
    write_prompts(working_folder)
    config = configured(base, train={"micro_batch_size": 4 if base is TEXT else 100})
    ahead = {**TRAINING_CONFIG.dump_python(config, by_alias=True)}
    ahead["data"]["loader"] = {"num_workers": 2, "prefetch": 3, "pin_memory": False}
    processes = len(psutil.Process().children())
    assert learned(run(TRAINING_CONFIG.validate_python(ahead))) == learned(run(config))
    assert len(psutil.Process().children()) == processes
