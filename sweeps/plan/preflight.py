"""Preflight: starts the process that checks users' data and models while Ray starts, and reads its findings."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps.files.file_sizes import size_of
from sweeps.plan.plan import Plan
from sweeps.plan.planned_memory import MemoryQuestion, MemoryReport, memory_report, uses_gpu
from sweeps.provenance.redacted_text import redacted_log
from sweeps.runtime.fork_server import task_modules
from sweeps.texts.wording import value_text
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.config_checks import lookup_in
from sweeps.validate.source_checks import source_signature
from sweeps_train.config import CausalLM, CommandTask, CustomData, CustomModel, FunctionTask, TableData, TextData
from sweeps_train.files.text_lines import text_lines
from sweeps_train.tables.table_files import table_files

MAX_CONFIGS = 24
"""Maximum number of configs that are checked."""
MAX_TIMER_S = 1e6
"""Maximum seconds of a timer."""
MAX_BYTES = 500 * 2**20
"""Maximum size of a language model's folder, and of a text file, for a forward pass in the preflight."""
IMPORTS_WITHIN_S = 600.0
"""Maximum seconds for the imports of the process, which may hang, as on a network file system."""
POLL_EVERY_S = 0.05
"""Seconds between two polls of the process."""
HOW_TO_SKIP = "This is from the check of data and model before the first trial; preflight.timeout_s=0 skips it."


