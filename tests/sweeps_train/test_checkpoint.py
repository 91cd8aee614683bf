"""Checkpoints: saving, resuming, removing, and loading models from them."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import resource
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import assert_same
from safetensors.torch import load_file
from training_runs import (
    IMAGES,
    STOP_AT_STEP_4,
    STOP_AT_STEP_5,
    STOP_AT_STEP_6,
    TEXT,
    Recorder,
    configured,
    run,
    write_prompts,
)

import sweeps
import sweeps_train
from sweeps_train.checkpoints.checkpoint import best_checkpoint, newest_intact
from sweeps_train.checkpoints.integrity import SEAL_FILE, find_damage, seal
from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.checkpoints.saver import CheckpointSaver
from sweeps_train.checkpoints.training_state import STATE_FILES, TENSORS_FILE
from sweeps_train.config import TrainingConfig
from sweeps_train.config.better import Objective
from sweeps_train.reports.progress import Progress

LOSS = [Objective("eval/loss", "min")]
EVERY_STEP = {"max_steps": 4, "eval_every": 1}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


def fake(folder: Path, **losses: float | None) -> Path:
    """Write checkpoints that have only metrics: ``fake(folder, step_1=0.5)``."""
    for name, loss in losses.items():
        path = folder / f"step-{int(name.removeprefix('step_')):08d}"
        path.mkdir(parents=True)
        (path / "metrics.json").write_text(json.dumps(None if loss is None else {"eval/loss": loss}))
    return folder


def test_a_torn_checkpoint_is_ignored_and_removed(tmp_path: Path) -> None:
    config = configured(IMAGES)
    run(config, tmp_path, stop_when_asked=STOP_AT_STEP_6)
    torn = tmp_path / "step-00000007.unfinished"
    torn.mkdir()
    (torn / "training.json").write_text("{")
    assert newest_intact(tmp_path)[0] == tmp_path / "step-00000006"
    recorder = run(config, tmp_path)
    assert [step for step, *_ in recorder.reports] == [8]
    assert not torn.exists()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Folder of a training that was stopped, with its first and last checkpoint; the final loss of an unbroken one."""
    folder = tmp_path_factory.mktemp("stopped")
    config = configured(IMAGES, train=EVERY_STEP)
    run(config, folder, stop_when_asked=6, mode="max")  # so that the first is kept, too
    return folder, run(config).final["eval/loss"]


