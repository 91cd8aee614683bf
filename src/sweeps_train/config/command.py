"""Schema of ``task=command``: any program, in any language, as a trial."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, Character, NonNegativeFloat
from sweeps_train.config.reach import Flag, Reach, Text

PROGRAM_FOLDER = "program"
"""Folder for a program's files, beside the trial's checkpoints."""

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
FileFormat = Literal["yaml", "json", "toml"]


@dataclass(config=STRICT, kw_only=True)
class ConfigFile:
    """Config file of the program, written into each trial's folder."""

    source: Annotated[str | None, Reach.COMMAND] = None
    """File from which the program's config file is made, relative to the folder in which Sweeps runs: ``.yaml``,
    ``.yml``, ``.json`` or ``.toml``; default: an empty file."""
    format: FileFormat | None = None
    """Format; required if there is no source or its name does not tell the format."""
    values: Annotated[dict[str, Any], Reach.COMMAND] = Field(default_factory=dict)
    """Values by dotted path in the file; items of lists are counted from 0 (``datasets.0.path``). A path must exist in
    the source; ``+path`` adds a new one. A value that is one placeholder, ``"{lr}"``, keeps its type."""

    def __post_init__(self) -> None:
        if self.source is None and self.format is None:
            raise ValueError("source: name the file to start from, or a format (yaml, json, toml) for a new one")


@dataclass(config=STRICT, kw_only=True)
class JsonLines:
    """Metrics from lines of the program's output that hold a JSON object."""

    kind: Literal["json"]


@dataclass(config=STRICT, kw_only=True)
class PrintedDictionaries:
    """Metrics from dictionaries that the program prints as Python does, such as those of Hugging Face."""

    kind: Literal["dict"]


@dataclass(config=STRICT, kw_only=True)
class LinePattern:
    """Metrics from lines of the program's output that match a regular expression."""

    kind: Literal["regex"]
    pattern: Annotated[str, Reach.COMMAND]
    r"""Regular expression of Python, searched in each line. Each named group is a metric:
    ``loss=(?P<loss>\S+)``; the group ``step`` is the step."""


@dataclass(config=STRICT, kw_only=True)
class CsvFile:
    """Metrics from a CSV file that the program appends to; the first line names the columns."""

    kind: Literal["csv"]
    path: Annotated[str, Reach.COMMAND]
    """Path of the file, relative to the program's working folder; placeholders are filled in."""
    delimiter: Annotated[Character, Reach.NOTHING] = ","
    """Separator of the fields, ``\\t`` for a tab."""


@dataclass(config=STRICT, kw_only=True)
class JsonLinesFile:
    """Metrics from a file of JSON lines that the program appends to."""

    kind: Literal["jsonl"]
    path: Annotated[str, Reach.COMMAND]
    """Path of the file, relative to the program's working folder; placeholders are filled in."""


@dataclass(config=STRICT, kw_only=True)
class TensorBoardEvents:
    """Metrics from the scalars in TensorBoard's event files."""

    kind: Literal["tensorboard"]
    path: Annotated[str, Reach.COMMAND]
    """An event file, or a folder that has them at any depth, relative to the program's working folder; placeholders are
    filled in."""


@dataclass(config=STRICT, kw_only=True)
class MlflowRun:
    """Metrics that the program itself logs to MLflow: ``MLFLOW_TRACKING_URI`` names a store in the trial's folder."""

    kind: Literal["mlflow"]


MetricSource = Annotated[
    JsonLines | PrintedDictionaries | LinePattern | CsvFile | JsonLinesFile | TensorBoardEvents | MlflowRun,
    Field(discriminator="kind"),
]


def _output() -> list[MetricSource]:
    return [JsonLines(kind="json"), PrintedDictionaries(kind="dict")]


