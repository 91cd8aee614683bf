"""Tables: what is read, held out and learned, and predictions for raw rows."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import random
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from sweeps.compose.overrides import parse_overrides
from sweeps_train.config import TableData
from sweeps_train.tables.columns import check_columns
from sweeps_train.tables.encoding import ENCODING, Amount, Classes, TableEncoding, learn_encoding
from sweeps_train.tables.metrics import classification_metrics, label_metrics, regression_metrics
from sweeps_train.tables.predictions import example_row, prediction_frame, to_table
from sweeps_train.tables.split import fold_rows, read_split, split_rows
from sweeps_train.tables.table_files import read_table

COLUMNS = ("id", "age", "city", "member", "joined", "visits", "label")


def rows(number: int = 200) -> list[dict[str, Any]]:
    draw = random.Random(0)
    made = []
    for index in range(number):
        age, city = draw.randint(18, 80), draw.choice(["Rome", "Oslo", "Lima", ""])
        joined = datetime.date(2020, 1, 1) + datetime.timedelta(days=index // 2)
        label = "yes" if (age > 45) != (city == "Oslo") else "no"
        shown = "" if index % 10 == 3 else age
        made.append(dict(zip(COLUMNS, (index, shown, city, index % 3 == 0, joined, index % 7, label), strict=True)))
    return made


def write_csv(path: Path, made: list[dict[str, Any]], separator: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, made[0], delimiter=separator)
        writer.writeheader()
        writer.writerows(made)


def data(**changes: Any) -> TableData:
    given = {"kind": "table", "format": "csv", "path": "rows.csv", "target": "label", "drop": ["id"]}
    return TableData(**{**given, **changes})


def own(content: str | bytes, **changes: Any) -> TableData:
    """A table of this content, all of whose columns are used."""
    Path("own.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return data(path="own.csv", drop=[], **changes)


def learned(config: TableData) -> TableEncoding:
    return learn_encoding(config, "classification", read_table(config))


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> Path:
    write_csv(working_folder / "rows.csv", rows())
    return working_folder


# --- reading ---------------------------------------------------------------------------------------------------


def test_csv_and_parquet_files_alone_compressed_or_in_a_folder_are_the_same_table(files: Path) -> None:
    table = read_table(data())
    made = rows()
    (files / "parts").mkdir()
    write_csv(files / "parts" / "1.csv", made[:70])
    write_csv(files / "parts" / "2.csv", made[70:])
    write_csv(files / "rows.tsv", made, "\t")
    (files / "rows.csv.gz").write_bytes(gzip.compress((files / "rows.csv").read_bytes()))
    pyarrow.parquet.write_table(table, files / "rows.parquet")
    for path in ("parts", "parts/*.csv", "rows.tsv", "rows.csv.gz", f"file://{files}/rows.csv"):
        assert read_table(data(path=path)).equals(table), path
    assert read_table(data(format="parquet", path="rows.parquet")).equals(table)


def test_a_column_whose_decimals_come_late_is_read_as_numbers() -> None:
    lines = ["x,label"] + ["1,a"] * 400_000 + ["1.5,b"]
    assert str(read_table(own("\n".join(lines)))["x"].type) == "double"


def test_categories_of_a_file_are_those_of_the_others_though_its_own_look_like_numbers(files: Path) -> None:
    (files / "parts").mkdir()
    (files / "parts" / "1.csv").write_text("code,seen,label\n0A1,True,yes\n012,False,no\n013,Maybe,yes\n")
    (files / "parts" / "2.csv").write_text("code,seen,label\n012,True,yes\n013,False,no\n")
    config = data(path="parts", eval_path="parts/2.csv", drop=[], categories=["code"])
    train, held_out = read_split(config, "classification")
    assert train["code"].to_pylist() == ["0A1", "012", "013", "012", "013"]
    encoding = learn_encoding(config, "classification", train)
    assert [each.values for each in encoding.categories] == [["012", "013", "0A1"], ["False", "Maybe", "True"]]
    assert encoding.encode(held_out).categories.tolist() == [[1, 3], [2, 1]]


@pytest.mark.parametrize("second", ["x,Label\n3,a\n4,b\n5,a\n", "3,a\n4,b\n5,a\n"], ids=["other name", "no header"])
def test_rows_of_a_file_that_lacks_the_target_are_not_left_out_without_a_word(second: str, files: Path) -> None:
    (files / "parts").mkdir()
    (files / "parts" / "1.csv").write_text("x,label\n1,a\n2,b\n")
    (files / "parts" / "2.csv").write_text(second)
    with pytest.raises(ValueError, match=r"data.path=parts: .*2.csv has no column 'label', which other files have"):
        read_table(data(path="parts"))


def test_a_compressed_file_that_is_cut_off_is_named(files: Path) -> None:
    whole = gzip.compress((files / "rows.csv").read_bytes())
    (files / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half.csv.gz cannot be read: "):
        read_table(data(path="half.csv.gz"))


@pytest.mark.parametrize("end", ["", "\n"])
def test_rows_behind_a_quote_that_is_not_closed_are_not_lost_without_a_word(end: str, files: Path) -> None:
    content = f'x,label\n1,a\n2,"b\n3,a\n4,b{end}'
    with pytest.raises(
        ValueError, match=r"own.csv: the quote before 'b' is not closed, so that all rows that follow are"
    ):
        read_table(own(content))
    (files / "own.csv.gz").write_bytes(gzip.compress(content.encode()))
    with pytest.raises(ValueError, match=r"own.csv.gz: the quote before 'b' is not closed"):
        read_table(data(path="own.csv.gz"))
    assert read_table(own(f'x,label\n1,a\n2,"b\n3,a\n4,b"{end}'))["label"].to_pylist() == ["a", "b\n3,a\n4,b"]


def test_the_index_that_pandas_writes_is_left_out(files: Path) -> None:
    pd.DataFrame({"x": [1, 2], "label": ["a", "b"]}).to_csv(files / "pandas.csv")
    assert read_table(data(path="pandas.csv")).column_names == ["x", "label"]
    pd.read_csv(files / "pandas.csv").to_csv(files / "twice.csv", index=False)
    for given, names in (
        ({}, ["x"]),
        ({"drop": ["Unnamed: 0"]}, ["x"]),
        ({"features": ["Unnamed: 0"]}, ["Unnamed: 0"]),
    ):
        config = data(path="twice.csv", **{"drop": [], **given})
        assert [*learned(config).kinds] == names
        assert check_columns(config, read_table(config).column_names, "twice.csv") == []


EUROPEAN = "größe;ort;label\n1,5;Köln;a\n2,5;;b\n;Bonn;a\n4,0;Köln;b\n"


def test_a_table_of_a_european_spreadsheet_is_read_by_its_separator_encoding_and_decimal_comma() -> None:
    table = read_table(own(EUROPEAN.encode("latin-1"), separator=";", encoding="latin-1", decimal=","))
    assert table["größe"].to_pylist() == [1.5, 2.5, None, 4.0]
    assert table["ort"].to_pylist() == ["Köln", None, "Bonn", "Köln"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["is not utf-8", "data.encoding=latin-1"]),
        ({"encoding": "latin-1"}, ["'größe;ort;label'", "';'", "'data.separator=\";\"'"]),
        ({"encoding": "latin-1", "separator": ";"}, ["'größe'", "1,5", "'data.decimal=\",\"'"]),
    ],
)
def test_a_table_of_a_european_spreadsheet_leads_from_one_key_to_the_next(
    changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the words are checked
        learned(own(EUROPEAN.encode("latin-1"), **changes))
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        (b"a\tb\tlabel\n1\t2\tx\n", {}, ["data.separator"]),
        (b"a|b|label\n1|2|x\n", {}, ["'data.separator=\"|\"'"]),
        (b"a,b,label\n1,2,x\n", {"separator": ";"}, ["data.separator"]),
        ("a;b\n1;2\n".encode("utf-16"), {}, ["data.encoding=utf-16"]),
        ("a,label\nö,x\nü,y\n".encode("latin-1"), {}, ["data.encoding=latin-1"]),
        (b"a,label\n" + b"b,x\n" * 300_000 + "ö,y\n".encode("latin-1"), {}, ["data.encoding=latin-1"]),
        ("a,label\nö,x\n".encode(), {"encoding": "ascii"}, ["data.encoding=ascii", "is not ascii"]),
    ],
)
def test_a_table_of_another_separator_or_encoding_names_the_key(
    content: bytes, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the words are checked
        read_table(own(content, **changes))
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("cells", "changes", "key"),
    [
        (["1,5", "2,25", "-", "k. A.", "3,5", "4,75", "7"], {}, "'data.decimal=\",\"'"),
        (["1,5", "2,25", "-", "k. A.", "3,5", "4,75", "7"], {"decimal": ","}, '"-", "k. A."]'),
        (["1.300", "2.500", "10.000", "1.250.000,5"], {"decimal": ","}, "thousands separators (1.300)"),
        (["1,300,000", "2,500,000"], {}, "thousands separators (1,300,000)"),
        (["1 300", "2 500", "12 000"], {}, "thousands separators (1 300); write them without, or name"),
        (
            ["1,250", "12,500", "7"],
            {},
            "thousands separators (1,250); write them without, or set 'data.decimal=\",\"' if these are",
        ),
        (["1,250", "12,5", "7"], {}, "numbers with a decimal comma (1,250); set 'data.decimal="),
        (
            ["12/31/2026", "1/2/27", "unknown"],
            {},
            "dates as texts (12/31/2026), which would be categories; write them as",
        ),
        (["31.12.2026 08:00", "2.1.2027 09:30"], {}, "dates as texts (31.12.2026 08:00)"),
        (["2026-12-31 08:00:00 UTC", "2027-01-02 09:30:00 UTC"], {}, "dates as texts (2026-12-31 08:00:00 UTC)"),
        (
            ["$1,200.50", "$ 85", "free"],
            {},
            "numbers with a sign as texts ($1,200.50), which would be categories; write",
        ),
        (["12%", "7.5 %", "-3%"], {}, "numbers with a sign as texts (12%)"),
    ],
)
def test_numbers_and_dates_of_another_country_never_become_categories_without_a_word(
    cells: list[str], changes: dict[str, Any], key: str
) -> None:
    content = "x;label\n" + "".join(f"{each};{'ab'[n % 2]}\n" for n, each in enumerate(cells))
    with pytest.raises(ValueError, match=re.escape(key)):
        learned(own(content, separator=";", **changes))


@pytest.mark.parametrize("cells", [["1.5", "2", "17"], ["1", "2", "?"], ["1,5", "2,5", "k. A."]])
def test_numbers_that_a_parquet_file_has_as_texts_never_become_categories_without_a_word(cells: list[str]) -> None:
    table = pa.table({"x": cells, "label": ["a", "b", "a"]})
    with pytest.raises(
        ValueError, match=r"'x' has numbers as texts \(1.*write it as a column of numbers, with null for"
    ):
        learn_encoding(data(format="parquet", drop=[]), "classification", table)


def test_codes_that_a_parquet_file_has_as_texts_are_categories() -> None:
    table = pa.table({"x": ["01067", "50667", "01067"], "label": ["a", "b", "a"]})
    assert learn_encoding(data(format="parquet", drop=[]), "classification", table).kinds == {"x": "category"}


def test_texts_that_only_resemble_dates_and_amounts_are_categories() -> None:
    content = "version;part;route;label\n3.11.12;1/2;$;a\n10.0.14;3/4;$HOME;b\n2.13.0;1/2;10.1.2.3;a\n"
    assert {*learned(own(content, separator=";")).kinds.values()} == {"category"}


def test_a_tab_is_written_as_the_message_says() -> None:
    content = "a\tlabel\n1\tx\n"
    with pytest.raises(ValueError, match=r"""'data\.separator="\\t"'""") as raised:
        read_table(own(content))
    token = shlex.split(str(raised.value))[-1]
    (override,) = parse_overrides([token])
    assert read_table(own(content, separator=override.value())).column_names == ["a", "label"]


def test_a_question_mark_in_the_name_of_a_folder_ends_no_file_name(files: Path) -> None:
    folder = files / "a?b=c #d"
    folder.mkdir()
    (folder / "rows.tsv").write_text("a\tlabel\n1\tx\n")
    (folder / "rows.csv.gz").write_bytes(gzip.compress(b"a,label\n1,x\n"))
    for name in ("rows.tsv", "rows.csv.gz"):
        assert read_table(data(path=str(folder / name))).column_names == ["a", "label"]


def test_an_encoding_that_python_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"encoding=latin-7x: Python has no such encoding; use utf-8, latin-1"):
        data(encoding="latin-7x")


def test_empty_cells_are_missing_whatever_other_texts_are() -> None:
    table = read_table(own('x,label\n1,a\n?,b\n"",a\n,b\n', missing=["?"]))
    assert table["x"].to_pylist() == [1, None, None, None]


def test_the_advice_for_missing_values_can_be_pasted() -> None:
    content = "x,label\n?,a\nNA,b\n,a\nunknown,b\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20))
    with pytest.raises(ValueError, match=r"data\.missing") as raised:
        learned(own(content))
    (token,) = [word for word in shlex.split(str(raised.value)) if word.startswith("data.missing=[")]
    assert learned(own(content, missing=json.loads(token.removeprefix("data.missing=")))).kinds == {"x": "number"}


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        ("x,x,label\n1,2,a\n", {}, ["two columns 'x'"]),
        ("x,label\n1,a,3\n", {}, ["cannot be read", "Expected 2 columns"]),
        ("x,label\n", {}, ["has no rows"]),
        ("x,label\n1,\n", {}, ["data.target=label", "no row with a value"]),
        ("x,label\n1,a\n2,a\n3,a\n", {}, ["same class (a)"]),
        ("x,label\n1,a\n2,b\n3,b\n4,b\n", {}, ["class a has 1 row"]),
        (
            "x,label\n?,a\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20)),
            {},
            ["'x'", "'?'", "data.missing", "data.categories"],
        ),
        ("x,label\n1,0.5\n2,1.5\n", {}, ["decimals", "task=regression"]),
        ("x,label\n1,a\n2,b\n", {"goal": "regression"}, ["a regression needs numbers", "task=classification"]),
        ("x,label,g\n1,a,1\n2,b,1\n", {"group": "g"}, ["data.group=g", "1 different value"]),
        ("x,label,t\n1,a,1\n2,b,\n", {"time": "t"}, ["data.time=t", "missing in 1 row"]),
        ("x,label,t\n1,a,1\n2,b,1\n", {"time": "t"}, ["data.time=t", "no row is earlier"]),
        ("label\n" + "a\nb\n" * 10, {}, ["no column with values"]),
    ],
)
def test_a_table_that_cannot_be_learned_from_says_why(content: str, changes: dict[str, Any], words: list[str]) -> None:
    goal = changes.pop("goal", "classification")
    config = own(content, **changes)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the words are checked
        learn_encoding(config, goal, read_split(config, goal)[0])
    for word in words:
        assert word in str(raised.value)


def test_columns_of_types_that_no_model_reads_are_named() -> None:
    table = pa.table({"x": [[1], [2], [3], [4]], "label": ["a", "b", "a", "b"]})
    with pytest.raises(ValueError, match=r"the column 'x' is of type list<item: int64>.*data.drop=\[x\]"):
        learn_encoding(data(), "classification", table)


def test_a_time_that_is_no_number_is_missing_and_not_the_latest() -> None:
    table = pa.table({"x": [1.0, 2.0, 3.0], "t": [1.0, float("nan"), 2.0], "label": ["a", "b", "a"]})
    with pytest.raises(ValueError, match=r"data.time=t: is missing in 1 row"):
        split_rows(data(time="t"), "classification", table)


@pytest.mark.parametrize(
    "times",
    [
        ["12/31/2022", "02/01/2024", "03/15/2023"],
        ["2024-1-5", "2024-10-5", "2024-2-5"],
        ["31.12.2022", "01.02.2023"],
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:10:00+01:00"],  # the second one is the later one
    ],
)
def test_texts_that_do_not_sort_by_time_hold_out_no_rows(times: list[str]) -> None:
    table = pa.table({"x": range(len(times)), "t": times, "label": ["a"] * len(times)})
    with pytest.raises(ValueError, match=r"data.time=t: texts such as .* cannot be sorted by time"):
        split_rows(data(time="t"), "classification", table)


def test_texts_that_begin_with_the_year_are_sorted_by_time() -> None:
    table = pa.table({"x": range(4), "t": ["2024-Q1", "2023-Q4", "2024-Q2", "2022-Q1"], "label": ["a"] * 4})
    assert [part.tolist() for part in split_rows(data(time="t"), "classification", table)] == [[0, 1, 3], [2]]


# --- holding out -------------------------------------------------------------------------------------------------


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
    write_csv(files / "more.csv", rows()[:30])
    train, held_out = read_split(data(eval_path="more.csv"), "classification")
    assert (train.num_rows, held_out.num_rows) == (200, 30)


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
    held_out = [row for _, rows in folds for row in rows]
    assert len(held_out) == len({*held_out})
    for train, rows in folds:
        assert not {*train} & {*rows}
    if "time" in changes:
        assert all(max(train) < min(rows) for train, rows in folds)
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


# --- encoding ----------------------------------------------------------------------------------------------------


def test_statistics_and_categories_are_those_of_the_training_rows_alone() -> None:
    table = pa.table(
        {"x": [1.0, 2.0, None, 3.0], "c": ["a", "b", None, "b"], "label": ["no", "yes", "no", "yes"]},
    )
    encoding = learn_encoding(data(drop=[]), "classification", table)
    assert [(each.mean, each.fill, each.has_missing) for each in encoding.numbers] == [(2.0, 2.0, True)]
    assert encoding.categories[0].values == ["a", "b"]
    assert encoding.output == Classes("classes", ["no", "yes"])
    other = pa.table({"c": ["b", "new", None], "x": [3.0, None, np.inf], "more": [1, 2, 3]})
    features = encoding.encode(other)
    assert features.categories[:, 0].tolist() == [2, 0, 0]
    scaled = 1 / np.std([1, 2, 3])
    assert encoding.matrix(features.numbers).tolist() == pytest.approx(np.array([[scaled, 0], [0, 1], [0, 1]]))
    hot = encoding.matrix(features.numbers, features.categories)
    assert hot[:, 2:].tolist() == [[0, 1], [0, 0], [0, 0]]


def test_dates_booleans_and_whole_numbers_with_gaps_are_read_alike_from_files_and_frames() -> None:
    table = read_table(data(categories=["visits"]))
    encoding = learn_encoding(data(categories=["visits"]), "classification", table)
    assert encoding.kinds == {
        "age": "number", "city": "category", "member": "boolean", "joined": "date", "visits": "category",
    }  # fmt: skip
    assert [each.name for each in encoding.numbers] == [
        *("age", "member", "joined.days", "joined.month", "joined.weekday", "joined.hour"),
    ]
    expected = encoding.encode(table)
    frame = table.to_pandas().astype({"visits": float})
    frame["joined"] = frame["joined"].astype(str)
    for given in (frame, frame.to_dict("records")):
        features = encoding.encode(to_table(given))
        assert np.array_equal(features.numbers, expected.numbers, equal_nan=True)
        assert np.array_equal(features.categories, expected.categories)


def test_dates_of_all_years_are_numbers() -> None:
    days = [datetime.date(1, 1, 1), datetime.date(2026, 1, 1), datetime.date(9999, 12, 31)]  # the last: no end
    table = pa.table({"until": days, "label": ["a", "b", "a"]})
    encoding = learn_encoding(data(drop=[], format="parquet"), "classification", table)
    expected = [(day - datetime.date(1970, 1, 1)).days for day in days]
    assert encoding.encode(table).numbers[:, 0].tolist() == expected


def test_a_number_that_stands_for_a_missing_value_is_learned_as_missing_however_it_is_written() -> None:
    config = own("x,label\n1.5,a\n-999.0,b\n2.5,a\n-999,b\n", missing=["-999"])
    table = read_table(config)
    encoding = learn_encoding(config, "classification", table)
    (feature,) = encoding.numbers
    assert (feature.mean, feature.fill, feature.has_missing) == (2.0, 2.0, True)
    assert encoding.matrix(encoding.encode(table).numbers).tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1]]


def test_only_the_most_frequent_categories_are_told_apart() -> None:
    table = pa.table({"c": ["a"] * 3 + ["b"] * 2 + ["d"], "label": [0, 1] * 3})
    encoding = learn_encoding(data(drop=[], max_categories=2), "classification", table)
    assert encoding.categories[0].values == ["a", "b"]


def test_a_column_of_many_categories_is_taken_by_every_estimator_that_takes_categories() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    table = pa.table({"code": [f"code {index % 400}" for index in range(800)], "label": ["a", "b"] * 400})
    encoding = learn_encoding(data(drop=[]), "classification", table)
    inputs = encoding.frame(encoding.encode(table))
    HistGradientBoostingClassifier(max_iter=1).fit(inputs, encoding.targets(table, "training"))


def test_long_codes_are_told_apart_as_texts_too() -> None:
    codes = [10**17 + last for last in range(4)]
    content = "code,label\n" + "".join(f"{code},{code % 2}\n" for code in codes)
    encoding = learned(own(content, categories=["code"]))
    for rows_ in ([{"code": code} for code in codes], [{"code": f"0{code}"} for code in codes]):
        assert encoding.encode(to_table(rows_)).categories[:, 0].tolist() == [1, 2, 3, 4]


def test_numbers_beyond_64_bits_are_categories_of_their_own() -> None:
    codes = [10**19, 2 * 10**19, 3 * 10**20]
    encoding = learned(own("code,label\n" + "".join(f"{code},{code % 7}\n" for code in codes), categories=["code"]))
    assert encoding.encode(pa.table({"code": [float(code) for code in codes]})).categories[:, 0].tolist() == [1, 2, 3]


def test_whole_numbers_that_pandas_has_as_categories_are_categories() -> None:
    frame = pd.DataFrame({"code": pd.Categorical([7, 9, 7, 11]), "label": ["a", "b", "a", "b"]})
    encoding = learn_encoding(data(drop=[]), "classification", pa.Table.from_pandas(frame))
    assert encoding.kinds == {"code": "category"}
    for rows_ in (frame, [{"code": code} for code in (7, 9, 7, 11)]):
        assert encoding.encode(to_table(rows_)).categories[:, 0].tolist() == [2, 3, 2, 1]


@pytest.mark.parametrize("dtype", [None, str])
def test_categories_of_dates_moments_and_truth_values_are_known_as_texts_and_as_objects(
    dtype: type | None,
) -> None:
    content = "new,at,day,label\nTrue,2024-01-05T08:00,2024-01-05,a\nFalse,2024-01-05T09:30,2024-01-06,b\n"
    config = own(content, categories=["new", "at", "day"])
    encoding = learned(config)
    raw = pd.read_csv(config.path, dtype=dtype, parse_dates=["at", "day"] if dtype is None else False)
    for given in (raw, raw.to_dict("records")):
        assert encoding.encode(to_table(given)).categories.tolist() == [[2, 1, 1], [1, 2, 2]]


def test_a_time_of_day_is_the_same_number_as_a_text_and_as_an_object() -> None:
    encoding = learned(own("at,label\n08:30,a\n17:45,b\n"))
    for at in ("17:45", datetime.time(17, 45)):
        assert encoding.encode(to_table([{"at": at}])).numbers.tolist() == [[17.75 * 3600]]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_time_of_day_is_the_same_number_in_every_unit_of_a_typed_file(unit: str) -> None:
    times = [datetime.time(8, 30), datetime.time(17, 45)]
    kind = pa.time32(unit) if unit == "ms" else pa.time64(unit)
    table = pa.table({"at": pa.array(times, kind), "label": ["a", "b"]})
    encoding = learn_encoding(data(drop=[], format="parquet"), "classification", table)
    encoded = encoding.encode(to_table([{"at": at} for at in times]))  # in microseconds, as pandas has them
    assert encoding.matrix(encoded.numbers)[:, 0].tolist() == pytest.approx([-1, 1])
    earlier = replace(encoding, numbers=[replace(each, unit=None) for each in encoding.numbers])  # by 0.2
    seconds = {"ms": 1e3, "us": 1e6, "ns": 1e9}
    assert earlier.encode(table).numbers[:, 0].tolist() == [8.5 * 3600 * seconds[unit], 17.75 * 3600 * seconds[unit]]


def test_an_encoding_is_the_same_after_its_way_through_a_file() -> None:
    for target, goal in (("label", "classification"), ("member", "classification"), ("visits", "regression")):
        config = data(target=target)
        encoding = learn_encoding(config, goal, read_table(config))  # type: ignore[arg-type]
        assert ENCODING.validate_json(ENCODING.dump_json(encoding)) == encoding


def test_predictions_have_the_classes_of_the_file() -> None:
    table = pa.table({"x": [1, 2, 3, 4], "label": [10, 20, 10, 20]})
    encoding = learn_encoding(data(drop=[]), "classification", table)
    frame = prediction_frame(encoding, np.array([[0.1, 0.9], [0.7, 0.3]]))
    assert frame.to_dict("list") == {"prediction": [20, 10], "probability_10": [0.1, 0.7], "probability_20": [0.9, 0.3]}


def test_the_example_of_a_row_has_usual_values() -> None:
    encoding = learned(data(categories=["visits"]))
    row = example_row(encoding)
    assert 40 < row["age"] < 60
    assert row | {"age": 50} == {"age": 50, "city": "Lima", "member": False, "joined": "2020-02-19", "visits": "0"}
    assert not np.isnan(encoding.encode(to_table([row])).numbers).any()


def test_rows_that_do_not_fit_say_why() -> None:
    encoding = learned(data())
    with pytest.raises(ValueError, match="no column city, member"):
        encoding.encode(to_table([{"age": 1, "joined": "2020-01-01", "visits": 1}]))
    row = {"age": "old", "city": "x", "member": True, "joined": "2020-01-01", "visits": 1}
    with pytest.raises(ValueError, match="'age' has a value that is not a number"):
        encoding.encode(to_table([row]))
    with pytest.raises(ValueError, match="class 'maybe', which the training rows do not have; they have no, yes"):
        encoding.targets(pa.table({"label": ["yes", "maybe"]}), "held-out")


GERMAN = "größe;plz;seit;neu;um;label\n" + "".join(
    f"{each};{code};{day};{new};{time};{'ab'[index % 2]}\n"
    for index, (each, code, day, new, time) in enumerate(
        [
            ("163,5", "01067", "2026-11-22", "true", "08:00:00"),
            ("k. A.", "50667", "k. A.", "k. A.", "k. A."),
            ("1250", "k. A.", "2026-11-23", "false", "09:30:00"),
            ("-999", "01067", "2026-11-24", "true", ""),
        ]
    )
)


def german() -> TableData:
    options: dict[str, Any] = {"categories": ["plz"], "separator": ";", "decimal": ",", "missing": ["k. A.", "-999"]}
    return own(GERMAN.encode("latin-1"), encoding="latin-1", **options)


@pytest.mark.parametrize("dtype", [None, str])
def test_raw_rows_are_read_as_the_file_of_the_training(dtype: type | None) -> None:
    config = german()
    of_file = learned(config)
    expected, encoding = of_file.encode(read_table(config)), ENCODING.validate_json(ENCODING.dump_json(of_file))
    raw = pd.read_csv(config.path, sep=";", encoding="latin-1", dtype=dtype, keep_default_na=dtype is None)
    for given in (raw, raw.iloc[::-1].iloc[::-1], raw.astype({"größe": "category"}), raw.to_dict("records")):
        features = encoding.encode(to_table(given))
        assert np.array_equal(features.numbers, expected.numbers, equal_nan=True)
        assert np.array_equal(features.categories, expected.categories)
    number = encoding.encode(to_table([{"größe": -999, "plz": 1067, "seit": None, "neu": None, "um": None}]))
    assert np.isnan(number.numbers).all()
    assert number.categories.tolist() == [[1]]


@pytest.mark.parametrize("text", ["1.250", "1.250,5", "unknown"])
def test_a_raw_row_whose_number_the_file_would_not_have_is_refused(text: str) -> None:
    encoding = learned(german())
    row = dict.fromkeys(encoding.kinds, "k. A.")
    with pytest.raises(ValueError, match=re.escape(f"'größe' has a value that is not a number: '{text}'; texts are")):
        encoding.encode(to_table([row, row | {"größe": text}]))


def test_texts_of_a_model_of_typed_files_stay_what_they_are() -> None:
    table = pa.table({"x": [1.5, 2.0], "c": ["NA", "b"], "label": ["a", "b"]})
    encoding = learn_encoding(data(drop=[], format="parquet", path="x.parquet"), "classification", table)
    assert encoding.encode(to_table([{"x": "1.5", "c": "NA"}])).categories.tolist() == [[1]]


def test_a_regression_has_the_mean_and_scale_of_its_target() -> None:
    encoding = learn_encoding(data(drop=[]), "regression", pa.table({"x": [1, 2], "label": [3, 5]}))
    assert encoding.output == Amount("amount", 4.0, 1.0)
    assert encoding.num_outputs == 1


@pytest.mark.parametrize("number", [0.1, 19.99, -0.3])
def test_a_number_that_all_training_rows_share_is_not_scaled_by_its_rounding_error(number: float) -> None:
    table = pa.table({"x": [number] * 1000, "y": range(1000), "label": [number] * 1000})
    encoding = learn_encoding(data(drop=[]), "regression", table)
    other = encoding.encode(pa.table({"x": [number, number + 1], "y": [0, 1]}))
    assert encoding.matrix(other.numbers)[:, 0].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert encoding.output == Amount("amount", number, 1.0)


def test_the_split_of_few_rows_says_what_is_wrong() -> None:
    table = pa.table({"x": range(6), "label": [*"aabbcc"]})
    with pytest.raises(ValueError, match=r"data.eval_fraction=0.2: with 6 rows, a class .* change it"):
        split_rows(data(drop=[]), "classification", table)


# --- metrics -----------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    draw = np.random.default_rng(0)
    for classes in (2, 4):
        truth = np.concatenate([np.arange(classes), draw.integers(0, classes, 50)])
        scores = draw.dirichlet(np.ones(classes), len(truth))
        ours = classification_metrics(scores, truth)
        assert ours["eval/log_loss"] == pytest.approx(metrics.log_loss(truth, scores))
        assert ours["eval/accuracy"] == metrics.accuracy_score(truth, scores.argmax(1))
        assert ours["eval/f1"] == metrics.f1_score(truth, scores.argmax(1), average="macro")
        chosen = scores[:, 1] if classes == 2 else scores
        assert ours["eval/roc_auc"] == pytest.approx(metrics.roc_auc_score(truth, chosen, multi_class="ovr"))
    values, guesses = draw.normal(size=60), draw.normal(size=60)
    ours = regression_metrics(guesses, values, scale=2.0)
    assert ours["eval/mae"] == pytest.approx(metrics.mean_absolute_error(values, guesses))
    assert ours["eval/rmse"] == pytest.approx(metrics.root_mean_squared_error(values, guesses))
    assert ours["eval/r2"] == pytest.approx(metrics.r2_score(values, guesses))
    assert ours["eval/loss"] == pytest.approx(metrics.mean_squared_error(values, guesses) / 4)


def test_a_positive_class_has_metrics_of_its_own_those_of_scikit_learn() -> None:
    from sklearn import metrics

    draw = np.random.default_rng(0)
    truth, scores = draw.integers(0, 3, 60), draw.dirichlet(np.ones(3), 60)
    predicted = scores.argmax(1)
    for ours in (classification_metrics(scores, truth, positive=2), label_metrics(predicted, truth, 3, 2)):
        assert ours["eval/f1_positive"] == metrics.f1_score(truth == 2, predicted == 2)
        assert ours["eval/precision_positive"] == metrics.precision_score(truth == 2, predicted == 2)
        assert ours["eval/recall_positive"] == metrics.recall_score(truth == 2, predicted == 2)
        assert ours["eval/f1"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))


def test_a_class_that_no_row_has_or_is_predicted_to_have_lowers_no_mean() -> None:
    from sklearn import metrics

    for predicted in ([0, 1, 1, 0], [0, 1, 2, 0]):
        ours = label_metrics(np.array(predicted), np.array([0, 1, 1, 0]), 5)
        assert ours["eval/f1"] == pytest.approx(metrics.f1_score([0, 1, 1, 0], predicted, average="macro"))


@pytest.mark.parametrize(("values", "positive"), [([False, True], True), ([0, 1], 1), (["no", "yes"], "yes")])
def test_a_positive_class_is_found_by_its_value(values: list[Any], positive: Any) -> None:
    encoding = learn_encoding(data(drop=[]), "classification", pa.table({"x": [1, 2], "label": values}))
    assert encoding.positive_index(positive) == 1
    assert encoding.positive_index(None) is None
    with pytest.raises(ValueError, match=f"task.positive_class=2: .* use one of {values[0]}, {values[1]}"):
        encoding.positive_index(2)


def test_metrics_of_a_diverged_training_are_nan_and_no_error() -> None:
    assert np.isnan(classification_metrics(np.array([[np.nan, 0.1]]), np.array([0]), positive=1)["eval/f1_positive"])
    assert all(map(np.isnan, classification_metrics(np.array([[np.nan, 0.1]]), np.array([0])).values()))
    assert all(map(np.isnan, regression_metrics(np.array([np.inf]), np.array([0.0]), 1.0).values()))
    assert np.isnan(classification_metrics(np.array([[0.5, 0.5]]), np.array([0]))["eval/roc_auc"])
