"""The text of a converted conf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeps.convert.conversion import MISSING, Conversion
from sweeps.files.conf_text import flow, lines_of, nested, scalar

GROUPS = (("checkpoint", "best_and_last"), ("tracking", "mlflow"), ("cluster", "local"))
SEARCH_OPTIONS = {
    ("tpe", "none"): "optuna",
    ("tpe", "asha"): "optuna_asha",
    ("random", "none"): "random",
    ("random", "asha"): "asha",
    ("grid", "none"): "grid",
}
"""Options of the group ``search`` for pairs of a sampler and a scheduler; others override ``random``."""


def conf_text(conversion: Conversion, source: str, command: str) -> str:
    """Return the YAML of a conf.

    Args:
        conversion: Complete conversion.
        source: The file, as it was typed.
        command: The command that runs the conf.
    """
    return "\n".join(_lines(conversion, source, command)) + "\n"


def _lines(conversion: Conversion, source: str, command: str) -> Iterator[str]:
    yield f"# Converted from {source}, {conversion.tool}."
    yield f"# Run:      {command}"
    yield "# Hardware: as the task needs; see scaling."
    if conversion.notes:
        yield "# Not carried over, or different here:"
        yield from (f"# - {' '.join(note.split())}" for note in conversion.notes)
    yield from _defaults(conversion)
    yield ""
    yield f"name: {scalar(conversion.name)}"
    yield f"seed: {conversion.seed}"
    yield "output_dir: outputs"
    if conversion.experiment is not None:
        yield ""
        yield "tracking:"
        yield f"  experiment: {scalar(conversion.experiment)}"
    yield ""
    yield from _task(conversion)
    yield ""
    yield "space:"
    yield from (f"  {scalar(f'task.arguments.{name}')}: {flow(each)}" for name, each in conversion.space.items())
    yield ""
    yield from _search(conversion)


def _defaults(conversion: Conversion) -> Iterator[str]:
    pair = (conversion.sampler, conversion.scheduler["kind"])
    option = SEARCH_OPTIONS.get(pair)
    yield "defaults:"
    yield f"  - task: {conversion.task}"
    yield f"  - search: {option or 'random'}"
    yield "  - scaling: single_worker"
    yield from (f"  - {group}: {name}" for group, name in GROUPS)
    if option is None:
        yield f"  - override search/sampler: {pair[0]}"
        yield f"  - override search/scheduler: {pair[1]}"
    yield "  - _self_"


def _task(conversion: Conversion) -> Iterator[str]:
    yield "task:"
    if conversion.task == "function":
        yield f"  _target_: {_value(conversion.target)}"
    elif conversion.command:
        yield "  command:"
        yield from (f"    - {scalar(word)}" for word in conversion.command)
    else:
        yield f"  command: {_value(MISSING)}"
    if conversion.arguments:
        yield "  arguments:"
        yield from lines_of(nested(conversion.arguments, conversion.keys), "    ", _value)
    else:
        yield "  arguments: {}"
    yield f"  metrics: {scalar(conversion.metrics)}"


def _value(value: Any) -> str:
    return f"{MISSING} # give it here, or on the command line" if value == MISSING else scalar(value)


def _search(conversion: Conversion) -> Iterator[str]:
    one = len(conversion.metrics) == 1
    yield "search:"
    yield f"  metric: {scalar(conversion.metrics[0] if one else conversion.metrics)}"
    yield f"  mode: {scalar(conversion.modes[0] if one else conversion.modes)}"
    yield f"  num_trials: {conversion.num_trials}"
    yield "  default_first: false # the first point is chosen as the others are"
    if conversion.max_concurrent is not None:
        yield f"  max_concurrent: {conversion.max_concurrent}"
    settings = {key: value for key, value in conversion.scheduler.items() if key != "kind"}
    if settings:
        yield f"  scheduler: {flow(settings)}"
    stop = {"target": conversion.target_value, "wall_hours": conversion.wall_hours}
    if any(value is not None for value in stop.values()):
        yield f"  stop: {flow({key: value for key, value in stop.items() if value is not None})}"
