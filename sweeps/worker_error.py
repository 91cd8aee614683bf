"""Error of a worker as structured data: created by the worker that raised it, shown and recorded by the driver.

It holds only strings and numbers, so that it can be pickled regardless of the exception's content.
"""

from __future__ import annotations

import os
import re
import socket
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Kind = Literal["exception", "exit", "peer", "lost", "hang"]
"""Way in which a worker failed. ``exception``: the training raised it. ``exit``: the training called ``sys.exit``.
``peer``: the connection to another worker broke, so the cause is elsewhere. ``lost``: the worker's process died.
``hang``: the worker posted nothing for too long."""

LONGEST_MESSAGE = 600
"""Maximum characters shown of an error's message; the traceback has all of it."""
LONGEST_SOURCE = 120
LONGEST_TEXT = 500_000
"""Maximum characters of a message or a traceback to keep, half of them from each end."""
LOCATION = " (at "
"""Beginning of the location in code in an error's description."""
FROM_OUTSIDE = re.compile(
    r"\b(nccl|gloo|cublas|cudnn|cuda error|hip error)|time(d |-)?out|temporarily|unavailable|too many requests"
    r"|silent data corruption|connect|broken pipe"
    r"|input/output error|stale file handle|remote i/o|too many open files|(died|killed|lost|exited unexpectedly)\b",
    re.IGNORECASE,
)
"""Pattern of errors caused by devices, processors, networks, disks or killed processes. If a process that reads batches
is killed, torch reports that it exited unexpectedly."""
_OF_A_KEY = r"(task|model|data|train|strategy)\.[\w.]{1,200}: "
_NAMES_A_MISTAKE = re.compile(
    rf"(ConfigError|UserError|ValueError|TypeError|KeyError)\b|[a-z_]+(\.[\w/-]+)*=|{_OF_A_KEY}"
)
_PACKAGES = tuple(
    f"{Path(spec.origin).parent}{os.sep}"
    for name in ("sweeps", "sweeps_train")
    if (spec := find_spec(name)) and spec.origin
)
_PEER_TYPES = {"RuntimeError", "DistBackendError", "DistNetworkError", "DistError", "WorkerHealthCheckFailedError"}
_NAMES_A_KEY = re.compile(r"[A-Za-z_][\w.]{0,200}=")
_PEER = re.compile(
    r"connection (closed|reset) by (remote )?peer|connection refused|connection was (closed|reset)|broken pipe"
    r"|application timeout caused pair closure|gloo connect|connectfullmesh failed|ncclremoteerror"
    r"|remote process exited|nccl communicator was aborted",
    re.IGNORECASE,
)


def names_a_mistake(text: str) -> bool:
    """Whether an error of the driver, or of a trial's actor, names a mistake of the user and would recur in every
    attempt.

    >>> names_a_mistake("train.lr=-1: must be greater than 0"), names_a_mistake("data.path: a.jsonl is not JSON")
    (True, True)
    >>> names_a_mistake("its workers hang")
    False
    """
    return _NAMES_A_MISTAKE.match(text) is not None


def name_limit(text: str) -> str:
    """Add to Python's message about a thread that could not start the limits that cause it.

    >>> name_limit("RuntimeError: can't start new thread")
    "RuntimeError: can't start new thread; raise `ulimit -u`, or the container's limit of processes"
    """
    limited = text.endswith("can't start new thread")
    return f"{text}; raise `ulimit -u`, or the container's limit of processes" if limited else text


@dataclass(frozen=True)
class Frame:
    """Line of code in a traceback."""

    file: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        source = _shortened(self.source, LONGEST_SOURCE)
        return f"{_relative(self.file)}:{self.line} in {self.function}{f': {source}' if source else ''}"


