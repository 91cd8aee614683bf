"""Makes the files of a sweep over the options of an existing script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from string import Template
from typing import Any

from sweeps.files.conf_text import flow, lines_of, nested, scalar
from sweeps.scaffold.hydra_options import HYDRA_FOLDER_OF_TRIAL
from sweeps.scaffold.option import A_FLAG, MISSING, Option
from sweeps.scaffold.project import own_test, template
from sweeps.scaffold.proposals import Distribution, propose
from sweeps.scaffold.script_options import ScriptOptions

SMALLER_IS_BETTER = ("loss", "error", "perplexity", "rmse", "mae")
NAMES_OF_DATA = ("data", "input", "root")
"""Words in the names of options that name a folder to read."""
HYDRA_FOLDER = "sweep_conf"
"""Folder for the config of a Hydra application, whose own configs are usually in ``conf``."""


class _Interpolation(str):
    """Value of an argument that OmegaConf interpolates."""

    __slots__ = ()


def script_project(script: Path, read: ScriptOptions, folder: Path, name: str, conf_folder: str) -> dict[str, str]:
    """Return the files: a config, a test, and a launcher if the script takes its options in another form.

    Args:
        script: The existing script.
        read: Options of the script.
        folder: Folder of the files, in which the commands are typed.
        name: Name of the config.
        conf_folder: Folder of the config, below ``folder``.
    """
    target = Path(os.path.relpath(script, folder)).as_posix()
    texts: dict[str, str] = {}
    started = target
    if read.is_nested and not read.is_program:
        started = f"start_{script.stem}.py"
        texts[started] = Template(template("dotted_launcher.py")).substitute(script=json.dumps(target)[1:-1])
    texts[f"{conf_folder}/{name}.yaml"] = _conf(started, read, folder, name, conf_folder)
    given = {f"task.arguments.{option.name}": example_value(option) for option in required_values(read)}
    values = f", {given!r}".replace("'", '"') if given else ""
    test = f"test_sweep_{name}.py"  # a folder may have several scripts
    texts[test] = own_test(test, name, conf_folder, None, values)
    return texts


def proposed_space(read: ScriptOptions) -> dict[str, Distribution]:
    """Return the proposed distribution of each searched option."""
    proposals = {option.name: propose(option) for option in read.options}
    return {name: distribution for name, distribution in proposals.items() if distribution is not None}


def required_values(read: ScriptOptions) -> list[Option]:
    """Return the options that the script requires and for which the source has no value."""
    space = proposed_space(read)
    return [each for each in read.options if each.required and each.name not in space and each.excluded != A_FLAG]


def _is_file_of(folder: Path, option: Option) -> bool:
    """Whether an option's default is a file in the start folder. The script would not find it from a trial's folder
    unless its path is given."""
    return (found := _named_by_default(folder, option)) is not None and found.is_file()


def _is_data_folder_of(folder: Path, option: Option) -> bool:
    """Whether an option's default is a folder in the start folder that the script reads, judged by the option's name;
    trials may write to other folders."""
    found = _named_by_default(folder, option)
    return found is not None and found.is_dir() and any(part in option.name.lower() for part in NAMES_OF_DATA)


def _named_by_default(folder: Path, option: Option) -> Path | None:
    """Return the path in the start folder that an option's default names; None if nothing exists there."""
    default = option.default
    if option.excluded is not None or not isinstance(default, str) or not default or Path(default).is_absolute():
        return None
    try:
        return folder / default if (folder / default).exists() else None
    except OSError:  # too long for a name
        return None


