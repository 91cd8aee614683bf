"""The model of a checkpoint as a separate folder, without the training state.

A language model's folder is what transformers, PEFT and vLLM load. Every folder, except that of a user's own program,
also has the config of its training, so that ``sweeps_train.load_model`` loads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.errors import UserError
from sweeps.registry.best_checkpoint import fetch_checkpoint, weights_note
from sweeps.registry.model_names import check_folder
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps_train.checkpoints.checkpoint import (
    FILES,
    TRAINING_FILE,
    load_model,
    make_readable,
    read_training_config,
    write_json,
    write_training_config,
)
from sweeps_train.checkpoints.checkpoint_metrics import EVALUATION_FILE, METRICS_FILE
from sweeps_train.checkpoints.integrity import SEAL_FILE
from sweeps_train.checkpoints.training_state import STATE_FILES
from sweeps_train.config import CausalLM, TrainingConfig

STATE = (*STATE_FILES, METRICS_FILE, EVALUATION_FILE, SEAL_FILE)
"""Files of a checkpoint that belong to the training instead of its model."""
STATE_OF_TRAINER = ("optimizer.*", "scheduler.pt", "scaler.pt", "rng_state*.pth", "trainer_state.json")
"""Files of the training in a checkpoint that a Hugging Face ``Trainer`` has written."""
ADAPTER_CONFIG = "adapter_config.json"
MODEL_CONFIG = "config.json"


def save_model(
    record: SweepRecord,
    trial: TrialRecord,
    folder: Path,
    *,
    merged: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the model of a trial's best checkpoint into a new folder.

    Args:
        record: The trial's sweep.
        trial: The trial.
        folder: Folder to write; it may exist if it is empty.
        merged: Merge LoRA adapters into their base; else the folder has only the adapters, with the name of the base.
        tell: Called with a message at each step, which takes minutes for a large model.

    Raises:
        UserError: The folder is not empty or cannot be written, or there is no checkpoint, or its model does not load.
    """
    check_folder(folder)
    folder = folder.expanduser().absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:  # on the same disk
            tell(f"fetching the checkpoint of trial {trial.trial}.{weights_note(record, trial)}")
            checkpoint = fetch_checkpoint(record, trial, Path(scratch, "checkpoint"))
            tell("merging its adapters into their base" if merged else "copying its model")
            written = Path(scratch, "model")
            written.mkdir()
            write_model(checkpoint, written, merged=merged)
            written.rename(folder)
    except OSError as error:
        raise UserError(f"--save-model={folder}: cannot be written ({error}); choose another folder") from error
    except ValueError as error:
        raise UserError(f"trial {trial.trial} of {record.sweep}: {error}") from error


def write_model(checkpoint: Path, folder: Path, *, merged: bool) -> None:
    """Write the model of a checkpoint into an empty folder; with ``merged``, LoRA adapters are merged into their base.

    Raises:
        ValueError: The model cannot be loaded.
    """
    files = checkpoint / FILES if (checkpoint / FILES).is_dir() else checkpoint
    if not (files / TRAINING_FILE).is_file():  # not Sweeps' own training: an estimator, or a user's function or program
        files = _model_in(files)
        if merged:
            _write_merged_adapters(files, folder)
            return
        _copy(files, folder, STATE_OF_TRAINER if (files / "trainer_state.json").is_file() else ())
        if (folder / ADAPTER_CONFIG).is_file():
            _make_base_absolute(folder / ADAPTER_CONFIG)
        return
    config = read_training_config(files)
    if merged:
        _write_merged(config, files, folder)
        return
    _copy(files, folder, STATE)
    if isinstance(config.model, CausalLM) and config.model.lora is not None:
        _name_base(config.model, folder / ADAPTER_CONFIG)


def _model_in(checkpoint: Path) -> Path:
    """Return the folder of the model in a checkpoint of a user's own training: the only folder with a model of
    transformers or PEFT, otherwise the checkpoint itself. Ray's callback for a ``Trainer`` and many programs write such
    a folder."""
    folders = [checkpoint, *sorted(each for each in checkpoint.iterdir() if each.is_dir())]
    found = [each for each in folders if any((each / name).is_file() for name in (MODEL_CONFIG, ADAPTER_CONFIG))]
    return found[0] if len(found) == 1 else checkpoint


def _copy(source: Path, target: Path, without: Sequence[str]) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*without), dirs_exist_ok=True)


def _write_merged(config: TrainingConfig, checkpoint: Path, folder: Path) -> None:
    """Write a language model whose adapters are merged into its weights, as if all weights had been trained."""
    from transformers import AutoTokenizer

    from sweeps_train.models.causal_lm import save_causal_lm

    assert isinstance(config.model, CausalLM)
    save_causal_lm(load_model(checkpoint, merge=True), AutoTokenizer.from_pretrained(checkpoint), folder)
    write_training_config(folder, replace(config, model=replace(config.model, lora=None, quantization="none")))
    make_readable(folder)


def _name_base(config: CausalLM, file: Path) -> None:
    """Write the location of the adapters' base model into their config, for other programs: its hub name, or the
    absolute path of its folder (also for a model that ships with Sweeps)."""
    from sweeps_train.models.causal_lm import model_location

    base = Path(model_location(config.path))
    content = json.loads(file.read_text(encoding="utf-8"))
    content["base_model_name_or_path"] = str(base.resolve()) if base.is_dir() else config.path
    content["revision"] = config.revision
    write_json(file, content)


CLASSES_OF_ADAPTERS = {
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
}
"""Class of PEFT that loads adapters and their base model, by ``task_type``."""


def _write_merged_adapters(checkpoint: Path, folder: Path) -> None:
    """Merge the adapters that a user's own training has saved, as PEFT and TRL write them, into their base model, and
    write the result."""
    import peft
    from transformers import AutoTokenizer

    file = checkpoint / ADAPTER_CONFIG
    if not file.is_file():
        raise ValueError(f"--merge: its checkpoint has no adapters of PEFT (no {ADAPTER_CONFIG}); leave it out")
    content = json.loads(file.read_text(encoding="utf-8"))
    base = str(content["base_model_name_or_path"])
    kind = getattr(peft, CLASSES_OF_ADAPTERS.get(str(content.get("task_type")), "AutoPeftModel"))
    try:
        kind.from_pretrained(checkpoint).merge_and_unload().save_pretrained(folder)
        of_checkpoint = (checkpoint / "tokenizer_config.json").is_file()
        AutoTokenizer.from_pretrained(checkpoint if of_checkpoint else base).save_pretrained(folder)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"--merge: the base of its adapters, {base}, cannot be loaded ({reason}); run this in the folder in which "
            f"{base} is"
        ) from error


def _make_base_absolute(file: Path) -> None:
    """Replace a relative path of the adapters' base by the absolute one, if it is a folder below the working folder."""
    content = json.loads(file.read_text(encoding="utf-8"))
    base = Path(str(content.get("base_model_name_or_path") or ""))
    if base.parts and not base.is_absolute() and base.is_dir():
        content["base_model_name_or_path"] = str(base.resolve())
        write_json(file, content)