@pytest.mark.parametrize(
    ("file", "spoil", "wrong"),
    [
        ("training_state.pt", lambda content: content[: len(content) // 2], "bytes of"),
        ("training_state.safetensors", lambda content: content[: len(content) // 2], "bytes of"),
        ("model.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "does not match its checksum"),
        ("metrics.json", None, "metrics.json is missing"),
        ("files.json", lambda content: content[:20], "cannot be read"),
    ],
)
def test_a_training_resumes_from_the_newest_intact_checkpoint(
    file: str, spoil: Any, wrong: str, stopped: tuple[Path, float], tmp_path: Path
) -> None:
    folder, loss = stopped
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before, newest = names(tmp_path)[0], tmp_path / names(tmp_path)[-1]
    spoiled = newest / file
    if spoil is None:
        spoiled.unlink()
    else:
        spoiled.write_bytes(spoil(spoiled.read_bytes()))
    resumed = run(configured(IMAGES, train=EVERY_STEP), tmp_path, mode="max")
    assert resumed.reports[0][0] == int(before.removeprefix("step-")) < int(newest.name.removeprefix("step-"))
    assert resumed.final["eval/loss"] == loss
    (note,) = resumed.notes
    assert f"its checkpoint {newest.name} is damaged and was renamed" in note
    assert wrong in note
    assert (tmp_path / f"{newest.name}.damaged").is_dir()


def test_a_training_whose_checkpoints_are_all_damaged_says_that_it_begins_again(
    stopped: tuple[Path, float], tmp_path: Path
) -> None:
    folder, loss = stopped
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for name in names(tmp_path):
        (tmp_path / name / "model.safetensors").unlink()
    again = run(configured(IMAGES, train=EVERY_STEP), tmp_path, mode="max")
    assert again.reports[0][0] == 1
    assert again.final["eval/loss"] == loss
    assert again.notes[-1] == "no intact checkpoint is left, so it trains from its first step"


def test_a_checkpoint_has_its_name_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        run(configured(IMAGES, checkpoint={"background": False}), tmp_path)
    assert names(tmp_path) == ["step-00000004.unfinished"]
    assert newest_intact(tmp_path) == (None, [])


@pytest.mark.parametrize("background", [False, True])
def test_a_training_goes_on_where_folders_cannot_be_flushed_nor_those_of_open_files_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    config = configured(IMAGES, train=EVERY_STEP, checkpoint={"background": background})
    flush = os.fsync

    def fsync(file: int) -> None:  # of a folder on CIFS
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(file)

    def rmdir(path: str, **_: Any) -> None:  # on NFS, where a file that is open stays under another name
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rmdir", rmdir)
    run(config, tmp_path, stop_when_asked=6)
    (tmp_path / "step-00000009.unfinished").mkdir()  # of an attempt that was killed
    resumed = run(config, tmp_path)
    assert [step for step, *_ in resumed.reports][-1] == 4
    assert newest_intact(tmp_path)[0] == tmp_path / "step-00000004"


def test_a_finished_training_reports_its_end_again_and_trains_no_further(tmp_path: Path) -> None:
    config = configured(IMAGES)
    first, again = run(config, tmp_path), run(config, tmp_path)
    assert again.reports == first.reports[-1:]


def test_a_stop_soon_after_a_report_does_not_wait_for_the_next_record(tmp_path: Path) -> None:
    config = configured(IMAGES)
    unbroken = run(config)
    stopped = run(config, tmp_path, stop_when_asked=STOP_AT_STEP_5)
    assert (list(stopped.logs), [step for step, *_ in stopped.reports]) == ([2, 5], [4])
    assert newest_intact(tmp_path)[0] == tmp_path / "step-00000005"
    resumed = run(config, tmp_path).final
    assert resumed["eval/loss"] == unbroken.final["eval/loss"]


def test_a_training_that_is_killed_as_soon_as_a_checkpoint_is_saved_has_logged_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, save = list[int](), CheckpointSaver.save
    monkeypatch.setattr(Recorder, "log", lambda _, progress, __: logged.append(progress.step))

    def save_and_die(saver: CheckpointSaver, progress: Progress, *given: Any, **named: Any) -> str | None:
        checkpoint = save(saver, progress, *given, **named)
        if progress.step == 3:
            raise KeyboardInterrupt
        return checkpoint

    config = configured(IMAGES, train={"max_steps": 8, "eval_every": 4, "log_every": 1}, checkpoint={"every": 1})
    with monkeypatch.context() as patched:
        patched.setattr(CheckpointSaver, "save", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path)
    assert (tmp_path / "step-00000003").exists()
    run(config, tmp_path)
    assert logged == [1, 2, 3, 5, 6, 7]


def test_a_training_resumed_at_an_evaluation_repeats_its_report(tmp_path: Path) -> None:
    config = configured(IMAGES)
    stopped = run(config, tmp_path, stop_when_asked=STOP_AT_STEP_4)  # which is evaluated
    resumed = run(config, tmp_path)
    assert [(step, done) for step, _, _, done in resumed.reports] == [(4, False), (8, True)]
    assert resumed.reports[0] == stopped.reports[0]


def test_progress_is_counted_in_every_unit_and_continues_after_a_resume(working_folder: Path, tmp_path: Path) -> None:
    write_prompts(working_folder)
    config = configured(TEXT)
    unbroken = run(config)
    stopped, resumed = run(config, tmp_path, stop_when_asked=STOP_AT_STEP_6), run(config, tmp_path)
    (at_4, at_8), (end,) = unbroken.progress, resumed.progress
    assert replace(end, seconds=0) == replace(at_8, seconds=0)
    assert (at_8.step, at_8.samples) == (8, 8 * config.train.global_batch_size)
    assert at_8.epochs == at_8.samples / 20
    assert 0 < at_4.seconds < at_8.seconds
    assert end.seconds > stopped.progress[0].seconds > 0
    assert set(end.resources()) == {"steps", "epochs", "samples", "seconds", "tokens"}


def test_a_checkpoint_of_an_older_version_lacks_some_counts(tmp_path: Path) -> None:
    config = configured(IMAGES)
    run(config, tmp_path, stop_when_asked=STOP_AT_STEP_4)
    file = tmp_path / "step-00000004" / "training_state.pt"
    state = torch.load(file, weights_only=True)
    for name in ("epochs", "tokens", "seconds"):
        del state[name]
    for name, each in load_file(file.with_suffix(".safetensors")).items():  # older ones have all in one file
        key, _, parameter = name.partition(":")
        state["optimizer"].setdefault(parameter, {})[key] = each
    file.with_suffix(".safetensors").unlink()
    torch.save(state, file)
    (file.parent / SEAL_FILE).unlink()
    seal(file.parent)
    first, last = run(config, tmp_path).progress
    assert (first.step, first.samples, first.epochs, first.seconds) == (4, 1600, 1600 / 1707, 0.0)
    assert last.step == 8
    assert last.seconds > 0


def test_a_training_shortened_to_where_it_was_stopped_is_evaluated_there(tmp_path: Path) -> None:
    run(configured(IMAGES), tmp_path, stop_when_asked=STOP_AT_STEP_6)  # which is not evaluated
    recorder = run(configured(IMAGES, train={"max_steps": 6}), tmp_path)
    assert [(step, done) for step, _, _, done in recorder.reports] == [(6, True)]
    assert "eval/accuracy" in recorder.final


class Estimating(torch.optim.SGD):
    """A user's own optimizer that keeps its estimate of the distance to the solution in its groups, as Prodigy does."""

    def __init__(self, params: Any, lr: float, growth: float = 2.0):
        super().__init__(params, lr)
        for group in self.param_groups:
            group |= {"distance": 1e-3, "growth": growth}

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["distance"] *= group["growth"]
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"] * group["distance"])


class WithShortMoments(torch.optim.Optimizer):
    """A user's own optimizer that keeps moments in 16 bits, and counts in whole numbers."""

    def __init__(self, params: Any, lr: float):
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["moment"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
                    state["rises"] = torch.zeros_like(parameter, dtype=torch.int32)
                state["moment"].mul_(0.9).add_(parameter.grad)
                state["rises"] += parameter.grad > 0
                parameter.data.sub_(group["lr"] * state["moment"].float() / (1 + state["rises"] // 2))


def test_an_optimizers_state_keeps_its_types_when_it_is_resumed(tmp_path: Path) -> None:
    config = configured(IMAGES, train={"optimizer": {"_target_": f"{__name__}.WithShortMoments"}})
    run(config, tmp_path / "unbroken")
    run(config, tmp_path / "resumed", stop_when_asked=STOP_AT_STEP_5)
    run(config, tmp_path / "resumed")
    assert_same(tmp_path / "unbroken" / "step-00000008", tmp_path / "resumed" / "step-00000008")


class ChannelsLast(torch.nn.Sequential):
    """A user's own model whose weights do not lie in memory in the order of their dimensions."""

    def __init__(self) -> None:
        layers = torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), torch.nn.Flatten()
        super().__init__(*layers, torch.nn.Linear(64, 10))
        self.to(memory_format=torch.channels_last)


OWN_MODEL = {"kind": "custom", "_target_": f"{__name__}.ChannelsLast"}
OWN_OPTIMIZER = {"optimizer": {"_target_": f"{__name__}.Estimating"}, "lr": 1.0}


@pytest.mark.parametrize(
    ("model", "train", "background"),
    [
        pytest.param(OWN_MODEL, {"optimizer": "adamw"}, False, id="order in memory, adamw"),
        pytest.param(OWN_MODEL, {"optimizer": "sgd"}, False, id="order in memory, sgd"),
        pytest.param(IMAGES["model"], OWN_OPTIMIZER, False, id="learned about groups"),
        pytest.param(IMAGES["model"], OWN_OPTIMIZER, True, id="learned about groups, background"),
    ],
)
def test_a_users_own_model_and_optimizer_are_resumed_exactly(
    model: dict[str, Any], train: dict[str, Any], background: bool, tmp_path: Path
) -> None:
    config = configured({**IMAGES, "model": model}, train=train, checkpoint={"background": background})
    unbroken = run(config)
    run(config, tmp_path, stop_when_asked=STOP_AT_STEP_5)
    assert run(config, tmp_path).final["eval/loss"] == unbroken.final["eval/loss"]


def test_an_earlier_training_in_the_folder_is_an_error_unless_it_is_resumed(tmp_path: Path) -> None:
    run(configured(IMAGES), tmp_path)
    with pytest.raises(ValueError, match="holds checkpoints of an earlier training"):
        run(configured(IMAGES), tmp_path, resume=False)


# --- which are kept ------------------------------------------------------------------------------------------


def test_best_and_last_are_kept(tmp_path: Path) -> None:
    recorder = run(configured(IMAGES, train=EVERY_STEP | {"lr": 1.0}), tmp_path)  # too high: it gets worse
    losses = {step: metrics["eval/loss"] for step, metrics, *_ in recorder.reports}
    best = min(losses, key=lambda step: losses[step])
    assert best != 4
    assert names(tmp_path) == [f"step-{best:08d}", "step-00000004"]


@pytest.mark.parametrize("keep", ["best", "best,last"])
def test_the_checkpoint_of_the_last_report_is_kept_where_that_report_counts(keep: str, tmp_path: Path) -> None:
    tokens = [f"checkpoint.keep=[{keep}]", "train.max_steps=4", "train.eval_every=1", "train.lr=1.0"]
    training = sweeps.dry_run("digits", [*tokens, "search.value=last", "scaling=single_worker"]).config.training()
    assert isinstance(training, TrainingConfig)
    recorder = run(training, tmp_path, mode="max")
    assert recorder.final["eval/loss"] < max(metrics["eval/loss"] for _, metrics, *_ in recorder.reports)
    assert names(tmp_path) == ["step-00000004"]


@pytest.mark.parametrize(
    ("keep", "finished", "kept"),
    [
        (["best", "last"], False, [1, 3]),
        (["last"], False, [3]),
        (["best"], False, [1, 3]),  # the training would go on from the last one
        (["best", "last"], True, [1, 3]),
        (["last"], True, [3]),
        (["best"], True, [1]),
    ],
)
def test_the_config_decides_which_checkpoints_are_kept(
    keep: list[str], finished: bool, kept: list[int], tmp_path: Path
) -> None:
    fake(tmp_path, step_1=0.1, step_2=0.5, step_3=0.4)
    remove_superseded(tmp_path, keep, LOSS, finished=finished)
    assert names(tmp_path) == [f"step-{step:08d}" for step in kept]


def test_the_best_is_by_mode_and_neither_nan_nor_unevaluated(tmp_path: Path) -> None:
    folder = fake(tmp_path, step_1=float("nan"), step_2=0.5, step_3=0.7, step_4=0.7, step_5=None)
    assert best_checkpoint(folder, "eval/loss", "min") == folder / "step-00000002"
    assert best_checkpoint(folder, "eval/loss", "max") == folder / "step-00000003"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_checkpoint_with_an_infinite_metric_is_not_the_best_as_its_report_is_no_result(
    mode: str, tmp_path: Path
) -> None:
    folder = fake(tmp_path, step_1=-math.inf, step_2=0.5, step_3=math.inf)
    assert best_checkpoint(folder, "eval/loss", mode) == folder / "step-00000002"


def test_of_checkpoints_equal_in_the_first_objective_the_best_is_by_the_second(tmp_path: Path) -> None:
    for step, (accuracy, size) in enumerate([(0.8, 1.0), (0.9, 3.0), (0.9, 2.0), (0.9, 2.0)], start=1):
        (tmp_path / f"step-{step:08d}").mkdir()
        metrics = json.dumps({"accuracy": accuracy, "size": size})
        (tmp_path / f"step-{step:08d}" / "metrics.json").write_text(metrics)
    assert best_checkpoint(tmp_path, ["accuracy", "size"], ["max", "min"]) == tmp_path / "step-00000003"
    assert best_checkpoint(tmp_path, ["accuracy", "cost"], ["max", "min"]) == tmp_path / "step-00000002"
    with pytest.raises(KeyError, match="cost"):
        best_checkpoint(tmp_path, "cost", "min")
    remove_superseded(tmp_path, ["best"], [Objective("accuracy", "max"), Objective("size", "min")], finished=True)
    assert names(tmp_path) == ["step-00000003"]


def test_a_checkpoint_that_is_not_kept_is_not_announced(tmp_path: Path) -> None:
    config = configured(IMAGES, train=EVERY_STEP | {"lr": 1.0}, checkpoint={"keep": ["best"], "background": True})
    recorder = run(config, tmp_path)
    assert {step for step, *_ in recorder.checkpoints} <= {1, 2, 3}  # each was the last one when it was complete
    assert [checkpoint for _, _, checkpoint, _ in recorder.reports] == [None] * 4
    assert len(names(tmp_path)) == 1


# --- what can be loaded --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lora",
    [
        pytest.param({"r": 4, "alpha": 32, "target_modules": "mlp"}, id="lora"),
        pytest.param(None, id="all weights", marks=pytest.mark.slow),
    ],
)
def test_load_model_gives_the_language_model_that_was_trained(
    lora: dict[str, Any] | None, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.lanes import group

    write_prompts(working_folder)
    tokens = torch.arange(3, 60).unsqueeze(0)
    trained = []
    build_task = group.build_task

    def build(*arguments: Any) -> Any:
        task = build_task(*arguments)
        close = task.close

        def ask_and_close() -> None:  # closing takes the adapters off again
            task._head.attach()  # the training has left it to the loss
            task._head = None
            with torch.no_grad():
                trained.append(task.model.eval()(tokens).logits)
            close()

        task.close = ask_and_close
        return task

    monkeypatch.setattr(group, "build_task", build)
    run(configured(TEXT, model={"lora": lora}), working_folder / "checkpoints")
    folder = working_folder / "checkpoints" / "step-00000008"

    with torch.no_grad():
        (expected,) = trained
        assert torch.equal(sweeps_train.load_model(folder)(tokens).logits, expected)
        merged = sweeps_train.load_model(str(folder), merge=True)
        torch.testing.assert_close(merged(tokens).logits, expected, rtol=1e-4, atol=1e-4)
    assert type(merged).__name__ == "LlamaForCausalLM"


def test_loaded_models_do_not_share_their_base(working_folder: Path) -> None:
    write_prompts(working_folder)
    tokens = torch.arange(3, 60).unsqueeze(0)
    run(configured(TEXT, model={"lora": {"r": 4}}), working_folder / "one")
    first = sweeps_train.load_model(working_folder / "one" / "step-00000008")
    before = first(tokens).logits
    run(configured(TEXT, model={"lora": {"r": 8}}, train={"lr": 0.03}), working_folder / "other")
    second = sweeps_train.load_model(working_folder / "other" / "step-00000008")
    assert torch.equal(first(tokens).logits, before)
    assert not torch.equal(second(tokens).logits, before)


def test_adapters_name_their_base_as_the_config_does(working_folder: Path) -> None:
    write_prompts(working_folder)
    run(configured(TEXT), working_folder / "checkpoints")
    folder = working_folder / "checkpoints" / "step-00000008"
    written = json.loads((folder / "adapter_config.json").read_text())
    assert written["base_model_name_or_path"] == "builtin:tiny_llama"
    assert str(Path(sweeps_train.__file__).parent) not in "".join(
        file.read_text() for file in folder.iterdir() if file.suffix == ".json"
    )
    assert all("lora_" in name for name in load_file(folder / "adapter_model.safetensors"))
    assert (folder / "tokenizer_config.json").exists()


def test_load_model_gives_the_image_model_that_was_trained(tmp_path: Path) -> None:
    recorder = run(configured(IMAGES, model={"dropout": 0.5}), tmp_path)
    model = sweeps_train.load_model(tmp_path / "step-00000008")
    from sweeps_train.config import DigitsData
    from sweeps_train.data.images import build_image_samples

    _, held_out = build_image_samples(DigitsData(kind="digits", eval_fraction=0.05))
    batch = held_out.batch(range(len(held_out)))
    correct = (model(batch["inputs"]).argmax(dim=1) == batch["labels"]).float().mean().item()
    assert correct == pytest.approx(recorder.final["eval/accuracy"])


def test_a_folder_that_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a checkpoint of a built-in task \(no training\.json\)"):
        sweeps_train.load_model(tmp_path)


def sealed_on_slow_storage_with_few_open_files(folder: Path) -> str | None:
    os.fsync = lambda _: time.sleep(0.02)  # as a network file system answers; in a process of its own
    most = 60 + max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seal(folder)
    return find_damage(folder)


def test_a_checkpoint_of_many_files_is_sealed_with_few_of_them_open(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / str(number)).write_bytes(b"a chunk of an array")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(sealed_on_slow_storage_with_few_open_files, [tmp_path]) is None


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_training_continues_another_ones_checkpoint_with_its_own_values(optimizer: str, tmp_path: Path) -> None:
    train = {"optimizer": optimizer, "schedule": "constant"}
    donor = run(configured(IMAGES, train=train), tmp_path / "donor", stop_when_asked=STOP_AT_STEP_4)
    shutil.copytree(tmp_path / "donor", tmp_path / "changed")
    changed = configured(
        IMAGES, model={"dropout": 0.0}, train={**train, "lr": 0.003, "momentum": 0.5, "weight_decay": 0.1}
    )
    own = run(changed, tmp_path / "changed")
    assert own.reports[0] == (4, donor.reports[0][1], str(tmp_path / "changed" / "step-00000004"), False)
    assert own.logs[6]["train/lr"] == 0.003
    after = load_file(tmp_path / "changed/step-00000008" / TENSORS_FILE)
    if optimizer == "adamw":  # the moments were taken over: they count all steps
        assert {int(each) for name, each in after.items() if name.startswith("step:")} == {8}


@pytest.mark.parametrize("lora", [{"r": 32, "target_modules": "all-linear"}, None], ids=["lora", "all weights"])
def test_weights_and_state_are_not_read_again_to_be_sealed(
    lora: dict[str, Any] | None, tmp_path: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps_train.checkpoints import integrity

    read: list[str] = []
    size_and_checksum = integrity._size_and_checksum

    def counted(file: Path) -> list[int]:
        read.append(file.name)
        return size_and_checksum(file)

    monkeypatch.setattr(integrity, "_size_and_checksum", counted)
    write_prompts(working_folder)
    run(configured(TEXT, train={"max_steps": 2}, model={"lora": lora}, checkpoint={"background": False}), tmp_path)
    (checkpoint,) = tmp_path.glob("step-*")
    sizes = {file.name: file.stat().st_size for file in checkpoint.iterdir()}
    weights = "model.safetensors" if lora is None else "adapter_model.safetensors"
    assert "tokenizer_config.json" in read
    assert {*STATE_FILES, weights}.isdisjoint(read)
    # Two moments of each weight that is trained, and nothing else.
    assert sum(sizes[name] for name in STATE_FILES) < 2.6 * sizes[weights]
    assert find_damage(checkpoint) is None
    for name in (*STATE_FILES, weights):
        content = bytearray((checkpoint / name).read_bytes())
        content[len(content) // 2] ^= 1
        (checkpoint / name).write_bytes(content)
        assert find_damage(checkpoint) == f"{name} does not match its checksum"
        content[len(content) // 2] ^= 1
        (checkpoint / name).write_bytes(content)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"model.safetensors": 3}', '{"model.safetensors": [1]}'])
def test_a_checkpoint_whose_list_of_files_is_missing_or_damaged_is_damaged(tmp_path: Path, content: str | None) -> None:
    checkpoint = tmp_path / "step-00000001"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"1234")
    if content is not None:
        (checkpoint / SEAL_FILE).write_text(content)
    newest, damages = newest_intact(tmp_path)
    assert newest is None
    assert len(damages) == 1
    assert "its checkpoint step-00000001 is damaged and was renamed" in damages[0]
    assert (tmp_path / "step-00000001.damaged/model.safetensors").exists()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EMFILE, errno.EACCES, errno.EKEYEXPIRED, errno.ENOTCONN])
def test_a_checkpoint_that_cannot_be_read_for_a_moment_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    checkpoint = tmp_path / "step-00000001"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"1234")
    seal(checkpoint)
    with monkeypatch.context() as patched:
        opened = Path.open

        def refuse(self: Path, *arguments: Any, **named: Any) -> Any:
            if self.name == "model.safetensors":
                raise OSError(code, os.strerror(code), str(self))
            return opened(self, *arguments, **named)

        patched.setattr(Path, "open", refuse)
        with pytest.raises(OSError, match=os.strerror(code)):
            newest_intact(tmp_path)
    assert newest_intact(tmp_path) == (checkpoint, [])