@dataclass(config=STRICT, kw_only=True)
class ProgramCheckpoints:
    """Checkpoints that the program writes. Complete ones are copied to the trial's checkpoints."""

    folder: Annotated[str, Reach.COMMAND]
    """Folder in which the checkpoints appear, relative to the program's working folder; placeholders are filled in."""
    pattern: Annotated[str, Field(min_length=1), Reach.COMMAND] = "checkpoint-*"
    """Names of the files or folders in ``folder`` that are checkpoints, with ``*`` and ``?``; the last number in a name
    is the step."""
    complete: Annotated[str | None, Reach.COMMAND] = None
    """File that the program writes last into a checkpoint; a checkpoint with it is complete. Default: a checkpoint is
    complete when it has not changed for ``settled_s``."""
    move: Flag = False
    """Whether a complete checkpoint is moved out of the program's folder instead of copied, which saves time and space;
    not for a program that reads it again at its end, such as a Hugging Face ``Trainer`` with
    ``load_best_model_at_end``."""
    put_back: Flag = False
    """Whether the newest checkpoint is put into ``folder`` under its own name before the program starts, for a program
    that looks for it there; it then needs no ``{checkpoint}``. Checkpoints of later steps are removed, if ``folder`` is
    in the trial's own, ``{trial.folder}``."""
    settled_s: NonNegativeFloat = 5.0
    """Seconds without a change after which a checkpoint counts as complete; not used with ``complete``."""


@dataclass(config=STRICT, kw_only=True)
class CommandTask:
    """A program as a trial: Sweeps starts it with the trial's values, reads its metrics while it runs, and ends it."""

    kind: Literal["command"]
    command: Annotated[str | list[str | int | float], Reach.COMMAND]
    """Command line: a text, which is split into words as a shell does, without a shell; or a list of words.
    Placeholders such as ``{lr}`` are filled in after that, so that a value is always one word; ``{{`` and ``}}`` are
    braces."""
    options: Annotated[dict[str, Any], Reach.COMMAND] = Field(default_factory=dict)
    """Options that are added after the command, by name: null and false leave one out, true adds its name alone. A name
    that ends with ``=`` is joined with its value. Without dashes, true and false are values, as in ``amp=false``."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Values of your own for the placeholders; each can be searched as ``task.arguments.NAME``."""
    files: Annotated[dict[FileName, ConfigFile], Reach.COMMAND] = Field(default_factory=dict)
    """Config files of the program by name; ``{files.NAME}`` is the path of the trial's own copy."""
    environment: Annotated[dict[str, Any], Reach.COMMAND] = Field(default_factory=dict)
    """Environment variables in addition to those of Sweeps; null unsets one."""
    working_folder: Annotated[str | None, Reach.COMMAND] = None
    """Folder in which the program starts, relative to the one in which the sweep was started (``.``); default: the
    trial's own, ``{trial.folder}``."""
    processes: Literal["one", "per_node", "per_worker"] = "one"
    """Number of processes to start: one for a trial, one for each of its nodes, or one for each worker, with the
    environment of ``torchrun``."""
    read: Annotated[list[MetricSource], Reach.COMMAND] = Field(default_factory=_output)
    """Places from which metrics are read while the program runs; default: JSON objects and Python dictionaries in its
    output."""
    rename: Annotated[dict[str, Text], Reach.NOTHING] = Field(default_factory=dict)
    """Names of metrics in Sweeps, by the program's names: ``{eval_loss: eval/loss}``."""
    step: Text | None = None
    """The program's name of the metric that has the step, a whole number; default: ``step``, ``global_step`` or
    ``training_iteration`` if the program reports one, otherwise records are counted."""
    metrics: list[Text] = Field(default_factory=list)
    """Metrics that the program reports, after renaming; with this list, a misspelt ``search.metric`` is found before
    anything starts."""
    checkpoints: ProgramCheckpoints | None = None
    """Checkpoints from which the program can continue; default: a retry starts from the beginning."""
    grace_s: NonNegativeFloat = 30.0
    """Seconds that the program and its child processes have to end after SIGTERM, before SIGKILL."""

    def __post_init__(self) -> None:
        for name in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"environment.{name}: is not the name of a variable; use letters, digits and _")
        if not self.read:
            raise ValueError("read=[]: no metric can be read; name a source, such as {kind: json}")
