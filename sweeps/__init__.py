"""Sweeps: hyperparameter search for distributed training, on Ray Tune, Ray Train, Optuna and MLflow.

All that the command line does, as functions. Importing this is cheap: each function imports what it needs. Mistakes in
what is asked raise ``sweeps.errors.UserError`` before anything starts. Names of sweeps are looked up in the store that
``MLFLOW_TRACKING_URI`` names, else in ``mlflow.db`` in the working folder, or where ``tracking_uri`` says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.compose.overrides import Overrides
    from sweeps.driver.state import View
    from sweeps.plan.plan import Plan
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.comparison import Comparison
    from sweeps.report.reproduction_result import Repeated
    from sweeps.retention.cleaning import Cleaning
    from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord

__all__ = [
    "best",
    "clean",
    "compare",
    "confs",
    "curves",
    "dry_run",
    "export",
    "extend",
    "importance",
    "list",
    "load",
    "logs",
    "register",
    "reproduce",
    "resume",
    "retrain",
    "run",
    "stop",
    "trials",
    "write_report",
]


# --- running ----------------------------------------------------------------------------------------------------


def run(
    conf: str,
    overrides: Overrides = (),
    *,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    view: View | None = None,
) -> SweepRecord:
    """Run a sweep to its end.

    Args:
        conf: Name of a config or path of a YAML file, as in ``conf=NAME``.
        overrides: As on the command line, ``["train.lr=0.01", "train.lr=interval(0, 1)"]``, or values by key,
            ``{"train.lr": 0.01, "search.metric": ["eval/loss"]}``, of which a text may be a range, too.
        name: Name of the sweep; default: the config's and the time.
        config_dirs: Folders of configs to look into before ours.
        view: Hears of all that happens; default: a line on stderr for every event.

    Raises:
        UserError: A mistake in what was asked; nothing was started.
    """
    from sweeps.driver.run import run as run_plan

    return _watched(run_plan, dry_run(conf, overrides, name=name, config_dirs=config_dirs), view)


def dry_run(
    conf: str, overrides: Overrides = (), *, name: str | None = None, config_dirs: Sequence[str | Path] = ()
) -> Plan:
    """What ``run`` would do, checked: its whole config, its space, the points that come first. Starts nothing.

    Raises:
        UserError: A mistake in what was asked.
    """
    from sweeps.compose.overrides import override_tokens
    from sweeps.plan.plan import make_plan

    tokens = override_tokens(overrides)
    command = f"sweeps.run({conf!r}, {tokens!r})"
    return make_plan([f"conf={conf}", *tokens], [Path(each) for each in config_dirs], name, command)


def resume(
    sweep: str, *, folder: str | Path | None = None, tracking_uri: str | None = None, view: View | None = None
) -> SweepRecord:
    """Go on with a sweep that was interrupted or stopped, or whose driver died. One that has nothing left to do is
    returned as it is, after a line on stderr that says how to extend it.

    Args:
        sweep: Its name.
        folder: Where its folder is now, if it was moved.
        tracking_uri: See the module.
        view: See ``run``.

    Raises:
        UserError: It cannot go on here, or another driver runs it.
    """
    from sweeps.plan.completion import describe_completion, is_complete
    from sweeps.plan.saved_sweep import reopened

    record = load(sweep, tracking_uri=tracking_uri)
    plan = reopened(record, {}, None if folder is None else Path(folder))
    if is_complete(record, plan):
        sys.stderr.write(describe_completion(record, plan) + "\n")
        return record
    from sweeps.driver.run import resume as resume_plan

    return _watched(resume_plan, plan, view)


def extend(
    sweep: str,
    changes: Overrides,
    *,
    folder: str | Path | None = None,
    tracking_uri: str | None = None,
    view: View | None = None,
) -> SweepRecord:
    """Let a sweep go further: ``extend("first", {"search.num_trials": 40})``. One that runs is told to go on where it
    runs, and this returns at once; one that has ended goes on here.

    Args:
        sweep: Its name.
        changes: New values by dotted path, or ``["key=value"]``: of ``search.num_trials``, ``search.max_concurrent``,
            ``search.max_retries``, ``search.stop.*``; of a sweep that has ended ``train.max_steps``, ``train.epochs``,
            and ``low``, ``high`` or ``choices`` of ``space.PATH``, too.
        folder: See ``resume``.
        tracking_uri: See the module.
        view: See ``run``.

    Raises:
        UserError: The changes make no valid sweep, or less of one.
    """
    from sweeps.compose.overrides import override_tokens
    from sweeps.driver.run import resume as resume_plan
    from sweeps.plan.extend import ask_driver, read_changes
    from sweeps.plan.saved_sweep import reopened

    changes = read_changes(override_tokens(changes))
    record = load(sweep, tracking_uri=tracking_uri)
    further = reopened(record, changes, None if folder is None else Path(folder))
    if ask_driver(record, further.folder, changes) is not None:
        return load(sweep, tracking_uri=tracking_uri)
    return _watched(resume_plan, further, view)


def stop(sweep: str, *, trial: str | None = None, tracking_uri: str | None = None) -> SweepRecord:
    """End a sweep that runs elsewhere, or one of its trials, and wait for that; trials save their state first.

    Args:
        sweep: Its name.
        trial: Number of the trial, as ``0003``; default: the whole sweep.
        tracking_uri: See the module.

    Raises:
        UserError: It does not run.
    """
    from sweeps.driver.stop import stop as stop_sweep

    return stop_sweep(load(sweep, tracking_uri=tracking_uri), trial)


# --- reading ----------------------------------------------------------------------------------------------------


def load(name: str, *, tracking_uri: str | None = None) -> SweepRecord:
    """An earlier sweep, or one that runs, read from MLflow.

    Args:
        name: The sweep's name.
        tracking_uri: See the module.

    Raises:
        UnknownName: There is no such sweep.
    """
    from sweeps.tracking.reader import load_sweep

    return load_sweep(_uri(tracking_uri), name)


def list(*, tracking_uri: str | None = None) -> Sequence[SweepSummary]:  # noqa: A001 - the verb's name
    """All sweeps, newest first."""
    from sweeps.tracking.reader import list_sweeps

    return list_sweeps(_uri(tracking_uri))


def confs(group: str | None = None, *, config_dirs: Sequence[str | Path] = ()) -> Any:
    """The sweeps and the options that can be chosen, as ``python -m sweeps conf --json`` prints them.

    Args:
        group: Of this one alone.
        config_dirs: Folders of configs to look into before ours.
    """
    from sweeps.report.choices import choices_document

    return choices_document([Path(each) for each in config_dirs], group)


def best(sweep: str, *, tracking_uri: str | None = None) -> TrialRecord | None:
    """The best trial of a sweep, by its first objective; None as long as no trial has a value.

    Args:
        sweep: Its name.
        tracking_uri: See the module.
    """
    return load(sweep, tracking_uri=tracking_uri).best


def compare(*sweeps: str, output: str | Path | None = None, tracking_uri: str | None = None) -> Comparison:
    """Sweeps of the same metric side by side.

    Args:
        sweeps: Their names.
        output: Also draw a figure into this file: .png, .svg, .pdf or .html.
        tracking_uri: See the module.

    Raises:
        UserError: They have different metrics.
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
    """A table of trials: ``sweep``, ``trial``, ``state``, a column for each objective, ``steps``, ``attempts``,
    ``seconds``, ``run_id``, and one for each parameter.

    Args:
        sweeps: Names of the sweeps.
        tracking_uri: See the module.
    """
    from sweeps.report.dataframes import trials_frame

    return trials_frame([load(each, tracking_uri=tracking_uri) for each in sweeps])


