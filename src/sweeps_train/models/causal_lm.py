"""Causal language models and their tokenizers, by transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sweeps_train.config import CausalLM, Lora
from sweeps_train.models.lora import add_lora

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BUILTIN_MODELS = {"builtin:tiny_llama": Path(__file__).parent / "tiny_llama"}
"""Models that ship with Sweeps."""


def build_causal_lm(config: CausalLM, weights: Path | None = None) -> nn.Module:
    """The pretrained model, with adapters if the config has them.

    Args:
        config: What to load, and how.
        weights: Folder of a checkpoint, to go on from its weights.

    Raises:
        ValueError: The model cannot be loaded, or cannot have such adapters.
    """
    if config.lora is None:
        return _trainable(_load(config, weights))
    return _trainable(add_lora(_load(config, None), config.lora, weights))


def _trainable(model: Any) -> nn.Module:
    trained: nn.Module = model
    for parameter in trained.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16):
            # A step is mostly smaller than their rounding: bf16's leaves most weights as they are. Autocast, and the
            # strategies that shard, compute in 16 bits all the same.
            parameter.data = parameter.data.float()
    return trained


class SharedBase:
    """A frozen base model that one trial after another puts its adapters on."""

    def __init__(self, config: CausalLM):
        self._model = _load(config, None)
        self._adapted: Any = None

    def adapt(self, lora: Lora, weights: Path | None) -> nn.Module:
        """The base with new adapters."""
        self.release()  # of a training that has ended with an error as it began
        self._adapted = add_lora(self._model, lora, weights)
        return _trainable(self._adapted)

    def release(self) -> None:
        """Take the adapters off again, and with them all that hooks onto their parameters."""
        if self._adapted is not None:
            self._model = self._adapted.unload()
            self._adapted = None


def _load(config: CausalLM, weights: Path | None) -> Any:
    """The model without adapters, its own weights or a checkpoint's."""
    from transformers import AutoModelForCausalLM

    with _no_progress_bar():
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                weights or _location(config.path),
                revision=None if weights else config.revision,
                dtype=config.dtype,
                attn_implementation=config.attention,
                trust_remote_code=config.trust_remote_code,
            )
        except OSError as error:
            raise ValueError(f"model.path={config.path} cannot be loaded: {error}") from error
    # What a checkpoint names as its base must lead to it on other machines, too.
    model.name_or_path = model.config.name_or_path = config.path
    if config.gradient_checkpointing:
        # transformers has renamed it in the course of its version 5.
        name = "activation_checkpointing_enable"
        enable = getattr(model, name, None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})  # the reentrant kind has no gradients behind frozen embeddings
    return model


def build_tokenizer(config: CausalLM) -> PreTrainedTokenizerBase:
    """The model's tokenizer, or the one that the config names.

    Raises:
        ValueError: It cannot be loaded.
    """
    from transformers import AutoTokenizer

    path = config.tokenizer or config.path
    key = "model.tokenizer" if config.tokenizer else "model.path"
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            _location(path),
            revision=None if config.tokenizer else config.revision,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}={path}: no tokenizer can be loaded from it: {error}") from error
    return tokenizer


def max_positions(model: nn.Module) -> int | None:
    """The longest sequence, in tokens, that the model has positions for; None where it sets no limit."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator] # transformers' own
    positions: int | None = getattr(config, "max_position_embeddings", None)
    return positions


def save_causal_lm(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Writes adapters, or the whole model, and the tokenizer, as peft and transformers read them.

    Args:
        model: With its adapters, if it has any.
        tokenizer: Its own.
        folder: Is there already.
        weights: What the model is trained to, by name, where it has only parts of it itself.
    """
    given: Any = {} if weights is None else {"state_dict": dict(weights)}
    from peft import PeftModel
    from transformers import PreTrainedModel

    if isinstance(model, PeftModel):
        # The card is a form to fill in, whose template takes longer than all the rest.
        model.create_or_update_model_card = _no_card  # type: ignore[method-assign, assignment]
        # "auto" would ask the hub whether the vocabulary was resized, which it is not.
        model.save_pretrained(str(folder), save_embedding_layers=False, **given)
    else:
        assert isinstance(model, PreTrainedModel)
        with _no_progress_bar():
            model.save_pretrained(folder, **given)
    tokenizer.save_pretrained(folder)


def _no_card(folder: str) -> None:
    pass


def _location(path: str) -> str:
    if path.startswith("builtin:"):
        if path not in BUILTIN_MODELS:
            raise ValueError(f"model.path={path}: there is no such model; builtin are {sorted(BUILTIN_MODELS)}")
        return str(BUILTIN_MODELS[path])
    return str(Path(path).expanduser())


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """transformers draws one for every model read or written: several a minute, from every worker at once."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()