class Preflight:
    """Check of the data and models of one sweep, in a process that the context manager starts and ends."""

    def __init__(self, plan: Plan, asked: Sequence[MemoryQuestion] = (), room: float | None = None):
        """The bytes that a worker has for tensors (``room``) may be known only later; see ``memory``."""
        self._plan, self._asked, self._room = plan, asked, room
        self._answerable = [each for each in asked if each.obstacle is None]
        self._timeout_s = plan.config.preflight.timeout_s
        self._configs: list[tuple[dict[str, Any], SweepConfig]] = []
        """Configs to check, each with the values that differ from the sweep's own config."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    def __enter__(self) -> Preflight:
        self._configs = list(configs_to_check(self._plan)) if self._timeout_s else []
        if self._configs or (self._answerable and self._timeout_s):
            self._folder = tempfile.TemporaryDirectory(prefix="sweeps-preflight-")
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with the child processes of the user's code
            self._process.wait()
            self._process = None
            self._folder.cleanup()

    def result(self) -> list[str]:
        """Wait for the findings, at most for the configured time after the process has imported its libraries, and
        return the warnings.

        Raises:
            ConfigError: Every trial would fail; one mistake per line.
        """
        if self._process is None:
            return []
        ended = ""
        if (status := self._status()) is None:
            ended = f"the check of data and models took longer than preflight.timeout_s={self._timeout_s:g}"
        elif status != 0:
            ended = f"the check of data and model ended with status {status}; {self._error()}"
        if len(self._lines()) >= len(self._configs):  # only answers about memory are missing, which say so
            ended = ""
        mistakes, warnings = self._read()
        if mistakes and self._plan.config.cluster.address == "local":
            raise ConfigError("\n".join([*dict.fromkeys(mistakes), HOW_TO_SKIP]))
        return list(dict.fromkeys([*mistakes, *warnings, *([f"{ended}; the sweep continues"] if ended else [])]))

    def memory(self, room: float | None) -> MemoryReport:
        """Return the memory that was computed for the requested configs so far; call ``result`` first."""
        lines = self._lines()[len(self._configs) :] if self._process is not None else []
        return memory_report(self._asked, [json.loads(line) for line in lines], room)

    def _start(self) -> None:
        examined = [*(config for _, config in self._configs), *(each.config for each in self._answerable)]
        request = {
            "results": str(self._results),
            "begun": str(self._begun),
            "modules": list(dict.fromkeys(name for config in examined for name in task_modules(config))),
            "timeout_s": min(self._timeout_s, MAX_TIMER_S),
            "space": list(self._plan.space),
            "room": self._room,
            "use_gpu": uses_gpu(self._plan),
            "memory": [each.config.as_document() for each in self._answerable],
            "configs": [config.as_document() for _, config in self._configs],
        }
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        with (Path(self._folder.name) / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sweeps.plan.preflight_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._started = time.time()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin:
            self._process.stdin.write(json.dumps(request).encode())

    def _status(self) -> int | None:
        """Wait for the process and return its exit status; None if it takes longer than the configured time, counted
        from the end of its imports, which alone may take a minute on a busy machine."""
        assert self._process is not None
        while (status := self._process.poll()) is None:
            begun = self._begun.stat().st_mtime if self._begun.exists() else self._started + IMPORTS_WITHIN_S
            if time.time() - begun > self._timeout_s:
                return None
            time.sleep(POLL_EVERY_S)
        return None if status == -signal.SIGALRM else status

    @property
    def _begun(self) -> Path:
        return Path(self._folder.name) / "begun"

    @property
    def _results(self) -> Path:
        return Path(self._folder.name) / "results"

    def _error(self) -> str:
        text = (Path(self._folder.name) / "stderr").read_text(encoding="utf-8", errors="replace").strip()
        return redacted_log(text.splitlines()[-1][:300]) if text else "it printed no error"

    def _lines(self) -> list[str]:
        """Return the complete lines that the process has written: one for each config, then one for each computed
        memory."""
        text = self._results.read_text(encoding="utf-8") if self._results.exists() else ""
        return text_lines(text[: text.rfind("\n") + 1])

    def _read(self) -> tuple[list[str], list[str]]:
        """Return mistakes and warnings. A failure that occurs only with some values of the space is a warning: other
        trials may train."""
        mistakes: list[str] = []
        warnings: list[str] = []
        for (differing, _), line in zip(self._configs, self._lines(), strict=False):
            depends_on_values = any(path not in self._plan.composition.searched_groups for path in differing)
            values = ", ".join(f"{path}={value_text(value)}" for path, value in differing.items())
            prefix = f"with {values}: " if values else ""
            for kind, text in json.loads(line):
                is_mistake = kind == "mistake" and not depends_on_values
                known = any(each.endswith(text) for each in (*mistakes, *warnings))
                if not known:
                    (mistakes if is_mistake else warnings).append(f"{prefix}{text}")
        return mistakes, warnings


def configs_to_check(plan: Plan) -> Iterator[tuple[dict[str, Any], SweepConfig]]:
    """Yield configs with users' code, data or models, each once, with the values that differ from the first."""
    lookup = lookup_in(plan.composition)
    seen: set[str] = set()
    first: dict[str, Any] | None = None
    for point, config in configs_of_trials(plan.composition, plan.space, lookup, ("model", "data", "task")):
        first = point if first is None else first
        document = config.as_document()
        key = json.dumps([document[section] for section in ("task", "model", "data")], sort_keys=True, default=str)
        differing = {path: value for path, value in point.items() if path not in first or first[path] != value}
        # The checks of the config cover all values but users' arguments and data.
        checked = {path for path in differing if ".arguments." not in path and not path.startswith("data.")}
        checked -= set(plan.composition.searched_groups)
        if key in seen or checked or not _has_users_parts(config):
            continue
        seen.add(key)
        yield differing, config
        if len(seen) == MAX_CONFIGS:
            return


def _has_users_parts(config: SweepConfig) -> bool:
    """Whether the preflight can find mistakes that the checks of the config cannot."""
    task, model, data = config.task, config.model, config.data
    if isinstance(task, CommandTask):  # a program may only read placeholders
        return False
    if isinstance(task, FunctionTask):
        targets = [task.target, *(each.target for each in task.datasets.values())]
        return task.framework != "script" and any(source_signature(target) is None for target in targets)
    if isinstance(data, TableData):
        return _size_of_table(data) <= MAX_BYTES
    if isinstance(model, CustomModel) or isinstance(data, CustomData):
        return True
    if not isinstance(model, CausalLM) or not isinstance(data, TextData) or data.streaming:
        return False
    sizes = [size_of(path) for path in (data.path, model.path) if not path.startswith("builtin:")]
    return bool(sizes) and all(size is not None and size <= MAX_BYTES for size in sizes)


def _size_of_table(data: TableData) -> float:
    """Return the bytes of a table's files; infinite if they are not on this machine."""
    if data.path.startswith("builtin:"):
        return 0
    try:
        return math.inf if "://" in data.path else sum(file.size for file in table_files(data, "data.path", data.path))
    except ValueError:
        return math.inf
