"""Low-rank adapters on a causal language model, added by peft."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file
from torch import nn

from sweeps_train.config import Lora

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

ADAPTER_FILE = "adapter_model.safetensors"

# Patterns of the names of parent modules (`self_attn.q_proj`, `attn.c_attn`, `mlp.c_proj`, `ffn.up_proj`), and of the
# layer's own name, for layers directly in a decoder layer (OPT's `fc1`).
_PARTS: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "attention": (
        re.compile(r"attn|attention", re.IGNORECASE),
        re.compile(r"([qkvo]|out|qkv)_proj|Wqkv|c_attn|query_key_value|query|key|value"),
    ),
    "mlp": (
        re.compile(r"mlp|ffn|feed_?forward|moe|experts", re.IGNORECASE),
        re.compile(r"(gate|up|down|gate_up)_proj|fc\d|fc_(in|out)|w[123]|dense_h_to_4h|dense_4h_to_h"),
    ),
}
# Layers that choose the expert; `mlp` does not adapt them.
_ROUTERS = {"gate", "router"}


def add_lora(model: PreTrainedModel, config: Lora, revision: str | None = None) -> PeftModel:
    """Freeze a model, in place, and add adapters to it, which initially change nothing. Those that are saved name the
    model's revision, with which other programs load it.

    Raises:
        ValueError: The model has no such layers.
    """
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=config.r,
        lora_alpha=config.alpha,  # type: ignore[arg-type] # declared int; it only ever divides it by r
        lora_dropout=config.dropout,
        target_modules=target_modules(model, config.target_modules),
        use_rslora=config.use_rslora,
        use_dora=config.use_dora,
        modules_to_save=_modules_to_save(model, config.modules_to_save),
        ensure_weight_tying=_saves_tied(model, config.modules_to_save),
        task_type="CAUSAL_LM",
        revision=revision,
    )
    try:
        with warnings.catch_warnings():
            # peft uses a name that transformers has renamed.
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
            # peft sets these patterns itself, for the fused weights of experts, and uses them.
            warnings.filterwarnings("ignore", message=r"The following \w+_pattern keys did not match")
            adapted = get_peft_model(model, lora)
    except ValueError as error:
        raise ValueError(f"model.lora.target_modules={config.target_modules}: {error}") from error
    return adapted


def load_lora(adapted: nn.Module, weights: Path) -> None:
    """Load adapter weights from the ``adapter_model.safetensors`` of a folder, in the model's dtypes.

    Raises:
        ValueError: The file has adapters for other layers.
    """
    from peft import set_peft_model_state_dict

    result: Any = set_peft_model_state_dict(adapted, load_file(weights / ADAPTER_FILE))
    if result.unexpected_keys:
        raise ValueError(f"{weights}: adapters for layers that the model does not have: {result.unexpected_keys}")


def leave_casts_to_autocast(model: nn.Module) -> None:
    """Let adapters take 16-bit inputs. peft would cast these to float32, the dtype of the adapters' weights, and
    autocast would cast them back, which costs two more passes over memory."""
    for module in model.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = False  # type: ignore[assignment]


def remove_lora(adapted: PeftModel) -> PreTrainedModel:
    """Remove adapters from their base model, and return the base as it was before ``add_lora``."""
    from peft.utils import ModulesToSaveWrapper

    for module in adapted.modules():
        if isinstance(module, ModulesToSaveWrapper):
            module.set_adapter([])  # otherwise the trained copy would stay in the place of the original
    base: PreTrainedModel = adapted.unload()
    vars(base).pop("peft_config", None)  # peft 0.18 leaves it there, and then warns of several adapters
    return base


def merge_lora(adapted: PeftModel) -> PreTrainedModel:
    """Merge adapters into their base model, together with modules that were trained in full."""
    _separate_adapted_head(adapted)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input and output embeddings are no longer tied")  # as they should be
        merged: Any = adapted.merge_and_unload()
    model: PreTrainedModel = merged
    return model


def _separate_adapted_head(adapted: PeftModel) -> None:
    """Untie the head from the embeddings if one of them has adapters, since merging would otherwise change both."""
    base: Any = adapted.get_base_model()
    layers = base.get_input_embeddings(), base.get_output_embeddings()
    embeddings, head = (getattr(each, "base_layer", each) for each in layers)  # the layer beneath peft's
    is_adapted = any(hasattr(each, "base_layer") for each in layers)
    if is_adapted and head is not None and head.weight is embeddings.weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)


def _modules_to_save(model: nn.Module, names: list[str]) -> list[str] | None:
    """Check the names of modules that are trained as a whole, and return them in peft's form.

    Raises:
        ValueError: The model has no such module, or a module's weights are quantized.
    """
    modules = dict(model.named_modules())
    for name in names:
        found = [each for path, each in modules.items() if path == name or path.endswith(f".{name}")]
        if not found:
            kinds = sorted({name.split(".")[-2] for name, _ in model.named_parameters()})
            raise ValueError(
                f"model.lora.modules_to_save={names}: a {type(model).__name__} has no module {name}; it has {kinds}"
            )
        if any(not each.is_floating_point() for module in found for each in module.parameters()):
            raise ValueError(
                f"model.lora.modules_to_save={names}: the weights of {name} are quantized, so that they cannot be "
                "trained; leave it out, or use model.quantization=none"
            )
    return names or None


def _saves_tied(model: PreTrainedModel, names: list[str]) -> bool:
    """Whether embeddings that are tied to the model's head are trained in full."""
    tied = getattr(model.config, "tie_word_embeddings", False)
    return bool(tied) and any(name.rpartition(".")[2] in {"embed_tokens", "lm_head"} for name in names)


