"""The images of digits are those of scikit-learn, which workers do without."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import datasets
from sklearn.model_selection import train_test_split

from sweeps_train.data.digits import load_digits, split_by_class


def test_the_images_and_labels_are_those_of_scikit_learn() -> None:
    pixels, labels = load_digits()
    expected_pixels, expected_labels = datasets.load_digits(return_X_y=True)
    np.testing.assert_array_equal(pixels, expected_pixels)
    np.testing.assert_array_equal(labels, expected_labels)
    assert labels.dtype == expected_labels.dtype


@pytest.mark.parametrize("held_out", [0.006, 0.05, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.777, 0.99])
def test_the_split_is_that_of_scikit_learn(held_out: float) -> None:
    _, labels = load_digits()
    rows = range(len(labels))
    expected = train_test_split(rows, test_size=held_out, random_state=0, stratify=labels)
    assert [*split_by_class(labels, held_out)] == expected


@pytest.mark.parametrize("held_out", [0.005, 0.996])
def test_a_part_that_leaves_a_class_out_is_refused(held_out: float) -> None:
    with pytest.raises(ValueError, match=f"data.eval_fraction={held_out}"):
        split_by_class(load_digits()[1], held_out)
