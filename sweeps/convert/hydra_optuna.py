"""Reads the config of a Hydra application with the Optuna sweeper, or with Hydra's own."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import RangeSweep

from sweeps.compose.overrides import parse_overrides, parse_values, written_override
from sweeps.compose.ranges import distribution_of_range
from sweeps.convert import distributions
from sweeps.convert.conversion import DEFAULT_TRIALS, MISSING, Conversion
from sweeps.convert.distributions import Converted
from sweeps.convert.source_file import SourceFile, as_number, dotted
from sweeps.errors import ConfigError
from sweeps.scaffold.hydra_options import HYDRA_FOLDER_OF_TRIAL, config_of
from sweeps.texts.wording import value_text

AT = ("hydra", "sweeper")
DIRECTIONS = {"minimize": "min", "maximize": "max"}
SAMPLERS = {
    "tpe": "tpe",
    "motpe": "tpe",
    "random": "random",
    "cmaes": "cmaes",
    "nsgaii": "nsga2",
    "nsgaiii": "nsga3",
    "grid": "grid",
    "gp": "gp",
    "qmc": "qmc",
    "bruteforce": "brute_force",
}
READ = {"sampler", "direction", "study_name", "n_trials", "n_jobs", "params", "search_space", "_target_"}
OF_HYDRA = {"params", "max_batch_size", "_target_"}
"""Keys of Hydra's own sweeper, which starts the application at all points of its choices and ranges."""
NOT_CARRIED = {
    "max_batch_size": "search.max_concurrent bounds the trials at a time",
    "storage": "the study is in the sweep's folder",
    "custom_search_space": "a function cannot be carried over; write `when` conditions and search.constraints",
    "max_failure_rate": "a sweep ends when its trials fail with the same error",
    "optuna_config": "settings of an old version of the sweeper",
    "ax_config": "the sweeper of Ax is not read; write its params in space",
    "parametrization": "the sweeper of Nevergrad is not read; write its ranges in space",
}
APPLICATION = "application"
"""Argument with the application's file, if the file was not found."""


def is_hydra_optuna(values: Mapping[str, Any]) -> bool:
    hydra = values.get("hydra")
    return isinstance(hydra, Mapping) and isinstance(hydra.get("sweeper"), Mapping)


def read_hydra_optuna(file: SourceFile) -> Conversion:
    """Convert the config of a Hydra application.

    Raises:
        UserError: A mistake in the file, with its line.
    """
    conversion = Conversion(tool="a config of Hydra's Optuna sweeper", task="command")
    conversion.set_name(file.get(str, *AT, "study_name") or file.path.stem)
    conversion.sampler = _sampler(file, conversion)
    _read_direction(file, conversion)
    trials, jobs, seed = (_number(file, conversion, *key) for key in (("n_trials",), ("n_jobs",), ("sampler", "seed")))
    conversion.num_trials = DEFAULT_TRIALS if trials is None else int(trials)
    conversion.max_concurrent = None if jobs is None or jobs < 1 else int(jobs)  # -1: as many as there are cores
    conversion.seed = 0 if seed is None else int(seed)
    conversion.arguments = dict(_values(file.values))
    is_grid = _is_of_hydra(file)
    # The Optuna sweeper's range() includes the end, but not that of its grid.
    _read_params(file, conversion, includes_ends=not is_grid and conversion.sampler != "grid")
    _read_search_space(file, conversion)
    _read_command(file, conversion)
    for key in file.require(dict, *AT):
        if key not in READ and file.get(object, *AT, key) not in (None, 0.0):
            reason = NOT_CARRIED.get(key, "has no equivalent")
            conversion.notes.append(f"line {file.line(*AT, key)}: hydra.sweeper.{key}: {reason}")
    if file.get(dict, "hydra", "launcher") or _chosen(file, "hydra/launcher"):
        conversion.notes.append("hydra.launcher: trials run on the Ray cluster; see scaling and search.max_concurrent")
    named = ", ".join(conversion.metrics)
    if is_grid:  # of as many trials as it has points
        conversion.tool, conversion.sampler, conversion.num_trials = "a config of Hydra's own sweeper", "grid", None
        conversion.notes.append(f"Hydra's own sweeper has no objective; let the application print {named} as JSON")
    else:
        conversion.notes.append(f"the application returns its objective; let it also print it as JSON, under {named}")
        conversion.notes.append(
            "each trial reads the application's config, also its hydra.sweeper: where the plugin of the sweeper is not "
            "installed, remove hydra.sweeper and hydra/sweeper in defaults there"
        )
    return conversion


