"""Names and values that a training reports, of every type that occurs in such code."""

from __future__ import annotations

import enum
import math
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from sweeps_train.reports.reported_metrics import as_step, metrics_in


class Split(enum.Enum):
    TRAIN = 0
    TEST = "test"


class Name(enum.StrEnum):
    LOSS = "loss"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([[0.5]], dtype=torch.bfloat16, requires_grad=True), 0.5),
        (np.array([0.5]), 0.5),
        (np.float16(0.5), 0.5),
        (np.longdouble("1e400"), math.inf),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (True, 1.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 2), 0.5),
        (10**400, math.inf),
        (-Fraction(10**400), -math.inf),
    ],
)
def test_a_number_of_any_type_is_recorded(value: Any, expected: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics_in({"loss": value}).numbers == {"loss": expected}


@pytest.mark.parametrize("value", [np.ma.masked, np.ma.array([0.5, 0.25], mask=True).mean(), np.ma.array([0], mask=1)])
def test_a_masked_value_is_not_a_number_instead_of_what_lies_below_the_mask(value: Any) -> None:
    assert math.isnan(metrics_in({"loss": value}).numbers["loss"])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.ones(3), "Tensor of 3 elements"),
        (np.zeros(0), "ndarray of 0 elements"),
        ("0.5", "str"),
        (np.array("0.5"), "ndarray"),
        ([0.5], "list"),
        (1j, "complex"),
        (None, "NoneType"),
        (np.datetime64("2026-11-27"), "datetime64"),
    ],
)
def test_what_is_no_number_is_named_with_its_type(value: Any, kind: str) -> None:
    found = metrics_in({"loss": 1, "other": value})
    assert (found.numbers, found.others) == ({"loss": 1.0}, {"other": kind})


def test_names_become_text_where_that_is_unambiguous() -> None:
    reported = {0: 1, np.int64(1): 1, 0.5: 1, Name.LOSS: 1, Split.TRAIN: 1, Split.TEST: 1, ("eval", "loss"): 1}
    assert list(metrics_in(reported).numbers) == ["0", "1", "0.5", "loss", "TRAIN", "test", "eval/loss"]
    assert metrics_in({"eval": {"loss": 1, Split.TRAIN: {"f1": 2}}}).numbers == {"eval/loss": 1, "eval/TRAIN/f1": 2}
    assert all(type(name) is str for name in metrics_in(reported).numbers)


@pytest.mark.parametrize("name", [None, b"loss", ("eval", None), frozenset("a")])
def test_other_names_are_refused_by_name(name: Any) -> None:
    with pytest.raises(ValueError, match=f"the reported name eval/.* is of the type {type(name).__name__}"):
        metrics_in({"eval": {name: 1.0}})


@pytest.mark.parametrize("reported", [{0: 1, "0": 2}, {"eval": {"loss": 1}, "eval/loss": 2}])
def test_two_values_never_get_one_name(reported: Any) -> None:
    with pytest.raises(ValueError, match=r"two reported values would both have the name '(0|eval/loss)'; rename one"):
        metrics_in(reported)


@pytest.mark.parametrize("value", [10, 10.0, np.float32(10), torch.tensor(10)])
def test_a_step_is_a_whole_number_of_any_type(value: Any) -> None:
    assert as_step("step", value) == 10


@pytest.mark.parametrize("value", [0.5, -1, math.nan, math.inf, 1e300, "10", torch.ones(2)])
def test_a_step_that_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"step: it was .*, and must be a whole number from 0 to"):
        as_step("step", value)
