"""Tables: what is learned from the training rows, and predictions for raw rows."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from own_tables import data, learned, own, rows, write_csv

from sweeps_train.config import TableData
from sweeps_train.tables.encoding import ENCODING, Amount, Classes, learn_encoding
from sweeps_train.tables.predictions import example_row, prediction_frame, to_table
from sweeps_train.tables.split import read_split
from sweeps_train.tables.table_files import read_table


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> Path:
    write_csv(working_folder / "rows.csv", rows())
    return working_folder


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


@pytest.mark.parametrize("codes", [[44, "A1", None], [44.0, "A1", float("nan")]])
def test_a_column_of_numbers_and_texts_is_read_as_texts(codes: list[Any]) -> None:
    encoding = learned(own("code,x,label\n44,1,a\nA1,2,b\n,3,a\n"))
    given = pd.DataFrame({"code": codes, "x": [1, "2", None], "more": [1, "a", {}]}, dtype=object)
    features = encoding.encode(to_table(given))
    assert features.categories[:, 0].tolist() == [1, 2, 0]
    assert features.numbers[:, 0].tolist() == pytest.approx([1, 2, np.nan], nan_ok=True)


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


def test_a_column_of_nothing_but_infinite_and_missing_numbers_is_left_out_like_an_empty_one() -> None:
    content = "a,b,c,x,label\n" + "inf,-999.0,,1,a\n-inf,-999,,2,b\n" * 2
    encoding = learned(own(content, missing=["-999"]))
    assert encoding.kinds == {"x": "number"}
    assert encoding.input_names == ["x"]


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
    assert encoding.encode(pa.table({"code": [str(code) for code in codes]})).categories[:, 0].tolist() == [1, 2, 3]
    codes = [10**19, *(10**17 + last for last in range(30))]
    encoding = learned(own("code,label\n" + "".join(f"{code},{code % 7}\n" for code in codes), categories=["code"]))
    assert len(encoding.categories[0].values) == 31


def test_numbers_beyond_64_bits_that_a_float_does_not_tell_apart_are_categories_and_groups_of_their_own() -> None:
    codes = [123456789012345678900 + last for last in range(20)]
    config = own("code,label\n" + "".join(f"{code},{code % 2}\n" for code in codes), categories=["code"])
    encoding = learned(config)
    for dtype in (str, None):
        given = pd.read_csv(config.path, dtype=dtype).drop(columns="label")
        assert encoding.encode(to_table(given)).categories[:, 0].tolist() == [*range(1, 21)]
    train, held_out = read_split(replace(config, categories=[], group="code"), "classification")
    assert (train.num_rows, held_out.num_rows) == (16, 4)


def test_whole_numbers_that_pandas_has_as_categories_are_categories(files: Path) -> None:
    frame = pd.DataFrame({"code": pd.Categorical([7, 9, 7, 11]), "label": ["a", "b", "a", "b"]})
    frame.to_parquet(files / "codes.parquet")
    config = data(drop=[], format="parquet", path="codes.parquet", eval_path="codes.parquet")
    for table in (pa.Table.from_pandas(frame), read_split(config, "classification")[0]):
        encoding = learn_encoding(config, "classification", table)
        assert encoding.kinds == {"code": "category"}
        for rows_ in (frame, [{"code": code} for code in (7, 9, 7, 11)]):
            assert encoding.encode(to_table(rows_)).categories[:, 0].tolist() == [2, 3, 2, 1]


@pytest.mark.parametrize(
    ("values", "classes"),
    [([2.0, 1.0], [1, 2]), (["b", "a"], ["a", "b"]), ([datetime.date(2026, 1, day) for day in (2, 1)], None)],
)
def test_a_target_that_pandas_has_as_categories_has_the_classes_of_a_plain_one(
    values: list[Any], classes: list[Any] | None
) -> None:
    columns = pd.Series(values * 2), pd.Series(pd.Categorical(values * 2))
    tables = [pa.Table.from_pandas(pd.DataFrame({"x": range(4), "label": column})) for column in columns]
    plain, categories = (learn_encoding(data(drop=[], format="parquet"), "classification", each) for each in tables)
    assert isinstance(plain.output, Classes)
    assert repr(categories.output) == repr(plain.output)
    assert classes in (None, plain.output.values)


def test_dates_that_pandas_has_as_categories_stay_dates(files: Path) -> None:
    days = [f"2026-01-{day:02}" for day in (5, 6, 5, 7)]
    frame = pd.DataFrame({"day": pd.Categorical(pd.to_datetime(days)), "label": ["a", "b", "a", "b"]})
    frame.to_parquet(files / "days.parquet")
    config = data(drop=[], format="parquet", path="days.parquet", eval_path="days.parquet")
    encoding = learn_encoding(config, "classification", read_split(config, "classification")[0])
    assert encoding.kinds == {"day": "date"}
    texts = encoding.encode(to_table([{"day": day} for day in days])).numbers
    assert texts.tolist() == encoding.encode(to_table(frame)).numbers.tolist()


def test_moments_of_a_time_zone_are_the_same_numbers_as_texts_of_json() -> None:
    moments = [datetime.datetime(2026, 1, 5, 23, 30), None, datetime.datetime(2026, 7, 6, 9)]  # noqa: DTZ001 - as UTC
    table = pa.table({"at": pa.array(moments, pa.timestamp("ms", "Europe/Rome")), "label": [*"aba"]})
    encoding = learn_encoding(data(drop=[], format="parquet"), "classification", table)
    expected = encoding.encode(table).numbers
    assert expected[0, 3] == 23
    for given in (
        ["2026-01-05T23:30:00.000Z", None, "2026-07-06T09:00:00.000Z"],
        ["2026-01-06T00:30:00+01:00", None, "2026-07-06T11:00:00+02:00"],
    ):
        texts = encoding.encode(to_table([{"at": each} for each in given]))
        assert np.array_equal(texts.numbers, expected, equal_nan=True)
    with pytest.raises(ValueError, match=r"the column 'at' has a value that is not a date: .*'never'"):
        encoding.encode(to_table([{"at": "2026-01-05"}, {"at": "never"}]))


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


@pytest.mark.parametrize(("categories", "numbers", "indices"), [([], [[17.75 * 3600]], [[]]), (["at"], [[]], [[2]])])
def test_a_time_of_day_is_the_same_number_or_category_as_a_text_and_as_an_object(
    categories: list[str], numbers: list[list[float]], indices: list[list[int]]
) -> None:
    encoding = learned(own("at,label\n08:30,a\n17:45,b\n", categories=categories))
    for at in ("17:45", "17:45:00", datetime.time(17, 45)):
        features = encoding.encode(to_table([{"at": at}]))
        assert (features.numbers.tolist(), features.categories.tolist()) == (numbers, indices)


def test_two_writings_of_one_time_of_day_that_were_two_categories_stay_two() -> None:
    encoding = learned(own("at,label\n08:30,a\n08:30:00.0,b\n", categories=["at"]))
    given = to_table([{"at": "08:30"}, {"at": "08:30:00.0"}])
    assert encoding.encode(given).categories.tolist() == [[1], [2]]


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


class CountedName(str):
    """Name of a column that counts how often any is compared with another name."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_the_columns_of_rows_are_not_looked_for_by_comparing_each_name_with_each() -> None:
    table = pa.table({f"gene {number}": [1.0, 2.0] for number in range(200)} | {"label": ["a", "b"]})
    encoding = learn_encoding(data(drop=[], format="parquet"), "classification", table)
    kinds = {CountedName(name): kind for name, kind in encoding.kinds.items()}
    encoding.kinds.clear()
    encoding.kinds.update(kinds)
    encoding.encode(table)
    assert CountedName.compared < 10 * len(kinds)


def test_rows_that_do_not_fit_say_why() -> None:
    encoding = learned(data())
    with pytest.raises(ValueError, match="no column city, member"):
        encoding.encode(to_table([{"age": 1, "joined": "2020-01-01", "visits": 1}]))
    row = {"age": "old", "city": "x", "member": True, "joined": "2020-01-01", "visits": 1}
    with pytest.raises(ValueError, match="'age' has a value that is not a number"):
        encoding.encode(to_table([row]))
    with pytest.raises(ValueError, match="class 'maybe', which the training rows do not have; they have no, yes"):
        encoding.targets(pa.table({"label": ["yes", "maybe"]}), "held-out")
    for classes, texts in (([1, 2], ["1", "2.0", "x"]), ([False, True], ["FALSE", "true", "x"])):  # texts, since one is
        typed = learn_encoding(data(drop=[]), "classification", pa.table({"x": [1, 2], "label": classes}))
        known = ", ".join(map(str, classes))
        with pytest.raises(ValueError, match=f"class 'x', which the training rows do not have; they have {known}"):
            typed.targets(pa.table({"label": texts}), "held-out")
        assert typed.targets(pa.table({"label": texts[:2]}), "held-out").tolist() == [0, 1]


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
