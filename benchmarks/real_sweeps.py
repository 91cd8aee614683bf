"""Best values that searches find in real sweeps in the same wall time: the default, `search=auto`, beside others.

    python benchmarks/real_sweeps.py --seconds 600 --seeds 5 --to sweeps.json   # hours
    python benchmarks/real_sweeps.py --conf digits --seconds 60 --seeds 1 --choices auto asha

Sweeps run one after another on an idle machine: for each seed all choices, in an order that changes with the seed. Each
trial has one worker. The time begins with the sweep, after Ray has started; trials that run at its end do not count
unless they have ended. A seed is that of the search and of the trainings. The value is that of the sweep's best trial.
It may be the luckiest of many noisy evaluations; with ``--again 8`` the best configuration is trained again with eight
other seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from results_document import markdown_table
from searched.regrets import with_interval

CONFS = ("digits", "llm_lora", "tabular", "torchrun_script")
CHOICES = ("auto", "optuna_asha", "asha", "optuna", "sweeps", "bohb", "random")
"""Files of ``conf/search`` for one objective; the first four are compared without ``--choices``."""
NO_END = 10_000
"""Trials, so that the time ends the sweep."""
FIRST_AGAIN = 101
"""First of the other seeds, none of which a search has."""


class Key(NamedTuple):
    """One sweep."""

    conf: str
    choice: str
    seed: int
    seconds: float
    workers: int
    overrides: str
    """Further ones, the same for all sweeps, in a line."""
    again: int = 0
    """Number of trainings of the best configuration with other seeds."""


@dataclass(frozen=True)
class Found:
    """Results of a sweep."""

    metric: str
    mode: str
    value: float
    """Metric of the best trial."""
    finished: int
    """Trials that trained to their end."""
    pruned: int
    """Trials that the scheduler stopped."""
    again: float | None = None
    """Mean metric of the best configuration with other seeds."""


def run(key: Key) -> Found:
    """Run a sweep, and trainings of its best configuration with other seeds, in a folder of their own."""
    common = [
        *(sys.executable, "-m", "sweeps", "run", f"conf={key.conf}", "scaling=single_worker"),
        *(f"cluster.num_cpus={key.workers}", "tracking.report=false", *key.overrides.split(), "--json"),
    ]
    search = [
        *(f"search={key.choice}", f"seed={key.seed}", f"search.num_trials={NO_END}"),
        f"search.stop.wall_hours={key.seconds / 3600}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        document = _document([*common, *search], folder)
        if document["best"] is None:
            raise SystemExit(f"{key}: no trial has a value; give more --seconds")
        again = None
        if key.again:
            point = [f"{path}={json.dumps(value)}" for path, value in document["best"]["params"].items()]
            seeds = [*range(FIRST_AGAIN, FIRST_AGAIN + key.again)]
            grid = [f"+space={{seed: {{type: categorical, choices: {seeds}}}}}", "search/sampler=grid"]
            of_seeds = ["space=none", *point, *grid, "search/scheduler=none", f"search.num_trials={key.again}"]
            again = fmean(trial["value"] for trial in _document([*common, *of_seeds], folder)["trials"])
    best, counts = document["best"]["value"], document["counts"]
    return Found(document["metric"], document["mode"], best, counts["finished"], counts["pruned"], again)


def _document(command: list[str], folder: str) -> dict[str, Any]:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def read(path: Path | None) -> dict[Key, Found]:
    """Results that an earlier run has written."""
    if path is None or not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {Key(**row["sweep"]): Found(**row["found"]) for row in rows}


def write(path: Path, known: dict[Key, Found]) -> None:
    """Write all results."""
    rows = [{"sweep": key._asdict(), "found": asdict(found)} for key, found in known.items()]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def table(found: dict[Key, Found], confs: Sequence[str], choices: Sequence[str]) -> str:
    """Mean of the best values with 95 % confidence intervals, mean rank (1 is the best), numbers of trials, and mean
    of the best configurations with other seeds if they were trained again."""
    from scipy.stats import rankdata

    rows = []
    for conf in confs:
        sweeps = {choice: [each for key, each in found.items() if key[:2] == (conf, choice)] for choice in choices}
        values = {choice: np.array([each.value for each in several]) for choice, several in sweeps.items()}
        metric, mode = sweeps[choices[0]][0].metric, sweeps[choices[0]][0].mode
        sign = 1 if mode == "min" else -1
        ranks = rankdata([sign * values[choice] for choice in choices], axis=0).mean(axis=1)
        best = min(choices, key=lambda choice: sign * values[choice].mean())
        for choice, rank in zip(choices, ranks, strict=True):
            again = [each.again for each in sweeps[choice] if each.again is not None]
            trials = [fmean(getattr(each, name) for each in sweeps[choice]) for name in ("finished", "pruned")]
            mean = with_interval(values[choice], bold=choice == best, digits=4)
            rows.append([conf, f"`search={choice}`", f"{metric} ({mode})", mean, f"{rank:.2f}"])
            rows[-1] += [f"{number:.1f}" for number in trials]
            rows[-1] += [with_interval(np.array(again), bold=False, digits=4) if again else ""]
    headers = ["sweep", "search", "metric", "best", "mean rank", "finished trials", "pruned trials", "with other seeds"]
    return markdown_table(headers, rows, left=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", nargs="+", choices=CONFS, default=list(CONFS))
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=list(CHOICES[:4]))
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[600], help="wall time of a sweep, or of each conf's"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="number of trials at once")
    parser.add_argument("--again", type=int, default=0, help="trainings of the best configuration with other seeds")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of all sweeps")
    parser.add_argument("--to", type=Path, help="JSON file for all values; what it has is not measured again")
    options = parser.parse_args()
    if len(options.seconds) not in (1, len(options.conf)):
        parser.error("--seconds: give one number, or one for each --conf")
    seconds = dict(zip(options.conf, itertools.cycle(options.seconds), strict=False))
    known, found = read(options.to), dict[Key, Found]()
    for seed, conf in itertools.product(range(options.seeds), options.conf):
        turn = seed % len(options.choices)
        for choice in [*options.choices[turn:], *options.choices[:turn]]:
            key = Key(conf, choice, seed, seconds[conf], options.workers, " ".join(options.set), options.again)
            if key not in known:
                known[key] = run(key)
                print(f"{key}: {known[key]}", file=sys.stderr, flush=True)
                if options.to:
                    write(options.to, known)
            found[key] = known[key]
    text = f"{table(found, options.conf, options.choices)}\n\n({options.seeds} seeds, "
    text += f"{' and '.join(f'{each:g}' for each in options.seconds)} s, "
    text += f"{options.workers} trials at once)"
    print(text)


if __name__ == "__main__":
    main()
