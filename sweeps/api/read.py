"""Functions that read recorded sweeps: ``load``, ``list_sweeps``, ``best``, ``trials``, ``curves`` and others."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.api.sweep import Sweep, config_folders, trial_id
from sweeps.operations.local import Local

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.report.comparison import Comparison
    from sweeps.tracking.record import SweepSummary, TrialRecord


def load(name: str, *, tracking_uri: str | None = None) -> Sweep:
    """Load a sweep from MLflow, whether it has ended or is running.

    Args:
        name: Name of the sweep.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The sweep with its trials.

    Raises:
        UnknownName: There is no such sweep.

    Example:
        >>> sweep = sweeps.load("first")
        >>> sweep.metric, [trial.trial for trial in sweep.trials]
        ('eval/accuracy', ['0000', '0001'])
    """
    return Sweep.of(Local(tracking_uri).record(name))


def watch(sweep: str, *, tracking_uri: str | None = None) -> Sweep:
    """Show a sweep that another process runs until it has ended: in a notebook as one output that is updated, else on
    stderr, as a live table on a terminal and as lines elsewhere. After Ctrl-C (the stop button) the sweep continues.

    Args:
        sweep: Name of the sweep.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The sweep as it was read last.

    Raises:
        UnknownName: There is no such sweep.

    Example:
        >>> sweeps.watch("first").status
        'finished'
    """
    from sweeps.driver.notebook_view import is_notebook, new_output
    from sweeps.report.notebook_html import watch_in_notebook
    from sweeps.report.plain_console import plain_console
    from sweeps.report.watch import watch as watch_in_lines

    read = partial(Local(tracking_uri).record, sweep)
    if is_notebook():
        return Sweep.of(watch_in_notebook(read, partial(new_output().update, raw=True)))
    return Sweep.of(watch_in_lines(read, plain_console(file=sys.stderr)))


def list_sweeps(*, tracking_uri: str | None = None) -> Sequence[SweepSummary]:
    """List all sweeps, newest first.

    Args:
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        A summary of each sweep.

    Raises:
        UserError: The store cannot be read.

    Example:
        >>> [(each.sweep, each.status) for each in sweeps.list_sweeps()]
        [('first', 'finished')]
    """
    return Local(tracking_uri).sweeps()


def confs(group: str | None = None, *, config_dirs: Sequence[str | Path] = ()) -> Any:
    """List the configs that can be run and the options of the config groups, as ``python -m sweeps conf --json`` does.

    Args:
        group: The only group to list, such as ``model``; default: all.
        config_dirs: Folders of configs that take precedence over those of Sweeps.

    Returns:
        Descriptions by group and name; the configs to run are in the group ``conf``.

    Raises:
        UnknownName: There is no such group, or no such folder.

    Example:
        >>> sweeps.confs("strategy")["strategy"]["ddp"]
        'Distributed data parallel: every worker holds the whole model.'
    """
    from sweeps.report.choices import choices_document

    return choices_document(config_folders(config_dirs), group)


def best(sweep: str, *, tracking_uri: str | None = None) -> TrialRecord | None:
    """Return the best trial of a sweep, by its first objective.

    Args:
        sweep: Name of the sweep.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The trial; None while no trial has a value.

    Raises:
        UnknownName: There is no such sweep.

    Example:
        >>> trial = sweeps.best("first")
        >>> trial.state, trial.steps, "train.lr" in trial.params
        ('finished', 4, True)
    """
    return load(sweep, tracking_uri=tracking_uri).best


def compare(*sweeps: str, output: str | Path | None = None, tracking_uri: str | None = None) -> Comparison:
    """Compare sweeps of the same metric.

    Args:
        sweeps: Names of the sweeps.
        output: File for a figure: .png, .svg, .pdf or .html; default: none.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The best value of each sweep by trials, time and GPU-hours, and the differences between their configs.

    Raises:
        UserError: A sweep does not exist, they have different metrics, or the figure cannot be written.

    Example:
        >>> comparison = sweeps.compare("first", "second", output="comparison.svg")
        >>> [each.record.sweep for each in comparison.sweeps]
        ['first', 'second']
    """
    from sweeps.report.comparison import compare_sweeps
    from sweeps.report.figures.comparison import check_output, write_comparison

    if output is not None:
        check_output(Path(output))
    comparison = compare_sweeps([load(each, tracking_uri=tracking_uri) for each in sweeps])
    if output is not None:
        write_comparison(comparison, Path(output))
    return comparison


def trials(*sweeps: str, tracking_uri: str | None = None) -> pd.DataFrame:
    """Return a table of trials, one row for each.

    Args:
        sweeps: Names of the sweeps.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        Columns ``sweep``, ``trial``, ``state``, one for each objective, ``steps``, ``attempts``, ``seconds``,
        ``run_id``, and one for each parameter.

    Raises:
        UnknownName: There is no such sweep.

    Example:
        >>> sweeps.trials("first")[["sweep", "trial", "state", "steps"]]
           sweep trial     state  steps
        0  first  0000  finished      4
        1  first  0001  finished      4
    """
    from sweeps.report.dataframes import trials_frame

    return trials_frame([load(each, tracking_uri=tracking_uri) for each in sweeps])


def curves(*sweeps: str, metric: str | None = None, tracking_uri: str | None = None) -> pd.DataFrame:
    """Return the learning curves of all trials: one row for each report of a metric.

    Args:
        sweeps: Names of the sweeps.
        metric: Name of the metric; default: the first objective of each sweep.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        Columns ``sweep``, ``trial``, ``state``, ``step`` and ``value``.

    Raises:
        UnknownName: There is no such sweep.

    Example:
        >>> sweeps.curves("first", metric="eval/loss")[["trial", "step"]]
          trial  step
        0  0000     2
        1  0000     4
        2  0001     2
        3  0001     4
    """
    from sweeps.report.dataframes import curves_frame

    return curves_frame([load(each, tracking_uri=tracking_uri) for each in sweeps], metric)


def logs(sweep: str, trial: str | int, *, tracking_uri: str | None = None) -> dict[int, str]:
    """Return the output of a trial's workers, even while it runs. Secrets are removed.

    Args:
        sweep: Name of the sweep.
        trial: Id of the trial, or its number.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        Text that each worker has printed and logged, by rank.

    Raises:
        UserError: There is no such sweep or trial.

    Example:
        >>> sorted(sweeps.logs("first", "0001"))
        [0]
    """
    from sweeps.plan.export import choose
    from sweeps.tracking.trial_logs import TrialLogs

    record = load(sweep, tracking_uri=tracking_uri)
    kept = TrialLogs(record, choose(record, trial_id(trial)))
    return {rank: kept.read_all(rank) for rank in kept.workers()}


def importance(sweep: str, *, objective: int = 0, tracking_uri: str | None = None) -> pd.DataFrame:
    """Return the importance of each parameter.

    Args:
        sweep: Name of the sweep.
        objective: Index of the objective.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        One row for each parameter, the most important first, and one column for each of Optuna's evaluators. Empty if
        there are too few trials, with a warning that says why.

    Raises:
        UserError: There is no such sweep or objective.

    Example:
        >>> sweeps.importance("first").empty
        True
    """
    from sweeps.report.dataframes import importance_frame

    return importance_frame(load(sweep, tracking_uri=tracking_uri), objective)
