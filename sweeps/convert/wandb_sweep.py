"""Reads a sweep config of Weights & Biases."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from sweeps.convert import distributions
from sweeps.convert.conversion import Conversion
from sweeps.convert.distributions import Converted
from sweeps.convert.source_file import SourceFile, dotted
from sweeps.texts.suggestions import did_you_mean

METHODS = {"grid": "grid", "random": "random", "bayes": "gp"}
GOALS = {"minimize": "min", "maximize": "max"}
READ = {"program", "method", "metric", "parameters", "early_terminate", "command", "run_cap", "name", "project"}
WITHOUT_MEANING = {"description", "apiVersion", "kind"}
NOT_CARRIED = {
    "entity": "W&B's team or user",
    "controller": "the driver of a sweep chooses its trials",
    "job": "W&B Launch; see `python -m sweeps serve` for a queue",
    "image_uri": "W&B Launch",
    "scheduler": "of W&B Launch, with its number of runs at a time; see search.sampler and search.max_concurrent",
    "metrics": "several objectives; give search.metric and search.mode as lists",
}
COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
"""Default command of W&B, for a file without one."""
LARGEST_EXPONENT = 700
"""Bound of the absolute value of an exponent of e: the powers beyond are no floats."""


def is_wandb_sweep(values: Mapping[str, Any]) -> bool:
    return "parameters" in values and ("method" in values or "program" in values)


def read_wandb_sweep(file: SourceFile) -> Conversion:
    """Convert a W&B sweep.

    Raises:
        UserError: A mistake in the file, with its line.
    """
    conversion = Conversion(tool="a W&B sweep")
    conversion.set_name(file.get(str, "name") or file.path.stem)
    conversion.experiment = file.get(str, "project")
    conversion.sampler = file.choose(METHODS, "method")
    _read_metric(file, conversion)
    _read_parameters(file, conversion, ("parameters",), ())
    _read_early_terminate(file, conversion)
    _read_command(file, conversion)
    cap = file.number("run_cap")
    conversion.num_trials = None if cap is None else int(cap)
    for key in file.values:
        if key not in READ | WITHOUT_MEANING:
            reason = NOT_CARRIED.get(key, f"is not a key of a W&B sweep{did_you_mean(key, READ, listed=0)}")
            conversion.notes.append(f"line {file.line(key)}: {key}: {reason}")
    if conversion.command:
        conversion.notes.append(
            f"the program reports by wandb.log; let it also print a line of JSON or a dictionary, with "
            f"{conversion.metrics[0]} in it, or name another source in task.read"
        )
        conversion.notes.append(
            "the program gets its values on the command line only; what it takes from wandb.config are its own defaults"
        )
    return conversion


def _read_metric(file: SourceFile, conversion: Conversion) -> None:
    if file.get(dict, "metric") is None:
        conversion.notes.append("the file names no metric; search.metric is loss, and search.mode is min")
        return
    conversion.metrics = [file.require(str, "metric", "name")]
    conversion.modes = [file.choose(GOALS, "metric", "goal", default="minimize")]
    conversion.target_value = file.number("metric", "target")
    for key in ("impute", "impute_while_running"):
        if file.get(object, "metric", key) is not None:
            conversion.notes.append(f"line {file.line('metric', key)}: metric.{key}: failed trials have no value here")


def _read_parameters(file: SourceFile, conversion: Conversion, path: tuple[str, ...], above: tuple[str, ...]) -> None:
    for name in file.require(dict, *path):
        at = (*path, name)
        parameter = file.require(dict, *at)
        if "parameters" in parameter:
            _read_parameters(file, conversion, (*at, "parameters"), (*above, name))
            continue
        argument = conversion.keep_dots((*above, name))
        if argument in conversion.arguments or argument in conversion.space:
            raise file.mistake(f"parameters.{argument}: is the name of two parameters; rename one", *at)
        distribution = _distribution_name(file, at)
        if distribution == "constant":
            conversion.arguments[argument] = parameter.get("value")
        else:
            conversion.search(argument, DISTRIBUTIONS[distribution](file, at))


def _distribution_name(file: SourceFile, at: tuple[str, ...]) -> str:
    """Return the name of the distribution, or the one that W&B derives from the given keys.

    Raises:
        UserError: The name is unknown, or the keys fit no distribution.
    """
    names = {name: name for name in [*DISTRIBUTIONS, "constant"]}
    if file.get(str, *at, "distribution") is not None:
        return file.choose(names, *at, "distribution")
    given = file.require(dict, *at)
    if "value" in given:
        return "constant"
    if "values" in given:
        return "categorical_w_probabilities" if "probabilities" in given else "categorical"
    if "min" in given and "max" in given:
        bounds = file.number(*at, "min"), file.number(*at, "max")
        return "int_uniform" if all(isinstance(each, int) for each in bounds) else "uniform"
    raise file.mistake(f"{dotted(at)}: give value, values, or min and max", *at)


def _bounds(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    low, high = (file.number(*at, key) for key in ("min", "max"))
    if low is None or high is None:
        raise file.mistake(f"{dotted(at)}: has no {'min' if low is None else 'max'}", *at)
    if low > high:
        raise file.mistake(f"{dotted(at)}: min={low} is above max={high}", *at)
    return low, high


def _positive_bounds(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    low, high = _bounds(file, at)
    if low <= 0:
        raise file.mistake(f"{dotted(at)}: min={low} has no logarithm", *at, "min")
    return low, high


def _exponents(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    """Read the bounds of ``log_uniform``, which W&B gives as exponents of e.

    Raises:
        UserError: A bound is beyond any float.
    """
    low, high = _bounds(file, at)
    if max(abs(low), abs(high)) > LARGEST_EXPONENT:
        raise file.mistake(f"{dotted(at)}: log_uniform takes exponents of e; for values use log_uniform_values", *at)
    return math.exp(low), math.exp(high)


def _inverse_exponents(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    low, high = _exponents(file, at)
    return 1 / high, 1 / low


def _step(file: SourceFile, at: tuple[str, ...]) -> float:
    step = file.number(*at, "q")
    if step is not None and step <= 0:
        raise file.mistake(f"{dotted(at)}.q={step}: must be above 0", *at, "q")
    return 1 if step is None else step


def _mean_and_deviation(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    mean, deviation = file.number(*at, "mu"), file.number(*at, "sigma")
    deviation = 1.0 if deviation is None else deviation
    if deviation < 0:
        raise file.mistake(f"{dotted(at)}.sigma={deviation}: must not be negative", *at, "sigma")
    return 0.0 if mean is None else mean, deviation


def _of_logarithm(file: SourceFile, at: tuple[str, ...]) -> tuple[float, float]:
    """Read the mean and the deviation of the logarithm of a value.

    Raises:
        UserError: The values are beyond any float.
    """
    mean, deviation = _mean_and_deviation(file, at)
    if abs(mean) + distributions.DEVIATIONS * deviation > LARGEST_EXPONENT:
        raise file.mistake(f"{dotted(at)}: mu={mean} and sigma={deviation} must be those of the value's logarithm", *at)
    return mean, deviation


def _choice(file: SourceFile, at: tuple[str, ...]) -> Converted:
    values = file.require(list, *at, "values")
    if not values:
        raise file.mistake(f"{dotted(at)}.values is empty", *at, "values")
    converted = distributions.choice(values)
    if "probabilities" in file.require(dict, *at):
        return Converted(converted.distribution, [*converted.notes, "the choices are equally probable here"])
    return converted


def _beta(file: SourceFile, at: tuple[str, ...]) -> Converted:
    note = ["a beta distribution is written as a uniform one from 0 to 1"]
    has_step = file.get(str, *at, "distribution") == "q_beta"
    converted = distributions.rounded_uniform(0, 1, _step(file, at)) if has_step else distributions.uniform(0, 1)
    return Converted(converted.distribution, note)


def _int_uniform(file: SourceFile, at: tuple[str, ...]) -> Converted:
    low, high = _bounds(file, at)
    if not (float(low).is_integer() and float(high).is_integer()):
        raise file.mistake(f"{dotted(at)}: int_uniform takes whole numbers", *at)
    return distributions.uniform(low, high, whole=True)


DISTRIBUTIONS: dict[str, Callable[[SourceFile, tuple[str, ...]], Converted]] = {
    "categorical": _choice,
    "categorical_w_probabilities": _choice,
    "int_uniform": _int_uniform,
    "uniform": lambda file, at: distributions.uniform(*_bounds(file, at)),
    "q_uniform": lambda file, at: distributions.rounded_uniform(*_bounds(file, at), _step(file, at)),
    "log_uniform": lambda file, at: distributions.log_uniform(*_exponents(file, at)),
    "log_uniform_values": lambda file, at: distributions.log_uniform(*_positive_bounds(file, at)),
    # The logarithm of the inverse is uniform where that of the value is.
    "inv_log_uniform": lambda file, at: distributions.log_uniform(*_inverse_exponents(file, at)),
    "inv_log_uniform_values": lambda file, at: distributions.log_uniform(*_positive_bounds(file, at)),
    "q_log_uniform": lambda file, at: distributions.rounded_log_uniform(*_exponents(file, at), _step(file, at)),
    "q_log_uniform_values": lambda file, at: distributions.rounded_log_uniform(
        *_positive_bounds(file, at), _step(file, at)
    ),
    "normal": lambda file, at: distributions.normal(*_mean_and_deviation(file, at)),
    "q_normal": lambda file, at: distributions.normal(*_mean_and_deviation(file, at), _step(file, at)),
    "log_normal": lambda file, at: distributions.log_normal(*_of_logarithm(file, at)),
    "q_log_normal": lambda file, at: distributions.log_normal(*_of_logarithm(file, at), _step(file, at)),
    "beta": _beta,
    "q_beta": _beta,
}


def _read_early_terminate(file: SourceFile, conversion: Conversion) -> None:
    """Convert W&B's Hyperband, which stops runs at rungs and never pauses them, to ASHA."""
    if file.get(dict, "early_terminate") is None:
        return
    file.choose({"hyperband": "asha"}, "early_terminate", "type")
    eta = file.number("early_terminate", "eta") or 3
    first = file.number("early_terminate", "min_iter")
    longest, brackets = file.number("early_terminate", "max_iter"), file.number("early_terminate", "s")
    if first is None:
        if longest is None or brackets is None:
            raise file.mistake("early_terminate: give min_iter, or max_iter and s", "early_terminate")
        if eta <= 1:
            raise file.mistake(f"early_terminate.eta={eta}: must be above 1", "early_terminate", "eta")
        first = max(1, math.floor(longest / eta**brackets))
    conversion.scheduler = {"kind": "asha", "grace": first, "eta": eta}
    if file.get(object, "early_terminate", "strict") is not None:
        line = file.line("early_terminate", "strict")
        conversion.notes.append(f"line {line}: early_terminate.strict: ASHA has no such setting")


