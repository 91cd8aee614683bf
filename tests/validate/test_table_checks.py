"""Mistakes in a table and its columns are found before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from composing import composed, planned

from sweeps.errors import ConfigError
from sweeps.validate.data_checks import check_data


def check(*tokens: str) -> None:
    config = composed("tabular", "data.path=rows.csv", "data.target=label", *tokens).config
    check_data(config)


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> None:
    rows = "".join(f"{n},{n % 3},{'ab'[n % 2]},{n / 10}\n" for n in range(30))
    Path("rows.csv").write_text("id,size,label,price\n" + rows)
    Path("empty.csv").touch()
    Path("rows.parquet").write_bytes(b"no parquet")
    Path("eval.csv").write_text("size,label\n1,a\n")
    Path("gaps.csv").write_text("size,label\n" + "".join(f"{n if n else '?'},{'ab'[n % 2]}\n" for n in range(30)))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["data.path=none.csv"], "data.path=none.csv: there are no such files; give a .csv"),
        (["data.path=mine"], "data.path=mine: there are no such files; give a .csv"),
        (["data.path=empty.csv"], "data.path=empty.csv: is empty"),
        (["data.format=parquet"], r"data.path=rows.csv: the name must end in the type of the file: .parquet"),
        (["data.format=parquet", "data.path=rows.parquet"], "data.path=rows.parquet: .*rows.parquet cannot be read"),
        (["data.target=labels"], r"data.target=labels: rows.csv has no such column; did you mean label\?; it has id,"),
        (["data.target=y"], "data.target=y: rows.csv has no such column; it has id, size, label, price$"),
        (["data.target=wild"], "data.target=wild: rows.csv has no such column; it has id, size, label, price$"),
        (["data.drop=id"], r"data.drop='id': must be a valid list; write 'data.drop=\[id\]'"),
        (["data.drop=[ids]"], r"data.drop=ids: rows.csv has no such column; did you mean id\?"),
        (["data.features=[sizes]"], r"data.features=sizes: .* did you mean size\?"),
        (["data.categories=[sizee]"], r"data.categories=sizee: .* did you mean size\?"),
        (["data.group=user"], "data.group=user: rows.csv has no such column"),
        (["data.time=day"], "data.time=day: rows.csv has no such column"),
        (["data.eval_path=eval.csv", "data.categories=[id]"], r"data.categories=id: eval.csv has no such column"),
        (["data.eval_path=none.csv"], "data.eval_path=none.csv: there are no such files"),
        (["data.drop=[id,size,price]"], "data.path=rows.csv: has no column to predict data.target=label from"),
        (["data.path=gaps.csv"], r"column 'size' has numbers mixed with texts \('\?'\); .*add those"),
        (
            ["data.target=price"],
            "data.target=price: has numbers with decimals, .*task=regression search.metric=eval/rmse.*regressor",
        ),
        (["task.positive_class=c"], "task.positive_class=c: data.target=label has no such class; use one of a, b"),
        (["task=regression"], "data.target=label: is of type string, and a regression needs numbers"),
    ],
)
def test_a_mistake_in_the_table_names_key_value_and_fix(tokens: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(*tokens)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["data.path=builtin:iris"], "path=builtin:iris: there is no such table; use .* builtin:wine"),
        (["data.group=id", "data.time=price"], "group=id and time=price exclude each other"),
        (["data.group=id", "data.eval_path=eval.csv"], "already holds out rows; remove group"),
        (["data.drop=[label]"], "target=label: is also among features, drop or categories"),
        (["data.features=[]"], "features=.*nothing to predict from"),
        (["model=conv_net", "space=none"], "model.kind=conv_net does not fit task.kind=classification"),
        (["task=image_classification"], "model.kind=mlp does not fit task.kind=image_classification"),
        (["strategy=pipeline"], "strategy.kind=pipeline: models for tables are not divided"),
        (["search.metric=eval/auc"], "search.metric=eval/auc: .* eval/roc_auc"),
        (["search.metric=eval/f1_positive"], "search.metric=eval/f1_positive: .* give task.positive_class"),
        (
            ["search.metric=eval/f1_positve", "task.positive_class=a"],
            "search.metric=eval/f1_positve: .* eval/f1_positive",
        ),
    ],
)
def test_values_that_exclude_each_other_are_refused(tokens: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned("conf=tabular", "data.path=rows.csv", "data.target=label", *tokens)


def test_tables_that_are_right_or_cannot_be_seen_from_here_pass() -> None:
    check()
    check("data.path=s3://bucket/none.csv")
    check("data.eval_path=eval.csv", "data.features=[size]", "data.drop=[id]")
    check("data.path=builtin:wine", "data.target=target")
    check("task=regression", "data.target=price", "search.metric=eval/mae")
