"""Regrets of searches: their file, and the tables that compare the methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results_document import markdown_table

from searched.paired import BASELINE, MARKS, Verdict, compare

FRACTIONS = tuple(part / 20 for part in range(1, 21))
"""Parts of the budget at which the regret is taken."""
SHOWN = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Those in the table of the regret against the budget."""


class Cell(NamedTuple):
    """One mean over seeds."""

    workers: int
    budget: int
    method: str
    problem: str


Results = dict[Cell, list[list[float]]]
"""Regrets at ``FRACTIONS``, by seed."""


def read_results(path: Path | None) -> Results:
    """Regrets that an earlier run has written.

    Raises:
        ValueError: They were taken at other parts of the budget.
    """
    if path is None or not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    if any(tuple(row["fractions"]) != FRACTIONS for row in rows):
        raise ValueError(f"{path} has regrets at other parts of the budget; give another file")
    return {Cell(row["workers"], row["budget"], row["method"], row["problem"]): row["regrets"] for row in rows}


def as_document(results: Results) -> list[dict[str, Any]]:
    """All regrets, a row for each method, problem, budget and number of workers."""
    return [{**cell._asdict(), "fractions": FRACTIONS, "regrets": regrets} for cell, regrets in results.items()]


def quality_table(found: Results, methods: Sequence[str], names: Sequence[str], workers: int, budget: int) -> str:
    """Mean regret at the end with half the width of its confidence interval, and the mean rank; the best is bold. With
    the baseline among the methods, marks and numbers of problems say where a method is significantly better or worse
    than it: see ``paired.LEGEND``."""
    last = _at_the_end(found, methods, names, workers, budget)
    ranks = _mean_ranks(last)
    best = {name: min(methods, key=lambda method: last[method][name].mean()) for name in names}
    compared = BASELINE in methods
    rows = []
    for method, rank in zip(methods, ranks, strict=True):
        verdicts = compare(last[method], last[BASELINE]) if compared else dict.fromkeys(names)
        means = [with_interval(last[method][name], bold=best[name] == method) for name in names]
        marked = [mean + MARKS.get(verdicts[name], "") for mean, name in zip(means, names, strict=True)]
        rows.append([method, *marked, f"{rank:.2f}", *(counts(verdicts) if compared else [])])
    return markdown_table(["method", *names, "mean rank", *(MARKS if compared else [])], rows)


def settings_table(
    found: Results, methods: Sequence[str], names: Sequence[str], settings: Sequence[tuple[int, int]]
) -> str:
    """Mean regret over the problems at the end and mean rank, for pairs of a number of workers and a budget."""
    columns: list[list[str]] = []
    for workers, budget in settings:
        last = _at_the_end(found, methods, names, workers, budget)
        means = {method: np.mean([last[method][name] for name in names], axis=0) for method in methods}
        best = min(methods, key=lambda method: means[method].mean())
        ranked = zip(methods, _mean_ranks(last), strict=True)
        columns.append(
            [f"{with_interval(means[method], bold=method == best)}, rank {rank:.1f}" for method, rank in ranked]
        )
    headers = [f"budget {budget}, {workers} worker{'s' * (workers > 1)}" for workers, budget in settings]
    return markdown_table(["method", *headers], [list(row) for row in zip(methods, *columns, strict=True)])


def _at_the_end(
    found: Results, methods: Sequence[str], names: Sequence[str], workers: int, budget: int
) -> dict[str, dict[str, Any]]:
    """Regrets by seed of each method on each problem."""
    cells = {method: {name: Cell(workers, budget, method, name) for name in names} for method in methods}
    return {method: {name: np.array(found[cell])[:, -1] for name, cell in of.items()} for method, of in cells.items()}


def _mean_ranks(last: Mapping[str, Mapping[str, Any]]) -> Any:
    """Mean rank of each method within each problem and seed."""
    from scipy.stats import rankdata

    names = next(iter(last.values())).keys()
    ranks = [rankdata([each[name] for each in last.values()], axis=0).mean(axis=1) for name in names]
    return np.mean(ranks, axis=0)


def counts(verdicts: Mapping[str, Verdict | None]) -> list[str]:
    """Numbers of problems on which a method is better, and worse, than the baseline."""
    found = list(verdicts.values())
    return [f"{found.count(verdict)} of {len(found)}" for verdict in MARKS]


def with_interval(values: Any, *, bold: bool = False, digits: int = 3) -> str:
    """The mean over seeds with half the width of its 95 % confidence interval."""
    from scipy.stats import t

    error = values.std(ddof=1) / len(values) ** 0.5 * t.ppf(0.975, len(values) - 1) if len(values) > 1 else 0.0
    mean = f"**{values.mean():.{digits}f}**" if bold else f"{values.mean():.{digits}f}"
    return f"{mean} ±{error:.{digits}f}"


def progress_table(
    found: Results, methods: Sequence[str], peers: Sequence[str], names: Sequence[str], workers: int, budget: int
) -> str:
    """Mean regret over the problems after the parts ``SHOWN`` of the budget, and the part that is needed for the best
    peer's regret at the end, as a mean over the problems."""
    regrets = {
        (method, name): np.array(found[Cell(workers, budget, method, name)]) for method in methods for name in names
    }
    rows = []
    for method in methods:
        over_problems = np.mean([regrets[method, name] for name in names], axis=0)
        cells = [with_interval(over_problems[:, FRACTIONS.index(part)]) for part in SHOWN]
        needed = [
            budget_needed(regrets[method, name].mean(axis=0), min(regrets[peer, name][:, -1].mean() for peer in peers))
            for name in names
            if peers
        ]
        rows.append([method, *cells, needed_text(needed)])
    return markdown_table(["method", *(f"{part:.0%}" for part in SHOWN), "budget needed"], rows)


def budget_needed(regrets: Any, regret: float) -> float | None:
    """The part of the budget from which on the mean regret is at most as large as a given one; None if it ends above
    it. It may rise again meanwhile, since the best trial is chosen by its noisy values."""
    above = [number for number, mean in enumerate(regrets) if mean > regret]
    first = above[-1] + 1 if above else 0
    return FRACTIONS[first] if first < len(FRACTIONS) else None


def needed_text(needed: list[float | None]) -> str:
    """The mean over problems; a problem without the regret counts as the whole budget, and their number is given."""
    if not needed:
        return ""
    never = needed.count(None)
    mean = f"{np.mean([1.0 if part is None else part for part in needed]):.0%}"
    return f"over {mean} ({never} of {len(needed)} never)" if never else mean
