"""Functions that plan and train: ``run``, ``dry_run``, ``resume``, ``extend``, ``stop``, ``retrain``, ``reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import dropwhile
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING

from sweeps.api.read import load
from sweeps.api.sweep import Sweep, config_folders, trial_id
from sweeps.errors import UserError
from sweeps.operations.local import Local
from sweeps.worker_error import is_own_code

if TYPE_CHECKING:
    from sweeps.compose.overrides import Overrides
    from sweeps.driver.sweep_state import View
    from sweeps.plan.plan import Plan
    from sweeps.report.reproduction_result import Repeated
    from sweeps.tracking.record import SweepRecord


def run(
    conf: str,
    overrides: Overrides = (),
    *,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    view: View | None = None,
) -> Sweep:
    """Run a sweep to its end in this process.

    Args:
        conf: Name of a config or path of a YAML file, as in ``conf=NAME``.
        overrides: Overrides as on the command line, ``["train.lr=0.01", "train.lr=interval(0, 1)"]``, or values by
            dotted path, ``{"train.lr": 0.01, "search.metric": ["eval/loss"]}``; a string may be a range there, too.
        name: Name of the sweep; default: the config's name and the time.
        config_dirs: Folders of configs that take precedence over those of Sweeps.
        view: Object that is told of every event; default: a live output in a notebook, else one line on stderr for
            each.

    Returns:
        The sweep as it is recorded at its end, also if it was interrupted or failed; see its ``status``.

    Raises:
        UserError: The request is wrong, and nothing was started.

    Example:
        >>> short = {"train.max_steps": 4, "train.eval_every": 2, "scaling.num_workers": 1}
        >>> sweep = sweeps.run("digits", {"search": "random", "search.num_trials": 2, **short}, name="first")
        >>> sweep.status, len(sweep.trials)
        ('finished', 2)
    """
    _check_not_within_a_sweep()
    from sweeps.driver.run import run as run_plan

    return _run_with_view(run_plan, dry_run(conf, overrides, name=name, config_dirs=config_dirs), view)


def dry_run(
    conf: str, overrides: Overrides = (), *, name: str | None = None, config_dirs: Sequence[str | Path] = ()
) -> Plan:
    """Check a sweep as ``run`` would, and start nothing.

    Args:
        conf: As for ``run``.
        overrides: As for ``run``.
        name: As for ``run``.
        config_dirs: As for ``run``.

    Returns:
        The plan: the whole config, the search space and the first points to try.

    Raises:
        UserError: The request is wrong.

    Example:
        >>> plan = sweeps.dry_run("digits", {"search.num_trials": 4, "train.lr": "interval(0.001, 0.1)"})
        >>> plan.config.search.num_trials, "train.lr" in plan.space
        (4, True)
    """
    from sweeps.compose.overrides import override_tokens
    from sweeps.plan.plan import make_plan

    tokens = override_tokens(overrides)
    command = f"sweeps.run({conf!r}, {tokens!r})"
    return make_plan([f"conf={conf}", *tokens], config_folders(config_dirs), name, command)


def resume(
    sweep: str, *, folder: str | Path | None = None, tracking_uri: str | None = None, view: View | None = None
) -> Sweep:
    """Continue a sweep that was interrupted or stopped, or whose driver died.

    Args:
        sweep: Name of the sweep.
        folder: Folder of the sweep, if it was moved.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.
        view: As for ``run``.

    Returns:
        The sweep at its end. A sweep that is complete is returned at once, and a line on stderr says how to extend it.

    Raises:
        UserError: The sweep cannot be continued on this machine, or another driver is running it.

    Example:
        >>> sweeps.resume("first").status
        'finished'
    """
    _check_not_within_a_sweep()
    from sweeps.plan.complete_sweep import describe_completion, is_complete
    from sweeps.plan.lost_record import record_to_resume
    from sweeps.plan.resume import reopened

    record = Sweep.of(record_to_resume(Local(tracking_uri).uri, sweep, None if folder is None else Path(folder)))
    plan = reopened(record, {}, None if folder is None else Path(folder))
    if is_complete(record, plan):
        sys.stderr.write(describe_completion(record, plan) + "\n")
        return record
    from sweeps.driver.run import resume as resume_plan

    return _run_with_view(resume_plan, plan, view)


def extend(
    sweep: str,
    changes: Overrides,
    *,
    folder: str | Path | None = None,
    tracking_uri: str | None = None,
    view: View | None = None,
) -> Sweep:
    """Give a sweep more trials, longer trials or a wider space, and continue it.

    Args:
        sweep: Name of the sweep.
        changes: New values by dotted path, or ``["key=value"]``: for ``search.num_trials``, ``search.max_concurrent``,
            ``search.max_retries`` (failed trials of a sweep that has ended are tried again), ``search.confirm`` and
            ``search.stop.*``; for a sweep that has ended also ``train.max_steps``, ``train.epochs``, and ``low``,
            ``high`` or ``choices`` of ``space.PATH``.
        folder: Folder of the sweep, if it was moved.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.
        view: As for ``run``.

    Returns:
        The sweep at its end. If another process is running it, that one is told, and this returns at once.

    Raises:
        UserError: A change is not allowed, or makes the sweep invalid or smaller.

    Example:
        >>> sweeps.extend("first", {"search.num_trials": 3}).status
        'finished'
    """
    _check_not_within_a_sweep()
    from sweeps.compose.overrides import override_tokens
    from sweeps.driver.run import resume as resume_plan
    from sweeps.plan.complete_sweep import describe_completion, is_complete
    from sweeps.plan.extend import ask_driver, read_changes
    from sweeps.plan.resume import reopened

    changes = read_changes(override_tokens(changes))
    record = load(sweep, tracking_uri=tracking_uri)
    plan = reopened(record, changes, None if folder is None else Path(folder))
    if ask_driver(record, plan.folder, changes) is not None:
        return load(sweep, tracking_uri=tracking_uri)
    if not changes and is_complete(record, plan):
        sys.stderr.write(describe_completion(record, plan) + "\n")
        return record
    return _run_with_view(resume_plan, plan, view)


def stop(sweep: str, *, trial: str | int | None = None, tracking_uri: str | None = None) -> Sweep:
    """End a sweep that another process runs, or one of its trials, and wait until it has ended.

    Trials save their state first, so that ``resume`` can continue the sweep.

    Args:
        sweep: Name of the sweep.
        trial: Id of the trial, such as ``0003``, or its number; default: the whole sweep.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The sweep as it is recorded afterwards.

    Raises:
        UserError: The sweep or the trial is not running, or its driver does not answer.
        SweepsError: It was asked to end, and has not ended after minutes.

    Example:
        >>> sweeps.stop("first")
        Traceback (most recent call last):
        sweeps.errors.UserError: first is not running: it is finished
    """
    return Sweep.of(Local(tracking_uri).stop(sweep, trial_id(trial)))


def retrain(
    sweep: str,
    overrides: Overrides = (),
    *,
    trial: str | int | None = None,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    tracking_uri: str | None = None,
    view: View | None = None,
) -> Sweep:
    """Train the best trial of a sweep, or another one, with its full budget, as a new sweep of one trial.

    Args:
        sweep: Name of the sweep.
        overrides: Changes to the trial's config, such as ``["data.path=all.jsonl"]``; see ``run``.
        trial: Id of the trial, or its number; default: the best.
        name: Name of the new sweep; default: derived from the old name.
        config_dirs: As for ``run``.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.
        view: As for ``run``.

    Returns:
        The new sweep, which ``register`` takes.

    Raises:
        UserError: The trial does not exist, or the request is wrong.

    Example:
        >>> sweeps.retrain("first", {"train.max_steps": 8}, name="first-longer").sweep
        'first-longer'
    """
    _check_not_within_a_sweep()
    from sweeps.compose.overrides import override_tokens
    from sweeps.driver.run import run as run_plan
    from sweeps.plan.retrain import plan_retraining

    record, folders = load(sweep, tracking_uri=tracking_uri), config_folders(config_dirs)
    tokens = override_tokens(overrides)
    command = f"sweeps.retrain({sweep!r}, {tokens!r})"
    plan = plan_retraining(record, trial_id(trial), tokens, folders, name, command)
    return _run_with_view(run_plan, plan, view)


def reproduce(
    run: str,
    *,
    trial: str | int | None = None,
    name: str | None = None,
    config_dirs: Sequence[str | Path] = (),
    tracking_uri: str | None = None,
    view: View | None = None,
) -> tuple[Sweep, Sequence[Repeated]]:
    """Run a sweep, or one of its trials, again, and compare the results.

    Args:
        run: Name of the sweep, or the MLflow run id of a sweep or a trial.
        trial: Id of the only trial to repeat, or its number; default: all.
        name: Name of the new sweep; default: derived from the old name.
        config_dirs: As for ``run``.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.
        view: As for ``run``.

    Returns:
        The new sweep, and for each trial and objective whether the value is the same.

    Raises:
        UserError: The sweep or trial does not exist, or its config was not recorded.

    Example:
        >>> again, results = sweeps.reproduce("first", trial="0001", name="first-again")
        >>> again.sweep
        'first-again'
    """
    _check_not_within_a_sweep()
    from sweeps.driver.reproduce import compare, plan_reproduction
    from sweeps.driver.run import run as run_plan

    command, folders = f"sweeps.reproduce({run!r})", config_folders(config_dirs)
    found = plan_reproduction(Local(tracking_uri).uri, run, trial_id(trial), name, command, folders)
    again = _run_with_view(run_plan, found.plan, view)
    return again, compare(found, again)


def _run_with_view(start: Callable[[Plan, View], SweepRecord], plan: Plan, view: View | None) -> Sweep:
    """Run a plan with the user's view or the default one, and send the sweep's notifications.

    The default is a live output in a notebook, and elsewhere one line on stderr for each event.
    """
    from sweeps.service.notify.cli_notify import run_and_notify

    if view is not None:
        return Sweep.of(run_and_notify(start, plan, view))
    from sweeps.driver.notebook_view import NotebookView, is_notebook
    from sweeps.driver.terminal_view import PlainView
    from sweeps.report.plain_console import plain_console

    default: NotebookView | PlainView
    default = NotebookView() if is_notebook() else PlainView(plain_console(file=sys.stderr))
    with default as shown:
        return Sweep.of(run_and_notify(start, plan, shown))


def _check_not_within_a_sweep() -> None:
    """Raise ``UserError`` if a public function of this module is called from within Sweeps: a worker that imports the
    user's file for its model or function would start the sweep in that file again."""
    outer = dropwhile(is_own_code, (frame.f_code.co_filename for frame, _ in walk_stack(None)))
    file = next(outer, "")
    if any(map(is_own_code, outer)):  # the rest of the stack, outside of the user's file
        raise UserError(
            f"{file}: starts a sweep within a sweep that imports or calls it; put the call below "
            '`if __name__ == "__main__":`, or outside of what a trial runs'
        )