def curves(*sweeps: str, metric: str | None = None, tracking_uri: str | None = None) -> pd.DataFrame:
    """What trials reported: ``sweep``, ``trial``, ``state``, ``step`` and ``value``.

    Args:
        sweeps: Names of the sweeps.
        metric: Default: the first objective of each.
        tracking_uri: See the module.
    """
    from sweeps.report.dataframes import curves_frame

    return curves_frame([load(each, tracking_uri=tracking_uri) for each in sweeps], metric)


def logs(sweep: str, trial: str, *, tracking_uri: str | None = None) -> dict[int, str]:
    """Texts that the workers of a trial have printed and logged, by rank, also while it runs. Secrets are hidden.

    Args:
        sweep: Its name.
        trial: The trial's id.
        tracking_uri: See the module.

    Raises:
        UserError: There is no such sweep or trial.
    """
    from sweeps.plan.export import choose
    from sweeps.tracking.trial_logs import TrialLogs

    record = load(sweep, tracking_uri=tracking_uri)
    kept = TrialLogs(record, choose(record, trial))
    return {rank: kept.whole(rank) for rank in kept.workers()}


def importance(sweep: str, *, objective: int = 0, tracking_uri: str | None = None) -> pd.DataFrame:
    """How much each parameter matters: a row for each, the most important first, and a column for each of Optuna's
    evaluators; empty, with a warning that says why, where there are too few trials to tell.

    Args:
        sweep: Its name.
        objective: Index of the objective.
        tracking_uri: See the module.
    """
    from sweeps.report.dataframes import importance_frame

    return importance_frame(load(sweep, tracking_uri=tracking_uri), objective)


