"""How a model's layers are cut for tensor parallelism: by the plan that the model's own code has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

REDUCED = "replicated_with_grad_allreduce"
"""A layer that all workers have whole, and use for their own part of the activations."""


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """Which layers are cut, and how: ``colwise``, ``rowwise`` and so on, by the names of the bare model.

    transformers' models have a plan; ours, and a user's own module, say it in an attribute ``tensor_parallel_plan``, by
    patterns of names, as in ``{"layers.*.up": "colwise", "layers.*.down": "rowwise"}``.

    Raises:
        ValueError: The model has none, or it asks for what cannot be done here.
    """
    within, bare = _without_adapters(model)
    plan: Mapping[str, str] | None = getattr(bare, "tensor_parallel_plan", None) or getattr(bare, "tp_plan", None)
    if not plan:
        raise ValueError(
            f"strategy.kind=tensor_parallel: a {type(bare).__name__} has no plan of how to cut its layers; give it an "
            "attribute tensor_parallel_plan, or use strategy.kind=fsdp"
        )
    names = [name for name, _ in bare.named_modules()]
    if unknown := [pattern for pattern in plan if not any(_fits(pattern, name) for name in names)]:
        _refuse_unknown(bare, plan, unknown)
    cut: dict[str, str] = {}
    for name, module in bare.named_modules():
        style: str | None = next((style for pattern, style in plan.items() if _fits(pattern, name)), None)
        if style is None or style == "embedding_rowwise" or (style == "colwise_gather_output" and _is_tied(bare, name)):
            continue  # embeddings are looked up whole by every worker
        if style not in _STYLES and style != REDUCED:
            raise ValueError(
                f"strategy.kind=tensor_parallel: {name} of a {type(bare).__name__} is to be cut by {style}, which is "
                f"not known here; use strategy.kind=fsdp (known are {sorted(_STYLES)})"
            )
        cut |= {f"{within}{part}": of_part for part, of_part in _parts(name, module, style).items()}
    return cut


def styles(plan: Mapping[str, str], *, of_parts: bool) -> dict[str, ParallelStyle]:
    """As ``parallelize_module`` takes it.

    Args:
        plan: Which layers are cut, and how.
        of_parts: Layers that are cut into rows give each worker a part of the tokens, and not all of them.
    """
    rows = {"rowwise": lambda: RowwiseParallel(output_layouts=Shard(1))} if of_parts else {}
    known = {**_STYLES, **rows}
    return {name: known[style]() for name, style in plan.items() if style in known}


_STYLES: dict[str, Any] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
}


def _without_adapters(model: nn.Module) -> tuple[str, nn.Module]:
    """The model that adapters are on, and what its names begin with in the whole."""
    if not hasattr(model, "get_base_model"):
        return "", model
    bare: Any = model.get_base_model()  # type: ignore[operator] # peft's
    return next(name for name, module in model.named_modules() if module is bare) + ".", bare


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"\d+"), name) is not None


def _is_tied(model: nn.Module, name: str) -> bool:
    """Whether a layer's weight is also another's, which expects it whole."""
    weight = getattr(model.get_submodule(name), "weight", None)
    owners = [module for module in model.modules() if weight is not None and getattr(module, "weight", None) is weight]
    return len(owners) > 1


def _parts(name: str, module: nn.Module, style: str) -> dict[str, str]:
    """An adapter on a layer is cut where the layer is: its second matrix as the layer's output, its first one as its
    input."""
    if not hasattr(module, "base_layer"):
        return {name: style}
    inner = "lora_B" if style.startswith("colwise") else "lora_A"
    adapters = [f"{inner}.{adapter}" for adapter in getattr(module, inner)]
    return {f"{name}.{part}": style for part in ("base_layer", *adapters)}


def _refuse_unknown(model: nn.Module, plan: Mapping[str, str], unknown: list[str]) -> None:
    """transformers may name what one of its models lacks, but not that alone; a user means all that is named."""
    if len(unknown) == len(plan) or hasattr(model, "tensor_parallel_plan"):
        kind, layers = type(model).__name__, [name for name, _ in model.named_children()]
        raise ValueError(
            f"strategy.kind=tensor_parallel: the plan of a {kind} names {unknown}, which it does not have; "
            f"name what it has, within {layers}"
        )
