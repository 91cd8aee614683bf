"""The MLflow flavour of each kind of checkpoint: the files to save, and the signature."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import sweeps_train
from sweeps.compat import sweeps_class_names
from sweeps.errors import UserError
from sweeps.registry.model_folder import ADAPTER_CONFIG, write_model
from sweeps.registry.native_flavours import LIBRARIES, EstimatorFlavours
from sweeps_train.checkpoints.checkpoint import TRAINING_FILE, load_model, read_training_config
from sweeps_train.config import CausalLM, CustomModel, TableData, TrainingConfig
from sweeps_train.data.images import build_image_samples
from sweeps_train.estimators.construct import library_of
from sweeps_train.estimators.model import ESTIMATOR_FILE, load_estimator
from sweeps_train.models.image import load_image_shape
from sweeps_train.tables.encoding import Classes, TableEncoding, load_encoding
from sweeps_train.tables.predictions import example_row, prediction_frame

if TYPE_CHECKING:
    from mlflow.models import Model, ModelSignature

CLASS_SCORES = 2
"""Number of dimensions of a classifier's output: samples and classes."""
_TRAINING_LIBRARY = str(Path(sweeps_train.__file__).parent)
"""Folder that is copied into a registered model whose loader imports ``sweeps_train``."""
EXAMPLES = 2
"""Number of samples in an input example; with one sample, torch would treat the batch size as a constant."""


@dataclass(frozen=True)
class Flavour:
    """An MLflow flavour and its arguments for one model."""

    module: Any
    """The module of the flavour, or another object with ``save_model``."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of ``save_model``."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Metadata that is saved with the model."""


class NamedClassifier:
    """MLflow's PyTorch flavour for a classifier whose predictions have the class names as columns."""

    @staticmethod
    def save_model(path: str, mlflow_model: Model, **arguments: Any) -> None:
        """Save a model as ``mlflow.pytorch`` does, but let ``mlflow.pyfunc`` load it with our loader."""
        import mlflow.pytorch

        mlflow.pytorch.save_model(path=path, mlflow_model=mlflow_model, **arguments)
        mlflow_model.flavors["python_function"]["loader_module"] = sweeps_class_names.__name__.rpartition(".")[2]
        mlflow_model.save(str(Path(path) / "MLmodel"))


class CompleteFolder:
    """MLflow's flavour for transformers, with the tokenizer also in the model's folder, from which other programs load
    both. (MLflow 3.17 cannot save such a folder directly: it does not know the lazy pipelines of transformers 5.)"""

    @staticmethod
    def save_model(path: str, transformers_model: dict[str, Any], **arguments: Any) -> None:
        """Save a model as ``mlflow.transformers`` does, and its tokenizer a second time."""
        import mlflow.transformers

        mlflow.transformers.save_model(path=path, transformers_model=transformers_model, **arguments)
        transformers_model["tokenizer"].save_pretrained(Path(path, "model"))


def flavour_of(folder: Path, scratch: Path, *, merged: bool) -> Flavour:
    """Return the flavour of a checkpoint.

    Args:
        folder: Folder of the checkpoint.
        scratch: Empty folder for the files of a language model, which must stay until the model is saved.
        merged: Merge LoRA adapters into their base.

    Raises:
        UserError: The model cannot be loaded.
    """
    try:
        if (folder / ESTIMATOR_FILE).is_file():
            return _estimator(folder)
        if not (folder / TRAINING_FILE).is_file():
            write_model(folder, scratch, merged=merged)
            return _of_users_training(scratch)
        config = read_training_config(folder)
        if isinstance(config.data, TableData):
            return _rows(folder, _own_code(config))
        if not isinstance(config.model, CausalLM):
            return _image(config, folder)
        write_model(folder, scratch, merged=merged)
        return _transformers(config.model, scratch) if config.model.lora is None or merged else _adapter(scratch)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of this machine's disk, and not transformers' own
            raise
        raise UserError(f"its checkpoint: {error}") from error


