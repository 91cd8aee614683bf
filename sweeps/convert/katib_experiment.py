"""An Experiment of Katib (Kubeflow)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sweeps.convert import distributions
from sweeps.convert.conversion import Conversion
from sweeps.convert.distributions import Converted
from sweeps.convert.source_file import SourceFile, as_number

ALGORITHMS = {
    "random": ("random", "none"),
    "grid": ("grid", "none"),
    "tpe": ("tpe", "none"),
    "multivariate-tpe": ("tpe", "none"),
    "bayesianoptimization": ("gp", "none"),
    "cmaes": ("cmaes", "none"),
    "sobol": ("qmc", "none"),
    "hyperband": ("random", "asha"),
    "pbt": ("random", "pbt"),
}
"""Sampler and scheduler for each algorithm."""
ARCHITECTURE_SEARCH = ("enas", "darts")
GOALS = {"minimize": "min", "maximize": "max"}
TYPES = {each: each for each in ("double", "int", "discrete", "categorical")}
SHAPES = {each.lower(): each for each in ("uniform", "logUniform", "normal", "logNormal", "unknown")}
OF_SPEC = {
    "objective",
    "algorithm",
    "earlyStopping",
    "parallelTrialCount",
    "maxTrialCount",
    "parameters",
    "trialTemplate",
    "metricsCollectorSpec",
}
NOT_CARRIED = {
    "maxFailedTrialCount": "a sweep ends when its trials fail with the same error; see search.max_retries",
    "resumePolicy": "every sweep can be resumed",
    "nasConfig": "there is no architecture search",
}
REFERENCE = re.compile(r"\$\{trialParameters\.([^}]+)\}")
OF_TRIAL = {"${trialSpec.Name}": "trial.name"}
"""Placeholders for what a trial parameter may take from the trial itself."""
METRICS_FORMAT = r"([\w|-]+)\s*=\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?)"
"""Regular expression like that by which Katib reads the output, unless an experiment has its own."""
PARENTHESIS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|[()]")
"""Parentheses, and what may contain some that make no group: an escaped sign, a class of signs."""


def is_katib_experiment(values: Mapping[str, Any]) -> bool:
    """Whether a YAML mapping looks like a Katib Experiment."""
    return values.get("kind") == "Experiment" and "spec" in values


def read_katib_experiment(file: SourceFile) -> Conversion:
    """
    Raises:
        UserError: A mistake in the file, with its line.
    """
    conversion = Conversion(tool="a Katib Experiment")
    conversion.set_name(file.get(str, "metadata", "name") or file.path.stem)
    _read_objective(file, conversion)
    _read_algorithm(file, conversion)
    _read_early_stopping(file, conversion)
    trials, parallel = file.number("spec", "maxTrialCount"), file.number("spec", "parallelTrialCount")
    conversion.num_trials = None if trials is None else int(trials)
    conversion.max_concurrent = None if parallel is None else int(parallel)
    for index in range(len(file.require(list, "spec", "parameters"))):
        at = ("spec", "parameters", index)
        conversion.search(conversion.keep_dots((file.require(str, *at, "name"),)), _distribution(file, at))
    _read_template(file, conversion)
    if conversion.command:
        _read_metrics_collector(file, conversion)
    for key in file.require(dict, "spec"):
        if key not in OF_SPEC:
            reason = NOT_CARRIED.get(key, "has no equivalent")
            conversion.notes.append(f"line {file.line('spec', key)}: {key}: {reason}")
    return conversion


def _read_objective(file: SourceFile, conversion: Conversion) -> None:
    at = ("spec", "objective")
    conversion.metrics = [file.require(str, *at, "objectiveMetricName")]
    conversion.modes = [file.choose(GOALS, *at, "type")]
    conversion.target_value = file.number(*at, "goal")
    conversion.reported_metrics = [str(each) for each in file.get(list, *at, "additionalMetricNames") or []]
    if file.get(list, *at, "metricStrategies") is not None:
        line = file.line(*at, "metricStrategies")
        conversion.notes.append(f"line {line}: metricStrategies: a trial's value is the best that it reported")


def _settings(file: SourceFile, section: str) -> dict[str, tuple[Any, int]]:
    """Return the settings of an algorithm, each with its line."""
    at = ("spec", section, "algorithmSettings")
    count = len(file.get(list, *at) or [])
    return {
        file.require(str, *at, index, "name"): (file.get(object, *at, index, "value"), file.line(*at, index))
        for index in range(count)
    }


def _read_algorithm(file: SourceFile, conversion: Conversion) -> None:
    if (name := file.get(str, "spec", "algorithm", "algorithmName")) in ARCHITECTURE_SEARCH:
        raise file.mistake(
            f"{name} searches architectures, which has no equivalent", "spec", "algorithm", "algorithmName"
        )
    conversion.sampler, scheduler = file.choose(ALGORITHMS, "spec", "algorithm", "algorithmName")
    conversion.scheduler = {"kind": scheduler}
    settings = _settings(file, "algorithm")
    for key in ("random_state", "seed"):
        seed = as_number(settings.pop(key, (None, 0))[0])
        if seed is not None and seed >= 0:
            conversion.seed = int(seed)
    if scheduler == "asha":
        eta = as_number(settings.pop("eta", (None, 0))[0])
        settings.pop("r_l", None)
        conversion.scheduler |= {} if eta is None else {"eta": eta}
        conversion.notes.append(
            "hyperband is asha here: it also stops trials at rungs, which are counted in evaluations and not in a "
            "searched parameter; a program with task.checkpoints can have hyperband"
        )
    if scheduler == "pbt":
        quantile = as_number(settings.pop("truncation_threshold", (None, 0))[0])
        conversion.scheduler |= {} if quantile is None else {"quantile": quantile}
        conversion.notes.append(
            "pbt: the population is all of search.num_trials; say in task.checkpoints where it saves, and give "
            "the program {checkpoint}, from which it continues"
        )
    for name, (value, line) in settings.items():
        conversion.notes.append(f"line {line}: algorithmSettings: {name}={value} has no equivalent")


def _read_early_stopping(file: SourceFile, conversion: Conversion) -> None:
    if file.get(dict, "spec", "earlyStopping") is None:
        return
    file.choose({"medianstop": "median"}, "spec", "earlyStopping", "algorithmName")
    if conversion.scheduler["kind"] != "none":
        conversion.notes.append(
            f"earlyStopping: {conversion.scheduler['kind']} already ends trials; medianstop is left out"
        )
        return
    conversion.scheduler = {"kind": "median"}
    for name, (value, line) in _settings(file, "earlyStopping").items():
        ours = {"min_trials_required": "min_trials", "start_step": "grace"}.get(name)
        number = as_number(value)
        if ours is None or number is None or number < 1:
            conversion.notes.append(f"line {line}: algorithmSettings: {name}={value} has no equivalent")
        else:
            conversion.scheduler[ours] = int(number)


def _distribution(file: SourceFile, at: tuple[str | int, ...]) -> Converted:
    kind = file.choose(TYPES, *at, "parameterType")
    space = (*at, "feasibleSpace")
    name = file.get(str, *at, "name")
    if kind in ("discrete", "categorical"):
        values = file.require(list, *space, "list")
        if not values:
            raise file.mistake(f"{name}: feasibleSpace.list is empty", *space)
        if kind == "categorical":
            return distributions.choice(values)
        numbers = [as_number(value) for value in values]
        if None in numbers:
            raise file.mistake(f"{name}: a discrete parameter takes numbers", *space, "list")
        return distributions.choice(numbers, ordered=True)
    low, high, step = (file.number(*space, key) for key in ("min", "max", "step"))
    if low is None or high is None:
        raise file.mistake(f"{name}: feasibleSpace has no {'min' if low is None else 'max'}", *space)
    if low > high:
        raise file.mistake(f"{name}: min={low} is above max={high}", *space)
    shape = file.choose(SHAPES, *space, "distribution", default="uniform")
    if shape.startswith("log") and low <= 0:
        raise file.mistake(f"{name}: min={low} has no logarithm", *space, "min")
    return _numbers(low, high, step, shape, whole=kind == "int")


def _numbers(low: float, high: float, step: float | None, shape: str, *, whole: bool) -> Converted:
    log = shape.startswith("log")
    # Katib's normal distributions have the middle of the range as mean, and a sixth of it as standard deviation.
    if shape in ("normal", "logNormal"):
        middle = math.sqrt(low * high) if log else (low + high) / 2
        return distributions.bell(low, high, middle, log=log, whole=whole, step=None if log else step)
    if log:
        converted = distributions.log_uniform(low, high, whole=whole)
        has_step = step is not None and not (whole and step == 1)
        lost = [f"step {step:g} is left out: log excludes a step"] if has_step else []
        return Converted(converted.distribution, lost)
    return distributions.uniform(low, high, whole=whole) if step is None else distributions.stepped(low, high, step)


# --- the trial template -----------------------------------------------------------------------------------------


def _read_template(file: SourceFile, conversion: Conversion) -> None:
    """Take over the container's command, with a placeholder for each parameter."""
    at = ("spec", "trialTemplate")
    if file.get(dict, *at) is None:
        return
    conversion.task = "command"
    references = {
        str(each.get("name")): str(each.get("reference"))
        for each in file.get(list, *at, "trialParameters") or []
        if isinstance(each, Mapping)
    }
    spec = file.get(dict, *at, "trialSpec")
    words = [] if spec is None else _command(spec, file.get(str, *at, "primaryContainerName"))
    if not words:
        conversion.notes.append(
            f"line {file.line(*at)}: trialTemplate: the command is in another file or in the image; give task.command"
        )
        return
    conversion.command = [_with_placeholders(word, references) for word in words]
    conversion.num_workers = _workers(spec)
    if conversion.num_workers > 1:
        conversion.processes = "per_worker"
    conversion.notes.append(
        f"line {file.line(*at)}: trialTemplate: paths of the command are those in the container; for what image, "
        "resources and volumes say, see scaling and cluster"
    )
    unused = [name for name in conversion.space if f"{{{name}}}" not in " ".join(conversion.command)]
    if unused:
        conversion.notes.append(f"{', '.join(unused)}: not in the command; add it to task.command, or remove it here")


