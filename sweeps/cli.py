"""The command line: thin, and it imports late, so that help and mistakes are answered at once."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.traceback import Traceback

from sweeps.errors import SweepsError, nearest

if TYPE_CHECKING:
    from sweeps.monitor import View
    from sweeps.plan import Plan
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.repeated import Repeated
    from sweeps.tracking.record import SweepRecord, TrialRecord

INTERRUPTED = 130
NO_SUCCESS = 1
PIPE_WIDTH = 200
"""Columns where no terminal says how many there are: tables are for people and for grep."""
EXIT_STATUS = {"interrupted": INTERRUPTED, "failed": NO_SUCCESS}


class _Verbs(click.Group):
    """Verbs in the order of their definition; an unknown one is answered with the nearest."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            ctx.fail(f"there is no verb {args[0]!r}{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def app() -> None:
    """Hyperparameter search for distributed training, on Ray Tune, Ray Train, Optuna and MLflow."""


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
tracking_uri = click.option(
    "--tracking-uri", metavar="URI", help="MLflow store or server; default: MLFLOW_TRACKING_URI, else mlflow.db here."
)
trial = click.option("--trial", metavar="ID", help="This trial instead of the best.")


def registering(function: Callable[..., None]) -> Callable[..., None]:
    """The options by which a model gets into MLflow's registry."""
    for option in (
        click.option("--merged", is_flag=True, help="Fold LoRA adapters into their base model."),
        click.option("--alias", metavar="A", default="champion", show_default=True, help="Moves to the new version."),
        click.option("--register", metavar="NAME", help="Name of the model in MLflow's registry."),
    ):
        function = option(function)
    return function


moved_to = click.option(
    "--folder", metavar="DIR", type=click.Path(path_type=Path), help="Where the sweep's folder is now, if it was moved."
)


def _verb(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """A verb with the options that every verb has; ``main`` and the configs' search path read them."""

    def decorate(function: Callable[..., None]) -> click.Command:
        directories = click.option(
            "--config-dir",
            "config_dirs",
            metavar="DIR",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Your own folder of configs, before ours. Repeatable.",
        )
        debug = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
        return app.command(name)(directories(debug(function)))

    return decorate


stderr = Console(stderr=True)
stdout = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


@_verb("run")
@click.argument("tokens", nargs=-1, metavar="conf=NAME|FILE.yaml [key=value ...]")
@click.option("--name", metavar="S", help="Name of the sweep; default: the config's name and the time.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@as_json
def run(tokens: tuple[str, ...], name: str | None, dry_run: bool, as_json: bool, config_dirs: tuple[Path, ...]) -> None:
    """Run a sweep: python -m sweeps run conf=llm_lora

    key=value overrides any value of the config; key=option chooses a group's option; a range, such as
    'train.lr=tag(log, interval(1e-5, 1e-2))' or 'model.lora.r=choice(4, 8, 16)', is searched.
    """
    from sweeps.plan import make_plan

    plan = make_plan(tokens, config_dirs, name, _typed())
    if dry_run:
        _print_dry_run(plan, as_json=as_json)
        return
    from sweeps.sweep import run as run_plan

    _drive(run_plan, plan, as_json=as_json)


@_verb("resume")
@click.argument("sweep")
@as_json
@moved_to
@tracking_uri
def resume(
    sweep: str, as_json: bool, folder: Path | None, tracking_uri: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Go on with a sweep that was interrupted, from where its trials were."""
    from sweeps.reopening import reopened

    _go_on(reopened(_load(sweep, tracking_uri), {}, folder), as_json=as_json)


@_verb("extend")
@click.argument("sweep")
@click.argument("tokens", nargs=-1, metavar="key=value ...", required=True)
@as_json
@moved_to
@tracking_uri
def extend(
    sweep: str,
    tokens: tuple[str, ...],
    as_json: bool,
    folder: Path | None,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Let a sweep go further: python -m sweeps extend SWEEP search.num_trials=40

    Takes search.num_trials, search.max_concurrent, search.max_retries and search.stop.*: a sweep that runs is told to
    go on where it runs, and one that has ended goes on here. Of one that has ended, trials become longer with
    train.max_steps or train.epochs, and ranges wider with space.PATH.low, high or choices.
    """
    from sweeps.driver import has_died
    from sweeps.extension import read_changes
    from sweeps.reopening import reopened

    changes = read_changes(tokens)
    record = _load(sweep, tracking_uri)
    plan = reopened(record, changes, folder)
    if record.status == "running" and not has_died(plan.folder):
        from sweeps.tracking.requests import ask

        answer = ask(record, {"verb": "extend", "changes": changes})
        if answer is not None:
            stderr.print(answer, markup=False, highlight=False, soft_wrap=True)
            return
    _go_on(plan, as_json=as_json)


@_verb("stop")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="End only this trial; the sweep goes on without it.")
@as_json
@tracking_uri
def stop(sweep: str, trial: str | None, as_json: bool, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """End a sweep that runs elsewhere, or one of its trials: they save their state first.

    `resume` goes on with a sweep that was stopped; a trial that was stopped by itself is not taken up again.
    """
    from sweeps.stopping import stop as stop_sweep

    record = stop_sweep(_load(sweep, tracking_uri), trial)
    if as_json:
        _print_json(record.as_json())
    else:
        from sweeps.report.tables import print_outcome

        print_outcome(record, stdout)


@_verb("list")
@as_json
@tracking_uri
def list_(as_json: bool, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """List the sweeps, newest first."""
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import list_sweeps

    sweeps = list_sweeps(tracking_uri or default_uri())
    if as_json:
        _print_json([each.as_json() for each in sweeps])
    else:
        from sweeps.report.tables import print_sweeps

        print_sweeps(sweeps, stdout)


@_verb("show")
@click.argument("sweep")
@click.option("--watch", is_flag=True, help="Live, until the sweep has ended; Ctrl-C leaves.")
@as_json
@tracking_uri
def show(sweep: str, watch: bool, as_json: bool, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Show a sweep and its trials, the best first.

    --watch follows a sweep that runs elsewhere, also on another machine, and leaves with the status that `run` has.
    """
    if watch and as_json:
        raise click.UsageError("--watch is for people: leave --json out, or ask for it once the sweep has ended")
    record = _load(sweep, tracking_uri)
    if watch and record.status == "running":
        from sweeps.report.watch import planned_trials
        from sweeps.report.watch import watch as follow

        record = follow(lambda: _load(sweep, tracking_uri), stdout, planned_trials(record))
    if as_json:
        _print_json(record.as_json())
    else:
        from sweeps.report.tables import print_sweep

        print_sweep(record, stdout)
    sys.exit(EXIT_STATUS.get(record.status, 0) if watch else 0)


@_verb("best")
@click.argument("sweep")
@click.option("--export", metavar="FILE", type=click.Path(path_type=Path), help="Write it as a config for `run`.")
@trial
@registering
@as_json
@tracking_uri
def best(
    sweep: str,
    export: Path | None,
    trial: str | None,
    register: str | None,
    alias: str,
    merged: bool,
    as_json: bool,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Show the best trial: its value, parameters and checkpoint.

    With --export it becomes a config file that `python -m sweeps run conf=FILE` takes as it is, and which trains the
    same again. With --register its checkpoint becomes a version in MLflow's model registry, as it is; `retrain` trains
    it with its full budget first.
    """
    record = _load(sweep, tracking_uri)
    model: RegisteredModel | None = None
    if trial is not None or export is not None or register is not None:
        from sweeps import one_trial

        chosen = one_trial.choose(record, trial)
        if export is not None:
            one_trial.export(record, chosen, export)
            _say(f"{export}: trial {chosen.trial}, for python -m sweeps run conf={export}")
        if register is not None:
            from sweeps.registry.names import check_registration

            check_registration(one_trial.config_of(record, chosen), register, alias, merged=merged)
            model = _register(record, chosen, register, alias, merged=merged)
        record = replace(record, front=[chosen])
    if as_json:
        document = record.as_json()["best"]
        _print_json(document if model is None else {"model": model.as_json(), "best": document})
    else:
        from sweeps.report.tables import print_best

        print_best(record, stdout)
    sys.exit(0 if record.best is not None else NO_SUCCESS)


@_verb("compare")
@click.argument("names", nargs=-1, metavar="SWEEP SWEEP ...", required=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Figure: .png, .svg, .pdf or .html.")
@as_json
@tracking_uri
def compare(
    names: tuple[str, ...], output: Path | None, as_json: bool, tracking_uri: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Put sweeps of the same metric side by side: best value by trials, time and GPU-hours, and what differs."""
    from sweeps.report.comparison import compare_sweeps, print_comparison

    if output is not None:
        from sweeps.report.comparison_figure import check_output

        check_output(output)
    comparison = compare_sweeps([_load(name, tracking_uri) for name in names])
    if output is not None:
        from sweeps.report.comparison_figure import write_comparison

        write_comparison(comparison, output)
        _say(f"figure: {output}")
    if as_json:
        _print_json(comparison.as_json())
    else:
        print_comparison(comparison, stdout)


@_verb("retrain")
@click.argument("sweep")
@click.argument("tokens", nargs=-1, metavar="[key=value ...]")
@trial
@click.option("--name", metavar="S", help="Name of the new sweep; default: after the old one.")
@registering
@click.option("--no-register", is_flag=True, help="Train only.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@as_json
@tracking_uri
def retrain(  # noqa: PLR0913, PLR0917 - each is an option
    sweep: str,
    tokens: tuple[str, ...],
    trial: str | None,
    name: str | None,
    register: str | None,
    alias: str,
    merged: bool,
    no_register: bool,
    dry_run: bool,
    as_json: bool,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Train the best trial of a sweep with its full budget, and register it: python -m sweeps retrain SWEEP

    key=value changes anything of it, such as train.max_steps=2000 or data.path=all.jsonl. The model becomes a version
    in MLflow's model registry, with the alias champion.
    """
    from sweeps.one_trial import choose
    from sweeps.registry.names import check_registration
    from sweeps.retraining import plan_retraining

    record = _load(sweep, tracking_uri)
    plan = plan_retraining(record, choose(record, trial), tokens, config_dirs, name, _typed())
    model = register or record.conf
    if not no_register:
        check_registration(plan.config, model, alias, merged=merged)
    if dry_run:
        _print_dry_run(plan, as_json=as_json)
        return
    from sweeps.sweep import run as run_plan

    again = _watched(run_plan, plan)
    registered = None
    if not no_register and again.status == "finished" and again.best is not None:
        registered = _register(again, again.best, model, alias, merged=merged)
    if as_json:
        _print_json(again.as_json() | {"model": None if registered is None else registered.as_json()})
    else:
        from sweeps.report.tables import print_outcome

        print_outcome(again, stdout)
    sys.exit(EXIT_STATUS.get(again.status, 0))


@_verb("reproduce")
@click.argument("run")
@click.option("--trial", metavar="ID", help="Only this trial of the sweep.")
@click.option("--name", metavar="S", help="Name of the new sweep; default: after the old one.")
@click.option("--dry-run", is_flag=True, help="Say what differs now, and start nothing.")
@as_json
@tracking_uri
def reproduce(
    run: str,
    trial: str | None,
    name: str | None,
    dry_run: bool,
    as_json: bool,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Run a sweep, or one of its trials, once more, and say whether the same came out.

    RUN is a sweep's name, or MLflow's id of its run or of a trial's. First it says in what code, packages, data and
    machine differ from what they were. Leaves with status 1 if an objective came out differently.
    """
    from sweeps.report.repeated import print_repeated
    from sweeps.reproduction import came_out_equal, compare, document, plan_reproduction
    from sweeps.tracking import default_uri

    found = plan_reproduction(tracking_uri or default_uri(), run, trial, name, _typed(), config_dirs)
    for line in found.describe():
        _say(line)
    comparisons: list[Repeated] = []
    again: SweepRecord | None = None
    if not dry_run:
        from sweeps.sweep import run as run_plan

        again = _watched(run_plan, found.plan)
        comparisons = compare(found, again)
    if as_json:
        _print_json(document(found, again, comparisons))
    elif again is not None:
        stdout.print(f"{again.sweep} {again.status}", highlight=False)
        print_repeated(comparisons, stdout)
    sys.exit(0 if dry_run or came_out_equal(comparisons) else NO_SUCCESS)


@_verb("report")
@click.argument("sweep")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the page and its pictures; default: report/ in the sweep's folder.",
)
@tracking_uri
def report(sweep: str, output: Path | None, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Make a page with figures of a sweep, also while it runs; it is attached to its run in MLflow, too."""
    record = _load(sweep, tracking_uri)
    from sweeps.report.folder import report_folder
    from sweeps.report.page.report import make_report

    page = make_report(record, output or report_folder(record))
    stdout.print(str(page), markup=False, highlight=False, soft_wrap=True)


@_verb("clean")
@click.argument("names", nargs=-1, metavar="[SWEEP ...]")
@click.option("--older-than", metavar="AGE", help="Only sweeps that ended longer ago, such as 30d.")
@click.option("--keep-last", metavar="N", type=click.IntRange(0), help="Leave the newest N sweeps alone.")
@click.option("--max-size", metavar="SIZE", help="Only as much as makes all checkpoints fit, such as 50GiB.")
@click.option(
    "--keep-best",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Trials of a sweep that keep their checkpoints; the best does in any case.",
)
@click.option("--runs", is_flag=True, help="Delete the trials' MLflow runs, too.")
@click.option("--unfinished", is_flag=True, help="Of interrupted and stopped sweeps, too: they cannot be resumed then.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@as_json
@tracking_uri
def clean(  # noqa: PLR0913, PLR0917 - each is an option
    names: tuple[str, ...],
    older_than: str | None,
    keep_last: int | None,
    max_size: str | None,
    keep_best: int,
    runs: bool,
    unfinished: bool,
    dry_run: bool,
    as_json: bool,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Remove checkpoints of trials that have ended: python -m sweeps clean --older-than 30d --dry-run

    Say of which: names of sweeps, an age, a number of sweeps to leave alone, or a size. In any case the best trials of
    a sweep stay, what a registered model or another sweep comes from, and sweeps that run or can be resumed.
    """
    from sweeps.retention.cleaning import clean as remove
    from sweeps.retention.cleaning import plan_cleaning, print_cleaning
    from sweeps.retention.policy import Policy, parse_age, parse_size
    from sweeps.tracking import default_uri

    if not names and older_than is None and keep_last is None and max_size is None:
        raise click.UsageError("say what may go: names of sweeps, --older-than 30d, --keep-last 10 or --max-size 50GiB")
    policy = Policy(
        keep_best=keep_best,
        keep_last=keep_last or 0,
        older_than_s=None if older_than is None else parse_age(older_than),
        max_size=None if max_size is None else parse_size(max_size),
        runs=runs,
        unfinished=unfinished,
    )
    uri = tracking_uri or default_uri()
    cleaning = plan_cleaning(uri, names, policy)
    if not dry_run:
        cleaning = replace(cleaning, removals=remove(uri, cleaning))
    if as_json:
        _print_json(cleaning.as_json(done=not dry_run))
    else:
        print_cleaning(cleaning, cleaning.removals, stdout)
        if dry_run:
            stdout.print("Nothing was removed.")


@_verb("ui")
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True, help="Port on 127.0.0.1.")
@tracking_uri
def ui(port: int, tracking_uri: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Open the MLflow UI on the sweeps of this folder."""
    from sweeps.credentials import shown
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import list_sweeps

    uri = tracking_uri or default_uri()
    is_server = uri.startswith(("http://", "https://"))
    address = shown(uri).rstrip("/") if is_server else f"http://127.0.0.1:{port}"
    stderr.print(f"MLflow UI on {address}" + ("" if is_server else " (Ctrl-C ends it)"), soft_wrap=True)
    experiments = {each.experiment: each.experiment_id for each in list_sweeps(uri)}
    for name, number in sorted(experiments.items()):
        # The address without this part leads to MLflow's pages for language-model applications.
        page = f"{address}/#/experiments/{number}?workflowType=machine_learning"
        stderr.print(f"{name}: {page}", markup=False, highlight=False, soft_wrap=True)
    if is_server:
        return
    # Not an argument: those are for all to see, and it may hold a password.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    arguments = ["-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - becomes the server, so that signals reach it


@_verb("conf")
@click.argument("group", required=False)
@as_json
def conf(group: str | None, as_json: bool, config_dirs: tuple[Path, ...]) -> None:
    """List the sweeps and the options that can be chosen, with one line on each."""
    from sweeps.report.choices import choices_document, print_choices

    document = choices_document(config_dirs, group)
    if as_json:
        _print_json(document)
    else:
        print_choices(document, stdout)


def _go_on(plan: Plan, *, as_json: bool) -> None:
    from sweeps.sweep import go_on

    _drive(go_on, plan, as_json=as_json)


def _drive(story: Callable[[Plan, View], SweepRecord], plan: Plan, *, as_json: bool) -> None:
    """Run a plan before a person's eyes, show how it came out, and leave with that status."""
    record = _watched(story, plan)
    if as_json:
        _print_json(record.as_json())
    else:
        from sweeps.report.tables import print_outcome

        print_outcome(record, stdout)
    without_success = record.status == "stopped" and not record.counts["finished"]
    sys.exit(NO_SUCCESS if without_success else EXIT_STATUS.get(record.status, 0))


def _watched(story: Callable[[Plan, View], SweepRecord], plan: Plan) -> SweepRecord:
    from sweeps.report.live import LiveView, PlainView

    # Whatever a library prints while the sweep runs, stdout holds our result alone.
    with contextlib.redirect_stdout(sys.stderr), LiveView(stderr) if stderr.is_terminal else PlainView(stderr) as view:
        return story(plan, view)


def _print_dry_run(plan: Plan, *, as_json: bool) -> None:
    from sweeps.report.plan import plan_document, print_plan

    if as_json:
        _print_json(plan_document(plan))
    else:
        print_plan(plan, stdout)


def _register(record: SweepRecord, trial: TrialRecord, name: str, alias: str, *, merged: bool) -> RegisteredModel:
    from sweeps.registry.register import register

    with contextlib.redirect_stdout(sys.stderr):
        model = register(record, trial, name, alias, merged=merged)
    _say(f"registered: version {model.version} of {name}, as {model.uri}")
    return model


def _say(text: str) -> None:
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _typed() -> str:
    return shlex.join(["python", "-m", "sweeps", *sys.argv[1:]])


def _load(name: str, tracking_uri: str | None) -> SweepRecord:
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import load_sweep

    return load_sweep(tracking_uri or default_uri(), name)


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def main() -> None:
    """The command line's one entry: errors become a message and an exit status here, and nowhere else."""
    debug = "--debug" in sys.argv
    try:
        status = app(prog_name="python -m sweeps", standalone_mode=False)
    except SweepsError as error:
        if debug:
            stderr.print(Traceback())
        stderr.print(f"sweeps: {error}", markup=False, highlight=False, soft_wrap=True)
        status = error.exit_status
    except click.ClickException as error:  # an unknown verb or option
        stderr.print(f"sweeps: {error.format_message()}", markup=False, highlight=False, soft_wrap=True)
        stderr.print("Try: python -m sweeps --help", markup=False, highlight=False)
        status = 2
    except (KeyboardInterrupt, click.Abort):
        stderr.print("sweeps: interrupted", markup=False)
        status = INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        sys.stdout = None
        status = 0
    sys.exit(status or 0)
