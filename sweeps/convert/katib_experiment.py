"""An Experiment of Katib (Kubeflow)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
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
    "hyperband": ("random", "hyperband"),
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
}
NOT_CARRIED = {
    "maxFailedTrialCount": "a sweep ends when its trials fail with the same error; see search.max_retries",
    "metricsCollectorSpec": "the task reports its metrics; a script prints them as JSON",
    "resumePolicy": "every sweep can be resumed",
    "nasConfig": "there is no architecture search",
}
LONGEST = 81
"""Evaluations of a whole trial where the file does not say it."""
REFERENCE = re.compile(r"\$\{trialParameters\.([^}]+)\}")


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
    names = _read_template(file, conversion)
    for index in range(len(file.require(list, "spec", "parameters"))):
        at = ("spec", "parameters", index)
        name = file.require(str, *at, "name")
        conversion.search(names.get(name, name), _distribution(file, at))
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
    if scheduler == "hyperband":
        eta = as_number(settings.pop("eta", (None, 0))[0])
        longest = as_number(settings.pop("r_l", (None, 0))[0])
        conversion.scheduler |= {} if eta is None else {"eta": eta}
        conversion.scheduler["longest"] = longest or LONGEST
        conversion.notes.append(
            "hyperband: rungs are counted in evaluations here, and not in a searched parameter; set "
            "search.scheduler.longest to the evaluations of a whole trial"
        )
    if scheduler == "pbt":
        quantile = as_number(settings.pop("truncation_threshold", (None, 0))[0])
        conversion.scheduler |= {} if quantile is None else {"quantile": quantile}
        conversion.notes.append("pbt: the population is all of search.num_trials")
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


def _read_template(file: SourceFile, conversion: Conversion) -> dict[str, str]:
    """Read the container's command: the script, its fixed arguments, and the argument that each parameter becomes."""
    at = ("spec", "trialTemplate")
    if file.get(dict, *at) is None:
        return {}
    references = {
        str(each.get("name")): str(each.get("reference"))
        for each in file.get(list, *at, "trialParameters") or []
        if isinstance(each, Mapping)
    }
    spec = file.get(dict, *at, "trialSpec")
    if spec is None:
        conversion.notes.append(f"line {file.line(*at)}: trialTemplate: the command is elsewhere; give task._target_")
        return {}
    words = [
        part
        for word in _command(spec, file.get(str, *at, "primaryContainerName"))
        for part in (word.split() if ".py " in word else [word])  # sh -c "python train.py ..."
    ]
    conversion.num_workers = _workers(spec)
    conversion.notes.append(
        f"line {file.line(*at)}: trialTemplate: see scaling and cluster for what image, resources and volumes say"
    )
    script = next((index for index, word in enumerate(words) if word.endswith(".py")), None)
    if script is None:
        conversion.notes.append(
            f"{' '.join(words)[:100] or 'the container'}: starts no Python script; give task._target_"
        )
        return {}
    conversion.task, conversion.target = "torchrun_script", words[script]
    conversion.notes.append(
        f"{words[script]}: is the path in the container; give the script here as task._target_, and let it print "
        f"{conversion.metrics[0]} as JSON"
    )
    names = {}
    for name, value in _options(words[script + 1 :], conversion):
        found = REFERENCE.fullmatch(value)
        if found is None:
            conversion.arguments[name] = value if as_number(value) is None else as_number(value)
        else:
            names[references.get(found[1], found[1])] = name
    return names


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


def _options(words: list[str], conversion: Conversion) -> Iterator[tuple[str, str]]:
    """Pairs of a name and a value: ``--name=value`` or ``--name value``."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, sign, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and sign:
            yield name, value
        elif word.startswith("--") and waiting and not waiting[0].startswith("--"):
            yield name, waiting.pop(0)
        else:
            conversion.notes.append(f"the argument {word} of the command has no value; a search gives --name=value")
