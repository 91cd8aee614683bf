"""A whole sweep of somebody else's habits: a blank and a % in the folder's name, a table of a German spreadsheet."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from running import SHORT, run

from sweeps.compat.mlflow import use_tracking_uri
from sweeps.registry.register import register
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.uris import sqlite_uri

pytestmark = pytest.mark.slow

TABLE = "kunden märz (1).csv"
"""Name of the table, of which each character needs care."""


def write_table(file: Path) -> None:
    draw = random.Random(0)
    lines = ["größe;ort;käufe;kündigt"]
    for number in range(200):
        size, place = draw.uniform(1, 9), draw.choice(["Köln", "Bonn", ""])
        shown = "k.A." if number % 9 == 0 else f"{size:.2f}".replace(".", ",")
        lines.append(f"{shown};{place};{number % 5};{'ja' if size > 5 else 'nein'}")
    file.write_text("\n".join(lines), encoding="latin-1")


@pytest.mark.filterwarnings("ignore")  # mlflow's own while a model is registered
def test_a_sweep_in_a_folder_with_a_percent_sign_over_a_table_of_a_spreadsheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folders" / "Meine Daten 100%25 (März)"
    folder.mkdir(parents=True)
    write_table(folder / TABLE)
    done = run(
        folder,
        *("conf=tabular", f'data.path="{TABLE}"', 'data.target="kündigt"', 'data.missing=["k.A."]'),
        *('data.separator=";"', "data.encoding=latin-1", 'data.decimal=","', "search.num_trials=2"),
        *("search/scheduler=none", "tracking.checkpoints=copy", "cluster.num_cpus=2", *SHORT),
        new_store=True,
    )
    assert done.status == 0, done.err
    assert done.document["counts"]["finished"] == 2
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]
    monkeypatch.chdir(folder)
    store = sqlite_uri(folder / "mlflow.db")
    record = load_sweep(store, done.document["sweep"])
    assert record.best is not None
    registered = register(record, record.best, "kunden", "champion")
    rows = pd.DataFrame({"größe": [8.0, None], "ort": ["Köln", None], "käufe": [1, 2]})
    with use_tracking_uri(store):
        predicted: Any = mlflow.pyfunc.load_model(registered.uri).predict(rows)
    assert set(predicted["prediction"]) <= {"ja", "nein"}
