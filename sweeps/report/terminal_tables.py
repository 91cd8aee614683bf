"""Tables and summaries of recorded sweeps on a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweeps.report.forecast_text import forecast_lines
from sweeps.report.formatting import STATE_STYLES, duration
from sweeps.report.plain_console import plain_table, print_facts, print_lines
from sweeps.report.report_folder import existing_report
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import counted, counted_states, no_finite_value
from sweeps.tracking.confirmation_record import Confirmation, Contender
from sweeps.tracking.mlflow_pages import server_address, trials_page
from sweeps.tracking.mlflow_texts import describe_no_best, parameter_names
from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord
from sweeps.tracking.stage_results import describe_stages
from sweeps.tracking.time_account import describe_rest
from sweeps.tracking.values import short

CONFIRMATION = ("trial", "in the search", "mean of repeats", "interval", "repeats", "result")
"""Columns of the table of the best trials and their repeats with other seeds."""


def print_sweeps(sweeps: Sequence[SweepSummary], console: Console, where: str) -> None:
    """Print a row for each sweep of a store or service, whose address is ``where``."""
    if not sweeps:
        console.print(f"There are no sweeps in {where}. Start one: python -m sweeps run conf=digits", soft_wrap=True)
        return
    columns = ("sweep", "conf", "status", "trials", "best", "metric", "started", "took")
    table = plain_table(*columns, right=("trials", "best"), whole=("sweep",))
    for each in sweeps:
        table.add_row(
            each.sweep,
            each.conf,
            each.status,
            str(sum(each.counts.values())),
            "" if each.best is None else short(each.best),
            ", ".join(f"{metric} ({mode})" for metric, mode in zip(each.metrics, each.modes, strict=True)),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(each.started)),
            duration(each.wall_s),
        )
    console.print(table)


def print_sweep(record: SweepRecord, console: Console) -> None:
    """Print a sweep with its trials from best to worst."""
    record = record.settled()
    _print_headline(record, console)
    console.print(_trials_table(record, by_rank(record)))
    if len(record.metrics) > 1:
        print_lines(console, "", f"Pareto front: {', '.join(trial.trial for trial in record.front) or 'empty'}")
    _print_stages(record, console)
    if record.confirmation is not None:
        _print_confirmation(record, record.confirmation, console)
    for trial in [*record.staged, *record.trials]:
        if trial.violation:
            print_lines(console, f"trial {trial.trial} is out of bounds: {trial.violation}")
        if trial.error:
            print_lines(console, f"trial {trial.trial} failed: {trial.error}")
        elif trial.state in ("finished", "pruned") and not all(map(math.isfinite, trial.all_values() or [math.nan])):
            print_lines(console, f"trial {trial.trial} {no_finite_value(record.metrics)}")


def _print_stages(record: SweepRecord, console: Console) -> None:
    if record.stages:
        print_lines(console, "", *describe_stages(record.stages))


def _print_confirmation(record: SweepRecord, confirmation: Confirmation, console: Console) -> None:
    console.print()
    if rows := confirmation_rows(record):
        table = plain_table(*CONFIRMATION, right=CONFIRMATION[1:3])
        for row in rows:
            table.add_row(*row)
        console.print(table)
    print_lines(console, confirmation.describe())


def confirmation_rows(record: SweepRecord) -> list[list[str]]:
    """Row of strings for each compared trial, in the order of ``CONFIRMATION``."""
    if record.confirmation is None:
        return []
    by_id = {trial.trial: trial for trial in record.trials}
    rows = []
    for each in record.confirmation.contenders:
        value = by_id[each.trial].value if each.trial in by_id else None
        repeats = [trial for trial in record.repeats if trial.repeat_of == each.trial]
        rows.append(
            [
                each.trial,
                "" if value is None else short(value),
                "" if each.mean is None else short(each.mean),
                "" if each.low is None or each.high is None else f"{short(each.low)} to {short(each.high)}",
                " ".join(trial.state if trial.value is None else short(trial.value) for trial in repeats),
                _outcome_of(record.confirmation, each),
            ]
        )
    return rows


def _outcome_of(confirmation: Confirmation, contender: Contender) -> str:
    if contender.failed is not None:
        return contender.failed
    if contender.lost_to is not None:
        return f"worse than {contender.lost_to}"
    if confirmation.winner is None:
        return ""
    if contender.trial == confirmation.winner:
        return "best mean" if confirmation.tied else "wins"
    return "may be as good"


def took(record: SweepRecord, trial: TrialRecord) -> str:
    """Time from a trial's start to its end, or to now, excluding the pauses between drivers."""
    seconds = record.took(trial)
    return "" if seconds is None else duration(seconds)


def by_rank(record: SweepRecord) -> list[TrialRecord]:
    """All trials, best first; those that cannot be the best are after the others that have a value."""
    from sweeps.config.objectives import as_loss  # here, since `list` need not load the schema of configs

    front = {trial.trial for trial in record.front}

    def rank(trial: TrialRecord) -> tuple[bool, bool, bool, float, str]:
        loss = as_loss(trial.value or 0.0, record.mode)
        return trial.value is None, trial.trial not in front, not trial.may_be_best, loss, trial.trial

    return sorted(record.trials, key=rank)