def _adapter(folder: Path) -> Flavour:
    # Not MLflow's own way to save adapters: if the base is not a hub name, its saved weights load as random ones.
    import mlflow.pyfunc

    config = read_training_config(folder).model
    quantized = ("bitsandbytes", "accelerate") if isinstance(config, CausalLM) and config.quantization != "none" else ()
    needed = ("torch", "transformers", "peft", "safetensors", "pydantic", "numpy", "pandas", "datasets", *quantized)
    own = {"signature": _text_signature(), "input_example": ["Once upon a time"]}
    return Flavour(mlflow.pyfunc, _loaded_by("adapter_on_base", folder, needed) | own)


def _loaded_by(loader: str, checkpoint: Path, needed: Sequence[str], own_code: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of ``mlflow.pyfunc.save_model`` for a checkpoint that a file of this package loads."""
    return {
        "python_model": str(Path(__file__).parent / f"{loader}.py"),
        "artifacts": {"checkpoint": str(checkpoint)},
        "code_paths": [_TRAINING_LIBRARY, *own_code],
        "pip_requirements": _pinned(*needed),
    }


def _estimator(folder: Path) -> Flavour:
    model = load_estimator(folder)
    kind = type(model.estimator)
    library, own = library_of(kind), kind.__module__.partition(".")[0]
    installed = packages_distributions().get(library, [])
    has_probabilities = hasattr(model.estimator, "predict_proba")
    flavour = _rows(
        folder,
        [] if own == library else _code_of(f"{kind.__module__}.{kind.__name__}"),
        has_probabilities=has_probabilities,
        libraries=sorted({"scikit-learn", "joblib", *installed}),
    )
    if library not in LIBRARIES:
        return flavour
    return replace(flavour, module=EstimatorFlavours(model.estimator, library))


def _rows(
    folder: Path, own_code: list[str], *, has_probabilities: bool = True, libraries: Sequence[str] = ()
) -> Flavour:
    import mlflow.pyfunc
    import pandas as pd

    encoding = load_encoding(folder)
    needed = ("torch", "safetensors", "pydantic", "numpy", "pandas", "pyarrow", *libraries)
    columns = {
        "signature": _row_signature(encoding, has_probabilities=has_probabilities),
        "input_example": pd.DataFrame([example_row(encoding)]),
    }
    return Flavour(mlflow.pyfunc, _loaded_by("row_predictor", folder, needed, own_code) | columns)


def _row_signature(encoding: TableEncoding, *, has_probabilities: bool) -> ModelSignature:
    """Return the signature of raw rows. It has only names, since MLflow refuses whole numbers in a column of decimals,
    and missing values in most others; the encoding checks the values."""
    import numpy as np
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    columns: list[Any] = [ColSpec(AnyType(), name) for name in encoding.kinds]  # type: ignore[no-untyped-call]
    is_of_classes = isinstance(encoding.output, Classes)
    output = np.zeros((1, encoding.num_outputs)) if is_of_classes and has_probabilities else np.zeros(1)
    if is_of_classes and not has_probabilities:
        output = output.astype(np.int64)
    outputs = infer_signature(model_output=prediction_frame(encoding, output)).outputs
    return ModelSignature(Schema(columns), outputs)


def _transformers(config: CausalLM, folder: Path) -> Flavour:
    """Return the flavour of transformers' pipeline."""
    from transformers import AutoTokenizer

    model: Any = load_model(folder)
    # MLflow looks the model's name up on the hub, where a folder's name does not exist.
    if config.path.startswith((".", "/", "~", "builtin:")) or Path(config.path).exists():
        model.name_or_path = model.config.name_or_path = ""
    return _pipeline(model, AutoTokenizer.from_pretrained(folder), "text-generation")


def _pipeline(model: Any, tokenizer: Any, task: str) -> Flavour:
    return Flavour(
        CompleteFolder,
        {
            "transformers_model": {"model": model, "tokenizer": tokenizer},
            "task": task,
            "signature": _text_signature() if task == "text-generation" else None,
            "pip_requirements": _pinned("torch", "transformers"),
        },
    )


TASKS = {
    "ForCausalLM": "text-generation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForSeq2SeqLM": "text2text-generation",
    "ForMaskedLM": "fill-mask",
}
"""Task of transformers' pipeline, by the end of the name of the model's class."""


def _of_users_training(folder: Path) -> Flavour:
    """Return the flavour for files that a user's own training has saved for transformers."""
    import transformers

    if (folder / ADAPTER_CONFIG).is_file():
        raise ValueError("its checkpoint has adapters without their base; add --merge to register both as one model")
    if not (folder / "config.json").is_file() or not (folder / "tokenizer_config.json").is_file():
        raise ValueError(
            "only your training can load it, since it is not a folder of transformers with a config.json and a "
            "tokenizer (give the Trainer its processing_class); log the model with MLflow yourself"
        )
    name = (transformers.AutoConfig.from_pretrained(folder).architectures or [""])[0]
    task = next((task for end, task in TASKS.items() if name.endswith(end)), None)
    kind = getattr(transformers, name, None)
    if kind is None or task is None:
        raise ValueError(f"config.json names the class {name}, which has no pipeline here; log it with MLflow yourself")
    model = kind.from_pretrained(folder)
    model.name_or_path = model.config.name_or_path = ""  # no name on the hub, where MLflow would look it up
    return _pipeline(model, transformers.AutoTokenizer.from_pretrained(folder), task)


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
        code = [_TRAINING_LIBRARY, *_own_code(config)]
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
    """Return the names of a classifier's outputs: the model's ``classes``, otherwise those of its data set. Empty
    unless each output has a distinct name."""
    names = getattr(model, "classes", None)
    if not isinstance(names, Sequence) or isinstance(names, str):
        try:
            names = build_image_samples(config.data)[1].class_names  # type: ignore[arg-type] # of images
        except Exception:  # noqa: BLE001 - the user's data may not be here; a model is registered without it
            return ()
    return tuple(map(str, names)) if len(names) == len(set(map(str, names))) == outputs else ()


def _exports(model: torch.nn.Module, example: torch.Tensor) -> bool:
    """Whether torch can export a model as a graph, which loads without the model's class."""
    try:
        torch.export.export(model, (example,), dynamic_shapes=[{0: torch.export.Dim.AUTO}])
    except Exception:  # noqa: BLE001 - a user's model may raise anything when it is traced
        return False
    return True


def _example(config: TrainingConfig, folder: Path) -> torch.Tensor:
    """Return example inputs of the model, of shape (``EXAMPLES``, ...)."""
    if (shape := load_image_shape(folder)) is not None:
        return torch.zeros(EXAMPLES, shape.channels, shape.height, shape.width)
    _, held_out = build_image_samples(config.data)  # type: ignore[arg-type] # of images, since the model is
    return torch.as_tensor(held_out.batch([0] * EXAMPLES)["inputs"])


def _own_code(config: TrainingConfig) -> list[str]:
    """Return the paths of the file or package of a user's own model."""
    return _code_of(config.model.target) if isinstance(config.model, CustomModel) else []


def _code_of(target: str) -> list[str]:
    """Return the path of the file or package at the beginning of an import path. Of a package without an
    ``__init__.py``, which may have several folders, it is the one with the module, unless it is a whole repository."""
    spec = importlib.util.find_spec(target.partition(".")[0])
    if spec is None:
        return []
    if spec.origin is not None:
        return [str(Path(spec.origin).parent if spec.submodule_search_locations else spec.origin)]
    own = None
    with contextlib.suppress(ImportError):  # the package may lack the module here
        own = importlib.util.find_spec(target.rpartition(".")[0])
    code = Path("/" if own is None or own.origin is None else own.origin)
    folders = [Path(each) for each in spec.submodule_search_locations or () if code.is_relative_to(each)]
    return [str(folder) for folder in folders[:1] if not (folder / ".git").exists()]


def _text_signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    # Named as in transformers, whose pipeline gets them unchanged.
    parameters = [
        ParamSpec("max_new_tokens", DataType.long, default=64),
        ParamSpec("do_sample", DataType.boolean, default=False),
        ParamSpec("temperature", DataType.double, default=1.0),
    ]
    return ModelSignature(
        Schema([ColSpec(DataType.string)]), Schema([ColSpec(DataType.string)]), ParamSchema(parameters)
    )


def _pinned(*names: str) -> list[str]:
    """Return requirements that pip finds on PyPI, where no version has a label such as ``+cu126``."""
    return [f"{name}=={version(name).partition('+')[0]}" for name in ("mlflow", *names)]
