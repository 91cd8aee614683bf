"""TaskSet's tables of learning curves, fetched from the repository of DyHPO and converted.

    python benchmarks/taskset_tables.py --to tables
    python benchmarks/search_quality.py --pool --table tables/taskset_*.parquet --budgets 20 --workers 4

Twelve classifiers of texts, each trained with the same 1,000 configurations of Adam (eight parameters) for 51
evaluations (TaskSet: Metz et al., 2020, https://arxiv.org/abs/2002.11887; this selection: DyHPO, Wistuba et al., 2022,
https://arxiv.org/abs/2202.09774). ``eval/loss`` is the logarithm of the validation loss, since losses that diverge span
many powers of ten; one that is above ten times the greatest loss at the first evaluation, or no number, counts as that
bound. An evaluation takes one second. The curves are the repository's, under its licence, which is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from curve_files import write_curves

REPOSITORY = "https://github.com/machinelearningnuremberg/DyHPO"
FOLDER, PREFIX = "data/taskset", "FixedTextRNNClassification_imdb_"
PARAMETERS = {
    "train.lr": "learning_rate",
    "train.one_minus_beta1": "beta1",
    "train.one_minus_beta2": "beta2",
    "train.epsilon": "epsilon",
    "train.l1": "l1",
    "train.l2": "l2",
    "train.linear_decay": "linear_decay",
    "train.exponential_decay": "exponential_decay",
}
"""The repository's name of each parameter. Of betas, which lie next to 1, what they lack to it is searched."""


def rows_of(trainings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each training and evaluation."""
    losses = np.array([training["valid"]["loss"] for training in trainings], dtype=float)
    highest = 10 * np.nanmax(losses[:, 0])
    losses = np.log(np.where(losses <= highest, losses, highest))
    rows: list[dict[str, Any]] = []
    for number, (training, curve) in enumerate(zip(trainings, losses, strict=True)):
        point = {
            path: 1.0 - training["hp"][name] if "one_minus" in path else training["hp"][name]
            for path, name in PARAMETERS.items()
        }
        for step, loss in enumerate(curve.tolist(), start=1):
            rows.append({"config_id": number, **point, "step": step, "elapsed_s": float(step), "eval/loss": loss})
    return rows


def space_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A logarithmic range for each parameter, as wide as its values."""
    return {
        path: {
            "type": "float",
            "low": min(row[path] for row in rows),
            "high": max(row[path] for row in rows),
            "log": True,
        }
        for path in PARAMETERS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder for a file of each table")
    parser.add_argument("--repository", default=REPOSITORY, help="address or folder of the repository")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", "--depth=1", options.repository, folder], check=True)
        licence = (Path(folder) / "LICENSE").read_text(encoding="utf-8").split("\n\n")[0].split()
        print(f"licence of {options.repository}: {' '.join(licence)}", flush=True)
        for file in sorted(Path(folder, FOLDER).glob(f"{PREFIX}*.json")):
            rows = rows_of(json.loads(file.read_bytes()))
            table = options.to / f"taskset_{file.stem.removeprefix(PREFIX)}.parquet"
            write_curves(table, rows, space_of(rows))
            print(table, flush=True)


if __name__ == "__main__":
    main()
