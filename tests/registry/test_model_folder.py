"""The model of a checkpoint as a folder of its own, which transformers and PEFT load."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from recording import POINT, one_trial
from training_runs import IMAGES, TEXT, configured, run, write_prompts

from sweeps.errors import ConfigError, UserError
from sweeps.plan.plan import make_plan
from sweeps.registry.model_folder import save_model, write_model
from sweeps.registry.model_names import check_folder, check_registration, retrained_model
from sweeps.registry.register import register
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps_train import load_model
from sweeps_train.checkpoints.checkpoint import FILES
from sweeps_train.checkpoints.integrity import seal

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's

TOKENS = torch.arange(3, 60).unsqueeze(0)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Checkpoint of adapters on the model that ships with Sweeps."""
    folder = tmp_path_factory.mktemp("adapted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SWEEPS_CACHE", str(folder / "cache"))
        write_prompts(folder)
        run(configured(TEXT, train={"max_steps": 2, "eval_every": 2, "lr": 0.05}), folder / "checkpoints")
        yield folder / "checkpoints" / "step-00000002"


def scratch(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def written(checkpoint: Path, folder: Path, *, merged: bool = False) -> Path:
    folder.mkdir()
    write_model(checkpoint, folder, merged=merged)
    return folder


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    result: torch.Tensor = model.eval()(TOKENS).logits
    return result


def test_adapters_are_loaded_by_transformers_and_peft(adapted: Path, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = written(adapted, tmp_path / "saved")
    assert {file.name for file in folder.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer_config.json",
        "training.json",
    }
    expected = logits(load_model(adapted))
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(folder)), expected)
    assert torch.equal(logits(AutoPeftModelForCausalLM.from_pretrained(folder)), expected)
    assert torch.equal(logits(load_model(folder)), expected)
    assert AutoTokenizer.from_pretrained(folder)("a").input_ids


def test_a_merged_model_is_loaded_without_peft(adapted: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = written(adapted, tmp_path / "saved", merged=True)
    assert not any(file.name.startswith("adapter") for file in folder.iterdir())
    assert (folder / "generation_config.json").is_file()
    assert (folder / "model.safetensors").stat().st_mode & 0o044  # others may read it, too
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "LlamaForCausalLM"
    torch.testing.assert_close(logits(model), logits(load_model(adapted)), rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(load_model(folder)), logits(model))


@pytest.mark.slow
@pytest.mark.parametrize(("merged", "inside"), [(False, "artifacts/model"), (True, "model")])
@pytest.mark.filterwarnings("default")  # MLflow's own
def test_a_registered_version_has_the_same_folder_and_trains_on(
    merged: bool, inside: str, adapted: Path, tmp_path: Path, working_folder: Path
) -> None:
    from mlflow.models import Model
    from transformers import AutoModelForCausalLM

    from sweeps.registry.flavours import flavour_of

    scratch = tmp_path / "model"
    scratch.mkdir()
    flavour = flavour_of(adapted, scratch, merged=merged)
    flavour.module.save_model(path=str(tmp_path / "version"), mlflow_model=Model(), **flavour.arguments)
    folder = tmp_path / "version" / inside
    assert not [*folder.rglob("training_state.pt")]
    expected = logits(load_model(adapted))
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(folder)), expected, rtol=1e-4, atol=1e-4)
    if merged:
        write_prompts(working_folder)
        train = {"max_steps": 1, "eval_every": 1, "lr": 1e-30}  # too small to change a weight
        run(configured(TEXT, model={"path": str(folder), "lora": None}, train=train), tmp_path / "again")
        trained = load_model(tmp_path / "again" / "step-00000001")
        torch.testing.assert_close(logits(trained), expected, rtol=1e-4, atol=1e-4)