def _is_of_hydra(file: SourceFile) -> bool:
    """Whether the config uses Hydra's own sweeper, which is the default: it names no other, and has no key or interval
    of another."""
    sweeper = file.require(dict, *AT)
    name, _ = _chosen(file, "hydra/sweeper") or ("basic", 0)
    name = str(sweeper.get("_target_", name))
    params = file.get(dict, *AT, "params") or {}
    names_optuna = _chosen(file, "hydra/sweeper/sampler") is not None or "interval(" in str([*params.values()])
    return "basic" in name.lower() and sweeper.keys() <= OF_HYDRA and not names_optuna


def _chosen(file: SourceFile, group: str) -> tuple[str, int] | None:
    """Return the option of a group that the defaults choose, and its line."""
    found = None
    for index, entry in enumerate(file.get(list, "defaults") or []):
        for name, option in entry.items() if isinstance(entry, Mapping) else ():
            if str(name).removeprefix("override ").strip("/ ") == group:
                found = str(option).lower(), file.line("defaults", index)
    return found


def _number(file: SourceFile, conversion: Conversion, *key: str) -> float | None:
    """Return a number of the sweeper; None, with a note, for an interpolation, which Hydra resolves."""
    value = file.get(object, *AT, *key)
    if not (isinstance(value, str) and "${" in value):
        return file.number(*AT, *key)
    conversion.notes.append(
        f"line {file.line(*AT, *key)}: {dotted((*AT, *key))}={value}: write its value into the config"
    )
    return None


def _sampler(file: SourceFile, conversion: Conversion) -> str:
    target = file.get(str, *AT, "sampler", "_target_")
    name = "" if target is None else target.rpartition(".")[2].removesuffix("Sampler").lower()
    name, line = _chosen(file, "hydra/sweeper/sampler") or (name, file.line(*AT, "sampler"))
    if name and name not in SAMPLERS:
        conversion.notes.append(f"line {line}: the sampler {name} is not known; the sampler is tpe")
    for key in file.get(dict, *AT, "sampler") or {}:
        if not key.startswith("_") and key != "seed" and file.get(object, *AT, "sampler", key) is not None:
            line = file.line(*AT, "sampler", key)
            conversion.notes.append(
                f"line {line}: hydra.sweeper.sampler.{key}: is not carried over; see search.sampler"
            )
    return SAMPLERS.get(name, "tpe")


def _read_direction(file: SourceFile, conversion: Conversion) -> None:
    direction = file.get(object, *AT, "direction")
    if isinstance(direction, list):
        conversion.modes = [file.choose(DIRECTIONS, *AT, "direction", index) for index in range(len(direction))]
    else:
        conversion.modes = [file.choose(DIRECTIONS, *AT, "direction", default="minimize")]
    count = len(conversion.modes)
    conversion.metrics = ["objective"] if count == 1 else [f"objective_{index}" for index in range(count)]


def _values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the application's own values with their dotted names."""
    for name, value in values.items():
        if not prefix and name in ("hydra", "defaults"):
            continue
        if isinstance(value, Mapping) and value:
            yield from _values(value, f"{prefix}{name}.")
        elif value == "???" or (isinstance(value, str) and "${" in value):
            continue  # Hydra fills it in
        else:
            number = as_number(value) if isinstance(value, str) else None
            yield f"{prefix}{name}", value if number is None else number