def write_report(sweep: str, folder: str | Path | None = None, *, tracking_uri: str | None = None) -> Path:
    """Make a page with figures of a sweep, also while it runs; returns its path. It is attached to its run in MLflow.

    Args:
        sweep: Its name.
        folder: Default: ``report/`` in the sweep's folder.
        tracking_uri: See the module.

    Raises:
        UserError: There is no such sweep, or the folder cannot be written.
    """
    from sweeps.report.folder import make_folder, report_folder
    from sweeps.report.page.report import make_report

    record = load(sweep, tracking_uri=tracking_uri)
    return make_report(record, make_folder(report_folder(record) if folder is None else Path(folder)))


# --- putting to use ---------------------------------------------------------------------------------------------


def export(sweep: str, file: str | Path, *, trial: str | None = None, tracking_uri: str | None = None) -> Path:
    """Write the best trial, or another, as a config that ``run`` takes as it is; returns the file.

    Args:
        sweep: Name of the sweep.
        file: Path of the YAML file.
        trial: Number of the trial; default: the best.
        tracking_uri: See the module.

    Raises:
        UserError: There is no such trial.
    """
    from sweeps.plan import export as one_trial

    record = load(sweep, tracking_uri=tracking_uri)
    one_trial.export(record, one_trial.choose(record, trial), Path(file))
    return Path(file)


def register(
    sweep: str,
    name: str,
    *,
    trial: str | None = None,
    alias: str = "champion",
    merged: bool = False,
    tracking_uri: str | None = None,
) -> RegisteredModel:
    """Make the best trial's checkpoint, or another's, a version in MLflow's model registry.

    Args:
        sweep: Name of the sweep.
        name: Of the model.
        trial: Number of the trial; default: the best.
        alias: Moves to the new version.
        merged: Fold LoRA adapters into their base model.
        tracking_uri: See the module.

    Raises:
        UserError: There is no such trial, or its model cannot be registered so.
    """
    from sweeps.plan import export as one_trial
    from sweeps.registry.names import check_registration
    from sweeps.registry.register import register as register_model

    record = load(sweep, tracking_uri=tracking_uri)
    chosen = one_trial.choose(record, trial)
    check_registration(one_trial.config_of(record, chosen), name, alias, merged=merged)
    return register_model(record, chosen, name, alias, merged=merged)


