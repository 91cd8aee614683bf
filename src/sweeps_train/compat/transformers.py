"""Private and undocumented names of transformers, which is imported when one is used: that takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def attention_name(config: Any) -> str:
    """Name of the attention implementation in a model's config, such as ``sdpa``."""
    name: str = config._attn_implementation
    return name


@contextmanager
def attention_named(config: Any, name: str) -> Iterator[None]:
    """Let a model's config name another attention implementation, without the checks of ``set_attn_implementation``."""
    before = config._attn_implementation_internal
    config._attn_implementation_internal = name
    try:
        yield
    finally:
        config._attn_implementation_internal = before


def attention_function(name: str) -> Callable[..., Any]:
    """The function that computes a named attention."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    function: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[name]
    return function


def register_attention(name: str, function: Callable[..., Any], *, masks_of: str) -> None:
    """Add an attention implementation that gets the same masks as the existing one ``masks_of``."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[masks_of])