def _with_placeholders(word: str, references: Mapping[str, str]) -> str:
    """Return a word of the command with ``{rate}`` for ``${trialParameters.learningRate}``."""
    parts = REFERENCE.split(word)  # texts and names by turns
    for index, part in enumerate(parts):
        reference = references.get(part, part)
        is_name = index % 2 == 1
        found = f"{{{OF_TRIAL.get(reference, reference)}}}"
        parts[index] = found if is_name else part.replace("{", "{{").replace("}", "}}")
    return "".join(parts)


def _read_metrics_collector(file: SourceFile, conversion: Conversion) -> None:
    """Read what Katib reads: lines NAME=VALUE of the output, or those of the file's own formats."""
    at = ("spec", "metricsCollectorSpec")
    if (kind := file.get(str, *at, "collector", "kind") or "StdOut") != "StdOut":
        conversion.notes.append(
            f"line {file.line(*at)}: metricsCollectorSpec: {kind}: name the source in task.read; in the command and in "
            "task.read, {trial.folder} is a folder of the trial's own"
        )
        return
    conversion.read = [{"kind": "json"}, {"kind": "dict"}]
    groups = {}
    for index, metric in enumerate(conversion.all_metrics):
        groups[metric] = metric if metric.isidentifier() else f"metric_{index}"
    conversion.rename = {group: metric for metric, group in groups.items() if group != metric}
    for metrics_format in file.get(list, *at, "source", "filter", "metricsFormat") or [METRICS_FORMAT]:
        if (pattern := _pattern(str(metrics_format), groups)) is None:
            conversion.notes.append(
                f"line {file.line(*at)}: metricsFormat: {metrics_format}: must have two groups, of name and value; "
                "write a regular expression into task.read"
            )
        else:
            conversion.read.append({"kind": "regex", "pattern": pattern})


