"""Description of a trial's run on MLflow's page, in Markdown: its parameters, its progress, and commands to type
next."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.config.objectives import Objectives
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import LONGEST_CELL, one_line, parameters_table
from sweeps.tracking.trial_progress import TrialProgress

LONGEST_ERROR = 800
"""Maximum number of characters of an error. MLflow takes 8,000 for the whole description."""


def trial_note(sweep: str, trial_id: str, trial: TrialProgress, objectives: Objectives) -> str:
    """Return the description of a trial's run."""
    parts = [
        f"Trial {trial_id} of `{sweep}`: **{trial.state}**{_how(trial)}",
        *_details(trial, objectives),
        _parameters(trial),
        *_checkpoints(trial, objectives),
        _commands(sweep, trial_id, trial),
    ]
    return "\n\n".join(parts)


def _how(trial: TrialProgress) -> str:
    """Return the end of the sentence about a trial: how far it got, and why it ended."""
    attempts = f" in {trial.attempts} attempts" if trial.attempts > 1 else ""
    done = f"{counted(trial.steps, 'step')}{attempts}"
    match trial.state:
        case "running":
            return "." if trial.attempts == 1 else f", attempt {trial.attempts}."
        case "finished":
            return f" after {done}."
        case "pruned":
            return f" after {done}: the scheduler ended it early, since others were better by then."
        case "stopped":
            goes_on = "" if trial.stopped_for_good else "; `resume` continues it"
            return f" after {done}, before its end. {trial.kept}{goes_on}."
    return f" after {done}."


def _details(trial: TrialProgress, objectives: Objectives) -> Iterator[str]:
    if trial.values is not None:
        at = "" if trial.best_step is None else f" at step {trial.best_step:,}"
        of_each = zip(objectives.metrics, objectives.modes, trial.values, strict=True)
        values = ", ".join(f"`{metric}` = **{value:.5g}** ({mode})" for metric, mode, value in of_each)
        yield f"{'Value' if objectives.last_counts else 'Best value'}: {values}{at}"
    elif trial.state != "running":
        yield "It reported no value."
    if trial.violation:
        yield f"It cannot be the best: {one_line(trial.violation, LONGEST_CELL)}"
    if trial.error:
        yield f"Error: `{one_line(trial.error, LONGEST_ERROR)}`"
    if trial.exploits:
        times = "once" if trial.exploits == 1 else f"{trial.exploits} times"
        yield f"It continued {times} from another trial's state; values that this changed are the metrics `param/...`"


def _parameters(trial: TrialProgress) -> str:
    return parameters_table(trial.params) if trial.params else "No parameter was searched."


def _checkpoints(trial: TrialProgress, objectives: Objectives) -> Iterator[str]:
    if trial.checkpoints:
        places = ", ".join(f"{kind} `{place}`" for kind, place in trial.checkpoints.items())
        yield f"Checkpoints: {places}"
    saved = trial.weights.get("best") or trial.weights.get("last")
    if trial.checkpoints and saved is not None and trial.best_step not in (None, saved.step):
        yield f"Its saved weights are from {saved.describe(objectives.metrics)}, and not from its best value"


def _commands(sweep: str, trial_id: str, trial: TrialProgress) -> str:
    verbs = ["show", "logs"] if trial.state == "running" else ["show", "logs", "reproduce"]
    lines = [f"python -m sweeps {verb} {sweep} --trial {trial_id}" for verb in verbs]
    if trial.state == "stopped" and not trial.stopped_for_good:
        lines.append(f"python -m sweeps resume {sweep}")
    return "\n".join(["```", *lines, "```"])