@dataclass(frozen=True)
class WorkerError:
    """Reason why one worker failed."""

    kind: Kind
    type: str
    """The exception's class, with its module unless it is built in: ``torch.OutOfMemoryError``."""
    message: str
    """Text of the exception."""
    rank: int
    num_workers: int
    node: str
    """Host of the worker."""
    frame: Frame | None = None
    """Innermost line of the user's code, otherwise the line of Sweeps that called a library."""
    traceback: str = ""
    """Traceback with causes; the native stacks of a lost worker, if it left any."""
    types: tuple[str, ...] = ()
    """Names of the class and its bases, except ``object``: ``("KeyError", "LookupError", "Exception",
    "BaseException")``."""
    node_was_taken: bool = False
    """Whether a worker was lost because its node was ended on purpose: preempted, or stopped by SIGTERM."""

    @property
    def described(self) -> str:
        """Description in one line: what happened, where in the code, and on which of several workers."""
        location = f"{LOCATION}{self.frame})" if self.frame is not None else ""
        worker = (
            f"; worker {self.rank} on {self.node}" if self.num_workers > 1 and self.kind not in ("lost", "hang") else ""
        )
        return f"{self._summary()}{location}{worker}"

    @property
    def alike(self) -> tuple[str, str, str]:
        """Key that is equal for two errors with the same cause, even if numbers such as shapes and steps differ."""
        text = re.sub(r"\d+", "#", self.message[:LONGEST_MESSAGE])
        return self.type, text, f"{self.frame.file}:{self.frame.line}" if self.frame is not None else ""

    def _summary(self) -> str:
        name = self.type.rpartition(".")[2]
        if self.kind == "exit":
            return f"sys.exit({self.message}) ended the worker; return from the function instead"
        # Only the first line: advice and links follow in errors of libraries.
        line = _shortened(next(iter(self.message.strip().splitlines()), "").strip(), LONGEST_MESSAGE)
        if not line or self.kind in ("lost", "hang"):
            return line or name
        # A message that names the key and the fix needs no name of a class.
        names_a_key = _NAMES_A_KEY.match(line) or (name == "ValueError" and re.match(_OF_A_KEY, line))
        return name_limit(line if line.startswith(name) or names_a_key else f"{name}: {line}")


def describe_exception(error: BaseException, rank: int, num_workers: int) -> WorkerError:
    """Describe an exception that a worker has caught."""
    raised = traceback.TracebackException.from_exception(error)
    kind: Kind = "exit" if isinstance(error, SystemExit) else "exception"
    name = type(error).__name__
    message = _exit_code(error) if isinstance(error, SystemExit) else str(raised)
    if kind == "exception" and name in _PEER_TYPES and _PEER.search(message[:10_000]):
        kind = "peer"
    module = type(error).__module__
    return WorkerError(
        kind=kind,
        type=name if module in ("builtins", "__main__") else f"{module}.{name}",
        message=_both_ends(message),
        rank=rank,
        num_workers=num_workers,
        node=socket.gethostname(),
        frame=_most_useful(raised),
        traceback=_both_ends("".join(raised.format())),
        types=tuple(each.__name__ for each in type(error).__mro__ if each is not object),
    )


def root_cause(errors: Sequence[WorkerError]) -> WorkerError | None:
    """Return the first error that is not a broken connection, as the cause of the others.

    Exceptions take precedence over lost workers: a worker may be lost because another one has failed.
    """
    own = [each for each in errors if each.kind not in ("peer", "lost")]
    lost = [each for each in errors if each.kind == "lost"]
    return next(iter([*own, *lost, *errors]), None)


def without_location(description: str) -> str:
    """Return an error's description without its line of code, whose words are not part of the message."""
    return description.partition(LOCATION)[0]


def is_user_code(file: str) -> bool:
    """Whether a file belongs neither to Python nor to an installed package nor to Sweeps."""
    if file.startswith("<") or "site-packages" in file or "dist-packages" in file:
        return False
    return not is_own_code(file) and not file.startswith(sysconfig.get_path("stdlib"))


def is_own_code(file: str) -> bool:
    """Whether a file belongs to Sweeps."""
    return file.startswith(_PACKAGES)


def _most_useful(raised: traceback.TracebackException) -> Frame | None:
    """Return the innermost frame of the user's code in the exception or its causes; if there is none, the innermost
    frame of Sweeps that called a library. None for an error that Sweeps itself raises, since its message says what to
    do."""
    for each in _chain(raised):
        for frame in reversed(each.stack):
            if is_user_code(frame.filename):
                return _frame(frame)
    if raised.stack and not is_own_code(raised.stack[-1].filename):
        for frame in reversed(raised.stack):
            if is_own_code(frame.filename):
                return _frame(frame)
    return None


def _frame(summary: traceback.FrameSummary) -> Frame:
    return Frame(summary.filename, summary.lineno or 0, summary.name, (summary.line or "").strip())


def _chain(raised: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    following: traceback.TracebackException | None = raised
    while following is not None:
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def _exit_code(error: SystemExit) -> str:
    return "" if error.code is None else repr(error.code)


def _both_ends(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()  # half a surrogate pair, as in a name that is not UTF-8
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _relative(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
