"""Views of sweeps on MLflow's runs page: the columns, the order and the charts with which it opens.

Each sweep has a view of its trials, and each experiment one of all its sweeps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from sweeps import constants
from sweeps.compat.mlflow import (
    SAVED_VIEW_PREFIX,
    line_chart,
    parallel_coordinates,
    saved_view,
    saved_view_time,
    view_state,
)
from sweeps.config.objectives import Objectives
from sweeps.tracking.mlflow_limits import to_name
from sweeps.tracking.mlflow_pages import ALL_SWEEPS_VIEW, sweep_view_id
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.retry import GaveUp, Refused, Retrier
from sweeps.tracking.values import now_ms

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweeps.config.search import Mode

logger = logging.getLogger(__name__)

MOST_VIEWS = 100
"""Number of sweeps of an experiment that have a view: each page of the experiment reads all of them. ``ui SWEEP`` saves
that of an older sweep again."""
MOST_AXES = 12
"""Largest number of parameters in parallel coordinates."""
ANSWER_WITHIN_S = 10
LARGEST_TAG = 20_000
"""Number of characters that MLflow takes in a tag of an experiment."""
OBJECTIVE_SECTION = "Parameters and objective"
SYSTEM_METRICS = ("system/cpu_percent", "system/memory_mib", "system/gpu_memory_mib", "system/gpu_percent")


def save_views(
    client: MlflowClient,
    retrier: Retrier,
    experiment_id: str,
    sweep: str,
    objectives: Objectives,
    parameters: Sequence[str],
) -> None:
    """Save the view of a sweep's trials, and that of all sweeps with the columns of this one, the newest.

    A sweep needs no view: if MLflow refuses them, a warning is logged.

    Args:
        client: A client of the tracking store.
        retrier: Repeats its calls.
        experiment_id: MLflow's id of the experiment.
        sweep: Name of the sweep.
        objectives: Its objectives.
        parameters: Dotted paths that it searches.

    Raises:
        GaveUp: MLflow does not answer.
    """
    try:
        tags = retrier.call(partial(client.get_experiment, experiment_id)).tags
        for view, content in _views(sweep, objectives, parameters):
            if len(content) <= LARGEST_TAG:
                retrier.call(partial(client.set_experiment_tag, experiment_id, SAVED_VIEW_PREFIX + view, content))
        ours = [tag for tag in tags if tag.startswith(SAVED_VIEW_PREFIX + sweep_view_id(""))]
        for tag in sorted(ours, key=lambda each: saved_view_time(tags[each]))[: -MOST_VIEWS + 1]:
            retrier.call(partial(client.delete_experiment_tag, experiment_id, tag))
    except Refused as error:
        logger.warning("MLflow's page has no view of sweep %s: %s", sweep, error)


def save_missing_views(sweep: SweepRecord) -> None:
    """Save the views of a recorded sweep that has none: it is of an older release, or newer ones took its place.

    A store that refuses or does not answer is left as it is.
    """
    from sweeps.tracking.client import connect

    ids, retrier = sweep.mlflow, Retrier(sweep.mlflow.tracking_uri, "writing to MLflow")
    retrier.give_up_after(ANSWER_WITHIN_S)
    parameters = list(dict.fromkeys(path for trial in sweep.trials for path in trial.params))
    objectives = Objectives(sweep.metrics, cast("tuple[Mode, ...]", sweep.modes))
    with suppress(GaveUp):
        client = connect(ids.tracking_uri)
        tags = retrier.call(partial(client.get_experiment, ids.experiment_id)).tags
        if SAVED_VIEW_PREFIX + sweep_view_id(sweep.sweep) not in tags:
            save_views(client, retrier, ids.experiment_id, sweep.sweep, objectives, parameters)


def _views(sweep: str, objectives: Objectives, parameters: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Ids and contents of both views."""
    metrics, parameters = [*map(to_name, objectives.metrics)], [*map(to_name, parameters)]
    best = [to_name(constants.BEST_PREFIX + metric) for metric in objectives.metrics]
    columns = [
        _column("tags", constants.TAG_STATE),
        *(_column("metrics", metric) for metric in best),
        *(_column("metrics", metric) for metric in metrics),
        _column("tags", constants.TAG_STEPS),
        *(_column("params", path) for path in parameters),
    ]
    charts = {
        OBJECTIVE_SECTION: [
            parallel_coordinates(parameters[:MOST_AXES], best),
            *map(line_chart, metrics),
        ],
        "System": [line_chart(metric) for metric in SYSTEM_METRICS],
    }
    trials = f"tags.`{constants.TAG_KIND}` = 'trial'"
    of_sweep = f"tags.`{constants.TAG_SWEEP}` = '{sweep}' and {trials}"
    grouped = (
        (sweep_view_id(sweep), f"Trials of {sweep}", of_sweep, None),
        (ALL_SWEEPS_VIEW, "All sweeps", trials, constants.TAG_SWEEP),
    )
    for view, name, where, group_by_tag in grouped:
        state = view_state(
            where=where,
            order_by=_column("metrics", best[0]),
            ascending=objectives.modes[0] == "min",
            columns=columns,
            group_by_tag=group_by_tag,
            charts=charts,
        )
        yield view, saved_view(name, state, now_ms())


def _column(kind: str, name: str) -> str:
    """Name of a column of the page: ``metrics.`eval/loss```."""
    return f"{kind}.`{name}`"
