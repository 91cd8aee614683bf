"""Too few samples for a batch are found before anything starts, where the size of the data is known."""

from __future__ import annotations

import pytest
from composing import checked, refusal

from sweeps.validate.model_checks import DIGITS, TABLES

NO_SPACE = "space=none"
WINE = ("task=classification", "model=mlp", "data=csv", "data.path=builtin:wine", "data.target=target", "space=none")
STAGE = "search.stages=[{overrides: ['data.train_fraction=0.0001'], num_trials: 6}]"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            ("data.train_fraction=0.0001", NO_SPACE),
            "10 training samples that data.train_fraction=0.0001 leaves; use at most 10, or a larger",
        ),
        (("data.train_fraction=0.06",), "train.global_batch_size=128: is more than the 87 training samples"),
        (("data.train_fraction=interval(0.01, 1)", "train.global_batch_size=64"), "space.data.train_fraction reaches"),
        ((STAGE,), "search.stages.0: train.global_batch_size=64: is more than the 10 training samples"),
        (("data.eval_fraction=0.99", NO_SPACE), "64: is more than the 17 training samples; use at most 17, or a small"),
        (("data.eval_fraction=0.999", NO_SPACE), "data.eval_fraction=0.999: holds out 1,796 of 1,797 samples; leave"),
        ((*WINE, "data.train_fraction=0.01"), "train.global_batch_size=64: is more than the 3 training samples"),
    ],
)
def test_a_batch_larger_than_the_training_data_is_refused(tokens: tuple[str, ...], message: str) -> None:
    assert message in refusal("digits", *tokens)


@pytest.mark.parametrize("tokens", [("data.train_fraction=0.09",), (*WINE, "data.train_fraction=0.5"), WINE])
def test_enough_samples_for_a_batch_pass(tokens: tuple[str, ...]) -> None:
    checked("digits", *tokens)


def test_the_sizes_of_the_data_that_ships_are_those_that_workers_read() -> None:
    from sweeps_train.config import DigitsData, TableData
    from sweeps_train.data.images import build_image_samples
    from sweeps_train.tables.table_files import read_table

    train, held_out = build_image_samples(DigitsData(kind="digits"))
    assert (len(train) + len(held_out), train.num_classes) == DIGITS
    for fraction, number in ((0.06, 87), (0.0001, 10)):
        assert len(build_image_samples(DigitsData(kind="digits", train_fraction=fraction))[0]) == number
    for path, (rows, classes) in TABLES.items():
        table = read_table(TableData(kind="table", format="csv", path=path, target="target"))
        assert table.num_rows == rows
        assert classes == 1 or len(table["target"].unique()) == classes
