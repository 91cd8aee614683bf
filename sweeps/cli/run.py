"""Verbs that train: ``run``, ``resume``, ``extend``, and ``stop``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli import remote
from sweeps.cli.app import as_json, moved_to, server, stdout, verb
from sweeps.cli.output import print_dry_run, print_json, print_result, run_and_show, say, show_outcome, typed
from sweeps.cli.simulation import simulating
from sweeps.cli.source import service_at, service_of, sweep_operations
from sweeps.cli.wanted_model import register_left
from sweeps.errors import UserError
from sweeps.folders.driver_lock import only_driver
from sweeps.folders.sweep_folder import LOG_FILE
from sweeps.operations.local import Local
from sweeps.storage.state_mirror import refresh

if TYPE_CHECKING:
    from sweeps.operations.operations import Operations
    from sweeps.plan.plan import Plan
    from sweeps.tracking.record import SweepRecord


@verb("run")
@click.argument("tokens", nargs=-1, metavar="conf=NAME|FILE.yaml [key=value ...]")
@click.option("--name", metavar="S", help="Name of the sweep; default: the config's name and the time.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.option("--check-nodes", is_flag=True, help="Check all nodes first, and leave out slow and broken ones.")
@click.option("--detach", is_flag=True, help="Run it in the background, and print its name.")
@click.option("--resume", "again", is_flag=True, help="If the sweep --name already exists, continue it.")
@simulating
@as_json
@server
def run(
    tokens: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    check_nodes: bool,
    detach: bool,
    again: bool,
    as_json: bool,
    server: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Run a sweep: python -m sweeps run conf=llm_lora

    key=value overrides any value of the config; key=option chooses a group's option; a range, such as
    'train.lr=tag(log, interval(1e-5, 1e-2))' or 'model.lora.r=choice(4, 8, 16)', is searched.
    """
    if check_nodes:
        tokens = (*tokens, "cluster.check_nodes=true")
    service = service_at(server, config_dir=config_dirs, resume=again)
    if again and (name is None or detach):
        raise click.UsageError("--resume needs --name, and continues in the foreground: leave --detach out")
    if service is not None:
        body = remote.run_body(tokens, name)
        if dry_run:
            remote.plan(service.post("plans", body), as_json=as_json)
        else:
            remote.submitted(service, service.post("sweeps", body), detach=detach, as_json=as_json)
        return
    from sweeps.plan.plan import make_plan

    plan = make_plan(tokens, config_dirs, name, typed(), where="again" if again else "here")
    if dry_run or detach:
        from sweeps.service.notify.cli_notify import checked_addresses

        plan.check_hub()  # a run in this process checks all of it itself
        plan.check_store()
        checked_addresses()
    if dry_run:
        print_dry_run(plan, as_json=as_json)
        return
    if again:
        _await_store(plan.config.tracking.uri)
        if _continued_if_begun(plan, as_json=as_json):
            return
    if detach:
        _run_in_background(plan, tokens, config_dirs, as_json=as_json)
        return
    from sweeps.driver.run import run as run_plan

    run_and_show(run_plan, plan, as_json=as_json)


def _await_store(uri: str) -> None:
    """Wait for a tracking server that is away, if the environment says so."""
    from sweeps.driver.signals import ended_by_signals
    from sweeps.tracking.client import await_store

    with ended_by_signals():
        await_store(uri)


def _continued_if_begun(plan: Plan, *, as_json: bool) -> bool:
    """Continue the sweep of this name if there is one, and return whether there was; otherwise remove the folder of a
    driver that died before its search."""
    if plan.store is not None:
        refresh(plan.store, plan.folder)
    if not plan.folder.exists():
        return False
    from sweeps.plan.unstarted import is_unstarted
    from sweeps.tracking.sweep_run import is_recorded

    if is_recorded(plan.config.tracking.uri, plan.name) or not is_unstarted(plan.folder):
        from sweeps.plan.lost_record import record_to_resume

        record = record_to_resume(plan.config.tracking.uri, plan.name, plan.folder, plan.location)
        _continue(record, None, as_json=as_json)
        return True
    # Its driver was killed while Ray started.
    from sweeps.driver.folder_access import remove_folder

    with only_driver(plan.folder, plan.name, store=plan.store):  # it may still run on another machine
        pass
    remove_folder(plan)
    return False


