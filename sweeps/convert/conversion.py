"""The parts of a converted conf, and notes on what could not be carried over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from sweeps.convert.distributions import Converted, Distribution, grid_size, some_value
from sweeps.files.conf_text import nested

MISSING = "???"
"""Placeholder for a value that the file does not contain and the user has to give."""
DEFAULT_TRIALS = 20
"""Trials of a search whose file sets no number."""


@dataclass
class Conversion:
    """The parts of a conf, filled in by one of the readers."""

    tool: str
    """Kind of the file, such as ``a W&B sweep``."""
    name: str = "converted"
    task: Literal["function", "command"] = "function"
    target: str = MISSING
    """Import path of a function; for the task ``function`` only."""
    command: list[str] = field(default_factory=list)
    """Words of ``task.command``, with placeholders for arguments; empty if the file does not contain the command."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Values that are not searched, by dotted name."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys that lead to an argument, if one of them contains dots; see ``keep_dots``."""
    space: dict[str, Distribution] = field(default_factory=dict)
    """Distribution of each searched argument, by dotted name."""
    metrics: list[str] = field(default_factory=lambda: ["loss"])
    modes: list[str] = field(default_factory=lambda: ["min"])
    num_trials: int | None = None
    sampler: str = "tpe"
    scheduler: dict[str, Any] = field(default_factory=lambda: {"kind": "none"})
    max_concurrent: int | None = None
    target_value: float | None = None
    """Value of the metric at which the search may end."""
    wall_hours: float | None = None
    experiment: str | None = None
    seed: int = 0
    notes: list[str] = field(default_factory=list)
    """Settings that could not be carried over, or that mean something else here; one line each."""

    def keep_dots(self, keys: tuple[str, ...]) -> str:
        """Return the dotted name of an argument; remember its keys if one of them contains dots, such as the option
        ``--model.lr``."""
        name = ".".join(keys)
        if len(keys) <= name.count("."):
            self.keys[name] = keys
        return name

    def search(self, name: str, converted: Converted) -> None:
        """Add an argument to the space, with notes on what its converted distribution does not preserve."""
        self.space[name] = converted.distribution
        self.notes += [f"{name}: {note}" for note in converted.notes]

    def set_name(self, name: str | None) -> None:
        """Set the conf's name, with invalid characters replaced."""
        cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", name or "").strip("._-")[:60]
        self.name = cleaned or self.name

    @property
    def missing(self) -> str | None:
        """Return the override that the user must give for a value missing in the file; None if none is missing."""
        if self.task == "function":
            return "task._target_=MODULE.FUNCTION" if self.target == MISSING else None
        if not self.command:
            return """'task.command="PROGRAM {arguments}"'"""
        return next((f"task.arguments.{name}=..." for name, value in self.arguments.items() if value == MISSING), None)

    def complete(self) -> None:
        """Fill in the settings that depend on several parts.

        Raises:
            UserError: A parameter has the same name as a section of other parameters.
        """
        names = {**dict.fromkeys(self.arguments), **dict.fromkeys(self.space)}
        nested(names, self.keys)
        endless = [name for name, each in self.space.items() if each["type"] == "float" and "step" not in each]
        if self.sampler == "grid" and endless:
            self.sampler = "random"
            self.notes.append(
                f"the grid: {', '.join(endless)} {'has' if len(endless) == 1 else 'have'} no step, so the sampler is "
                "random; add a step for a grid"
            )
        if self.num_trials is None:
            if self.sampler == "grid":
                self.num_trials = grid_size(self.space)
            else:
                self.num_trials = DEFAULT_TRIALS
                self.notes.append(f"the file sets no number of trials; search.num_trials is {DEFAULT_TRIALS}")
        if self.scheduler["kind"] in ("pbt", "pb2") and "mutate" not in self.scheduler:
            self.scheduler["mutate"] = [f"task.arguments.{name}" for name in self.space]
        for name, distribution in self.space.items():
            # A search sets values in sections that exist, and a placeholder of a command needs a value.
            if self.task == "command" or "." in name:
                self.arguments.setdefault(name, some_value(distribution))