def _trials_table(record: SweepRecord, trials: Sequence[TrialRecord]) -> Table:
    """Table of trials with all their parameters."""
    names = parameter_names(trial.params for trial in record.trials)
    has_retries = any(trial.attempts > 1 for trial in trials)
    table = plain_table("trial", "state", no_wrap=True)
    for name in (*record.metrics, "step", "took", *(["attempts"] if has_retries else []), *names.values()):
        table.add_column(name, justify="right")
    for trial in trials:
        cells = [short(trial.params[path]) if path in trial.params else "" for path in names]
        table.add_row(*trial_cells(record, trial), *([str(trial.attempts)] if has_retries else []), *cells)
    return table


def trial_cells(record: SweepRecord, trial: TrialRecord) -> list[str | Text]:
    """Cells of a trial: id, state, a value for each objective, steps and time."""
    state = Text(trial.state, STATE_STYLES.get(trial.state, ""))
    values = [short(value) for value in trial.all_values()] or [""] * len(record.metrics)
    return [trial.trial, state, *values, str(trial.steps), took(record, trial)]


def print_best(record: SweepRecord, console: Console, *, label: str | None = None) -> None:
    """Print the best trial and its checkpoint, or every trial of the Pareto front. A label replaces the words for a
    trial."""
    record = record.settled()
    if not record.front:
        print_lines(console, describe_no_best(record))
    for index, best in enumerate(record.front):
        if index:
            console.print()
        _print_trial(record, best, console, label or ("best trial" if len(record.metrics) == 1 else "Pareto front"))


def _print_trial(record: SweepRecord, best: TrialRecord, console: Console, label: str) -> None:
    facts = [(label, f"{best.trial} ({best.state} after {counted(best.steps, 'step')})")]
    for metric, value in zip(record.metrics, best.values or (best.value,), strict=True):
        facts.append((metric, "" if value is None else f"{value:.6g}"))
    confirmation = record.confirmation
    if confirmation is not None:
        facts.append(("confirmed" if best.trial == confirmation.winner else "", confirmation.describe()))
    facts += [(path, short(value)) for path, value in best.params.items()]
    facts.append(("checkpoint", best.checkpoint or "none"))
    if best.saved is not None:
        other = "" if best.other_weights is None else f"; the value above is of step {best.best_step}"
        facts.append(("its weights", f"of {best.saved.describe(record.metrics)}{other}"))
    facts.append(("MLflow run", best.run_id))
    print_facts(facts, console)


def print_outcome(record: SweepRecord, console: Console, *, debug: bool = False) -> None:
    """Print the result of a sweep, and useful commands; with ``debug``, also the tracebacks of failed trials."""
    record = record.settled()
    _print_headline(record, console)
    print_best(record, console)
    _print_stages(record, console)
    failed = [trial for trial in [*record.staged, *record.trials] if trial.state == "failed"]
    lines = [("MLflow", redact_uri(record.mlflow.tracking_uri))]
    if (page := existing_report(record)) is not None:
        lines.append(("report", str(page)))
    if record.status in ("interrupted", "stopped"):
        lines.append(("continue", f"python -m sweeps resume {record.sweep}"))
    lines += [*mlflow_pages(record), ("trials", f"python -m sweeps show {record.sweep}")]
    if failed:
        lines.append(("logs", f"python -m sweeps logs {record.sweep} --trial {failed[0].trial}"))
    print_lines(console, "", *(f"{name:9} {text}" for name, text in lines))
    for trial in failed[:3]:
        print_lines(console, f"trial {trial.trial} failed: {trial.error}")
        if debug:
            _print_traceback(record, trial, console)


def mlflow_pages(record: SweepRecord) -> list[tuple[str, str]]:
    """Names and addresses of the sweep's trials and of their charts on MLflow's pages; without a server, the command
    that starts one and prints them."""
    server = server_address(record.mlflow.tracking_uri)
    if server is None:
        return [("compare", f"python -m sweeps ui {record.sweep}")]
    which = record.mlflow.experiment_id, record.sweep, record.metrics[0], record.modes[0]
    return [
        ("compare", f"{server}/{trials_page(*which)}"),
        ("charts", f"{server}/{trials_page(*which, charts=True)}"),
    ]


def _print_traceback(record: SweepRecord, trial: TrialRecord, console: Console) -> None:
    from sweeps.tracking.trial_logs import TrialLogs

    if (traceback := TrialLogs(record, trial).traceback()) is not None:
        console.out(traceback.rstrip(), highlight=False)


def _print_headline(record: SweepRecord, console: Console) -> None:
    counts = counted_states(record.counts) or "no trials"
    time_ = record.time
    console.print(Text.assemble((record.sweep, "bold"), f" {record.status}: {counts}"))
    rest = f" ({named})" if time_.account is not None and (named := describe_rest(time_.account)) else ""
    held = f"; {time_.gpu_s / 3600:.2f} GPU hours" if time_.gpu_s else ""
    cost = f"; cost {time_.cost:.2f}" if time_.cost else ""
    took = f"{duration(time_.wall_s)} of search, of which workers trained {time_.goodput:.0%}{rest}{held}{cost}"
    print_lines(console, took, *forecast_lines(record), "")