def _run_in_background(plan: Plan, tokens: Sequence[str], config_dirs: Sequence[Path], *, as_json: bool) -> None:
    from sweeps.service.subprocesses import control_folder, start

    command = ["run", *tokens, f"--name={plan.name}", "--json", *(f"--config-dir={each}" for each in config_dirs)]
    control = control_folder(plan.folder.parent, plan.name)
    if start(control, [command], plan.folder) is None:
        raise UserError(f"{plan.name} was already started in the background; choose another --name")
    log = control / LOG_FILE
    if as_json:
        print_json({"sweep": plan.name, "log": str(log)})
    else:
        stdout.print(plan.name, highlight=False)
        say(f"runs in the background; `python -m sweeps show {plan.name} --watch` follows it; its log is {log}")


@verb("resume")
@click.argument("sweep")
@as_json
@moved_to
@sweep_operations
def resume(sweep: str, as_json: bool, folder: Path | None, operations: Operations) -> None:
    """Continue a sweep that was interrupted or stopped; its trials continue from their last checkpoints."""
    service = service_of(operations, folder=folder)
    if service is not None:
        remote.submitted(service, service.ask(sweep, "resume"), detach=False, as_json=as_json)
        return
    from sweeps.plan.lost_record import record_to_resume

    assert isinstance(operations, Local)
    _await_store(operations.uri)
    _continue(record_to_resume(operations.uri, sweep, folder), folder, as_json=as_json)


def _continue(record: SweepRecord, folder: Path | None, *, as_json: bool) -> None:
    """Continue a recorded sweep, and print its outcome."""
    from sweeps.plan.complete_sweep import describe_completion, is_complete
    from sweeps.plan.resume import reopened

    plan = reopened(record, {}, folder)
    if is_complete(record, plan):
        say(describe_completion(record, plan))
        register_left(record)
        show_outcome(record, as_json=as_json)
        return
    from sweeps.driver.run import resume as resume_plan

    run_and_show(resume_plan, plan, as_json=as_json, then=register_left)


@verb("extend")
@click.argument("sweep")
@click.argument("tokens", nargs=-1, metavar="key=value ...", required=True)
@as_json
@moved_to
@sweep_operations
def extend(sweep: str, tokens: tuple[str, ...], as_json: bool, folder: Path | None, operations: Operations) -> None:
    """Give a sweep more trials, longer trials or a wider space: python -m sweeps extend SWEEP search.num_trials=40

    Accepts search.num_trials, search.max_concurrent, search.max_retries, search.confirm and search.stop.*. A sweep
    that is running continues where it runs, and one that has ended continues here. If it has ended, a larger
    search.max_retries tries failed trials again, its trials can become longer (train.max_steps, train.epochs), its
    ranges wider (low, high or choices of space.PATH), and scaling.trials_per_group may change.
    """
    service = service_of(operations, folder=folder)
    if service is not None:
        further = service.ask(sweep, "extend", {"changes": tokens})
        if further["job"] is None:
            say(further["answer"])
        else:
            remote.submitted(service, further["job"], detach=False, as_json=as_json)
        return
    from sweeps.plan.extend import ask_driver, read_changes
    from sweeps.plan.resume import reopened

    changes = read_changes(tokens)
    record = operations.record(sweep)
    plan = reopened(record, changes, folder)
    answer = ask_driver(record, plan.folder, changes)
    if answer is not None:
        say(answer)
    else:
        from sweeps.driver.run import resume as resume_plan

        run_and_show(resume_plan, plan, as_json=as_json)


@verb("stop")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="End only this trial; the sweep continues without it.")
@as_json
@sweep_operations
def stop(sweep: str, trial: str | None, as_json: bool, operations: Operations) -> None:
    """End a sweep that another process runs, or one of its trials. Trials save their state first.

    `resume` continues a sweep that was stopped, but not a trial that was stopped on its own.
    """
    record = operations.stop(sweep, trial)
    if isinstance(record, str):
        if as_json:
            print_json({"sweep": sweep, "status": record})
        else:
            ending = "removed from the queue" if record == "cancelled" else "stopped before anything was recorded"
            stdout.print(f"{sweep} was {ending}", highlight=False)
        return
    from sweeps.report.terminal_tables import print_outcome

    print_result(record.as_json, partial(print_outcome, record), as_json=as_json)
