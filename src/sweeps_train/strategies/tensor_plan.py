"""Chooses the layers that tensor parallelism shards, and their styles, from the plan in the model's code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from sweeps_train.strategies.layers import bare_model

REDUCED = "replicated_with_grad_allreduce"
"""Style of a layer that every worker has in full and applies to its own part of the activations."""


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """Return the sharding style of each layer of a model, possibly with adapters, by its name in the model:
    ``colwise``, ``rowwise`` and so on.

    Models of transformers have a plan. Our own, and a user's module, give it in an attribute ``tensor_parallel_plan``,
    by patterns of names.

    Raises:
        ValueError: The model has no plan, or one that is not supported here.

    Example:
        >>> model = nn.ModuleDict({"up": nn.Linear(4, 8), "down": nn.Linear(8, 4)})
        >>> model.tensor_parallel_plan = {"up": "colwise", "down": "rowwise"}
        >>> tensor_plan(model)
        {'up': 'colwise', 'down': 'rowwise'}
    """
    bare = bare_model(model)
    prefix = next(f"{name}." if name else "" for name, module in model.named_modules() if module is bare)
    plan: Mapping[str, str] | None = getattr(bare, "tensor_parallel_plan", None) or getattr(bare, "tp_plan", None)
    if not plan:
        raise ValueError(
            f"strategy.kind=tensor_parallel: a {type(bare).__name__} has no plan to shard its layers; give it an "
            "attribute tensor_parallel_plan, or use strategy.kind=fsdp"
        )
    names = [name for name, _ in bare.named_modules()]
    unknown = [pattern for pattern in plan if not any(_fits(pattern, name) for name in names)]
    # Plans of transformers name layers that only some of its models have.
    if len(unknown) == len(plan) or (unknown and hasattr(bare, "tensor_parallel_plan")):
        raise ValueError(
            f"strategy.kind=tensor_parallel: the plan of a {type(bare).__name__} names {unknown}, which it lacks; "
            f"name modules within {[name for name, _ in bare.named_children()]}"
        )
    styles: dict[str, str] = {}
    for name, module in bare.named_modules():
        style: str | None = next((style for pattern, style in plan.items() if _fits(pattern, name)), None)
        if style is None or style == "embedding_rowwise" or (style == "colwise_gather_output" and _is_tied(bare, name)):
            continue  # every worker looks up embeddings in the full table
        if style not in _STYLES and style != REDUCED:
            raise ValueError(
                f"strategy.kind=tensor_parallel: {name} of a {type(bare).__name__} has the style {style}, which is "
                f"not supported; use strategy.kind=fsdp (supported are {sorted(_STYLES)})"
            )
        styles |= {f"{prefix}{part}": style for part in _parts(name, module, style)}
    return styles


def parallel_styles(plan: Mapping[str, str], *, shards_tokens: bool) -> dict[str, ParallelStyle]:
    """Convert a plan to the styles that ``parallelize_module`` takes. If it ``shards_tokens``, row-wise layers give
    each worker a part of the tokens instead of all of them."""
    rowwise = {"rowwise": lambda: RowwiseParallel(output_layouts=Shard(1))} if shards_tokens else {}
    known = {**_STYLES, **rowwise}
    return {name: known[style]() for name, style in plan.items() if style in known}


_STYLES: dict[str, Any] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
}


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"\d+"), name) is not None


def _is_tied(model: nn.Module, name: str) -> bool:
    """Whether a layer's weight is tied to another layer that needs it in full."""
    weight = getattr(model.get_submodule(name), "weight", None)
    owners = [module for module in model.modules() if weight is not None and getattr(module, "weight", None) is weight]
    return len(owners) > 1


def _parts(name: str, module: nn.Module, style: str) -> list[str]:
    """Return the modules of a layer that are sharded; for a layer with an adapter, also the adapter's second matrix
    (column-wise layers) or first one (row-wise layers)."""
    if not hasattr(module, "base_layer"):
        return [name]
    inner = "lora_B" if style.startswith("colwise") else "lora_A"
    adapters = [f"{inner}.{adapter}" for adapter in getattr(module, inner)]
    return [f"{name}.{part}" for part in ("base_layer", *adapters)]
