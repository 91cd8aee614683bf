"""Texts on MLflow's pages: names of runs, the table of trials, the description of a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeps.texts.wording import counted, counted_states
from sweeps.tracking.mlflow_pages import trials_page
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.stage_results import describe_stages
from sweeps.tracking.values import finite, short

PARAMS_IN_NAME = 4
LONGEST_NAME = 120
LONGEST_CELL = 160
"""Maximum number of characters of a parameter's value in a description; MLflow accepts 8,000 for the whole
description."""
LONGEST_COMMAND = 1000
"""Maximum number of characters of the command in a description."""
MOST_PARAMETERS = 25
"""Maximum number of parameters in a description."""
MOST_OF_FRONT = 50
"""Maximum number of trials of a Pareto front in a description."""


def run_name(trial: str, params: Mapping[str, Any]) -> str:
    """Return the name of a trial's run: ``003 lr=0.0021 r=16``."""
    shown = describe(dict(list(params.items())[:PARAMS_IN_NAME]))
    return f"{trial.zfill(3) if trial.isdigit() else trial} {shown}".strip()[:LONGEST_NAME]


def describe(params: Mapping[str, Any]) -> str:
    """Return parameters as one short line: ``lr=0.0021 r=16``."""
    names = short_names(params)
    return " ".join(f"{names[path]}={short(value)}" for path, value in params.items())


def short_names(paths: Mapping[str, Any]) -> dict[str, str]:
    """Return the last part of each dotted path, or as many of its last parts as make it unique."""
    ends = {path: _ends(path) for path in paths}
    often = Counter(end for each in ends.values() for end in each)
    return {path: next((end for end in each if often[end] == 1), path) for path, each in ends.items()}


def _ends(path: str) -> list[str]:
    """Return the last part of a dotted path, the last two parts, and so on."""
    parts = path.split(".")
    return [".".join(parts[start:]) for start in reversed(range(len(parts)))]


def parameter_names(params: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the short names of all parameters of some trials, by path, in the order of their first appearance."""
    return short_names(dict.fromkeys(path for each in params for path in each))


def describe_no_best(sweep: SweepRecord) -> str:
    """Return a sentence that explains why a sweep has no best trial, with the best value of the trials that do not
    count."""
    metrics = " and ".join(sweep.metrics)
    if not sweep.trials:
        which = "trial of the search after its stages" if sweep.staged else "trial"
        return f"No {which} has started yet." if sweep.status == "running" else f"No {which} was started."
    valued = [trial for trial in sweep.trials if finite(trial.value) is not None]
    if not valued:
        return f"No trial has reported {metrics}{' yet' if sweep.status == 'running' else ''}."
    from sweeps.config.objectives import as_loss  # here, since `list` need not load the schema of configs

    nearest = min(valued, key=lambda trial: as_loss(trial.value or 0.0, sweep.mode))
    values = ", ".join(
        f"{metric} {short(value)}" for metric, value in zip(sweep.metrics, _values(sweep, nearest), strict=True)
    )
    why = "broke a limit" if nearest.violation else nearest.state
    trials = "The only trial" if len(valued) == 1 else f"The best of {len(valued)} trials"
    return (
        f"{trials} with a value, {nearest.trial}, {why} at step {nearest.steps} with {values}, and counts as no result."
    )


def trials_table(sweep: SweepRecord) -> str:
    """Return all trials in the form of ``mlflow.log_table``."""
    paths = sorted({path for trial in sweep.trials for path in trial.params})
    columns = ["trial", "state", *sweep.metrics, "steps", "attempts", *paths, "run_id"]
    data = [
        [trial.trial, trial.state, *_values(sweep, trial), trial.steps, trial.attempts]
        + [_as_json(trial.params.get(path)) for path in paths]
        + [trial.run_id]
        for trial in sweep.trials
    ]
    return json.dumps({"columns": columns, "data": data})


def _as_json(value: Any) -> Any:
    """Return a parameter's value with strings for infinite numbers, which MLflow's page cannot read."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)


def note(sweep: SweepRecord, status: str) -> str:
    """Return the parent run's description at the end of a sweep, in Markdown."""
    counts = counted_states(sweep.counts) or "no trials"
    how = f"**{status}** after {sweep.time.wall_s:.0f} s: {counts}."
    # MLflow folds all but the first lines.
    links = page_links(sweep.mlflow.experiment_id, sweep.sweep, sweep.metrics[0], sweep.modes[0])
    lines = [as_code(sweep.command), f"{how} {links}"]
    if sweep.best is None:
        lines.append(describe_no_best(sweep))
    elif len(sweep.metrics) > 1:
        lines.append(f"Pareto front of {counted(len(sweep.front), 'trial')}:")
        header = ["trial", *(f"`{metric}` ({mode})" for metric, mode in zip(sweep.metrics, sweep.modes, strict=True))]
        rows = [[trial.trial, *map(short, _values(sweep, trial))] for trial in sweep.front[:MOST_OF_FRONT]]
        if len(sweep.front) > MOST_OF_FRONT:
            rows.append([f"and {len(sweep.front) - MOST_OF_FRONT} more"])
        lines.append(markdown_table(header, rows))
    else:
        best = sweep.best
        lines.append(f"Best: trial {best.trial}, `{sweep.metric}` = **{short(best.value)}** ({sweep.mode})")
        if best.other_weights is not None:
            lines.append(f"Its saved weights are from {best.other_weights.describe(sweep.metrics)}.")
        if sweep.confirmation is not None:
            lines.append(f"With other seeds: {sweep.confirmation.describe()}")
        lines.append(parameters_table(best.params))
    lines += [f"{line[:1].upper()}{line[1:]}." for line in describe_stages(sweep.stages)]
    commands = [f"python -m sweeps show {sweep.sweep}", f"python -m sweeps best {sweep.sweep}"]
    lines.append("\n".join(["```", *commands, "```"]))
    return "\n\n".join(line for line in lines if line)


def as_code(command: str) -> str:
    """Return a command as code in Markdown, shortened if it would take the room of the rest of a description."""
    return f"`{one_line(command, LONGEST_COMMAND)}`"


def page_links(experiment_id: str, sweep: str, metric: str, mode: str) -> str:
    """Return links to the sweep's trials on MLflow's page, in Markdown: as a table, and as charts."""
    table, charts = (trials_page(experiment_id, sweep, metric, mode, charts=charts) for charts in (False, True))
    return f"[Its trials]({table}) \u00b7 [Their charts]({charts})"


def _values(sweep: SweepRecord, trial: TrialRecord) -> list[float | None]:
    """Return a trial's value of each objective."""
    return [finite(value) for value in trial.all_values()] or [None] * len(sweep.metrics)


def parameters_table(params: Mapping[str, Any]) -> str:
    """Return parameters as a Markdown table that leaves room for the rest of a description."""
    rows = [
        [f"`{path}`", one_line(json.dumps(value, default=str).replace("|", r"\|"), LONGEST_CELL)]
        for path, value in list(params.items())[:MOST_PARAMETERS]
    ]
    if len(params) > MOST_PARAMETERS:
        rows.append([f"and {len(params) - MOST_PARAMETERS} more", ""])
    return markdown_table(["parameter", "value"], rows)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def one_line(text: str, longest: int) -> str:
    """Return a string on one line of limited length that fits into a code span of Markdown."""
    line = " ".join(text.split()).replace("`", "'")
    return line if len(line) <= longest else line[: longest - 3] + "..."
