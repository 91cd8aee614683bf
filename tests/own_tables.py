"""Tables that tests write, and what is learned from them."""

from __future__ import annotations

import csv
import datetime
import random
from pathlib import Path
from typing import Any

from sweeps_train.config import TableData
from sweeps_train.tables.encoding import TableEncoding, learn_encoding
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
