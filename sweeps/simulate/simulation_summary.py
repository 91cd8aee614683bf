"""Outcome of simulated searches, as the command line prints it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from sweeps.report.formatting import duration
from sweeps.report.plain_console import plain_table, print_lines
from sweeps.simulate.lane_rates import RATES_ADVICE
from sweeps.simulate.run import SimulatedSweep, SimulationResult
from sweeps.texts.wording import counted, counted_states
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.values import short

FRACTIONS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Parts of the simulated time at which the regret is printed."""


def simulation_document(result: SimulationResult) -> dict[str, Any]:
    """Return the document of ``run --json`` for the first search, with the key ``simulation``."""
    first, error = result.sweeps[0], result.error
    return {
        **first.record.as_json(),
        "simulation": {
            "table": result.table.name,
            "configurations": len(result.table.trials),
            "workers": result.workers,
            "trials_per_group": result.lanes,
            "between": result.between,
            "error": None if error is None else asdict(error),
            "best": result.scale.best,
            "median": result.scale.median,
            "seeds": [_seed_document(each, result) for each in result.sweeps],
        },
    }


def _seed_document(sweep: SimulatedSweep, result: SimulationResult) -> dict[str, Any]:
    return {
        "seed": sweep.seed,
        "value": sweep.improvements[-1].value if sweep.improvements else None,
        "regret": _last_regret(sweep),
        "normalized_regret": None if (last := _last_regret(sweep)) is None else result.scale.normalized(last),
        "wall_s": sweep.record.time.wall_s,
        "train_s": sweep.record.time.train_s,
        "trials": len(sweep.record.trials),
        "ended_because": sweep.ended_because,
        "improvements": [[each.time_s, each.value] for each in sweep.improvements],
    }


def _last_regret(sweep: SimulatedSweep) -> float | None:
    return sweep.improvements[-1].regret if sweep.improvements else None


def print_simulation(result: SimulationResult, console: Console) -> None:
    """Print the searches: regret against simulated time, and the best trial of the first."""
    table, first = result.table, result.sweeps[0]
    omitted = f" ({table.omitted} others lie outside of the space)" if table.omitted else ""
    print_lines(
        console,
        f"{table.name}: {len(table.trials)} configurations{omitted}, {len(table.whole)} of them trained to the end "
        f"(step {table.last_step}); {counted(result.workers, 'simulated worker')}"
        f"{f', {result.lanes} trials on each' if result.lanes > 1 else ''}",
    )
    if result.is_alone:
        print_lines(console, f"trials do not share their workers, since their speeds are then unknown; {RATES_ADVICE}")
    print_lines(console, _describe_between(result))
    longest = max(sweep.record.time.wall_s for sweep in result.sweeps)
    rows = plain_table("simulated time", "regret", "normalized", right=("simulated time", "regret", "normalized"))
    for fraction in FRACTIONS:
        regrets = [each for sweep in result.sweeps if (each := sweep.regret(fraction * longest)) is not None]
        if regrets:
            normalized = [each for regret in regrets if (each := result.scale.normalized(regret)) is not None]
            rows.add_row(duration(fraction * longest), _mean(regrets), _mean(normalized))
    console.print(rows)
    print_lines(
        console,
        f"regret: distance of the best value so far to {short(result.scale.best)}, the best in the table; normalized: "
        f"divided by that of the table's median, {short(result.scale.median)}",
    )
    states = counted_states(first.record.counts) or "no trial"
    print_lines(console, f"seed {first.seed}: {states}, in {duration(first.record.time.wall_s)}; {first.ended_because}")
    for best in first.record.front:
        values = ", ".join(
            f"{metric} {short(value)}" for metric, value in zip(first.record.metrics, best.all_values(), strict=True)
        )
        ended = f"{best.state} after {counted(best.steps, 'step')}"
        print_lines(console, f"best trial {best.trial} ({ended}): {values}; {describe(best.params)}")


def _describe_between(result: SimulationResult) -> str:
    if result.between == "nearest":
        return "a point that the table lacks gets the curve of the nearest configuration that trained to the end"
    if result.error is None:
        return (
            "points that the table lacks are predicted by a forest, whose error is unknown: too few trained to the end"
        )
    error = result.error
    return (
        "points that the table lacks are predicted by a forest; its error at the end, cross-validated: "
        f"{error.rmse:.3g} (the values' standard deviation is {error.spread:.3g}), rank correlation "
        f"{error.rank_correlation:.2f}"
    )


def _mean(values: Sequence[float]) -> str:
    """Format the mean, with the half width of its 95 % confidence interval if there are several values; ``-`` for
    none."""
    if not values:
        return "-"
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.4g}"
    from scipy.stats import t

    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.4g} +-{float(t.ppf(0.975, len(values) - 1)) * error:.2g}"
