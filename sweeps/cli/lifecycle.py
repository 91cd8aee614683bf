"""The verbs ``best``, ``retrain``, ``reproduce`` and ``clean``, for sweeps that have ended."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli import remote
from sweeps.cli.app import PATH, as_json, stdout, trial, verb
from sweeps.cli.exit_status import NO_SUCCESS, exits_with
from sweeps.cli.output import print_dry_run, print_json, print_result, say, show_outcome, typed, watched
from sweeps.cli.source import service_of, sweep_operations
from sweeps.cli.wanted_model import CHAMPION, WantedModel, register_left, registering
from sweeps.operations.local import Local

if TYPE_CHECKING:
    from sweeps.operations.operations import Operations
    from sweeps.operations.remote import Remote
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.reproduction_result import Repeated
    from sweeps.tracking.record import SweepRecord, TrialRecord


@verb("best")
@click.argument("sweep")
@click.option("--export", metavar="FILE", type=PATH, help="Write the trial as a config for `run`.")
@trial
@registering
@as_json
@sweep_operations
def best(
    sweep: str,
    export: Path | None,
    trial: str | None,
    wanted: WantedModel,
    as_json: bool,
    operations: Operations,
) -> None:
    """Show the best trial: its value, parameters and checkpoint.

    --export writes a config file with which `python -m sweeps run conf=FILE` trains the trial again. --save-model
    writes its model into a folder, for transformers, PEFT and vLLM. --register makes it a new version of a model in
    MLflow's registry; `retrain` trains it with its full budget first.
    """
    if wanted.name is None and wanted.alias != CHAMPION:
        raise click.UsageError("--alias has no effect here: add --register NAME")
    if wanted.name is None and wanted.folder is None and wanted.merged:
        raise click.UsageError("--merge has no effect here: add --register NAME or --save-model DIR")
    service, record = _service(operations, wanted), operations.record(sweep)
    model: RegisteredModel | None = None
    if any(each is not None for each in (trial, export, wanted.name, wanted.folder)):
        from sweeps.plan.export import choose, config_of

        chosen = choose(record, trial)
        if service is None and (wanted.name is not None or wanted.folder is not None):
            wanted.check(config_of(record, chosen), is_trained=True)
        if export is not None:
            _export(operations, record, chosen, export, is_choice=trial is not None)
        wanted.save(record, chosen)
        model = wanted.register(operations, record, chosen)
        record = replace(record, front=[chosen])
    if record.best is None:
        exits_with(NO_SUCCESS)
    if as_json:
        document = record.as_json()["best"]
        print_json(document if model is None else {"model": model.as_json(), "best": document})
    else:
        from sweeps.report.terminal_tables import print_best

        print_best(record, stdout, label=None if trial is None else "trial")


def _export(operations: Operations, record: SweepRecord, chosen: TrialRecord, file: Path, *, is_choice: bool) -> None:
    """Write the config of a trial, and name the other best ones unless the user chose the trial."""
    from sweeps.plan.export import write_export

    write_export(operations.exported(record, chosen, file), file)
    say(f"{file}: trial {chosen.trial}, for python -m sweeps run {shlex.quote(f'conf={file}')}")
    if not is_choice and len(record.front) > 1:
        others = ", ".join(each.trial for each in record.front[1:])
        say(f"the Pareto front also has {others}: --trial chooses one of them")


def _service(operations: Operations, wanted: WantedModel, **only_here: object) -> Remote | None:
    """Return the service at ``--server``; refuse options that need the files of a model, which a service does not
    have."""
    if operations.is_remote and wanted.folder is not None:
        raise click.UsageError(
            "--save-model reads the checkpoint from MLflow: use --tracking-uri, with the store of the service, instead "
            "of --server"
        )
    return service_of(operations, **only_here)


@verb("retrain")
@click.argument("sweep")
@click.argument("tokens", nargs=-1, metavar="[key=value ...]")
@trial
@click.option("--name", metavar="S", help="Name of the new sweep; default: derived from the old name.")
@registering
@click.option("--no-register", is_flag=True, help="Train only, without registering the model.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@as_json
@sweep_operations
def retrain(
    sweep: str,
    tokens: tuple[str, ...],
    trial: str | None,
    name: str | None,
    wanted: WantedModel,
    no_register: bool,
    dry_run: bool,
    as_json: bool,
    config_dirs: tuple[Path, ...],
    operations: Operations,
) -> None:
    """Train the best trial of a sweep with its full budget, and register the model: python -m sweeps retrain SWEEP

    key=value changes any value of its config, such as train.max_steps=2000 or data.path=all.jsonl. The model becomes a
    new version in MLflow's model registry, with the alias champion; --save-model also writes it into a folder.
    """
    if no_register and wanted.name is not None:
        raise click.UsageError("--register and --no-register exclude each other: remove one")
    service = _service(operations, wanted, config_dir=config_dirs)
    if service is not None:
        body = {
            "trial": trial,
            "overrides": tokens,
            "name": name,
            "model": wanted.name,
            "alias": wanted.alias,
            "merged": wanted.merged,
            "no_register": no_register,
        }
        if dry_run:
            remote.plan(service.ask(sweep, "retraining", body), as_json=as_json)
        else:
            remote.submitted(service, service.ask(sweep, "retrain", body), detach=False, as_json=as_json)
        return
    from sweeps.plan.retrain import plan_retraining
    from sweeps.registry.model_names import retrained_model, why_not_registered

    record = operations.record(sweep)
    plan = plan_retraining(record, trial, tokens, config_dirs, name, typed())
    wanted = replace(wanted, name=None if no_register else retrained_model(plan.config, wanted.name, record.conf))
    if wanted.name is None and not no_register:
        reason = why_not_registered(plan.config)
        say(f"{reason}; `best {plan.name} --register NAME` registers it if its checkpoints are folders of transformers")
    wanted.check(plan.config)
    if dry_run:
        print_dry_run(plan, as_json=as_json)
        return
    from sweeps.driver.run import run as run_plan

    again = watched(run_plan, replace(plan, tags={**plan.tags, **wanted.as_tag()}))
    if again.status == "finished" and again.best is not None:
        wanted.save(again, again.best)
    elif wanted.folder is not None:
        options = f"--save-model {shlex.quote(str(wanted.folder))}{' --merge' if wanted.merged else ''}"
        say(f"its model is not saved; when it has finished, `best {again.sweep} {options}` saves it")
    model = register_left(again)
    document = again.as_json() | {"model": None if model is None else model.as_json()}
    show_outcome(again, as_json=as_json, document=document)


@verb("reproduce")
@click.argument("run")
@click.option("--trial", metavar="ID", help="Repeat only this trial of the sweep.")
@click.option("--name", metavar="S", help="Name of the new sweep; default: derived from the old name.")
@click.option("--dry-run", is_flag=True, help="Show what differs now, and start nothing.")
@as_json
@sweep_operations
def reproduce(
    run: str,
    trial: str | None,
    name: str | None,
    dry_run: bool,
    as_json: bool,
    config_dirs: tuple[Path, ...],
    operations: Operations,
) -> None:
    """Run a sweep, or one of its trials, again, and show whether the results are the same.

    RUN is the name of a sweep, or the MLflow run id of a sweep or a trial. First shows how code, packages, data and
    machine differ from those of the recorded run. Exits with status 1 if the value of an objective differs.
    """
    service = service_of(operations, config_dir=config_dirs)
    if service is not None:
        body = {"trial": trial, "name": name}
        if dry_run:
            remote.differences(service.ask(run, "reproduction", body), as_json=as_json)
        else:
            remote.submitted(service, service.ask(run, "reproduce", body), detach=False, as_json=as_json)
        return
    from sweeps.driver.reproduce import compare, document, is_reproduced, plan_reproduction
    from sweeps.report.reproduction_result import print_repeated

    assert isinstance(operations, Local)
    found = plan_reproduction(operations.uri, run, trial, name, typed(), config_dirs)
    for line in found.describe():
        say(line)
    comparisons: list[Repeated] = []
    again: SweepRecord | None = None
    if not dry_run:
        from sweeps.driver.run import run as run_plan

        again = watched(run_plan, found.plan)
        comparisons = compare(found, again)
        if not is_reproduced(comparisons):
            exits_with(NO_SUCCESS)
    if as_json:
        print_json(document(found, again, comparisons))
    elif again is not None:
        stdout.print(f"{again.sweep} {again.status}", highlight=False)
        print_repeated(comparisons, stdout)


@verb("clean")
@click.argument("names", nargs=-1, metavar="[SWEEP ...]")
@click.option("--older-than", metavar="AGE", help="Clean only sweeps that ended longer ago, such as 30d.")
@click.option("--keep-last", metavar="N", type=click.IntRange(0), help="Do not clean the newest N sweeps.")
@click.option(
    "--max-size", metavar="SIZE", help="Remove no more than needed for all checkpoints to fit, such as 50GiB."
)
@click.option(
    "--keep-best",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of best trials of each sweep that keep their checkpoints.",
)
@click.option("--runs", is_flag=True, help="Also delete the trials' MLflow runs.")
@click.option(
    "--unfinished", is_flag=True, help="Also clean interrupted and stopped sweeps, which cannot be resumed afterwards."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@as_json
@sweep_operations
def clean(names: tuple[str, ...], dry_run: bool, as_json: bool, operations: Operations, **policy: Any) -> None:
    """Remove checkpoints of trials that have ended: python -m sweeps clean --older-than 30d --dry-run

    Choose the sweeps by name, age, number or size. These are always kept: the best trials of a sweep, checkpoints that
    a registered model or another sweep was made from, and sweeps that are running or can be resumed.
    """
    document, show = operations.clean(names, dry_run=dry_run, **policy)
    print_result(lambda: document, show, as_json=as_json)
    if dry_run and not as_json:
        stdout.print("Nothing was removed.")
