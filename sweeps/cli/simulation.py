"""Options of ``run`` with which the search is simulated instead of run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.app import PATH
from sweeps.cli.output import exit_as, print_result, typed
from sweeps.cli.source import service_at

if TYPE_CHECKING:
    from sweeps.simulate.inputs import Inputs
    from sweeps.simulate.lane_rates import LaneRates
    from sweeps.simulate.run import Between

STARTING = ("dry_run", "check_nodes", "detach", "again")
"""Options of ``run`` that affect the start of training."""


def simulating(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--simulate`` and its options to ``run``; with the option, the search is simulated, and ``run`` is not
    called."""

    @wraps(function)
    def call(
        *,
        table: Path | None,
        workers: int | None,
        seeds: int | None,
        between: Between | None,
        lane_rates: str | None,
        **options: Any,
    ) -> None:
        if table is not None:
            service_at(options["server"], simulate=table)
            if any(options[name] for name in STARTING):
                raise click.UsageError(
                    "--simulate starts nothing: only --workers, --seeds, --between, --lane-rates and --json go with it"
                )
            rates = None if lane_rates is None else _rates(lane_rates)
            inputs = _inputs(table, options["tokens"], options["config_dirs"], options["name"])
            _simulate(inputs, workers, seeds or 1, between or "forest", rates, as_json=options["as_json"])
            return
        if any(each is not None for each in (workers, seeds, between, lane_rates)):
            raise click.UsageError("--workers, --seeds, --between and --lane-rates need --simulate TABLE")
        function(**options)

    for option in (
        click.option(
            "--lane-rates",
            metavar="RATES",
            help="With --simulate: throughput of 1, 2, ... trials that share workers: 1=100,2=180,4=250.",
        ),
        click.option(
            "--between",
            type=click.Choice(["forest", "nearest"]),
            help="With --simulate: curve of a point that the table lacks: predicted (forest, default), or the nearest.",
        ),
        click.option(
            "--seeds",
            metavar="N",
            type=click.IntRange(min=1),
            help="With --simulate: number of searches, from the config's seed on; default: 1.",
        ),
        click.option(
            "--workers",
            metavar="N",
            type=click.IntRange(min=1),
            help="With --simulate: number of trials at once (with --lane-rates: of worker groups); default: "
            "search.max_concurrent, else 4.",
        ),
        click.option(
            "--simulate",
            "table",
            metavar="TABLE",
            type=PATH,
            help="Train nothing: replay the search against a table of learning curves, as written by show --curves.",
        ),
    ):
        call = option(call)
    return call


def _inputs(table: Path, tokens: Sequence[str], config_dirs: Sequence[Path], name: str | None) -> Inputs:
    """Read the inputs of a simulation. Since nothing is trained, data, cluster and folder are not checked."""
    from sweeps.plan.plan import make_plan
    from sweeps.simulate.inputs import read_inputs
    from sweeps.simulate.recorded_rows import check_is_file

    check_is_file(table)
    return read_inputs(make_plan(tokens, config_dirs, name, typed(), where="elsewhere"), table)


def _rates(text: str) -> LaneRates:
    from sweeps.simulate.lane_rates import RATES_ADVICE, LaneRates

    try:
        return LaneRates.parsed(text)
    except ValueError as error:
        raise click.UsageError(f"--lane-rates={text}: {error}; {RATES_ADVICE}") from error


def _simulate(
    inputs: Inputs, workers: int | None, seeds: int, between: Between, rates: LaneRates | None, *, as_json: bool
) -> None:
    """Simulate a sweep, and print its outcome."""
    # These import Ray and Optuna, which takes seconds; mistakes were reported before.
    from sweeps.simulate.run import simulate
    from sweeps.simulate.simulation_summary import print_simulation, simulation_document

    result = simulate(inputs, workers=workers, seeds=seeds, between=between, rates=rates)
    exit_as(result.sweeps[0].record)
    print_result(lambda: simulation_document(result), partial(print_simulation, result), as_json=as_json)
