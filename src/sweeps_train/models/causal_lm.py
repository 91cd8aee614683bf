"""Causal language models and their tokenizers, loaded by transformers."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sweeps_train.config import CausalLM, Lora
from sweeps_train.models.lora import add_lora, load_lora, remove_lora
from sweeps_train.models.quantization import bitsandbytes_config, quantize_blank

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase

# PEFT imports bitsandbytes where it is installed, which then warns of kernels for CPUs that only the hub has; and
# torchao, which warns of its kernels for other devices, and has torch warn of its way to register constants.
for _name in ("bitsandbytes.backends.cpu.ops", "torchao", "torch.utils._pytree"):
    logging.getLogger(_name).setLevel(logging.ERROR)

CPU = torch.device("cpu")
BUILTIN_MODELS = {"builtin:tiny_llama": Path(__file__).parent / "tiny_llama"}
"""Models that ship with Sweeps."""


def build_causal_lm(config: CausalLM, weights: Path | None = None) -> nn.Module:
    """Load a pretrained model, with adapters if the config has them. ``weights`` is the folder of a checkpoint whose
    weights are loaded instead of the pretrained ones and new adapters.

    Returns:
        A model that maps ``input_ids`` of shape (samples, tokens) to ``logits`` of shape (samples, tokens, vocabulary).

    Raises:
        ValueError: The model cannot be loaded, or cannot have such adapters.
    """
    if config.lora is None:
        whole: nn.Module
        whole, _ = _load(config, weights)
        return whole
    adapted = _with_adapters(*_load(config, None), config, config.lora)
    if weights is not None:
        load_lora(adapted, weights)
    return adapted


class SharedBase:
    """A frozen base model that successive trials add their adapters to; quantized on the worker's device."""

    def __init__(self, config: CausalLM, device: torch.device):
        self._model, self._missing = _load(config, None, device)
        self._config = config
        self._adapted: Any = None

    def adapt(self, lora: Lora) -> nn.Module:
        """Add new adapters to the base model."""
        self.release()  # adapters of a training that failed while it was built
        adapted = self._adapted = _with_adapters(self._model, self._missing, self._config, lora)
        return adapted

    def copied(self, lora: Lora | None) -> nn.Module:
        """Return another model with the same frozen tensors, and with adapters if given: for a strategy that replaces
        parameters when it shards, and for trainings that share the base."""
        self.release()
        shared = {id(each): nn.Parameter(each.data, requires_grad=False) for each in self._model.parameters()}
        other = copy.deepcopy(self._model, shared)
        return other if lora is None else _with_adapters(other, self._missing, self._config, lora)

    def move_to(self, device: torch.device) -> None:
        """Move the base model to a device; copies made afterwards share its tensors there."""
        self.release()
        self._model.to(device)

    @property
    def size(self) -> int:
        """Size of all weights in bytes."""
        return sum(each.nbytes for each in self.parameters())

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all weights."""
        weights: Iterator[nn.Parameter] = self._model.parameters()
        return weights

    def release(self) -> None:
        """Remove the adapters together with all hooks on their parameters."""
        if self._adapted is not None:
            self._model = remove_lora(self._adapted)
            self._adapted = None


def _load(config: CausalLM, weights: Path | None, device: torch.device = CPU) -> tuple[Any, list[str]]:
    """Load the model without adapters: pretrained, or with the weights of a checkpoint. Return also the names of its
    weights that its files do not have, which are random numbers.

    Raises:
        ValueError: It cannot be loaded.
    """
    from transformers import AutoModelForCausalLM

    quantized: dict[str, Any] = {}
    if config.quantization != "none":
        quantized = {"quantization_config": bitsandbytes_config(config.quantization), "device_map": {"": device}}

    with _no_progress_bar():
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                weights or model_location(config.path),
                revision=None if weights else config.revision,
                dtype=config.dtype,
                attn_implementation=config.attention,
                trust_remote_code=config.trust_remote_code,
                output_loading_info=True,
                **quantized,
            )
        except OSError as error:
            raise ValueError(f"model.path={config.path} cannot be loaded: {error}") from error
    model, loading = loaded
    missing = sorted(set(loading["missing_keys"]) & {name for name, _ in model.named_parameters()})
    if config.quantization == "nf4":
        for module in model.modules():
            if hasattr(module, "compute_dtype"):
                module.compute_dtype = model.dtype  # float32 by default, in which a GPU is slow
                # bitsandbytes 0.50 packs weights at the first evaluation on such a CPU, and then has no gradients.
                module.support_avx512bf16_for_cpu = False
    # Checkpoints name their base model, and must find it on other machines too.
    model.name_or_path = model.config.name_or_path = config.path
    if config.gradient_checkpointing:
        _checkpoint_activations(model)
    return model, missing


def _with_adapters(base: Any, missing: Sequence[str], config: CausalLM, lora: Lora) -> PeftModel:
    """Add new adapters to a base model.

    Raises:
        ValueError: The base model's files lack weights that are not trained as a whole beside the adapters, or it
            cannot have such adapters.
    """
    random = [name for name in missing if not any(f".{saved}." in f".{name}" for saved in lora.modules_to_save)]
    if random:
        raise ValueError(
            f"model.path={config.path}: its files have no {', '.join(random[:3])}; transformers would take random "
            "numbers, which adapters neither train nor save; use a model with all weights, or name the module in "
            "model.lora.modules_to_save"
        )
    return add_lora(base, lora, config.revision)


def _checkpoint_activations(model: Any) -> None:
    # Renamed within transformers 5.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})  # the reentrant kind has no gradients behind frozen embeddings


def build_blank_causal_lm(config: CausalLM) -> nn.Module:
    """Build a model with its adapters from its config alone, for tensors without values; nothing is downloaded.

    Raises:
        OSError: The model's config is not on this machine.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    known = AutoConfig.from_pretrained(
        model_location(config.path),
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
        local_files_only=True,
    )
    dtype = known.dtype if config.dtype == "auto" else config.dtype
    # Kernels for GPUs take as much memory as torch's own.
    attention = None if (config.attention or "").startswith("flash") else config.attention
    factory: Any = AutoModelForCausalLM
    model = factory.from_config(
        known,
        dtype=dtype or torch.float32,
        attn_implementation=attention,
        trust_remote_code=config.trust_remote_code,
    )
    if config.quantization != "none":
        quantize_blank(model, config.quantization)
    if config.gradient_checkpointing:
        _checkpoint_activations(model)
    return model if config.lora is None else add_lora(model, config.lora)


