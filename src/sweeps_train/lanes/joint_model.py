"""One forward pass for the batches of several lanes: frozen layers run once for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.nn import functional

from sweeps_train.data.packing import IGNORED
from sweeps_train.data.sample_order import Batch
from sweeps_train.devices.device_operations import random_state_of
from sweeps_train.errors import CannotShare
from sweeps_train.lanes.joint_linear import JointLinear, Part
from sweeps_train.models.attention import use_causal_attention
from sweeps_train.models.causal_lm import SharedBase
from sweeps_train.models.fused_lora import FusedLinear
from sweeps_train.models.head import detach_head


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

    def adapt(self, models: Sequence[nn.Module]) -> None:
        """Replace the current adapters by those of these models, one for each lane."""
        self._scales.clear()
        by_lane = [adapted_layers(each) for each in models]
        for name in {name for layers in by_lane for name in layers} - set(self._layers):
            parent, _, own = name.rpartition(".")
            base: nn.Linear = self.model.get_submodule(name)
            self._layers[name] = JointLinear(base, self._parts, self._scales)
            setattr(self.model.get_submodule(parent), own, self._layers[name])
        for name, layer in self._layers.items():
            layer.adapted = [layers.get(name) for layers in by_lane]

    @torch.no_grad()
    def draws(self, device: torch.device) -> bool:
        """Whether the base itself draws random numbers in training, as for its own dropout; to be called before it has
        adapters. Such numbers would depend on the rows of all lanes."""
        before = _random_states(device)
        tokens = torch.zeros((1, 2), dtype=torch.int64, device=device)
        # With a mask, since transformers warns of padding without one, and this token may be that of padding.
        self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
        return not all(map(torch.equal, before, _random_states(device)))

    def place(self, parts: Sequence[Part]) -> None:
        """Set the rows of each lane."""
        self._parts[:] = parts


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
    base = adapted.get_base_model()
    layers = {name: each for name, each in base.named_modules() if isinstance(each, BaseTunerLayer)}
    for name, each in layers.items():
        if not isinstance(each, FusedLinear) or each.base_layer is base.get_output_embeddings():
            raise CannotShare(
                f"model.lora.target_modules: {name} is not a linear layer, and trials that share their workers can "
                "adapt only linear layers",
                "leave it out, or use scaling.trials_per_group=1",
            )
    return {name: each for name, each in layers.items() if isinstance(each, FusedLinear)}


def draws(adapted: Any) -> bool:
    """Whether a model with adapters has dropout and therefore draws random numbers."""
    dropouts = [each for layer in adapted_layers(adapted).values() for each in layer.lora_dropout.values()]
    return any(getattr(each, "p", 0.0) > 0 for each in dropouts)


def _random_states(device: torch.device) -> list[torch.Tensor]:
    return [each for each in (torch.get_rng_state(), random_state_of(device)) if each is not None]