def _read_params(file: SourceFile, conversion: Conversion, *, includes_ends: bool) -> None:
    """Read ``params``: ranges in Hydra's grammar, whose range() includes the end or not."""
    for name in file.get(dict, *AT, "params") or {}:
        value = file.get(object, *AT, "params", name)
        line = f"line {file.line(*AT, 'params', name)}"
        key = name.lstrip("+")
        if key.startswith("~"):
            conversion.notes.append(f"{line}: params.{name}: an override that removes a value has no equivalent")
            continue
        try:
            (override,) = parse_overrides([f"{key}={'null' if value is None else value}"])
            if not override.is_sweep_override():
                conversion.arguments[key] = _as_hydra_reads_it(override.value())
                continue
            sweep = override.value()
            if (
                includes_ends
                and isinstance(sweep, RangeSweep)
                and not sweep.shuffle
                and sweep.start is not None
                and sweep.stop is not None
            ):
                low, high = sorted((sweep.start, sweep.stop))
                whole = all(isinstance(each, int) for each in (sweep.start, sweep.stop, sweep.step))
                found = distributions.stepped(low, high, abs(sweep.step)).distribution
                found["type"] = "int" if whole else "float"
            else:
                found = distribution_of_range(override, None, lambda: False)
                if not found.get("log", True):
                    del found["log"]
        except ConfigError as error:
            raise file.mistake(f"hydra.sweeper.params: {str(error).partition(';')[0]}", *AT, "params", name) from None
        if "choices" in found:
            choices = [_as_hydra_reads_it(each) for each in found["choices"]]
            conversion.search(key, distributions.choice(choices, ordered=found["type"] == "ordinal"))
        else:
            conversion.search(key, Converted(found))


def _as_hydra_reads_it(value: Any) -> Any:
    """Return the text from which the application's Hydra reads a value, if it would read our own text of the value as
    something else; otherwise the value."""
    with contextlib.suppress(ConfigError):
        (read,) = parse_values([f"value={value_text(value)}"]).values()
        if read == value and type(read) is type(value):
            return value
    return written_override("value", value).partition("=")[2]


def _read_search_space(file: SourceFile, conversion: Conversion) -> None:
    """Read ``search_space``, the form of old versions: a mapping of distributions with the same keys as ours."""
    for name in file.get(dict, *AT, "search_space") or {}:
        at = (*AT, "search_space", name)
        kind = file.choose({each: each for each in ("int", "float", "categorical")}, *at, "type")
        if kind == "categorical":
            choices = [_as_hydra_reads_it(each) for each in file.require(list, *at, "choices")]
            conversion.search(name, distributions.choice(choices))
            continue
        low, high, step = (file.number(*at, key) for key in ("low", "high", "step"))
        if low is None or high is None:
            raise file.mistake(f"{name}: has no {'low' if low is None else 'high'}", *at)
        if file.get(bool, *at, "log"):
            conversion.search(name, distributions.log_uniform(low, high, whole=kind == "int"))
        elif step is None:
            conversion.search(name, distributions.uniform(low, high, whole=kind == "int"))
        else:
            found = distributions.stepped(low, high, step).distribution
            conversion.search(name, Converted({**found, "type": kind}))


def _read_command(file: SourceFile, conversion: Conversion) -> None:
    """Make the command that starts the application, with an override for each searched value. The other values are in
    its own config."""
    overrides = [
        name
        for section in ("params", "search_space")
        for name in file.get(dict, *AT, section) or {}
        if not name.startswith("~")
    ]
    given = {name.lstrip("+") for name in overrides}
    conversion.arguments = {name: value for name, value in conversion.arguments.items() if name in given}
    names = {*conversion.arguments, *conversion.space}
    for name in names:  # a group, such as model, and model.lr below it
        if any(name.startswith(f"{each}.") for each in names):
            conversion.keep_dots((name,))
    application = _application(file.path)
    if application is None:
        conversion.arguments[APPLICATION] = MISSING
        conversion.notes.append(
            f"give the application's file in task.arguments.{APPLICATION}; what this file sets beside the search must "
            "be in the application's own config, or in task.command"
        )
    conversion.command = [
        "python",
        f"{{{APPLICATION}}}" if application is None else str(application),
        HYDRA_FOLDER_OF_TRIAL,
        *(f"{name}={{{name.lstrip('+')}}}" for name in overrides),
    ]


def _application(config: Path) -> Path | None:
    """Find the script whose ``@hydra.main`` uses a config, in the config's folder or its parent."""
    for folder in (config.parent, config.parent.parent):
        for script in sorted(folder.glob("*.py")):
            with contextlib.suppress(OSError, ValueError, SyntaxError):
                found = config_of(ast.parse(script.read_bytes()))
                if found is not None and (folder / found.folder / f"{found.name}.yaml").samefile(config):
                    return script
    return None
