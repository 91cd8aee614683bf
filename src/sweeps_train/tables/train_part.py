"""Selects a part of the training data, for cheaper trainings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt


def train_part(
    number: int, fraction: float, seed: int, labels: Sequence[Hashable] | None = None
) -> npt.NDArray[np.int64]:
    """Choose a part of the training samples, with about the same share and at least one sample of each class.

    With the same seed, a smaller part is contained in each larger one, so that the stages of a search can use more and
    more data.

    Args:
        number: Number of the training samples.
        fraction: Part of them, above 0 and at most 1.
        seed: Seed of the choice.
        labels: Class of each sample; default: none.

    Returns:
        Indices of the chosen samples, ascending.

    Example:
        >>> from sweeps_train.tables.train_part import train_part
        >>> train_part(6, 0.5, seed=0, labels=["a", "a", "a", "a", "b", "b"]).tolist()
        [2, 3, 5]
    """
    members: dict[Hashable, list[int]] = {}
    for index in np.random.default_rng(seed).permutation(number).tolist():
        members.setdefault(None if labels is None else labels[index], []).append(index)
    # One sample of each class comes first; from then on, about the same part of each class has been taken.
    place = {index: rank / len(indices) for indices in members.values() for rank, index in enumerate(indices)}
    ordered = sorted(place, key=lambda index: (place[index], index))
    return np.sort(np.array(ordered[: max(len(members), math.ceil(fraction * number))], dtype=np.int64))
