"""One forward pass for the batches of several lanes: frozen layers run once for all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.nn import functional

from sweeps_train.data.packing import IGNORED
from sweeps_train.data.sample_order import Batch
from sweeps_train.devices.device_operations import random_state_of
from sweeps_train.errors import CannotShare
from sweeps_train.lanes.joint_linear import JointLinear, Part, tells_rows_apart
from sweeps_train.models.attention import use_causal_attention
from sweeps_train.models.causal_lm import SharedBase
from sweeps_train.models.fused_lora import FusedLinear
from sweeps_train.models.head import detach_head


class Observed(NamedTuple):
    """Properties of a base that decide whether lanes can share it."""

    draws: bool
    """Whether the base itself draws random numbers in training, as for its own dropout. Such numbers would depend on
    the rows of all lanes."""
    flattened: set[str]
    """Names of linear layers in whose inputs the rows of several lanes cannot be told apart."""


class JointModel:
    """The base model with joint adapter layers, sharing its frozen weights with the models of all lanes."""

    def __init__(self, base: SharedBase):
        self.model: Any = base.copied(None).train()
        use_causal_attention(self.model)
        self.head = detach_head(self.model)
        """Detached head that the losses of all lanes may apply."""
        self._parts: list[Part] = []
        self._scales: dict[tuple[float, ...], torch.Tensor] = {}
        self._layers: dict[str, JointLinear] = {}
        """Adapted layers, by their names in the base."""
        self._adapted_head: JointLinear | None = None
        """The detached head with adapters, which is applied only to the rows of lanes that adapt it."""

    def adapt(self, lanes: Sequence[Mapping[str, FusedLinear]]) -> None:
        """Replace the current adapters by those of these lanes, by layers' names."""
        self._scales.clear()
        for name in {name for layers in lanes for name in layers} - set(self._layers):
            parent, _, own = name.rpartition(".")
            base: nn.Linear = self.model.get_submodule(name)
            layer = self._layers[name] = JointLinear(base, self._parts, self._scales)
            if self.head is not None and base is self.model.get_output_embeddings():
                self._adapted_head = layer
            else:
                setattr(self.model.get_submodule(parent), own, layer)
        for name, layer in self._layers.items():
            layer.adapted = [layers.get(name) for layers in lanes]

    def outputs(
        self, logits: Callable[[Any, Batch], torch.Tensor], batch: Batch, parts: Sequence[Part]
    ) -> list[torch.Tensor]:
        """Compute the input of each lane's loss: logits, or hidden states if the head is detached and the lane does not
        adapt it. ``logits`` runs the forward pass of a model."""
        self._parts[:] = parts
        joint = logits(self.model, batch)
        outputs = [joint[each.rows, : each.length] for each in parts]
        if (head := self._adapted_head) is not None:
            for number, each in enumerate(parts):
                if head.adapted[each.lane] is not None:
                    self._parts[:] = [replace(each, rows=slice(0, len(outputs[number])))]
                    outputs[number] = head(outputs[number])
            self._parts[:] = parts  # for layers that are recomputed in the backward pass
        return outputs

    @torch.no_grad()
    def observe(self, device: torch.device) -> Observed:
        """Run a forward pass; to be called before the base has adapters."""
        modules = self.model.named_modules()
        names: dict[nn.Module, str] = {each: name for name, each in modules if isinstance(each, nn.Linear)}
        flattened: set[str] = set()

        def check(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if inputs and not tells_rows_apart(inputs[0], len(tokens)):
                flattened.add(names[layer])

        hooks = [each.register_forward_pre_hook(check) for each in names]
        before = _random_states(device)
        tokens = torch.zeros((2, 3), dtype=torch.int64, device=device)
        # With a mask, since transformers warns of padding without one, and this token may be that of padding.
        self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
        for each in hooks:
            each.remove()
        return Observed(not all(map(torch.equal, before, _random_states(device))), flattened)


def parts_of(batches: Sequence[Batch], lanes: Sequence[tuple[int, Any]]) -> list[Part]:
    """Return the row ranges of the lanes' batches in the joint batch. ``lanes`` are their indices, and the functions
    that apply their dropout."""
    parts, start = [], 0
    for batch, (lane, dropout) in zip(batches, lanes, strict=True):
        rows, length = batch["input_ids"].shape
        parts.append(Part(lane, slice(start, start + rows), length, dropout))
        start += rows
    return parts


def join(batches: Sequence[Batch]) -> Batch:
    """Concatenate the rows of several batches; shorter ones are padded at their ends.

    >>> one, two = ({"input_ids": torch.full((1, n), n), "targets": torch.full((1, n), n)} for n in (1, 2))
    >>> join([one, two])["targets"].tolist()
    [[1, -100], [2, 2]]
    """
    if len(batches) == 1:
        return batches[0]
    length = max(each["input_ids"].shape[1] for each in batches)
    fillings = {"targets": IGNORED, "document_ends": length}
    joined = {}
    for name in batches[0]:
        width = max(each[name].shape[1] for each in batches)
        rows = [
            functional.pad(each[name], (0, width - each[name].shape[1]), value=fillings.get(name, 0))
            for each in batches
        ]
        joined[name] = torch.cat(rows)
    return joined


def adapted_layers(adapted: Any) -> dict[str, FusedLinear]:
    """Return the layers of a model that have adapters, by their names in its base.

    Raises:
        CannotShare: A layer cannot be computed together with those of other lanes.
    """
    layers: dict[str, FusedLinear] = {}
    for name, each in adapted.get_base_model().named_modules():
        if isinstance(each, FusedLinear):
            layers[name] = each
        elif isinstance(each, BaseTunerLayer):
            raise CannotShare(
                f"model.lora.target_modules: {name} is not a linear layer, and trials that share their workers can "
                "adapt only linear layers",
                "leave it out, or use scaling.trials_per_group=1",
            )
    return layers


def draws(layers: Mapping[str, FusedLinear]) -> bool:
    """Whether the adapters of a lane have dropout and therefore draw random numbers."""
    dropouts = [each for layer in layers.values() for each in layer.lora_dropout.values()]
    return any(getattr(each, "p", 0.0) > 0 for each in dropouts)


def _random_states(device: torch.device) -> list[torch.Tensor]:
    return [each for each in (torch.get_rng_state(), random_state_of(device)) if each is not None]
