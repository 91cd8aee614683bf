"""A checkpoint in the form that MLflow loads: what it keeps, and its signature."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import sweeps_train
from sweeps.compat import sweeps_class_names
from sweeps.errors import UserError
from sweeps_train.checkpoint import load_model, read_training_config
from sweeps_train.config import CausalLM, CustomModel, TrainingConfig
from sweeps_train.data.images import ImageShape, build_image_samples
from sweeps_train.models.image import SHAPE_FILE

if TYPE_CHECKING:
    from mlflow.models import Model, ModelSignature

CLASS_SCORES = 2
"""Dimensions of a classifier's answer: samples and classes."""
EXAMPLES = 2
"""Samples of an input example: with one, torch would take the batch size for a constant."""


@dataclass(frozen=True)
class Flavour:
    """How a model is given to MLflow."""

    module: Any
    """MLflow's own module for such models."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of its ``save_model``."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Kept with the model."""


class NamedClassifier:
    """MLflow's PyTorch flavour, with predictions that have the names of the classes as columns."""

    @staticmethod
    def save_model(path: str, mlflow_model: Model, **arguments: Any) -> None:
        """Save a model as ``mlflow.pytorch`` does, and let our own loader read it where ``mlflow.pyfunc`` does."""
        import mlflow.pytorch

        mlflow.pytorch.save_model(path=path, mlflow_model=mlflow_model, **arguments)
        mlflow_model.flavors["python_function"]["loader_module"] = sweeps_class_names.__name__.rpartition(".")[2]
        mlflow_model.save(str(Path(path) / "MLmodel"))


def flavour_of(folder: Path, *, merged: bool) -> Flavour:
    """
    Args:
        folder: A checkpoint.
        merged: Fold adapters into their base.

    Raises:
        UserError: The model cannot be loaded.
    """
    try:
        config = read_training_config(folder)
        if not isinstance(config.model, CausalLM):
            return _image(config, folder)
        if config.model.lora is not None and not merged:
            return _adapter(folder)
        return _whole(config, folder)
    except ValueError as error:
        raise UserError(f"{folder}: {error}") from error


def _adapter(folder: Path) -> Flavour:
    # Not MLflow's own way with adapters: of a base that is no hub name it writes weights that load as random ones.
    import mlflow.pyfunc

    needed = ("torch", "transformers", "peft", "safetensors", "pydantic", "numpy", "datasets")
    return Flavour(
        mlflow.pyfunc,
        {
            "python_model": str(Path(__file__).parent / "adapter_on_base.py"),
            "artifacts": {"checkpoint": str(folder)},
            "code_paths": [str(Path(sweeps_train.__file__).parent)],
            "signature": _of_text(),
            "pip_requirements": _pinned(*needed),
        },
    )


def _whole(config: TrainingConfig, folder: Path) -> Flavour:
    """All weights, adapters merged, as transformers' own pipeline."""
    import mlflow.transformers
    from transformers import AutoTokenizer

    model: Any = load_model(folder, merge=True)
    # MLflow asks the hub about a model by its name; a folder's name is none.
    if not _is_hub_name(config.model.path):  # type: ignore[union-attr] # a CausalLM
        model.name_or_path = model.config.name_or_path = ""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Flavour(
        mlflow.transformers,
        {
            "transformers_model": {"model": model, "tokenizer": tokenizer},
            "task": "text-generation",
            "signature": _of_text(),
            "pip_requirements": _pinned("torch", "transformers"),
        },
    )


