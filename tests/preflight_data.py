"""Data sets that cannot be learned from. The preflight's process imports this module, so it imports torch alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import TensorDataset

NAMES = ["age", "height", "price", "rooms", "year", "floor"]


def data_with(what: str) -> tuple[TensorDataset, TensorDataset]:
    inputs, labels = torch.randn(200, 6), torch.arange(200) % 3
    count = 1 if what == "one held out" else 40
    held_out = inputs[:count].clone(), labels[:count].clone()
    match what:
        case "a column of NaN":
            inputs[:, 2] = torch.nan
        case "an infinite value":
            inputs[150, 4] = torch.inf
        case "a large label":
            labels[150] = 7
        case "a large label held out":
            held_out[1][30] = 3
        case "a negative label":
            labels[3], labels[4] = -1, -100  # the second one is ignored
        case "real labels":
            labels = labels.float()
        case "NaN labels":
            labels = labels.float()
            labels[3] = torch.nan
        case "nothing":
            inputs, labels = inputs[:0], labels[:0]
        case "a missing file":
            Path("none.csv").read_text()
    train = TensorDataset(inputs, labels)
    train.columns = NAMES  # type: ignore[attr-defined]
    return train, TensorDataset(*held_out)