def _pattern(metrics_format: str, groups: Mapping[str, str]) -> str | None:
    r"""Return a regular expression that finds each metric anywhere in a line.

    Args:
        metrics_format: Katib's regular expression, which has a group for the name of any metric and one for its value.
        groups: Name of the group of each metric.

    >>> _pattern(r"(\w+): (\d+)", {"loss": "loss"})
    '(?<![\\w|-])loss: (?P<loss>\\d+)'
    >>> _pattern(r"(\w+)=(\d+)", {"a": "a", "b": "b"})
    '^(?:(?=.*?(?<![\\w|-])a=(?P<a>\\d+)))?(?:(?=.*?(?<![\\w|-])b=(?P<b>\\d+)))?'
    """
    depth = 0
    starts, ends = [], []
    for each in PARENTHESIS.finditer(metrics_format):
        if each[0] == "(":
            starts += [each.start()] if depth == 0 else []
            depth += 1
        elif each[0] == ")":
            depth -= 1
            ends += [each.end()] if depth == 0 else []
    if len(starts) != 2 or len(ends) != 2:
        return None
    before, between = metrics_format[: starts[0]], metrics_format[ends[0] : starts[1]]
    value = metrics_format[starts[1] + 1 :]
    found = [f"{before}(?<![\\w|-]){re.escape(metric)}{between}(?P<{group}>{value}" for metric, group in groups.items()]
    return found[0] if len(found) == 1 else "^" + "".join(f"(?:(?=.*?{each}))?" for each in found)


def _command(node: Any, container: str | None) -> list[str]:
    """Return command and arguments of the primary container, wherever the job has it."""
    if isinstance(node, Mapping):
        is_container = "command" in node or "args" in node
        if is_container and (container is None or node.get("name") in (None, container)):
            parts = [node[key] for key in ("command", "args") if isinstance(node.get(key), list)]
            return [str(each) for part in parts for each in part]
        children = list(node.values())
    else:
        children = node if isinstance(node, list) else []
    return next((found for child in children if (found := _command(child, container))), [])


def _workers(node: Any) -> int:
    """Return the number of processes that train: the replicas of a training job."""
    if isinstance(node, Mapping):
        replicas = node.get("pytorchReplicaSpecs")
        if isinstance(replicas, Mapping):
            return max(
                1,
                sum(
                    int(as_number(each.get("replicas", 1)) or 1)
                    for each in replicas.values()
                    if isinstance(each, Mapping)
                ),
            )
        nodes = as_number(node.get("numNodes"))
        if nodes is not None and nodes >= 1:
            return int(nodes)
        return max((_workers(each) for each in node.values()), default=1)
    return max((_workers(each) for each in node), default=1) if isinstance(node, list) else 1
