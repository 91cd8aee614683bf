"""Checks ``task=command`` before anything starts: placeholders, program, config files and metrics."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from sweeps.compose import Composition
from sweeps.compose.dotted import leaves
from sweeps.config import TRAINING_SECTIONS, SweepConfig
from sweeps.constants import COST, GPU_HOURS
from sweeps.errors import raise_mistakes
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import closest_names, did_you_mean
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.script_checks import script_options
from sweeps_train.command.command_line import command_line, words
from sweeps_train.command.config_files import (
    NEW,
    Document,
    UnknownPath,
    file_format,
    file_name,
    read_document,
    with_values,
)
from sweeps_train.command.placeholders import (
    CHECKPOINT,
    FILES,
    ONLY_PER_WORKER,
    PROCESS_NAMES,
    TRIAL_NAMES,
    Template,
    config_values,
    filled,
    is_of_trial,
    templates,
)
from sweeps_train.config import CommandTask
from sweeps_train.config.command import LinePattern

SHELL_SIGNS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
"""Words that only a shell understands."""
MAY_HAVE_CHECKPOINT = ("task.options", "task.environment", "task.files")
"""Keys in which ``{checkpoint}`` may occur: it is null at a first start."""
OF_PROCESSES = ("task.command", "task.options", "task.environment", "task.working_folder")
"""Keys whose placeholders are filled in separately for each process."""
OWN_SECTIONS = ("name", "output_dir", "search", "space", "tracking", "cluster", "preflight", "checkpoint", "task")
"""Sections that are not suggested for a misspelt placeholder."""
ENDS_BEFORE_LIMIT_S = 20
"""Seconds before its time limit at which a Slurm job ends its running processes; see ``slurm_job.sh``."""
PLANNED: dict[str, Any] = {
    **dict.fromkeys((*TRIAL_NAMES, *PROCESS_NAMES), 1),
    **dict.fromkeys(("trial.id", "trial.name", "trial.folder", "start_folder", "master_address"), "0001"),
    CHECKPOINT: None,
}
"""Example values of the placeholders that a trial will receive."""


def check_command(composition: Composition, space: Space, lookup: Lookup) -> None:
    """Check the program of a sweep, for every kind of trial.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    configs = [
        config
        for _, config in configs_of_trials(composition, space, lookup, (*TRAINING_SECTIONS, "task"))
        if isinstance(config.task, CommandTask)
    ]
    raise_mistakes(line for config in configs for line in _mistakes(config))
    if tasks := [config.task for config in configs if isinstance(config.task, CommandTask)]:
        raise_mistakes(_without_effect(composition, space, tasks))


def _mistakes(config: SweepConfig) -> Iterator[str]:
    task = config.task
    assert isinstance(task, CommandTask)
    syntax = [*_syntax(task), *_patterns(task)]
    yield from syntax
    if syntax:
        return  # no placeholder could be found
    document = config.as_values()
    values, unknown = config_values(task, document)
    named = [*_unknown_names(task, unknown, document), *_misplaced(task, values)]
    yield from named
    yield from _checkpoints(config, values)
    yield from _metrics(config)
    if not named:
        lookup = {**PLANNED, **{f"{FILES}{name}": name for name in task.files}, **values}.__getitem__
        yield from _paths(task, lookup)
        yield from _filled_in(task, lookup, is_local=config.cluster.address == "local")
        for name, file in task.files.items():
            yield from _file_mistakes(f"task.files.{name}", file, lookup)


def _syntax(task: CommandTask) -> Iterator[str]:
    try:
        words(task)
    except ValueError as error:
        yield f"task.command: {error}"
    for key, text in templates(task):
        try:
            Template(text)
        except ValueError as error:
            yield f"{key}: {error}"


def _patterns(task: CommandTask) -> Iterator[str]:
    for index, source in enumerate(task.read):
        if isinstance(source, LinePattern):
            key = f"task.read.{index}.pattern={source.pattern}"
            try:
                if not re.compile(source.pattern).groupindex:
                    yield rf"{key}: has no named group, so no metric; write (?P<loss>\S+) around a number"
            except re.error as error:
                yield f"{key}: is not a regular expression: {error}"


def _unknown_names(task: CommandTask, unknown: list[str], document: Mapping[str, Any]) -> Iterator[str]:
    known = [
        *leaves(task.arguments),
        *TRIAL_NAMES,
        CHECKPOINT,
        *PROCESS_NAMES,
        *(f"{FILES}{name}" for name in task.files),
        *leaves(document, without=OWN_SECTIONS),
    ]
    for key, text in templates(task):
        for name in Template(text).names:
            is_file = name.startswith(FILES) and name not in known
            if name in unknown or is_file:
                close = closest_names(name, known)
                hint = f"; did you mean {', '.join(f'{{{each}}}' for each in close)}?" if close else _way_to_give(name)
                yield f"{key}: the config has no value for {{{name}}}{hint}"


def _way_to_give(name: str) -> str:
    if name.startswith(FILES):
        return f"; declare the file in task.{name}"
    return f"; give it one (task.arguments.{name}=VALUE), or write {{{{{name}}}}} for a word in braces"


