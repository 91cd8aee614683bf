"""Images of digits for the nightly demo: different ones every night, sometimes with wrong labels."""

from __future__ import annotations

import random

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

PER_NIGHT, HELD_OUT = 900, 300
NOISE = 0.35
"""Standard deviation of the noise that is added to the pixels, which lie from -1 to 1."""


def digits(night: str, mislabelled: float) -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out images of shape (1, 8, 8).

    Args:
        night: Name of the night; the same name gives the same data.
        mislabelled: Fraction of the labels that are random, as from a broken pipeline.
    """
    chance = random.Random(night)
    generator = torch.Generator().manual_seed(chance.randrange(2**31))
    pixels, classes = load_digits(return_X_y=True)
    chosen = chance.sample(range(len(classes)), PER_NIGHT)
    images = torch.from_numpy(pixels[chosen]).float().view(-1, 1, 8, 8) / 8 - 1
    images += NOISE * torch.randn(images.shape, generator=generator)
    labels = torch.from_numpy(classes[chosen]).long()
    wrong = torch.rand(PER_NIGHT, generator=generator) < mislabelled
    labels[wrong] = torch.randint(10, (int(wrong.sum()),), generator=generator)
    train, held_out = slice(HELD_OUT, None), slice(HELD_OUT)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[held_out], labels[held_out])
