"""Tables: which rows are held out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from own_tables import data, own, rows, write_csv

from sweeps_train.tables.split import fold_rows, read_split, split_rows
from sweeps_train.tables.table_files import read_table


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> Path:
    write_csv(working_folder / "rows.csv", rows())
    return working_folder


def test_the_same_part_of_every_class_is_held_out_by_the_seed() -> None:
    train, held_out = read_split(data(), "classification")
    assert (train.num_rows, held_out.num_rows) == (160, 40)
    parts = [part["label"].to_pylist().count("yes") / part.num_rows for part in (train, held_out)]
    assert parts[0] == pytest.approx(parts[1], abs=0.02)
    assert read_split(data(), "classification")[1].equals(held_out)
    assert not read_split(data(split_seed=1), "classification")[1].equals(held_out)


def test_no_group_is_in_both_parts() -> None:
    train, held_out = read_split(data(group="city", eval_fraction=0.3), "classification")
    cities = [{*part["city"].to_pylist()} for part in (train, held_out)]
    assert cities[0]
    assert cities[1]
    assert not cities[0] & cities[1]
    assert cities[0] | cities[1] == {"Rome", "Oslo", "Lima", None}


def test_the_last_rows_are_held_out_by_time_and_those_of_a_moment_stay_together(files: Path) -> None:
    made = rows()
    random.Random(1).shuffle(made)
    write_csv(files / "mixed.csv", made)
    train, held_out = read_split(data(path="mixed.csv", time="joined", eval_fraction=0.205), "classification")
    assert max(train["joined"].to_pylist()) < min(held_out["joined"].to_pylist())
    assert held_out.num_rows == 42  # 41 rows, of which the first has the day of another one


def test_a_file_of_its_own_is_held_out_whole(files: Path) -> None:
    without_dropped = [{name: value for name, value in row.items() if name != "id"} for row in rows()[:30]]
    write_csv(files / "more.csv", without_dropped)
    train, held_out = read_split(data(eval_path="more.csv"), "classification")
    assert (train.num_rows, held_out.num_rows) == (200, 30)


@pytest.mark.parametrize("option", ["drop", "categories", "features"])
def test_a_misspelt_column_of_a_table_in_an_object_store_is_refused(option: str, files: Path) -> None:
    with pytest.raises(ValueError, match=f"data.{option}=idd: .*rows.csv has no such column; it has id, age"):
        read_split(data(path=f"file://{files}/rows.csv", **{option: ["idd"]}), "classification")


def test_a_part_of_the_training_rows_is_within_each_larger_one_and_has_every_class() -> None:
    held_out = read_split(data(), "classification")[1]
    before: set[tuple[str, ...]] = set()
    for fraction, number in ((0.001, 2), (0.25, 40), (0.5, 80), (1.0, 160)):
        train, same = read_split(data(train_fraction=fraction), "classification")
        assert same.equals(held_out)
        assert train.num_rows == number
        assert {*train["label"].to_pylist()} == {"yes", "no"}
        found = {tuple(map(str, row.values())) for row in train.to_pylist()}
        assert before <= found
        before = found
    own_file = data(eval_path="rows.csv", train_fraction=0.5)
    assert [part.num_rows for part in read_split(own_file, "classification")] == [100, 200]


def test_a_number_that_stands_for_a_missing_target_leaves_its_row_out_however_it_is_written() -> None:
    config = own("x,label\n" + "1,1.5\n2,-999.0\n3,2.5\n4,-999\n" * 5, missing=["-999"])
    train, held_out = read_split(config, "regression")
    assert {*train["label"].to_pylist(), *held_out["label"].to_pylist()} == {1.5, 2.5}


@pytest.mark.parametrize("label", ["", "None"])
def test_rows_without_a_target_are_left_out_which_the_log_says(
    label: str, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = rows()
    for each in made[:50]:
        each["label"] = label
    write_csv(files / "rows.csv", made)
    train, held_out = read_split(data(), "classification")
    assert train.num_rows + held_out.num_rows == 150
    assert "data.path=rows.csv: 50 of 200 cells of data.target=label are empty, or one of data.missing," in caplog.text


@pytest.mark.parametrize("changes", [{}, {"group": "city"}, {"time": "joined"}])
def test_every_fold_holds_out_other_rows(changes: dict[str, Any]) -> None:
    config = data(**changes)
    table = read_table(config)
    folds = fold_rows(config, "classification", table, 3)
    held_out = [row for _, apart in folds for row in apart]
    assert len(held_out) == len({*held_out})
    for train, apart in folds:
        assert not {*train} & {*apart}
    if "time" in changes:
        assert all(max(train) < min(apart) for train, apart in folds)
    else:
        assert len(held_out) == table.num_rows
    if "group" in changes:
        cities = np.array(table["city"].to_pylist(), dtype=object)
        assert all(not {*cities[train]} & {*cities[rows]} for train, rows in folds)


def test_each_fold_trains_on_earlier_times_alone_though_rows_share_a_time() -> None:
    times = [day for day in range(6) for _ in range(10)]
    random.Random(0).shuffle(times)
    table = pa.table({"t": times, "label": ["a"] * len(times)})
    folds = fold_rows(data(time="t"), "regression", table, 3)
    for train, held_out in folds:
        assert max(times[row] for row in train) < min(times[row] for row in held_out)
    assert {row for _, rows in folds for row in rows} == {row for row, time in enumerate(times) if time >= 1}
    with pytest.raises(ValueError, match=r"task.folds=8: data.time=t has too many rows of the same time"):
        fold_rows(data(time="t"), "regression", table, 8)


def test_columns_of_pandas_categories_are_groups_and_times_like_texts() -> None:
    days = ["2024-01-02", "2024-01-01", "2024-01-03", "2024-01-04"]
    texts = pa.table({"x": range(4), "t": days, "label": ["a", "b", "a", "b"]})
    categories = texts.set_column(1, "t", texts["t"].dictionary_encode())
    for config in (data(group="t"), data(time="t")):
        expected = split_rows(config, "classification", texts)
        for found, wanted in zip(split_rows(config, "classification", categories), expected, strict=True):
            assert found.tolist() == wanted.tolist()


def test_the_split_of_few_rows_says_what_is_wrong() -> None:
    table = pa.table({"x": range(6), "label": [*"aabbcc"]})
    with pytest.raises(ValueError, match=r"data.eval_fraction=0.2: with 6 rows, a class .* change it"):
        split_rows(data(drop=[]), "classification", table)