def _misplaced(task: CommandTask, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield mistakes about placeholders that have no value where they are used."""
    for key, text in templates(task):
        template = Template(text)
        for name in template.names:
            if name in values:
                continue
            if name == CHECKPOINT and name in template.names_of_values and not key.startswith(MAY_HAVE_CHECKPOINT):
                yield (
                    f"{key}: {{{CHECKPOINT}}} has no value at a trial's first start; put it into task.options, which "
                    'leaves an option without a value out: {--resume: "{checkpoint}"}; or write a word for each case: '
                    "{checkpoint?resume:scratch}"
                )
            elif name in PROCESS_NAMES and not key.startswith(OF_PROCESSES):
                yield f"{key}: {{{name}}} differs between a trial's processes, which share this; use it in task.command"
            elif name in ONLY_PER_WORKER and task.processes != "per_worker":
                yield f"{key}: {{{name}}} exists only with a process for each worker; set task.processes=per_worker"


def _checkpoints(config: SweepConfig, values: Mapping[str, Any]) -> Iterator[str]:
    task = config.task
    assert isinstance(task, CommandTask)
    is_used = any(
        name == CHECKPOINT and name not in values for _, text in templates(task) for name in Template(text).names
    )
    if task.checkpoints is None and is_used:
        yield f"{{{CHECKPOINT}}} never has a value; say where the program saves in task.checkpoints={{folder: FOLDER}}"
    if task.checkpoints is not None and not is_used and not task.checkpoints.put_back:
        yield (
            f"task.checkpoints: the program is not told from which checkpoint to continue; use {{{CHECKPOINT}}}, as in "
            'task.options={--resume_from_checkpoint: "{checkpoint}"}; if it looks into its own folder, set '
            "task.checkpoints.put_back=true; if it never continues, remove task.checkpoints: its files stay in "
            "{trial.folder}"
        )
    if task.checkpoints is None and config.search.must_pause:
        yield (
            f"search.scheduler.kind={config.search.scheduler.kind}: continues trials from checkpoints, and this "
            "program has none; set task.checkpoints, or use search/scheduler=auto, asha or none"
        )


def _metrics(config: SweepConfig) -> Iterator[str]:
    """Yield mistakes about metrics that the search needs and the program cannot report."""
    task = config.task
    assert isinstance(task, CommandTask)
    patterns = [source.pattern for source in task.read if isinstance(source, LinePattern)]
    for metric in config.search.metrics:
        if metric in task.rename and metric not in task.rename.values():
            yield (
                f"search.metric={metric}: task.rename gives it the name {task.rename[metric]}; use that, or remove it "
                f"(~task.rename.{metric})"
            )
        elif len(patterns) == len(task.read) and metric not in (COST, GPU_HOURS):
            groups = [task.rename.get(name, name) for each in patterns for name in re.compile(each).groupindex]
            if metric not in groups:
                yield (
                    f"search.metric={metric}: task.read has only regular expressions, and none has a group of this name"
                    f"{did_you_mean(metric, groups)}"
                )


def _paths(task: CommandTask, lookup: Callable[[str], Any]) -> Iterator[str]:
    """Yield mistakes in the paths from which metrics and checkpoints are read, filled in as a worker does."""
    for key, text in templates(task):
        if key.startswith(("task.read", "task.checkpoints")):
            try:
                Template(text).text(lookup)
            except ValueError as error:
                yield f"{key}: {error}"


def _filled_in(task: CommandTask, lookup: Callable[[str], Any], *, is_local: bool) -> Iterator[str]:
    """Yield mistakes in the command, filled in as a worker does, and in its program and working folder."""
    try:
        command = command_line(task, lookup)
        filled(task.environment, lookup)
        where = None if task.working_folder is None else Template(task.working_folder).text(lookup)
    except ValueError as error:
        yield f"task: {error}"
        return
    if not is_local:
        return  # the program is on other machines
    folder = Path(where if where is not None else ".").expanduser()
    depends_on_trial = task.working_folder is not None and any(map(is_of_trial, Template(task.working_folder).names))
    if not depends_on_trial and not folder.is_dir():
        yield f"task.working_folder={task.working_folder}: there is no such folder"
        return
    script = next(iter(words(task)[1:]), "")
    yield from _mistakes_of_program(command, script, None if depends_on_trial else folder)


def _mistakes_of_program(command: Sequence[str], script: str, folder: Path | None) -> Iterator[str]:
    """Yield mistakes in a program, and in the options of a Python script, which is the second word without the values
    of placeholders; ``folder`` is the working folder, None if it differs between trials."""
    program = command[0]
    if "/" in program:
        if folder is not None and not (folder / Path(program)).is_file():
            yield f"task.command: there is no program {program}; give the path of one, or a name on PATH"
    elif shutil.which(program) is None and shutil.which(program, path=str(Path(sys.executable).parent)) is None:
        yield f"task.command: the program {program!r} is not found on PATH; install it, or give its path"
    is_script = Path(program).name.startswith("python") and script.endswith(".py") and "{" not in script
    if not is_script or folder is None:
        return
    file = folder / Path(script).expanduser()
    if not file.is_file():
        yield f"task.command: there is no file {script}; give a script that exists"
    elif (options := script_options(str(file))) is not None:
        yield from _mistakes_of_options(script, options, command[2:])


def _mistakes_of_options(script: str, options: Collection[str], given: Sequence[str]) -> Iterator[str]:
    """Yield mistakes in the words after a Python script that has these options. To ``argparse``, a word with a space
    and those after ``--`` are values."""
    for word in takewhile(lambda each: each != "--", given):
        if not word.startswith("--") or " " in word:
            continue
        name = word.removeprefix("--").partition("=")[0]
        if not any(option.startswith((name, name.removeprefix("no-"))) for option in options):
            yield f"task.command: {script} has no option --{name}{did_you_mean(name, options)}"


def _file_mistakes(key: str, file: Any, lookup: Callable[[str], Any]) -> Iterator[str]:
    kind = file_format(file)
    if kind is None:
        yield f"{key}.source={file.source}: its name does not tell its format; set {key}.format to yaml, json or toml"
        return
    try:
        text = "" if file.source is None else Path(file.source).expanduser().read_text(encoding="utf-8-sig")
        document = read_document(text, kind)
    except FileNotFoundError:
        yield f"{key}.source={file.source}: there is no such file; give one that exists"
        return
    except UnicodeDecodeError as error:
        yield f"{key}.source={file.source}: is not UTF-8 ({error}); save it as UTF-8"
        return
    except (OSError, ValueError) as error:
        yield f"{key}.source={file.source}: {error}"
        return
    for path, value in file.values.items():
        yield from _path_mistakes(key, file.source, document, path, value, lookup)


def _path_mistakes(
    key: str, source: str | None, document: Document, path: str, value: Any, lookup: Callable[[str], Any]
) -> Iterator[str]:
    try:
        with_values(document, {path: value}, lookup)
    except UnknownPath as error:
        if error.above is not None:
            where = f"a value at {error.above} that" if error.above else "content that"
            yield f"{key}.values.{path}: {source} has {where} is not a section; set it as a whole"
            return
        known = list(document.paths())
        close = closest_names(path.removeprefix(NEW), known)
        hint = f"did you mean {', '.join(close)}? To add it" if close else "to add it"
        yield f"{key}.values.{path}: {source or 'a new file'} has no such value; {hint}, write {NEW}{path.lstrip(NEW)}"
    except (ValueError, TypeError) as error:
        yield f"{key}.values.{path}={value!r}: {error}"


def _without_effect(composition: Composition, space: Space, tasks: list[CommandTask]) -> Iterator[str]:
    """Yield mistakes about searched values that no placeholder uses."""
    for path in space:
        section = path.partition(".")[0]
        if not path.startswith("task.arguments.") and section not in (*TRAINING_SECTIONS, "seed"):
            continue
        if path not in composition.searched_groups and not _is_used(composition, tasks, path):
            name = path.removeprefix("task.arguments.")
            yield (
                f"space.{path}: the program does not get it, so it has no effect; put {{{name}}} into task.command, "
                f"task.options or task.files, or remove it (~space.{path})"
            )


def command_notes(composition: Composition) -> Iterator[str]:
    """Yield notes on fixed arguments that no placeholder uses, and on programs that may end too late."""
    task, slurm = composition.config.task, composition.config.cluster.slurm
    if not isinstance(task, CommandTask):
        return
    if slurm is not None and (needed_s := math.ceil(task.grace_s) + ENDS_BEFORE_LIMIT_S) > slurm.stop_before_limit_s:
        yield (
            f"cluster.slurm.stop_before_limit_s={slurm.stop_before_limit_s}: the job may end while the program still "
            f"has task.grace_s={task.grace_s:g} s to end; set it to {needed_s} or more"
        )
    typed = words(task) if isinstance(task.command, str) else ()
    if signs := [each for each in typed if each in SHELL_SIGNS or each.startswith("$")]:
        yield (
            f"task.command: the program gets {', '.join(signs)} as words, since no shell reads them; for a shell write "
            "bash -c '...'"
        )
    used = {name for _, text in templates(task) for name in Template(text).names}
    for name, file in task.files.items():
        if f"{FILES}{name}" not in used:
            yield (
                f"task.files.{name}: the program is not told of it, and finds it only as {file_name(name, file)} in "
                f"the trial's own folder; put {{{FILES}{name}}} into task.command"
            )
    for name in leaves(task.arguments):
        path = f"task.arguments.{name}"
        if path not in composition.config.space and not _is_used(composition, [task], path):
            yield f"{path}: the program does not get it; put {{{name}}} into task.command, task.options or task.files"


def _is_used(composition: Composition, tasks: list[CommandTask], path: str) -> bool:
    """Whether a placeholder or another value of the YAML uses a value."""
    used = {name for task in tasks for _, text in templates(task) for name in Template(text).names}
    used |= {f"task.arguments.{name}" for name in used}
    if "arguments" in used:
        used.add("task.arguments")
    is_named = any(f"{each}.".startswith(f"{path}.") or f"{path}.".startswith(f"{each}.") for each in used)
    return is_named or composition.refers_to(path)