def test_other_models_are_loaded_by_load_model(tmp_path: Path) -> None:
    run(configured(IMAGES, train={"max_steps": 1, "eval_every": 1}), tmp_path / "checkpoints")
    checkpoint = tmp_path / "checkpoints" / "step-00000001"
    folder = written(checkpoint, tmp_path / "saved")
    assert {file.name for file in folder.iterdir()} == {"image_shape.json", "model.safetensors", "training.json"}
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(load_model(folder)(images), load_model(checkpoint)(images))


def test_files_of_a_users_own_program_are_copied_without_the_state_of_its_trainer(tmp_path: Path) -> None:
    checkpoint = tmp_path / "step-00000004"
    (checkpoint / "files" / "nested").mkdir(parents=True)
    for name in ("trainer_state.json", "optimizer.pt", "rng_state_0.pth", "config.json", "nested/tokens.txt"):
        (checkpoint / "files" / name).write_text("{}")
    (checkpoint / "progress.json").write_text("{}")
    folder = written(checkpoint, tmp_path / "saved")
    assert sorted(str(each.relative_to(folder)) for each in folder.rglob("*.*")) == ["config.json", "nested/tokens.txt"]


@pytest.mark.parametrize("spoil", [lambda file: file.write_bytes(file.read_bytes()[:1000]), Path.unlink])
def test_no_model_is_made_of_a_damaged_checkpoint(uri: str, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    run(configured(IMAGES, train={"max_steps": 1, "eval_every": 1}), tmp_path / "checkpoints")
    record, best = recorded(uri, tmp_path / "checkpoints" / "step-00000001")
    save_model(record, best, tmp_path / "intact")
    (weights,) = (tmp_path / "mlruns").rglob("best/model.safetensors")
    spoil(weights)
    wrong = r"its checkpoint is damaged: model.safetensors .*; choose another trial with --trial, or `python -m"
    with pytest.raises(UserError, match=wrong):
        save_model(record, best, tmp_path / "damaged")
    with pytest.raises(UserError, match=wrong):
        register(record, best, "damaged", None)
    assert not (tmp_path / "damaged").exists()


def recorded(uri: str, checkpoint: Path | None = None) -> tuple[SweepRecord, TrialRecord]:
    """A sweep that has ended, and its best trial."""
    with one_trial(uri) as recorder:
        recorder.trials.log("0", 1, {"eval/loss": 0.5})
        if checkpoint is not None:
            recorder.trials.record_checkpoint("0", str(checkpoint), "best")
        recorder.trials.end("0", "finished", 1, 1)
        recorder.update({"finished": 1}, [("0", (0.5,), POINT)], {"wall_s": 1.0})
    record = load_sweep(uri, "digits-1")
    assert record.best is not None
    return record, record.best


@pytest.fixture
def of_function(tmp_path: Path) -> Path:
    """Checkpoint of a user's function, which has saved files of its own."""
    files = tmp_path / "checkpoints" / "step-00000001" / FILES
    files.mkdir(parents=True)
    (files / "files.json").write_text('["a"]')
    (files / "weights").write_text("1234")
    seal(files.parent)
    return files


def test_no_model_is_made_of_a_trial_whose_code_saved_no_checkpoint(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"of digits-1 has no checkpoint in MLflow, .*; let its code save one"):
        save_model(*recorded(uri), tmp_path / "saved")


@pytest.mark.parametrize("is_kept_in_place", [True, False])
def test_files_of_a_users_function_are_checked_by_the_list_of_sweeps_and_not_by_one_of_theirs(
    uri: str, tmp_path: Path, of_function: Path, *, is_kept_in_place: bool
) -> None:
    record, best = recorded(uri, None if is_kept_in_place else of_function)
    best = replace(best, checkpoint=str(of_function)) if is_kept_in_place else best
    save_model(record, best, tmp_path / "intact")
    assert {each.name for each in (tmp_path / "intact").iterdir()} == {"files.json", "weights"}
    if is_kept_in_place:
        (of_function / "weights").write_text("12")
        with pytest.raises(UserError, match="its checkpoint is damaged: files/weights has 2 bytes of 4"):
            save_model(record, best, tmp_path / "damaged")


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_a_folder_that_cannot_be_written(
    uri: str, tmp_path: Path, of_function: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record, best), opened = recorded(uri), Path.open

    def stale(path: Path, *arguments: Any, **options: Any) -> Any:  # as of a mount whose server is away
        if path.name == "weights":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", stale)
    with pytest.raises(UserError, match=r"trial 0 of digits-1: its checkpoint cannot be read now .*Stale file handle"):
        save_model(record, replace(best, checkpoint=str(of_function)), tmp_path / "saved")


def test_a_folder_with_files_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    check_folder(folder)
    folder.mkdir()
    check_folder(folder)
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty; choose a new one"):
        check_folder(folder)
    with pytest.raises(ConfigError, match="is a file; choose a new folder"):
        check_folder(folder / "mine.txt")


def test_the_base_model_is_named_so_that_other_programs_find_it(adapted: Path, tmp_path: Path) -> None:
    training = json.loads((adapted / "training.json").read_text(encoding="utf-8"))
    (tmp_path / "on_hub").mkdir()
    for file in adapted.iterdir():
        (tmp_path / "on_hub" / file.name).write_bytes(file.read_bytes())
    training["model"] |= {"path": "somebody/model", "revision": "abc"}
    (tmp_path / "on_hub" / "training.json").write_text(json.dumps(training))
    for checkpoint, base, revision in (
        (tmp_path / "on_hub", "somebody/model", "abc"),
        (adapted, "/tiny_llama", None),
    ):
        folder = written(checkpoint, tmp_path / f"saved-{revision}")
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        assert config["base_model_name_or_path"].endswith(base)
        assert config["revision"] == revision


# --- what a user's own training has saved, as TRL and a Trainer do ----------------------------------------------------


@pytest.fixture(scope="module")
def saved_by_users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with ``base``, a complete model, and ``adapters`` on it, which name it by its relative path."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from sweeps_train.models.causal_lm import model_location

    folder, shipped = tmp_path_factory.mktemp("users"), model_location("builtin:tiny_llama")
    with contextlib.chdir(folder):
        AutoModelForCausalLM.from_pretrained(shipped).save_pretrained("base")
        AutoTokenizer.from_pretrained(shipped).save_pretrained("base")
        model = AutoModelForCausalLM.from_pretrained("base")
        adapters = LoraConfig(r=2, task_type="CAUSAL_LM", target_modules="all-linear", init_lora_weights=False)
        get_peft_model(model, adapters).save_pretrained("adapters")
        AutoTokenizer.from_pretrained(shipped).save_pretrained("adapters")
        Path("adapters/trainer_state.json").write_text("{}")
        Path("adapters/optimizer.pt").write_text("")
        assert json.loads(Path("adapters/adapter_config.json").read_text())["base_model_name_or_path"] == "base"
    return folder


@pytest.fixture
def users(saved_by_users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with ``base`` and ``adapters``."""
    monkeypatch.chdir(shutil.copytree(saved_by_users, tmp_path / "users"))
    return tmp_path / "users"


def test_adapters_of_a_users_own_training_load_from_any_folder(
    users: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    folder = written(users / "adapters", users / "saved")
    assert not (folder / "optimizer.pt").exists()
    expected = logits(AutoModelForCausalLM.from_pretrained("adapters"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(folder)), expected)


def test_adapters_of_a_users_own_training_are_merged_and_the_merged_model_is_registered(users: Path) -> None:
    from transformers import AutoModelForCausalLM

    from sweeps.registry.flavours import flavour_of

    folder = written(users / "adapters", users / "merged", merged=True)
    assert not (folder / "adapter_config.json").exists()
    expected = logits(AutoModelForCausalLM.from_pretrained("adapters"))
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(folder)), expected, atol=1e-4)
    with pytest.raises(UserError, match="has adapters without their base; add --merge"):
        flavour_of(users / "adapters", scratch(users, "one"), merged=False)
    arguments = flavour_of(users / "adapters", scratch(users, "two"), merged=True).arguments
    assert arguments["task"] == "text-generation"
    complete = flavour_of(users / "base", scratch(users, "three"), merged=False).arguments
    assert type(complete["transformers_model"]["model"]).__name__ == "LlamaForCausalLM"


def test_a_model_in_a_folder_of_the_checkpoint_is_found_as_rays_callback_for_a_trainer_writes_it(users: Path) -> None:
    from sweeps.registry.flavours import flavour_of

    nested = scratch(users, "of_callback")
    shutil.copytree(users / "base", nested / "checkpoint")
    (nested / "checkpoint" / "trainer_state.json").write_text("{}")
    (nested / "checkpoint" / "optimizer.pt").write_text("")
    folder = written(nested, users / "alone", merged=False)
    assert {each.name for each in folder.iterdir()} == {each.name for each in (users / "base").iterdir()}
    assert flavour_of(nested, scratch(users, "one"), merged=False).arguments["task"] == "text-generation"


def test_what_cannot_be_merged_or_registered_says_why(users: Path) -> None:
    from sweeps.registry.flavours import flavour_of

    with pytest.raises(ValueError, match="--merge: its checkpoint has no adapters of PEFT"):
        write_model(users / "base", scratch(users, "one"), merged=True)
    (users / "base").rename(users / "moved")
    with pytest.raises(ValueError, match="the base of its adapters, base, cannot be loaded"):
        write_model(users / "adapters", scratch(users, "two"), merged=True)
    (users / "moved" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"its checkpoint: .*no file named model\.safetensors"):
        flavour_of(users / "moved", scratch(users, "four"), merged=False)
    own = scratch(users, "own")
    (own / "weights.pt").write_text("")
    with pytest.raises(UserError, match="its checkpoint: only your training can load it"):
        flavour_of(own, scratch(users, "three"), merged=False)


@cache
def config_of(conf: str) -> Any:
    return make_plan([f"conf={conf}"], [], None, "").config


@pytest.mark.parametrize(
    ("conf", "is_trained", "refused"),
    [
        ("ray_train_function", False, True),
        ("ray_train_function", True, False),
        ("huggingface_trainer", False, False),
        ("command", False, True),
        ("command", True, False),
    ],
)
def test_what_a_users_own_training_saves_is_judged_by_its_files_where_there_are_some(
    conf: str, is_trained: bool, refused: bool
) -> None:
    with pytest.raises(UserError, match="use --no-register") if refused else contextlib.nullcontext():
        check_registration(config_of(conf), "name", None, merged=True, is_trained=is_trained)


@pytest.mark.parametrize("name", ["shared ", " shared", "sha\u202ered", "sha\u200bred"])
def test_no_models_name_looks_like_anothers(name: str) -> None:
    with pytest.raises(UserError, match="a model's name must"):
        check_registration(config_of("digits"), name, None, merged=False)


@pytest.mark.parametrize(
    ("conf", "asked", "name", "expected"),
    [
        ("digits", None, "digits", "digits"),
        ("digits", None, "mine.v2 50%", "mine-v2 50-"),  # a name of a conf that no model may have
        ("digits", "mine", "digits", "mine"),
        ("ray_train_function", None, "ray_train_function", None),  # nobody else can load what it saves
        ("ray_train_function", "mine", "ray_train_function", "mine"),
    ],
)
def test_a_retraining_registers_under_a_name_that_mlflow_takes_or_not_at_all(
    conf: str, asked: str | None, name: str, expected: str | None
) -> None:
    assert retrained_model(config_of(conf), asked, name) == expected
    if asked is None and expected is not None:
        check_registration(config_of(conf), expected, None, merged=False)
