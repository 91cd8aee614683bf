"""Checks that the model and a whole batch fit the data, as far as config files and known sizes tell, and that libraries
which the model needs are installed."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps_train.config import (
    BITSANDBYTES_OPTIMIZERS,
    CausalLM,
    ConvNet,
    DigitsData,
    TableData,
    TextData,
    Train,
    VisionTransformer,
)

DIGITS_PIXELS = 8
"""Height and width of scikit-learn's digits."""
DIGITS = (1797, 10)
"""Samples and classes of scikit-learn's digits."""
TABLES = {"builtin:breast_cancer": (569, 2), "builtin:diabetes": (442, 1), "builtin:wine": (178, 3)}
"""Rows and classes of scikit-learn's tables; a table with a numeric target counts as one class of all rows."""


def check_model_on_data(config: SweepConfig) -> None:
    """Check that the model accepts the data.

    Raises:
        ConfigError: Sequences are longer than the model allows, or images cannot be divided into its patches or blocks.
    """
    model, data = config.model, config.data
    if isinstance(model, CausalLM) and isinstance(data, TextData):
        positions = model_facts(model).get("max_position_embeddings")
        if isinstance(positions, int) and data.sequence_length > positions:
            raise ConfigError(
                f"data.sequence_length={data.sequence_length}: model.path={model.path} has {positions} positions; set "
                f"data.sequence_length to at most {positions}"
            )
    if not isinstance(data, DigitsData):
        return
    if isinstance(model, VisionTransformer) and DIGITS_PIXELS % model.patch_size:
        raise ConfigError(
            f"model.patch_size={model.patch_size}: does not divide images of {DIGITS_PIXELS}x{DIGITS_PIXELS} pixels; "
            "use 1, 2, 4 or 8"
        )
    if isinstance(model, ConvNet) and 2**model.blocks > DIGITS_PIXELS:
        raise ConfigError(
            f"model.blocks={model.blocks}: halve images of {DIGITS_PIXELS}x{DIGITS_PIXELS} pixels to nothing; use at "
            f"most {DIGITS_PIXELS.bit_length() - 1}"
        )


def check_bitsandbytes(config: SweepConfig, train: Train) -> None:
    """Check the requirements of quantization and of optimizers from bitsandbytes.

    Raises:
        ConfigError: The model or the optimizer needs bitsandbytes, which is not installed, or a GPU.
    """
    model = config.model
    used: dict[str, str] = {}
    if isinstance(model, CausalLM) and model.quantization != "none":
        used["model.quantization"] = model.quantization
    if train.optimizer in BITSANDBYTES_OPTIMIZERS:
        used["train.optimizer"] = str(train.optimizer)
        if str(train.optimizer).startswith("paged") and config.scaling.use_gpu is False:
            raise ConfigError(
                f"train.optimizer={train.optimizer}: moves its state between the memory of a GPU and that of the CPU, "
                "and scaling.use_gpu=false; use adamw_8bit or adamw"
            )
    if used:
        check_installed(" and ".join(f"{key}={value}" for key, value in used.items()), "bitsandbytes", "quantization")


def check_float8(config: SweepConfig, train: Train) -> None:
    """Check the requirements of training in 8-bit floating point.

    Raises:
        ConfigError: 8-bit multiplications need torchao, which is not installed, or a GPU.
    """
    if train.precision != "fp8":
        return
    if config.scaling.use_gpu is False:
        raise ConfigError(
            "train.precision=fp8: needs a GPU, and scaling.use_gpu=false; use train.precision=auto, or "
            "scaling.use_gpu=true"
        )
    check_installed("train.precision=fp8", "torchao", "fp8")


def check_installed(key: str, library: str, extra: str) -> None:
    """Check that a library, which an extra of ray-sweeps installs, is here.

    Raises:
        ConfigError: It is not; the message names the key that needs it.
    """
    if importlib.util.find_spec(library.lower()) is None:
        raise ConfigError(
            f"{key}: {library} is not installed; pip install 'ray-sweeps[{extra}]', here and on every machine that "
            "trains"
        )


def model_facts(model: CausalLM) -> dict[str, Any]:
    """Return ``config.json`` of a causal language model; empty if the file is not on this machine."""
    path = model.path
    if path.startswith("builtin:"):
        spec = importlib.util.find_spec("sweeps_train")
        assert spec is not None and spec.submodule_search_locations
        file = Path(spec.submodule_search_locations[0]) / "models" / path.removeprefix("builtin:") / "config.json"
    else:
        file = Path(path).expanduser() / "config.json"
        if not file.is_file():
            from huggingface_hub import try_to_load_from_cache
            from huggingface_hub.errors import HFValidationError

            try:
                cached = try_to_load_from_cache(path, "config.json", revision=model.revision)
            except HFValidationError:
                return {}
            if not isinstance(cached, str):
                return {}
            file = Path(cached)
    if not file.is_file():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    facts: dict[str, Any] = content.get("text_config", content)  # a section of its own in a model for images and text
    return facts


def check_samples(config: SweepConfig, train: Train) -> None:
    """Check that the data have enough samples to train and to evaluate.

    Raises:
        ConfigError: The held-out part leaves a class without samples, or the training part none for a whole batch.
    """
    data, size = config.data, _size(config)
    if size is None:
        return
    assert isinstance(data, DigitsData | TableData)
    num_samples, num_classes = size
    held_out = math.ceil(data.eval_fraction * num_samples)
    if min(held_out, num_samples - held_out) < num_classes:
        raise ConfigError(
            f"data.eval_fraction={data.eval_fraction:g}: holds out {held_out:,} of {num_samples:,} samples; leave at "
            f"least {num_classes} to train and {num_classes} to evaluate"
        )
    used = max(num_classes, math.ceil(data.train_fraction * (num_samples - held_out)))
    if train.global_batch_size > used:
        larger = f" that data.train_fraction={data.train_fraction:g} leaves" if data.train_fraction < 1 else ""
        fix = "a larger data.train_fraction" if larger else "a smaller data.eval_fraction"
        raise ConfigError(
            f"train.global_batch_size={train.global_batch_size}: is more than the {used:,} training "
            f"sample{'s'[: used != 1]}{larger}; use at most {used:,}, or {fix}"
        )


def _size(config: SweepConfig) -> tuple[int, int] | None:
    """Return the numbers of samples and classes; None if they are known only after reading the data."""
    match config.data:
        case DigitsData():
            return DIGITS
        case TableData(path=path, target="target", eval_path=None, group=None, time=None) if path in TABLES:
            rows, classes = TABLES[path]
            if config.task.kind == "regression":
                return rows, 1
            return (rows, classes) if config.task.kind == "classification" and classes > 1 else None
    return None