def target_modules(model: nn.Module, wanted: str | list[str]) -> str | list[str]:
    """Return the names of the layers that get adapters, in peft's form: all linear ones (``all-linear``), those of
    ``attention`` or of an ``mlp``, or modules with these names.

    Raises:
        ValueError: The model has no layers whose names tell that they are attention, or MLP.

    Example:
        >>> model = nn.ModuleDict({"mlp": nn.ModuleDict({"up_proj": nn.Linear(2, 4), "down_proj": nn.Linear(4, 2)})})
        >>> target_modules(model, "mlp")
        ['down_proj', 'up_proj']
    """
    if isinstance(wanted, list):
        return wanted
    if wanted not in _PARTS:
        return wanted if wanted == "all-linear" else [wanted]
    # GPT-2 uses transformers' Conv1D, a linear layer with a transposed weight.
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    ]
    chosen = [name for name in linear if _part_of(name) == wanted]
    if not chosen:
        kinds = sorted({name.rpartition(".")[2] for name in linear})
        raise ValueError(
            f"model.lora.target_modules={wanted}: no such layer in a {type(model).__name__}; "
            f"use all-linear, or names from {kinds}"
        )
    others = [name for name in linear if name not in set(chosen)]
    return sorted({_shortest_suffix(name, others) for name in chosen})


def _part_of(name: str) -> str | None:
    """Return the part of the model that a layer belongs to: ``attention``, ``mlp``, or None for others, such as the
    head."""
    *parents, own = name.split(".")
    if own in _ROUTERS:
        return None
    for part, (parent_pattern, _) in _PARTS.items():
        if any(parent_pattern.search(parent) for parent in parents):
            return part
    for part, (_, own_pattern) in _PARTS.items():
        if own_pattern.fullmatch(own):
            return part
    return None


def _shortest_suffix(name: str, others: list[str]) -> str:
    """Return the shortest ending of a name that no other layer has, so that few names match all decoder layers."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        suffix = ".".join(parts[-length:])
        if not any(f".{other}".endswith(f".{suffix}") for other in others):
            return suffix
    return name