def _read_command(file: SourceFile, conversion: Conversion) -> None:
    """Convert the words of the command, in which W&B's agent replaces macros.

    Raises:
        UserError: The command has the macro of a program that the file does not name.
    """
    program, given = file.get(str, "program"), file.get(list, "command")
    if program is None and not given:
        return
    conversion.task = "command"
    words = [str(word) for word in given or COMMAND]
    paths = {name: conversion.keys.get(name, name.split(".")) for name in (*conversion.arguments, *conversion.space)}
    names = list(dict.fromkeys(path[0] for path in paths.values()))
    if "${args_no_boolean_flags}" not in words:
        _write_as_python_does(conversion, [name for name, path in paths.items() if len(path) == 1])
    for section in dict.fromkeys(path[0] for path in paths.values() if len(path) > 1):
        conversion.notes.append(
            f"{section}: is passed as JSON, where W&B's agent passes a dictionary of Python; read it with json.loads"
        )
    known: dict[str, list[str]] = {
        "${env}": [],  # W&B's way to find the interpreter on the PATH
        "${interpreter}": ["python"],
        "${program}": [program or ""],
        "${args}": ["{arguments}"],
        "${args_no_boolean_flags}": ["{arguments}"],
        "${args_no_hyphens}": [f"{name}={{{name}}}" for name in names],
    }
    for index, word in enumerate(words):
        if word == "${program}" and program is None:
            raise file.mistake("command: ${program}: the file names no program", "command", index)
        if word not in known and "${" in word:  # it is refused until somebody replaces it
            conversion.notes.append(
                f"line {file.line('command', index)}: command: {word}: replace it in task.command; task.files writes "
                "a file with the values, and ${oc.env:NAME} is an environment variable"
            )
            known[word] = [word]
        conversion.command += known.get(word, [word.replace("{", "{{").replace("}", "}}")])


def _write_as_python_does(conversion: Conversion, options: list[str]) -> None:
    """Write true, false, null, and lists of strings as the strings that W&B's agent passes to a program."""
    for name in options:
        if (distribution := conversion.space.get(name)) is None:
            conversion.arguments[name] = _python_text(conversion.arguments[name])
        elif "choices" in distribution:
            distribution["choices"] = [_python_text(each) for each in distribution["choices"]]
        elif "value" in distribution:
            distribution["value"] = _python_text(distribution["value"])


def _python_text(value: Any) -> Any:
    """Return the text that Python writes for a value, if a command line of ours would have another one."""
    return value if isinstance(value, str) or json.dumps(value) == str(value) else str(value)