def retrain(
    sweep: str,
    overrides: Overrides = (),
    *,
    trial: str | None = None,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    tracking_uri: str | None = None,
    view: View | None = None,
) -> SweepRecord:
    """Train the best trial, or another, with its full budget, as a sweep of one trial; ``register`` takes that one.

    Args:
        sweep: Name of the sweep.
        overrides: What is changed of the trial, such as ``["data.path=all.jsonl"]``; see ``run``.
        trial: Number of the trial; default: the best.
        name: Of the new sweep; default: after the old one.
        config_dirs: Folders of configs to look into before ours.
        tracking_uri: See the module.
        view: See ``run``.

    Raises:
        UserError: There is no such trial, or a mistake in what was asked.
    """
    from sweeps.compose.overrides import override_tokens
    from sweeps.driver.run import run as run_plan
    from sweeps.plan.export import choose
    from sweeps.plan.retrain import plan_retraining

    record, folders = load(sweep, tracking_uri=tracking_uri), [Path(each) for each in config_dirs]
    tokens = override_tokens(overrides)
    command = f"sweeps.retrain({sweep!r}, {tokens!r})"
    again = plan_retraining(record, choose(record, trial), tokens, folders, name, command)
    return _watched(run_plan, again, view)


def reproduce(
    run: str,
    *,
    trial: str | None = None,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    tracking_uri: str | None = None,
    view: View | None = None,
) -> tuple[SweepRecord, Sequence[Repeated]]:
    """Run a sweep, or one of its trials, once more.

    Args:
        run: The sweep's name, or MLflow's id of its run or of a trial's.
        trial: Only this trial of the sweep.
        name: Of the new sweep; default: after the old one.
        config_dirs: Folders of configs to look into before ours.
        tracking_uri: See the module.
        view: See ``run``.

    Returns:
        The new sweep, and trial by trial whether the same came out.

    Raises:
        UserError: There is no such sweep or trial, or its config is not known.
    """
    from sweeps.driver.reproduce import compare as compare_to
    from sweeps.driver.reproduce import plan_reproduction
    from sweeps.driver.run import run as run_plan

    command, folders = f"sweeps.reproduce({run!r})", [Path(each) for each in config_dirs]
    found = plan_reproduction(_uri(tracking_uri), run, trial, name, command, folders)
    again = _watched(run_plan, found.plan, view)
    return again, compare_to(found, again)


def clean(
    *sweeps: str,
    older_than: str | None = None,
    keep_last: int | None = None,
    max_size: str | None = None,
    keep_best: int = 1,
    runs: bool = False,
    unfinished: bool = False,
    dry_run: bool = False,
    tracking_uri: str | None = None,
) -> Cleaning:
    """Remove checkpoints of trials that have ended, but never those of the best, nor what is registered.

    Args:
        sweeps: Only of these; default: of all.
        older_than: Only of sweeps that ended longer ago, such as ``30d``.
        keep_last: Leave the newest so many sweeps alone.
        max_size: Only as much as makes all checkpoints fit, such as ``50GiB``.
        keep_best: Trials of a sweep that keep their checkpoints.
        runs: Delete the trials' MLflow runs, too.
        unfinished: Of interrupted and stopped sweeps, too: they cannot be resumed then.
        dry_run: Find out what would go, and remove nothing.
        tracking_uri: See the module.

    Returns:
        What is gone, or would be.

    Raises:
        UserError: Nothing says what may go, or there is no such sweep.
    """
    from dataclasses import replace

    from sweeps.retention.cleaning import clean as remove
    from sweeps.retention.cleaning import plan_cleaning
    from sweeps.retention.policy import read_policy

    policy = read_policy(
        sweeps,
        older_than=older_than,
        keep_last=keep_last,
        max_size=max_size,
        keep_best=keep_best,
        runs=runs,
        unfinished=unfinished,
    )
    uri = _uri(tracking_uri)
    cleaning = plan_cleaning(uri, sweeps, policy)
    return cleaning if dry_run else replace(cleaning, removals=remove(uri, cleaning))


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("ray-sweeps")


# --- inside -----------------------------------------------------------------------------------------------------


def _watched(story: Callable[[Plan, View], SweepRecord], planned: Plan, view: View | None) -> SweepRecord:
    from sweeps.service.notify.cli_notify import telling

    if view is not None:
        return telling(story, planned, view)
    from sweeps.driver.live import PlainView
    from sweeps.report.terminal import plain_console

    with PlainView(plain_console(file=sys.stderr)) as plain:
        return telling(story, planned, plain)


def _uri(tracking_uri: str | None) -> str:
    from sweeps.tracking import default_uri

    return tracking_uri or default_uri()
