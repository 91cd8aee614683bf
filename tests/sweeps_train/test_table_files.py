"""Tables: which files and columns are read, and which are refused."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from own_tables import data, learned, own, rows, write_csv

from sweeps.compose.overrides import parse_overrides, parse_values
from sweeps_train.tables.columns import check_columns
from sweeps_train.tables.encoding import learn_encoding
from sweeps_train.tables.split import read_split, split_rows
from sweeps_train.tables.table_files import read_table


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> Path:
    write_csv(working_folder / "rows.csv", rows())
    return working_folder


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
    levels = pd.MultiIndex.from_tuples([(1, 2), (1, 3)])
    pd.DataFrame({"x": [1, 2], "label": ["a", "b"]}, index=levels).to_csv(files / "levels.csv")
    assert read_table(data(path="levels.csv")).column_names == ["x", "label"]
    pd.read_csv(files / "pandas.csv").to_csv(files / "twice.csv", index=False)
    for given, names in (
        ({}, ["x"]),
        ({"drop": ["Unnamed: 0"]}, ["x"]),
        ({"features": ["Unnamed: 0"]}, ["Unnamed: 0"]),
    ):
        config = data(path="twice.csv", **{"drop": [], **given})
        assert [*learned(config).kinds] == names
        assert check_columns(config, read_table(config).column_names, "data.path", "twice.csv") == []


def test_a_named_index_of_a_frame_in_a_parquet_file_is_an_input(files: Path) -> None:
    index = pd.Index([7, 7, 7, 7, 8, 8, 8, 8], name="store")
    pd.DataFrame({"x": range(8), "label": [*"aabb"] * 2}, index=index).to_parquet(files / "rows.parquet")
    config = data(format="parquet", path="rows.parquet", eval_fraction=0.5, drop=[], categories=["store"])
    train, _ = read_split(config, "classification")
    assert learn_encoding(config, "classification", train).kinds == {"x": "number", "store": "category"}


EUROPEAN = "größe;ort;label\n1,5;Köln;a\n2,5;;b\n;Bonn;a\n4,0;Köln;b\n"


def test_a_table_of_a_european_spreadsheet_is_read_by_its_separator_encoding_and_decimal_comma() -> None:
    table = read_table(own(EUROPEAN.encode("latin-1"), separator=";", encoding="latin-1", decimal=","))
    assert table["größe"].to_pylist() == [1.5, 2.5, None, 4.0]
    assert table["ort"].to_pylist() == ["Köln", None, "Bonn", "Köln"]


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
        # One key leads to the next.
        (EUROPEAN.encode("latin-1"), {}, ["is not utf-8", "data.encoding=latin-1"]),
        (EUROPEAN.encode("latin-1"), {"encoding": "latin-1"}, ["'größe;ort;label'", "';'", "'data.separator=\";\"'"]),
        (
            EUROPEAN.encode("latin-1"),
            {"encoding": "latin-1", "separator": ";"},
            ["'größe'", "1,5", "'data.decimal=\",\"'"],
        ),
    ],
)
def test_a_table_of_another_separator_or_encoding_names_the_key(
    content: bytes, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the words are checked
        learned(own(content, **changes))
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
        (["31-Dec-2026", "2-jan-2027"], {}, "dates as texts (31-Dec-2026), which would be categories"),
        (["31-DECEMBER-2026", "2-june-27"], {}, "dates as texts (31-DECEMBER-2026)"),
        (["5 January 2026 08:00", "12 March 2026 09:30"], {}, "dates as texts (5 January 2026 08:00)"),
        (["Jan 5, 2026", "Sept. 12 2026"], {}, "dates as texts (Jan 5, 2026)"),
        (["(12.00)", "(1,200.50)", "3"], {}, "numbers with a sign as texts ((12.00))"),
        (["\u22122.5", "\u221217"], {}, "numbers with a sign as texts (\u22122.5)"),
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


def test_types_with_which_arrow_computes_little_are_read_as_usual_ones(files: Path) -> None:
    numbers, texts = np.array([1, 2, 2, 1], dtype=np.float16), pa.array(["a", "b", "b", "a"], pa.string_view())
    pyarrow.parquet.write_table(pa.table({"x": numbers, "c": texts, "label": [*"abab"]}), files / "views.parquet")
    config = data(format="parquet", path="views.parquet", drop=[], categories=["x"], eval_fraction=0.5)
    train, _ = read_split(config, "classification")
    encoding = learn_encoding(config, "classification", read_table(config))
    assert [each.values for each in encoding.categories] == [["1", "2"], ["a", "b"]]
    assert encoding.encode(train).categories.min() > 0


def test_codes_that_a_parquet_file_has_as_texts_are_categories() -> None:
    table = pa.table({"x": ["01067", "50667", "01067"], "y": ["1_1", "2_5", "1_1"], "label": ["a", "b", "a"]})
    kinds = learn_encoding(data(format="parquet", drop=[]), "classification", table).kinds
    assert kinds == {"x": "category", "y": "category"}


def test_texts_that_only_resemble_dates_and_amounts_are_categories() -> None:
    lines = [
        "version;part;route;note;kernel;slab;key;age;room;label",
        "3.11.12;1/2;$;1 May;(3, 3);12 Marble 24;1_101;18_24;7;a",
        "10.0.14;3/4;$HOME;(1);(212);Mark 1 1916;2_205;25_34;8;b",
        "2.13.0;1/2;10.1.2.3;x;(5,5);12 Sep 24-pack;1_101;65_plus;8_1;a",
    ]
    content = "\n".join(lines)
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
    for texts in (["?", "unknown"], [r"\M", "not known\\", '"""?"""']):
        content = "x,label\nNA,b\n,a\n\\N,b\n" + "".join(f"{text},a\n" for text in texts)
        content += "".join(f"{n},{'ab'[n % 2]}\n" for n in range(20))
        with pytest.raises(ValueError, match=r"data\.missing") as raised:
            learned(own(content))
        token = str(raised.value).rpartition(": ")[2]
        (missing,) = parse_values(shlex.split(token)).values()
        assert learned(own(content, missing=missing)).kinds == {"x": "number"}


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
