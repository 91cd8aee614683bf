"""Scikit-learn's digits images, read and split exactly as scikit-learn does, but without its slow import."""

from __future__ import annotations

import gzip
import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def files_of_sklearn(pattern: str) -> list[Path]:
    """Return the paths of scikit-learn's files that match a pattern; none if scikit-learn is not installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return []
    return sorted((Path(spec.origin).parent / "datasets" / "data").glob(pattern))


def load_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return pixels of shape (1797, 64) with values from 0 to 16, and labels.

    Raises:
        ImportError: Scikit-learn is not installed.
    """
    files = files_of_sklearn("digits.csv.gz")
    if not files:  # another release may keep them elsewhere
        from sklearn import datasets

        pixels, labels = datasets.load_digits(return_X_y=True)
        return pixels, labels
    with gzip.open(files[0], "rt", encoding="ascii") as lines:
        rows = np.loadtxt(lines, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)


def split_by_class(labels: npt.NDArray[np.int64], held_out: float) -> tuple[list[int], list[int]]:
    """Return row numbers for training and held-out data, with the same share of each class, equal to those of
    scikit-learn's ``train_test_split(stratify=labels, random_state=0)``.

    Raises:
        ValueError: A class would have no row in one of the two parts.
    """
    counts = np.bincount(labels)
    number = math.ceil(held_out * len(labels))
    if not len(counts) <= number <= len(labels) - len(counts):
        raise ValueError(
            f"data.eval_fraction={held_out:g} holds out {number} of {len(labels)} images; each of the {len(counts)} "
            "classes needs one to train with and one that is held out"
        )
    draws = np.random.RandomState(0)
    kept = _shares(counts, len(labels) - number, draws)
    left = _shares(counts - kept, number, draws)
    train: list[int] = []
    held: list[int] = []
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    for rows, first, second in zip(members, kept, left, strict=True):
        shuffled = rows[draws.permutation(len(rows))]
        train += shuffled[:first].tolist()
        held += shuffled[first : first + second].tolist()
    return draws.permutation(train).tolist(), draws.permutation(held).tolist()


def _shares(counts: npt.NDArray[np.int64], number: int, draws: np.random.RandomState) -> npt.NDArray[np.int64]:
    """Divide a number among classes in proportion to their counts. The remainder after rounding down goes to the
    classes with the largest fractions; ties are broken at random."""
    exact = counts / counts.sum() * number
    shares = np.floor(exact)
    remainders, missing = exact - shares, int(number - shares.sum())
    for value in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        (equal,) = np.nonzero(remainders == value)
        chosen = draws.choice(equal, size=min(len(equal), missing), replace=False)
        shares[chosen] += 1
        missing -= len(chosen)
    whole: npt.NDArray[np.int64] = shares.astype(np.int64)
    return whole