def _conf(target: str, read: ScriptOptions, folder: Path, name: str, conf_folder: str) -> str:
    space = proposed_space(read)
    required = required_values(read)
    metric, mode = _metric(read)
    arguments: dict[str, Any] = {}
    for option in read.options:
        is_given = option.name in space or _is_file_of(folder, option)
        if is_given and option.default not in (MISSING, None):
            arguments[option.name] = option.default
        elif read.style != "globals" and _is_data_folder_of(folder, option):
            arguments[option.name] = _Interpolation(f"${{oc.env:PWD}}/{option.default}")
        elif option.name in space and (read.is_program or "." in option.name):
            # A search sets values in sections that exist, and a placeholder of a command needs a value.
            distribution = space[option.name]
            arguments[option.name] = distribution.get("choices", [distribution.get("low")])[0]
    for option in required:
        arguments[option.name] = "???"
    proposals = [f"task.arguments.{path}: {flow(each)}" for path, each in space.items()]
    kind = "from_program.yaml" if read.is_program else "from_script.yaml"
    others = [*_other_lines(_untouched(read), {*space, *arguments}), *read.notes]
    return Template(template(kind)).substitute(
        command="".join(f"\n    - {scalar(word)}" for word in _command(target, read, arguments)),
        read="".join(f"\n    - {flow(source)}" for source in read.read or [{"kind": "json"}]),
        more="".join(f"\n  {line}" for line in _more_settings(target, read)),
        name=name,
        conf_folder=conf_folder,
        target=target,
        arguments="".join(f"\n{line}" for line in lines_of(nested(arguments), "    ", _argument)) or " {}",
        metrics=f"[{metric}]",
        others="".join(f"\n  # {line}" for line in others),
        space="\n  ".join(["# a proposal, from names, types and defaults; change it", *proposals])
        if proposals
        else "{} # write the ranges here, such as task.arguments.NAME: {type: float, low: 0, high: 1}",
        metric=metric,
        mode=mode,
        found="" if read.metrics else " # the script must print it: print(json.dumps({...})), once an evaluation",
    )


def _command(target: str, read: ScriptOptions, arguments: Iterable[str]) -> list[str]:
    """Return the command of a program that writes all its files into the trial's folder."""
    words = ["python", Path(target).name if read.style == "globals" else target, *read.words]
    if read.style == "hydra":
        return [*words, HYDRA_FOLDER_OF_TRIAL, *(f"{name}={{{name}}}" for name in arguments)]
    if any(option.name == "out_dir" for option in read.options):
        words.append("--out_dir={trial.folder}/out")
    if read.checkpoint:
        words.append("--init_from={checkpoint?resume:scratch}")
    return [*words, *(f"--{name}={{{name}}}" for name in arguments)]


def _untouched(read: ScriptOptions) -> list[Option]:
    """Return the options that the command does not set outside of the program's arguments."""
    given = {word.partition("=")[0] for word in _command("", read, ())} if read.is_program else set()
    return [option for option in read.options if f"--{option.name}" not in given]


def _more_settings(target: str, read: ScriptOptions) -> Iterator[str]:
    """Yield the settings for the program's working folder and checkpoints."""
    if read.style == "globals":
        yield f"working_folder: {scalar(str(Path(target).parent))} # it executes a file there"
    if read.checkpoint:
        settings = {"folder": "{trial.folder}/out", "pattern": read.checkpoint, "put_back": True}
        yield f"checkpoints: {flow(settings)}"


def _metric(read: ScriptOptions) -> tuple[str, str]:
    metric = read.metrics[0] if read.metrics else "loss"
    return metric, "min" if any(part in metric.lower() for part in SMALLER_IS_BETTER) else "max"


def _other_lines(options: Iterable[Option], given: Set[str]) -> list[str]:
    """Return lines about the options that keep the script's own defaults."""
    lines = []
    for option in options:
        if option.name in given:
            continue
        default = "no default" if option.default is MISSING else f"default {scalar(option.default)}"
        choices = f", one of {', '.join(map(str, option.choices))}" if option.choices else ""
        lines.append(f"{option.name}: {default}{choices}{f'; {option.excluded}' if option.excluded else ''}")
    return ["kept as the script has them:", *lines] if lines else []


def _argument(value: Any) -> str:
    if value == "???":
        return "??? # the script demands it: replace ???, or give it on the command line"
    return json.dumps(value) if isinstance(value, _Interpolation) else scalar(value)


def example_value(option: Option) -> Any:
    """Return a value of the option's type."""
    if option.choices:
        return option.choices[0]
    return {"float": 1.0, "int": 1}.get(option.kind or "str", "value")
