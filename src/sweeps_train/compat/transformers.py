"""Private and undocumented names of transformers, which is imported only when used, since that takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def attention_name(config: Any) -> str:
    """Return the name of the attention implementation in a model's config, such as ``sdpa``."""
    name: str = config._attn_implementation
    return name


@contextmanager
def attention_named(config: Any, name: str) -> Iterator[None]:
    """Make a model's config name another attention implementation, without the checks of
    ``set_attn_implementation``."""
    before = config._attn_implementation_internal
    config._attn_implementation_internal = name
    try:
        yield
    finally:
        config._attn_implementation_internal = before


def attention_function(name: str) -> Callable[..., Any]:
    """Return the function that computes the named attention."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    function: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[name]
    return function


def mask_function(name: str) -> Callable[..., Any]:
    """Return the function that makes the masks of the named attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    function: Callable[..., Any] = ALL_MASK_ATTENTION_FUNCTIONS[name]
    return function


def takes_attention(model: Any) -> bool:
    """Whether a model looks up its attention in transformers' registry, so that it can be replaced."""
    takes: bool = model._can_set_attn_implementation()
    return takes


def register_attention(name: str, function: Callable[..., Any], masks: Callable[..., Any]) -> None:
    """Add an attention implementation, and the function that makes its masks."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, masks)


def render_marked_chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int]]]:
    """Render a chat by a template that marks the assistant's turns, and return the text with the first character and
    the end of each turn."""
    from transformers.utils.chat_template_utils import render_jinja_template

    given = [{key: value for key, value in each.items() if value is not None} for each in messages]
    rendered: Any = render_jinja_template(
        conversations=[given],
        chat_template=tokenizer.get_chat_template(),
        return_assistant_tokens_mask=True,
        **tokenizer.special_tokens_map,
    )
    (text,), (turns,) = rendered
    return text, turns
