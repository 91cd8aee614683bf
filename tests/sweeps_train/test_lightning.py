"""A Lightning module as a task: reports, stopping, and resuming from its own checkpoints."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import Done, points, run

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError
from sweeps.validate.target_checks import check_targets
from sweeps_train.config import FunctionTask
from sweeps_train.frameworks.bound_function import bind_function

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers", "ignore:.*`srun` command"
)

QUIET: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}

USERS = """
import os
from pathlib import Path
import torch
from lightning.pytorch.callbacks import Callback
from sweeps_train.examples.lightning_digits import training as example

class Dies(Callback):
    def __init__(self, notes):
        self.notes = Path(notes)

    def on_train_epoch_start(self, trainer, module):
        batches = trainer.num_training_batches
        assert (trainer.world_size, batches) == (2, 12), batches  # 23 batches of 64 for two
        with self.notes.open("a") as opened:
            opened.write(f"{trainer.global_rank} {trainer.current_epoch}\\n")
        if self.notes.read_text().count("0 2") == 1 and trainer.global_rank == 0 and trainer.current_epoch == 2:
            os.kill(os.getpid(), 9)

def training(config):
    torch.set_num_threads(1)
    trainer, module, data = example(config)
    if config["lr"] == 1e-2:  # of the first trial
        trainer.callbacks.append(Dies(config["notes"]))
    return trainer, module, data
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("lightning")
    (folder / "users.py").write_text(USERS, encoding="utf-8")
    others = {"task.arguments.hidden": 32, "task.arguments.batch_size": 64}
    return run(
        folder,
        "conf=lightning_module",
        "task._target_=users.training",
        f"task.arguments={{lr: 1e-3, hidden: 32, batch_size: 64, epochs: 4, notes: {folder / 'notes'}}}",
        points(*({"task.arguments.lr": lr, **others} for lr in (1e-2, 1e-4))),
        "search.num_trials=2",
        "search.max_concurrent=1",
        "search.default_first=false",
        "search/scheduler=asha",  # which decides at rungs that are known
        "search.scheduler.grace=1",
        "search.scheduler.eta=2",
        "cluster.num_cpus=2",
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_module_resumes_from_its_own_checkpoint_and_a_worse_one_is_stopped(sweep: Done) -> None:
    first, second = sweep.document["trials"]
    assert (first["state"], first["attempts"]) == ("finished", 2)
    notes = [line.split() for line in (sweep.folder / "notes").read_text().splitlines()]
    assert [int(epoch) for rank, epoch in notes if rank == "0"] == [0, 1, 2, 2, 3]
    history = sweep.client.get_metric_history(first["run_id"], "accuracy")
    assert sorted({each.step for each in history}) == [12, 24, 36, 48]
    assert first["value"] > 0.85
    assert (second["state"], second["steps"]) == ("pruned", 12)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_lightning_reads_a_modules_checkpoint(sweep: Done) -> None:
    from sweeps_train.examples.lightning_digits import Classifier

    (kept,) = sweep.folder.glob("outputs/*/trials/*/step-00000048/files")
    assert [file.name for file in kept.iterdir()] == ["checkpoint.ckpt"]
    module = Classifier.load_from_checkpoint(kept / "checkpoint.ckpt", weights_only=False)
    assert module.hparams["hidden"] == 32


def fit(
    module: Any,
    folder: Path,
    patch: pytest.MonkeyPatch,
    report: Any,
    searched: str = "loss",
    resume: Path | None = None,
    data: Any = None,
    **options: Any,
) -> None:
    """Train a module as a trial does, with options of the Trainer of its own."""
    from lightning.pytorch import Trainer

    from sweeps_train.examples.lightning_digits import Digits
    from sweeps_train.frameworks.lightning import _callbacks

    patch.setattr("ray.train.report", report)
    patch.setattr("sweeps_train.frameworks.lightning.searched_metrics", lambda: (searched,))
    trainer = Trainer(**{"logger": False, **QUIET, **options}, default_root_dir=folder)
    trainer.callbacks = _callbacks(trainer)  # type: ignore[attr-defined]
    trainer.fit(module, Digits(64) if data is None else data, ckpt_path=resume, weights_only=False)


@pytest.mark.parametrize(
    ("options", "reports"),
    [
        pytest.param({}, [(1, True), (2, True), (3, True), (4, True)], id="validated twice an epoch"),
        pytest.param({"limit_val_batches": 0}, [(2, True), (4, True)], id="never validated"),
        pytest.param(
            {"val_check_interval": 1.0, "check_val_every_n_epoch": 2, "num_sanity_val_steps": 0},
            [(4, True)],
            id="first validated in the second epoch",
        ),
        pytest.param({"enable_checkpointing": False}, [(1, False), (2, False), (3, False), (4, False)], id="unsaved"),
    ],
)
def test_each_validation_is_a_report_or_each_epoch_where_there_is_none(
    options: dict[str, Any], reports: list[tuple[int, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.examples.lightning_digits import Classifier

    def report(metrics: dict[str, float], checkpoint: Any, **_: Any) -> None:
        assert "loss" in metrics or "limit_val_batches" in options
        saved = checkpoint is not None and (Path(checkpoint.path) / "checkpoint.ckpt").is_file()
        reported.append((metrics["step"], saved))

    reported: list[tuple[int, bool]] = []
    twice = {"max_epochs": 2, "limit_train_batches": 2, "val_check_interval": 1, **options}
    fit(Classifier(1e-3, 8), tmp_path, monkeypatch, report, **twice)
    assert reported == reports
    assert {path.name for path in tmp_path.rglob("*.ckpt")} <= {"checkpoint.ckpt"}, "Lightning has saved its own"


def test_the_users_callbacks_early_stopping_and_loggers_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch import Callback
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    from sweeps_train.examples.lightning_digits import Classifier

    class Counts(Callback):
        def on_train_epoch_end(self, *_: Any) -> None:
            counted.append(1)

    counted: list[int] = []
    reported: list[float] = []
    own = ModelCheckpoint(dirpath=tmp_path / "mine", monitor="loss")
    users: dict[str, Any] = {
        "callbacks": [Counts(), EarlyStopping("loss", patience=1), own],
        "logger": CSVLogger(tmp_path, "logs", version=0),
        "log_every_n_steps": 1,
    }
    # The learning rate is 0, so that no epoch is better than the first one.
    module, report = Classifier(0.0, 8), lambda metrics, **_: reported.append(metrics["step"])
    fit(module, tmp_path, monkeypatch, report, max_epochs=9, limit_train_batches=1, **users)
    assert (len(counted), reported) == (2, [1, 2])
    assert "loss" in (tmp_path / "logs/version_0/metrics.csv").read_text(encoding="utf-8").splitlines()[0]
    assert Path(own.best_model_path).is_file()


@pytest.mark.parametrize(
    ("searched", "interval", "expected"),
    [
        pytest.param("seen", None, [(2, 0, 0.5), (4, 1, 1.5)], id="of the training epoch"),
        pytest.param("epoch_end", None, [(2, 0, 0.5), (4, 1, 1.5)], id="of the end of the training epoch"),
        pytest.param("seen", 1, [(2, 0, 0.5), (4, 1, 1.5)], id="of the training epoch, validated within it"),
        pytest.param("loss", 1, [(1, None, None), (2, 0, 0.5), (3, None, None), (4, 1, 1.5)], id="of the validation"),
    ],
)
def test_a_metric_of_a_training_epoch_is_reported_at_the_end_of_this_epoch(
    searched: str,
    interval: int | None,
    expected: list[tuple[int, float | None, float | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sweeps_train.examples.lightning_digits import Classifier

    class Counting(Classifier):
        def training_step(self, batch: Any, index: int) -> Any:
            self.log("seen", float(self.current_epoch + index), on_step=False, on_epoch=True)
            return super().training_step(batch, index)

        def on_train_epoch_end(self) -> None:
            self.log("epoch_end", float(self.current_epoch))

    def report(metrics: dict[str, Any], **_: Any) -> None:
        assert "loss" in metrics
        reported.append((metrics["step"], metrics.get("epoch_end"), metrics.get("seen")))

    reported: list[tuple[int, Any, Any]] = []
    steps: dict[str, Any] = {"max_epochs": 2, "limit_train_batches": 2, "limit_val_batches": 1}
    steps["num_sanity_val_steps"] = 1
    fit(Counting(1e-3, 8), tmp_path, monkeypatch, report, searched, val_check_interval=interval, **steps)
    assert reported == expected


def fit_and_resume(kind: Any, folder: Path, patch: pytest.MonkeyPatch, at: int, **options: Any) -> list[dict[str, Any]]:
    """Train a module to its end, and another one from its checkpoint of a step; returns all that both report."""

    def report(metrics: dict[str, Any], checkpoint: Any) -> None:
        reported.append(metrics)
        if metrics["step"] == at and not (folder / "saved").exists():
            shutil.copytree(checkpoint.path, folder / "saved")

    reported: list[dict[str, Any]] = []
    for resume in (None, folder / "saved" / "checkpoint.ckpt"):
        fit(kind(1e-3, 8), folder, patch, report, resume=resume, **options)
    return reported


@pytest.mark.parametrize(
    ("steps", "reported_at"),
    [
        (
            {"max_steps": 10, "limit_train_batches": 4, "val_check_interval": 3, "check_val_every_n_epoch": None},
            [3, 6, 9, 9],
        ),
        ({"max_steps": 6, "limit_train_batches": 2, "limit_val_batches": 0}, [2, 4, 6, 6]),  # is never validated
    ],
)
def test_a_resumed_module_reports_at_the_steps_of_one_that_was_not_interrupted(
    steps: dict[str, Any], reported_at: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.examples.lightning_digits import Classifier

    reported = fit_and_resume(Classifier, tmp_path, monkeypatch, reported_at[1], **{"limit_val_batches": 1, **steps})
    assert [each["step"] for each in reported] == reported_at


def test_a_module_that_its_early_stopping_has_ended_trains_no_further_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning.pytorch.callbacks import EarlyStopping

    from sweeps_train.examples.lightning_digits import Classifier

    def constant(lr: float, hidden: int) -> Classifier:
        return Classifier(0.0, hidden)

    steps = {"max_epochs": 9, "limit_train_batches": 1, "callbacks": [EarlyStopping("loss", patience=1)]}
    reported = fit_and_resume(constant, tmp_path, monkeypatch, 2, **steps)
    assert [each["step"] for each in reported] == [1, 2]


class Paused(BaseException):
    """Raised at a report, as when a scheduler pauses the trial."""


WITHIN: dict[str, Any] = {"max_epochs": 3, "val_check_interval": 4}
PERSISTENT: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}


def noisy(trained: list[list[Any]]) -> Any:
    """Return a module with random numbers of its own, which notes the batches that it trains on."""
    from torch import nn

    from sweeps_train.examples.lightning_digits import Classifier

    class Noisy(Classifier):
        lr = 1e-2

        def training_step(self, batch: Any, index: int) -> Any:
            batch = batch["first"] if isinstance(batch, dict) else batch
            if self.trainer.limit_val_batches == 1.0:  # otherwise a callback tries rates
                trained[-1].append((self.current_epoch, self.lr, batch[0][:, 0].tolist()))
            return super().training_step((nn.functional.dropout(batch[0]), batch[1]), index)

    return Noisy


def falling(trained: list[list[Any]], frequency: int) -> Any:
    """Return a module whose rate falls after each validation at a step of this frequency, and after each epoch."""
    import torch

    class Falling(noisy(trained)):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), self.lr)
            return [optimizer], [
                {
                    "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", 0.8, 0, 1.0),
                    "monitor": "loss",
                    **when,
                }
                for when in ({"interval": "epoch"}, {"interval": "step", "frequency": frequency})
            ]

    return Falling(1e-2, 8)


def averaging(trained: list[list[Any]], _: int) -> Any:
    """Return a module with averaged weights and a rate that changes with them from the second epoch on, and an epoch at
    the end in which only the statistics of batches change."""
    import torch
    from lightning.pytorch.callbacks import StochasticWeightAveraging

    class Averaging(noisy(trained)):  # type: ignore[misc]
        def configure_callbacks(self) -> Any:
            return [StochasticWeightAveraging(0.1, 2, 2)]

    module = Averaging(1e-2, 8)
    module.network.append(torch.nn.BatchNorm1d(10))
    return module


@cache
def global_finder() -> Any:
    """Return a callback that all trials of a process share."""
    from lightning.pytorch.callbacks import LearningRateFinder

    return LearningRateFinder(num_training_steps=14)


def unfreezing(trained: list[list[Any]], _: int) -> Any:
    """Return a module with callbacks that find its rate and unfreeze its first layer."""
    import torch
    from lightning.pytorch.callbacks import BackboneFinetuning

    class Unfreezing(noisy(trained)):  # type: ignore[misc]
        def configure_callbacks(self) -> Any:
            return [BackboneFinetuning(1), global_finder()]

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam([each for each in self.parameters() if each.requires_grad], self.lr)

    module = Unfreezing(1e-2, 8)
    module.backbone = module.network[0]
    return module


@pytest.mark.parametrize(
    ("sampled", "loader", "steps"),
    [
        pytest.param("from the generator", {}, WITHIN, id="within epochs"),
        pytest.param("from the generator", {}, {"max_steps": 24}, marks=pytest.mark.slow, id="at the ends of epochs"),
        pytest.param("by epoch", {}, {"max_steps": 24, **WITHIN}, marks=pytest.mark.slow, id="by epoch, within epochs"),
        pytest.param("by epoch", {}, {"max_steps": 24}, id="by epoch, at the ends of epochs"),
        pytest.param("by epoch", {"num_workers": 1}, WITHIN, marks=pytest.mark.slow, id="read by a process"),
        pytest.param("from the generator", PERSISTENT, WITHIN, marks=pytest.mark.slow, id="by a process that persists"),
        pytest.param("from the generator", {"num_workers": 1}, {"max_epochs": 3}, marks=pytest.mark.slow, id="process"),
        pytest.param("by epoch", {}, {"max_epochs": 3}, id="with callbacks that change its optimizer"),
        pytest.param("by epoch", {}, WITHIN, id="with averaged weights"),
        pytest.param("from two generators", {}, {"max_epochs": 3}, id="with two loaders"),
        pytest.param(
            "from two generators", PERSISTENT, {"max_epochs": 3}, marks=pytest.mark.slow, id="with two that persist"
        ),
    ],
)
def test_a_module_that_pauses_at_each_report_trains_as_one_that_never_does(
    sampled: str,
    loader: dict[str, Any],
    steps: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    import torch
    from lightning.pytorch import LightningDataModule
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from sweeps_train.steps.random_state import seed_all

    class Rows(LightningDataModule):
        def train_dataloader(self) -> Any:
            rows = TensorDataset(images, torch.arange(40) % 10)
            # Lightning takes such a sampler in each trial, unless the user has one.
            order = {"shuffle": True} if sampled != "by epoch" else {"sampler": DistributedSampler(rows, 1, 0)}
            made = [DataLoader(rows, batch_size=4, **order, **loader) for _ in range(2)]
            return {"first": made[0], "second": made[1]} if sampled == "from two generators" else made[0]

        def val_dataloader(self) -> Any:
            return DataLoader(TensorDataset(torch.ones(4, 64), torch.arange(4)), batch_size=4)

    images = torch.rand(40, 64, generator=torch.Generator().manual_seed(0))
    trained: list[list[Any]] = [[]]
    kinds = {"with callbacks that change its optimizer": unfreezing, "with averaged weights": averaging}
    kind = kinds.get(request.node.callspec.id, falling)
    reported: list[list[Any]] = [[]]
    newest: list[Path] = []

    def report(metrics: dict[str, Any], checkpoint: Any) -> None:
        reported[-1].append((metrics["epoch"], metrics["step"], float(metrics["loss"])))
        if len(reported) == 2:
            newest.append(tmp_path / f"{len(newest)}")
            shutil.copytree(checkpoint.path, newest[-1])
            raise Paused

    def session() -> None:
        seed_all(0)
        resume = newest[-1] / "checkpoint.ckpt" if newest else None
        module = kind(trained, steps.get("val_check_interval", 10))
        fit(module, tmp_path, monkeypatch, report, resume=resume, data=Rows(), **steps)

    session()
    trained.append([])
    reported.append([])
    for _ in reported[0]:
        with pytest.raises(Paused):
            session()
    session()  # has nothing left to train
    assert reported[1] == reported[0]
    assert trained[1] == trained[0]
    assert len(trained[0]) > 20


def test_a_module_that_continues_behind_the_last_batch_of_its_epoch_trains_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.examples.lightning_digits import Classifier, Digits

    class Larger(Digits):
        def train_dataloader(self) -> Any:
            loader = super().train_dataloader()
            return type(loader)(loader.dataset, batch_size=1024 if steps else 64)

    def report(metrics: dict[str, Any], checkpoint: Any) -> None:
        steps.append(metrics["step"])
        if len(steps) == 1:
            shutil.copytree(checkpoint.path, tmp_path / "saved")
            raise Paused

    steps: list[int] = []
    options = {"max_epochs": 3, "val_check_interval": 1, "limit_val_batches": 1}
    with pytest.raises(Paused):
        fit(Classifier(1e-2, 8), tmp_path, monkeypatch, report, data=Larger(64), **{**options, "val_check_interval": 4})
    resume = tmp_path / "saved" / "checkpoint.ckpt"
    fit(Classifier(1e-2, 8), tmp_path, monkeypatch, report, resume=resume, data=Larger(64), **options)
    assert len(steps) > 3, "the later epochs are trained"


def test_a_validation_of_a_resumed_module_is_reported_without_the_metrics_of_the_epoch_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.examples.lightning_digits import Classifier

    class Counting(Classifier):
        def training_step(self, batch: Any, index: int) -> Any:
            self.log("seen", float(self.current_epoch), on_step=False, on_epoch=True)
            return super().training_step(batch, index)

        def on_train_epoch_end(self) -> None:
            self.log("ended", float(self.current_epoch))  # also where a resumed Trainer ends an epoch once more

    steps = {"max_steps": 6, "limit_train_batches": 2, "limit_val_batches": 1, "val_check_interval": 1}
    reported = fit_and_resume(Counting, tmp_path, monkeypatch, 2, **steps)
    assert all(each.get("seen") == each.get("ended") for each in reported)
    whole = [(1, None), (2, 0), (3, None), (4, 1), (5, None), (6, 2)]
    assert [(each["step"], each.get("seen")) for each in reported] == [*whole, *whole[2:]]


def stand_in(rank: int, local_rank: int, broadcast: Any, **options: Any) -> Any:
    """A Trainer as callbacks see it, of one of several workers."""
    return SimpleNamespace(
        callback_metrics={},
        current_epoch=0,
        global_step=3,
        sanity_checking=False,
        is_global_zero=rank == 0,
        local_rank=local_rank,
        strategy=SimpleNamespace(broadcast=broadcast),
        **options,
    )


def test_workers_report_together_when_only_the_first_one_has_logged_the_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second worker of a module that calls ``self.log(..., rank_zero_only=True)``."""
    from sweeps_train.frameworks.lightning import ReportCallback

    reported: list[Any] = []
    monkeypatch.setattr("ray.train.report", lambda metrics, checkpoint: reported.append(metrics))
    monkeypatch.setattr("sweeps_train.frameworks.lightning.searched_metrics", lambda: ("loss",))
    trainer = stand_in(1, 1, {False: True, "": str(tmp_path)}.get, is_last_batch=False)
    callback = ReportCallback(saves=False)
    callback.on_validation_end(trainer, None)  # type: ignore[arg-type]
    callback.on_train_batch_start(trainer, None, None, 0)  # type: ignore[arg-type]
    assert reported == [{"epoch": 0, "step": 3}]


@pytest.mark.parametrize(("rank", "local_rank", "expected"), [(0, 0, ["shard-0"]), (2, 0, ["shard-2"]), (3, 1, None)])
def test_the_shards_of_every_node_are_reported_by_one_of_its_workers(
    rank: int, local_rank: int, expected: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers on each of two nodes, of which Lightning writes all shards where the first worker's file is."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    from sweeps_train.frameworks.lightning import _callbacks

    def report(metrics: dict[str, float], checkpoint: Any, **_: Any) -> None:
        reported.append(None if checkpoint is None else sorted(each.name for each in Path(checkpoint.path).rglob("s*")))

    def broadcast(path: str) -> str:
        return path if rank == 0 else str(named)

    def save(file: Path) -> None:
        Path(broadcast(str(file.parent)), file.name).mkdir()
        Path(broadcast(str(file.parent)), file.name, f"shard-{rank}").write_text("weights")

    named = tmp_path / "named by the first worker"
    reported: list[list[str] | None] = []
    monkeypatch.setattr("ray.train.report", report)
    options: dict[str, Any] = {"callbacks": [ModelCheckpoint()], "save_checkpoint": save, "num_val_batches": [1]}
    trainer = stand_in(rank, local_rank, broadcast, is_last_batch=True, **options)
    callback = _callbacks(trainer)[-1]
    callback.on_validation_end(trainer, None)
    callback.on_train_epoch_end(trainer, None)
    assert reported == [expected]
    assert named.exists() is (local_rank == 1), "the worker that reports removes its node's files"


@pytest.mark.parametrize("schedule", ["none", "halves", "between two rates", "cosine", "falls", "warm-up"])
def test_a_module_that_continues_trains_with_its_changed_values(schedule: str, tmp_path: Path) -> None:
    import torch
    from lightning.pytorch import Trainer
    from torch.optim import lr_scheduler

    from sweeps_train.examples.lightning_digits import Classifier, Digits
    from sweeps_train.frameworks.lightning import ChangedValues

    class Scheduled(Classifier):
        def configure_optimizers(self) -> Any:
            lr = self.hparams["lr"]
            optimizer = torch.optim.AdamW(self.parameters(), lr=lr, weight_decay=lr)
            match schedule:
                case "none":
                    return optimizer
                case "halves":
                    made: Any = lr_scheduler.StepLR(optimizer, 1, 0.5)
                case "between two rates":
                    made = lr_scheduler.CyclicLR(optimizer, lr / 10, lr, step_size_up=4, cycle_momentum=False)
                case "cosine":
                    made = lr_scheduler.CosineAnnealingLR(optimizer, 5, eta_min=lr / 10)
                case "falls":
                    made = lr_scheduler.PolynomialLR(optimizer, 5)
                case _:
                    rises = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=1)
                    falls = lr_scheduler.CosineAnnealingLR(optimizer, 5, eta_min=lr / 10)
                    made = lr_scheduler.SequentialLR(optimizer, [rises, falls], [1])
            return [optimizer], [made]

    def trained(lr: float, epochs: int, checkpoint: str | None) -> dict[str, Any]:
        short = {"max_epochs": epochs, "limit_train_batches": 1, "limit_val_batches": 0, "enable_checkpointing": False}
        trainer = Trainer(logger=False, **QUIET, **short, callbacks=[ChangedValues()])  # type: ignore[arg-type]
        trainer.fit(Scheduled(lr, 8), Digits(64), ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        group: dict[str, Any] = trainer.optimizers[0].param_groups[0]
        return group

    unbroken, others = trained(0.01, 2, None)["lr"], trained(0.02, 3, None)["lr"]
    trained(0.01, 1, None)
    assert trained(0.01, 2, str(tmp_path / "1.ckpt"))["lr"] == pytest.approx(unbroken)
    changed = trained(0.02, 4, str(tmp_path / "2.ckpt"))
    assert changed["weight_decay"] == 0.02
    assert trained(0.02, 3, str(tmp_path / "2.ckpt"))["lr"] == pytest.approx(others)
    assert changed["lr"] == pytest.approx(trained(0.02, 4, None)["lr"])


def no_training(config: dict[str, Any]) -> tuple[Path, Path]:
    return Path(), Path()


def of_a_single_device(config: dict[str, Any]) -> tuple[Any, Any]:
    from lightning.pytorch import LightningModule, Trainer

    return Trainer(strategy="auto", logger=False), LightningModule()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_training, "Path; task.framework=lightning needs a tuple of a lightning.pytorch Traine"),
        (of_a_single_device, "has the strategy SingleDeviceStrategy, which does not use the trial's"),
    ],
)
def test_what_is_no_training_or_would_not_meet_the_other_workers_is_refused(function: Any, words: str) -> None:
    task = FunctionTask(kind="function", framework="lightning", _target_=f"{__name__}.{function.__name__}")
    with pytest.raises(ValueError, match=words):
        bind_function(task)()


def test_without_lightning_the_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    composition = compose_sweep("lightning_module", [], ConfSearchPath())
    check_targets(composition.config)
    monkeypatch.setitem(sys.modules, "lightning", None)  # as Python says that an import fails
    with pytest.raises(ConfigError, match=r"not installed; pip install 'ray-sweeps\[lightning\]'"):
        check_targets(composition.config)
