"""Attention for training: without masks if sequences are padded only at their ends, and with documents kept apart by
variable-length attention.

transformers makes a mask whenever there is padding, and reads the mask's values to find out whether it is needed. On a
GPU this read waits for all earlier work, and with a mask torch uses neither flash attention nor its own grouped
queries. But a causal model does not see the padding after a token, and the loss does not count padding. So there is no
mask here, except for layers that see only a window of a longer sequence.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sweeps_train.compat.transformers import (
    attention_function,
    attention_name,
    mask_function,
    register_attention,
    takes_attention,
)
from sweeps_train.data.sample_order import Batch

varlen_attn: Any = None
if torch.version.cuda is not None:  # else it has no use, and its import loads torch's compiler, for seconds
    with contextlib.suppress(ImportError):  # before torch 2.10
        from torch.nn.attention.varlen import varlen_attn

CAUSAL = "causal_sdpa"
"""Name of this module's attention in transformers' registries."""


def use_causal_attention(model: Any) -> bool:
    """Make a causal language model of transformers, possibly with adapters of peft, attend without padding masks, in
    place; this is correct only if padding follows the text. Return whether the model was changed: models with an
    attention other than torch's ``sdpa`` keep theirs."""
    bare: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    if attention_name(bare.config) == CAUSAL:
        return True
    if attention_name(bare.config) != "sdpa" or not takes_attention(bare):
        return False
    register_attention(CAUSAL, _attend, _mask)
    bare.set_attn_implementation(CAUSAL)
    return True


def sees_whole_sequences(model: Any) -> bool:
    """Whether all layers of a model attend to all earlier tokens, not to a window or chunk of them."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    return all(getattr(config, name, None) is None for name in ("sliding_window", "attention_chunk_size"))


def document_mask(ends: torch.Tensor, length: int) -> torch.Tensor:
    """Make the mask that keeps the documents of packed sequences apart, in the form that this module's attention takes.

    Args:
        ends: Ends of each sequence's documents, shape (samples, documents); the last one is ``length``.
        length: Tokens in a sequence.

    Returns:
        Borders of the documents of all sequences one after another, as int32 of shape (1, 1, 1, borders): transformers
        hands masks of four dimensions to the layers as they are.
    """
    rows = torch.arange(len(ends), device=ends.device).unsqueeze(1) * length
    borders = (ends + rows).flatten()
    return torch.cat([borders.new_zeros(1), borders]).to(torch.int32).view(1, 1, 1, -1)


MOST_CHECKED_ON_CPU = 10**10
"""Maximum number of parameters of a model whose isolation of documents is checked on the CPU, where a model is before
it is sharded; for a larger one, reading all weights would take minutes."""


@torch.no_grad()
def keeps_documents_apart(model: Any, logits: Callable[[Batch], torch.Tensor]) -> bool:
    """Whether a model's logits for a document do not depend on the other documents in its sequence. This is tested on
    two sequences that differ in the first of their two documents, which changes the logits of the second one if layers
    are recurrent or attention ignores the borders. A model that cannot be tested passes."""
    device = model.get_input_embeddings().weight.device
    if device.type == "cpu" and model.num_parameters() > MOST_CHECKED_ON_CPU:
        return True
    batch = {
        "input_ids": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], device=device),
        "position_ids": torch.tensor([[0, 1, 0, 1]] * 2, device=device),
        "document_ends": torch.tensor([[2, 4]] * 2, device=device),
    }
    trains = model.training
    try:
        model.eval()
        one, other = logits(batch)[:, 2:].float()
    except Exception:  # noqa: BLE001 - code of any model, which may need a GPU
        return True
    finally:
        model.train(trains)
    # Experts multiply the tokens of both sequences together, so that rounding may differ.
    rounding = max(1e-4, 4 * torch.finfo(model.dtype).eps)
    return not bool((one - other).norm() > rounding * one.norm())


def _mask(**options: Any) -> Any:
    """Return a layer's mask for its own attention pattern, ignoring padding; None if the pattern is causal."""
    options["attention_mask"] = None
    window = options.get("local_size")
    is_causal = options.get("allow_is_causal_skip", True) and options.get("q_length") == options["kv_length"]
    if is_causal and (window is None or options["kv_length"] < window):
        return None
    return mask_function("sdpa")(**options)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers calls it, with heads as second dimension and tokens as third."""
    if attention_mask is not None and attention_mask.dtype == torch.int32:
        borders, length = attention_mask.flatten(), query.shape[2]
        query, key, value = _as_in_autocast(query, key, value)
        if _has_kernel(query, value, dropout):
            return _attend_within(query, key, value, borders, scaling), None
        attention_mask = _dense(borders, len(query), length)
    output: tuple[torch.Tensor, None] = attention_function("sdpa")(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
    )
    return output


def _as_in_autocast(*tensors: torch.Tensor) -> Iterable[torch.Tensor]:
    """Cast tensors to autocast's dtype for torch's attention: with float32 weights, the rotary embedding has made
    queries and keys float32."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return [each.to(torch.get_autocast_dtype(device)) for each in tensors]


def _has_kernel(query: torch.Tensor, value: torch.Tensor, dropout: float) -> bool:
    """Whether torch has variable-length attention for these tensors: flash attention, which needs a 16-bit dtype."""
    if query.device.type != "cuda" or query.dtype not in (torch.bfloat16, torch.float16) or dropout:
        return False
    return query.shape[-1] == value.shape[-1] <= 256 and _has_flash_attention(query.device)


@functools.cache
def _has_flash_attention(device: torch.device) -> bool:
    """Whether torch's variable-length attention runs on a GPU: NVIDIA Ampere or newer, with torch 2.13 or newer."""
    if varlen_attn is None or torch.version.hip:
        return False
    if "enable_gqa" not in inspect.signature(varlen_attn).parameters:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _attend_within(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, borders: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Compute attention of each token to earlier ones of the same document, in shape (samples, tokens, heads, size)."""
    samples, heads, length, _ = query.shape
    queries, keys, values = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    grouped = key.shape[1] != heads
    # The longest document is not known without waiting for the GPU; a sequence is never shorter.
    attended = varlen_attn(
        queries,
        keys,
        values,
        borders,
        borders,
        length,
        length,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=grouped,
    )
    assert isinstance(attended, torch.Tensor)
    return attended.view(samples, length, heads, -1)


def _dense(borders: torch.Tensor, samples: int, length: int) -> torch.Tensor:
    """Return the document mask as a tensor of shape (samples, 1, tokens, tokens)."""
    tokens = torch.arange(samples * length, device=borders.device, dtype=borders.dtype)
    documents = torch.searchsorted(borders, tokens, right=True).view(samples, 1, length)
    same = documents.unsqueeze(3) == documents.unsqueeze(2)
    return same.tril()