def _image(config: TrainingConfig, folder: Path) -> Flavour:
    import mlflow.pytorch
    import numpy as np
    import pandas as pd
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import Schema, TensorSpec

    model, example = load_model(folder), _example(config, folder)
    with torch.no_grad():
        answer = model(example)
    given, got = (np.dtype(str(each.dtype).removeprefix("torch.")) for each in (example, answer))
    arguments: dict[str, Any] = {
        "pytorch_model": model,
        "input_example": example.numpy(),
        "pip_requirements": _pinned("torch", "numpy"),
    }
    code: list[str] = []
    if _exports(model, example):
        arguments["serialization_format"] = "pt2"
    else:
        arguments["serialization_format"] = "pickle"
        code = [str(Path(sweeps_train.__file__).parent), *_own_code(config)]
    inputs = Schema([TensorSpec(given, (-1, *example.shape[1:]))])
    names = class_names_of(config, model, answer.shape[-1]) if answer.ndim == CLASS_SCORES else ()
    if not names:
        outputs = Schema([TensorSpec(got, (-1, *answer.shape[1:]))])
        arguments |= {"signature": ModelSignature(inputs, outputs), "code_paths": code or None}
        return Flavour(mlflow.pytorch, arguments)
    outputs = infer_signature(model_output=pd.DataFrame(answer.numpy(), columns=list(names))).outputs
    arguments |= {
        "signature": ModelSignature(inputs, outputs),
        "code_paths": [*code, sweeps_class_names.__file__],
    }
    return Flavour(NamedClassifier, arguments, {sweeps_class_names.METADATA_KEY: json.dumps(names)})


def class_names_of(config: TrainingConfig, model: torch.nn.Module, outputs: int) -> tuple[str, ...]:
    """Names of a classifier's outputs: the model's own ``classes``, else those of its data set, where these are as many
    as it has outputs and no two are alike."""
    names = getattr(model, "classes", None)
    if not isinstance(names, Sequence) or isinstance(names, str):
        try:
            names = build_image_samples(config.data)[1].class_names  # type: ignore[arg-type] # of images
        except Exception:  # noqa: BLE001 - a user's data, which may be elsewhere; a model is registered without it, too
            return ()
    return tuple(map(str, names)) if len(names) == len(set(map(str, names))) == outputs else ()


def _exports(model: torch.nn.Module, example: torch.Tensor) -> bool:
    """Whether torch can write it as a graph, which loads without its class."""
    try:
        torch.export.export(model, (example,), dynamic_shapes=[{0: torch.export.Dim.AUTO}])
    except Exception:  # noqa: BLE001 - whatever a user's own code does that a graph cannot
        return False
    return True


def _example(config: TrainingConfig, folder: Path) -> torch.Tensor:
    """Inputs as the model takes them, of shape (``EXAMPLES``, ...)."""
    if (folder / SHAPE_FILE).exists():
        shape = ImageShape(**json.loads((folder / SHAPE_FILE).read_text(encoding="utf-8")))
        return torch.zeros(EXAMPLES, shape.channels, shape.height, shape.width)
    _, held_out = build_image_samples(config.data)  # type: ignore[arg-type] # of images, since the model is
    return torch.as_tensor(held_out.batch([0] * EXAMPLES)["inputs"])


def _own_code(config: TrainingConfig) -> list[str]:
    """The file or the package of a user's own model."""
    if not isinstance(config.model, CustomModel):
        return []
    spec = importlib.util.find_spec(config.model.target.partition(".")[0])
    if spec is None or spec.origin is None:
        return []
    return [str(Path(spec.origin).parent if spec.submodule_search_locations else spec.origin)]


def _of_text() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    # The names and the meaning that transformers gives them: its pipeline is handed these as they are.
    parameters = [
        ParamSpec("max_new_tokens", DataType.long, default=64),
        ParamSpec("do_sample", DataType.boolean, default=False),
        ParamSpec("temperature", DataType.double, default=1.0),
    ]
    return ModelSignature(
        Schema([ColSpec(DataType.string)]), Schema([ColSpec(DataType.string)]), ParamSchema(parameters)
    )


def _pinned(*names: str) -> list[str]:
    return [f"{name}=={version(name)}" for name in ("mlflow", *names)]


def _is_hub_name(path: str) -> bool:
    return not path.startswith((".", "/", "~", "builtin:")) and not Path(path).exists()
