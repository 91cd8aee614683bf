"""Pipeline stages: a model divided into consecutive parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from sweeps_train.strategies.layers import bare_model


class Stage:
    """Consecutive parts of a model, which one worker of a pipeline runs.

    The model's own forward pass runs on every stage, with the parts of other stages replaced: its first part returns
    the output of the previous stage, others return their input. So each stage computes everything else, such as masks
    and rotary positions, for itself.
    """

    def __init__(self, model: nn.Module, index: int, number: int):
        """Keep the stage with this index, from 0, of a full model, and remove the parts of other stages from it.

        Raises:
            ValueError: The model cannot be divided, has fewer parts than stages, or stages would share weights that
                they cannot share.
        """
        units = _units(model)
        if len(units) < number:
            raise ValueError(
                f"strategy.stages={number}: a {type(model).__name__} has {len(units)} parts that can be stages; "
                f"use at most {len(units)}"
            )
        self.is_first, self.is_last = index == 0, index == number - 1
        bounds = [round(each * len(units) / number) for each in range(number + 1)]
        stages = [[part for unit in units[slice(*each)] for part in unit] for each in pairwise(bounds)]
        self.shared = _shared(model, stages)
        """Names of weights that both the first and the last stage have."""
        own = set(stages[index])
        first, *others = [part for unit in units for part in unit]
        if first not in own:
            _replace(first, self._return_received)
        for part in others:
            if part not in own:
                _replace(part, _identity)
        self._input: torch.Tensor | None = None
        self._entry: Callable[..., Any] = model if self.is_last else _without_head(model)

    def run(self, forward: Callable[[Callable[..., Any]], torch.Tensor], received: torch.Tensor | None) -> torch.Tensor:
        """Run this stage on the output of the previous one, if there is one. ``forward`` calls its argument as if it
        were the full model."""
        self._input = received
        try:
            return forward(self._entry)
        finally:
            self._input = None

    def _return_received(self, *_: Any, **__: Any) -> torch.Tensor:
        assert self._input is not None
        return self._input


def _shared(model: nn.Module, stages: list[list[nn.Module]]) -> set[str]:
    """Return the names of the weights that the first and the last stage share, such as tied embeddings; each by its
    first name.

    Raises:
        ValueError: Other stages share a weight, whose copies would diverge; or stages share a module.
    """
    stages_of: dict[nn.Module | nn.Parameter, set[int]] = {}
    for index, parts in enumerate(stages):
        for part in parts:
            with_weights = [each for each in part.modules() if any(True for _ in each.parameters(recurse=False))]
            used: list[nn.Module | nn.Parameter] = [part, *with_weights, *part.parameters()]
            for each in used:
                stages_of.setdefault(each, set()).add(index)
    several = {each: sorted(found) for each, found in stages_of.items() if len(found) > 1}
    shared: set[str] = set()
    for name, each in [*model.named_modules(), *model.named_parameters()]:
        if each not in several:
            continue
        if isinstance(each, nn.Module) or several[each] != [0, len(stages) - 1]:
            numbers = ", ".join(str(index + 1) for index in several[each])
            raise ValueError(
                f"strategy.stages={len(stages)}: {name} of a {type(model).__name__} is used in stages {numbers}; "
                "only the first and the last stage can share a weight, and stages cannot share modules; "
                "use strategy.kind=fsdp"
            )
        shared.add(name)
    return shared


def _identity(value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return value


def _replace(part: nn.Module, forward: Callable[..., torch.Tensor]) -> None:
    part.to("meta")  # frees the memory and keeps the names of parameters
    part.forward = forward


def _units(model: nn.Module) -> list[list[nn.Module]]:
    """Return the model's consecutive parts, grouped into the smallest possible stages, each of which has weights.

    Raises:
        ValueError: The model does not list its parts.
    """
    if (decoder := _decoder(model)) is not None:
        parts = [getattr(decoder, name) for name in decoder.config.base_model_pp_plan]
        at = next(index for index, part in enumerate(parts) if isinstance(part, nn.ModuleList))
        layers = [[layer] for layer in parts[at]]
        layers[0] = [*parts[:at], *layers[0]]
        layers[-1] += [*parts[at + 1 :], bare_model(model).get_output_embeddings()]
        return layers
    if isinstance(model, nn.Sequential):
        parts = list(model)
    elif callable(listed := getattr(model, "parts", None)):
        parts = list(listed())
    else:
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"strategy.kind=pipeline: a {type(model).__name__} does not list its parts; give it a method parts() that "
            "lists the modules which its input passes through one after another, or use strategy.kind=fsdp"
        )
    units: list[list[nn.Module]] = []
    for part in parts:
        if units and not any(True for _ in part.parameters()):
            units[-1].append(part)
        else:
            units.append([part])
    return units


def _decoder(model: nn.Module) -> Any | None:
    """Return a transformers model without its head; None for other models.

    Raises:
        ValueError: The model's forward pass cannot be divided.
    """
    bare = bare_model(model)
    if not hasattr(bare, "base_model_prefix"):
        return None
    if not getattr(bare.config, "base_model_pp_plan", None) or hasattr(bare.config, "embedding_multiplier"):
        raise ValueError(
            f"strategy.kind=pipeline: transformers has no plan to divide a {type(bare).__name__} into stages; use "
            "strategy.kind=fsdp"
        )
    return getattr(bare, bare.base_model_prefix)


def _without_head(model: nn.Module) -> Callable[..., Any]:
    """Return the model without its head and everything computed after it: only hidden states go to the next stage."""
    decoder = _decoder(model)
    if decoder is None:
        return model
    return lambda **inputs: SimpleNamespace(logits=decoder(**inputs).last_hidden_state)
