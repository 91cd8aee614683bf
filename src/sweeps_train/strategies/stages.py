"""A model cut into stages, one after another."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from sweeps_train.strategies.layers import bare_model


class Stage:
    """Some consecutive parts of a model.

    The model's own forward pass runs on every stage, with the parts of the others left out: the first part gives back
    what the stage before has made, all others what they are given. So whatever the model does besides, as masks and
    rotary positions, each stage does for itself.
    """

    def __init__(self, model: nn.Module, index: int, number: int):
        """
        Args:
            model: Whole, as every worker has built it; what belongs to other stages is taken out of it.
            index: Which stage, from 0.
            number: Of all stages.

        Raises:
            ValueError: The model cannot be cut, has fewer parts than that, or stages would share what they cannot.
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
        """Names of weights that the first and the last stage both have."""
        own = set(stages[index])
        received, *others = [part for unit in units for part in unit]
        if received not in own:
            _replace(received, self._received)
        for part in others:
            if part not in own:
                _replace(part, _as_given)
        self._input: torch.Tensor | None = None
        self._entry: Callable[..., Any] = model if self.is_last else _without_head(model)

    def run(self, forward: Callable[[Callable[..., Any]], torch.Tensor], given: torch.Tensor | None) -> torch.Tensor:
        """What this stage makes of what the one before has made.

        Args:
            forward: Calls what it is given as if it were the whole model.
            given: By the stage before; the first one gets nothing.
        """
        self._input = given
        try:
            return forward(self._entry)
        finally:
            self._input = None

    def _received(self, *_: Any, **__: Any) -> torch.Tensor:
        assert self._input is not None
        return self._input


def _shared(model: nn.Module, stages: list[list[nn.Module]]) -> set[str]:
    """Names of the weights that the first and the last stage have both, as tied embeddings: each by its first name.

    Raises:
        ValueError: Other stages share one, and would train it apart; or stages share a module, which is to be left out
            of one of them.
    """
    places: dict[nn.Module | nn.Parameter, set[int]] = {}
    for place, parts in enumerate(stages):
        for part in parts:
            with_weights = [each for each in part.modules() if any(True for _ in each.parameters(recurse=False))]
            used: list[nn.Module | nn.Parameter] = [part, *with_weights, *part.parameters()]
            for each in used:
                places.setdefault(each, set()).add(place)
    several = {each: sorted(where) for each, where in places.items() if len(where) > 1}
    shared: set[str] = set()
    for name, each in [*model.named_modules(), *model.named_parameters()]:
        if each not in several:
            continue
        if isinstance(each, nn.Module) or several[each] != [0, len(stages) - 1]:
            where = ", ".join(str(place + 1) for place in several[each])
            raise ValueError(
                f"strategy.stages={len(stages)}: {name} of a {type(model).__name__} is used in stages {where}; the "
                "first and the last one can share a weight, and no others, nor modules; use strategy.kind=fsdp"
            )
        shared.add(name)
    return shared


def _as_given(given: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return given


def _replace(part: nn.Module, forward: Callable[..., torch.Tensor]) -> None:
    part.to("meta")  # frees its memory, and keeps its names
    part.forward = forward


def _units(model: nn.Module) -> list[list[nn.Module]]:
    """The parts that the model's input goes through, grouped into the smallest that can be stages: each has weights.

    Raises:
        ValueError: Nobody says what the model's parts are.
    """
    if (decoder := _decoder(model)) is not None:
        before, layers, after = _decoder_parts(decoder)
        head = bare_model(model).get_output_embeddings()
        layers[0] = [*before, *layers[0]]
        layers[-1] += [*after, head]
        return layers
    if isinstance(model, nn.Sequential):
        parts = list(model)
    elif callable(listed := getattr(model, "parts", None)):
        parts = list(listed())
    else:
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"strategy.kind=pipeline: nobody says what parts a {type(model).__name__} consists of; give it a method "
            "parts() that lists the modules which its input goes through one after another, or use strategy.kind=fsdp"
        )
    units: list[list[nn.Module]] = []
    for part in parts:
        if units and not any(True for _ in part.parameters()):
            units[-1].append(part)
        else:
            units.append([part])
    return units


def _decoder(model: nn.Module) -> nn.Module | None:
    """transformers' model without its head.

    Raises:
        ValueError: Its forward pass cannot be cut.
    """
    bare = bare_model(model)
    if not hasattr(bare, "base_model_prefix"):
        return None
    if not getattr(bare.config, "base_model_pp_plan", None) or hasattr(bare.config, "embedding_multiplier"):
        raise ValueError(
            f"strategy.kind=pipeline: transformers does not know how a {type(bare).__name__} is cut into stages; use "
            "strategy.kind=fsdp"
        )
    decoder: nn.Module = getattr(bare, bare.base_model_prefix)
    return decoder


def _decoder_parts(decoder: nn.Module) -> tuple[list[nn.Module], list[list[nn.Module]], list[nn.Module]]:
    """What comes before the layers, the layers one by one, what comes after."""
    before: list[nn.Module] = []
    layers: list[list[nn.Module]] = []
    after: list[nn.Module] = []
    config: Any = decoder.config
    for name in config.base_model_pp_plan:
        part = getattr(decoder, name)
        if isinstance(part, nn.ModuleList):
            layers = [[layer] for layer in part]
        else:
            (after if layers else before).append(part)
    return before, layers, after


def _without_head(model: nn.Module) -> Callable[..., Any]:
    """A model may do more after its head, which is not for what goes to the next stage."""
    decoder = _decoder(model)
    if decoder is None:
        return model
    return lambda **inputs: SimpleNamespace(logits=decoder(**inputs).last_hidden_state)