def build_tokenizer(config: CausalLM) -> PreTrainedTokenizerBase:
    """Load the model's tokenizer, or the one that the config names.

    Raises:
        ValueError: The tokenizer cannot be loaded.
    """
    from transformers import AutoTokenizer

    path = config.tokenizer or config.path
    key = "model.tokenizer" if config.tokenizer else "model.path"
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_location(path),
            revision=None if config.tokenizer else config.revision,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}={path}: no tokenizer can be loaded from it: {error}") from error
    return tokenizer


def max_positions(model: nn.Module) -> int | None:
    """Return the length in tokens of the longest sequence that the model supports; None without a limit."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator] # transformers' own
    positions: int | None = getattr(config, "max_position_embeddings", None)
    return positions


def save_causal_lm(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    weights: Mapping[str, torch.Tensor] | None = None,
    stored_types: Mapping[str, torch.dtype] | None = None,
) -> None:
    """Write adapters or the full model, and the tokenizer, into an existing folder, in the formats of peft and
    transformers. Trained ``weights`` are given if the model itself has only shards of them; ``stored_types`` where they
    differ from the types in which weights are trained."""
    if stored_types:
        whole = _own_weights(model) if weights is None else weights
        weights = {name: each.to("cpu", stored_types.get(name, each.dtype)) for name, each in whole.items()}
    given: Any = {} if weights is None else {"state_dict": dict(weights)}
    from peft import PeftModel
    from transformers import PreTrainedModel

    if isinstance(model, PeftModel):
        # The model card would be an empty form, and takes longer to write than everything else.
        model.create_or_update_model_card = lambda folder: None  # type: ignore[method-assign, assignment]
        # The default "auto" asks the hub whether the vocabulary was resized; it never is.
        model.save_pretrained(str(folder), save_embedding_layers=False, **given)
    else:
        assert isinstance(model, PreTrainedModel)
        with _no_progress_bar():
            model.save_pretrained(folder, **given)
        if stored_types:
            _name_type(folder / "config.json", next(iter(stored_types.values())))
    tokenizer.save_pretrained(folder)


def _own_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Select the weights and buffers that a model saves; a tensor that several parts share is saved under its first
    name."""
    names: dict[torch.Tensor, str] = {}
    for name, each in model.state_dict(keep_vars=True).items():
        names.setdefault(each, name)
    return {name: each.detach() for each, name in names.items()}


def _name_type(file: Path, dtype: torch.dtype) -> None:
    """Write the dtype of the saved weights into the model's config, where transformers has put the dtype used in
    memory."""
    content = json.loads(file.read_text(encoding="utf-8"))
    content["dtype"] = str(dtype).removeprefix("torch.")
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def model_location(path: str) -> str:
    """Return the path of a model that ships with Sweeps or is a local folder; a hub name is returned unchanged.

    Raises:
        ValueError: No such model ships with Sweeps.
    """
    if path.startswith("builtin:"):
        if path not in BUILTIN_MODELS:
            raise ValueError(f"model.path={path}: there is no such model; built in are {sorted(BUILTIN_MODELS)}")
        return str(BUILTIN_MODELS[path])
    return str(Path(path).expanduser())


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Silence transformers' progress bars, which would appear several times a minute on all workers."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
