"""Fork server: a process that imports the modules that all workers of a cluster on this machine need, and forks itself
for each worker.

A worker process needs seconds to import torch, the libraries of its task, and Ray. The fork server does this once for
all workers, while Ray starts. The script that Ray runs for each worker process (``local_worker_script``) asks for a
fork, and executes a new Python if it gets none. Ray itself is imported when the first worker asks: its library reads
the environment variables of workers when it is loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sweeps.compat.cuda_driver import NVML_CHECK, initialized_gpus
from sweeps.compat.ray_core import NO_JOB, defining_actors_before_forks, forks_draw_other_ids

if TYPE_CHECKING:
    from sweeps.config import SweepConfig

ADDRESS = "SWEEPS_FORK_SERVER"
"""Environment variable of worker processes with the socket of the server. If it is set to an empty text, the driver
starts no server."""
MAX_FOLDER = 60
"""Maximum length of the path of the folder for temporary files: a socket's path has at most 107 bytes."""
MAY_DIFFER = ("RAY_JOB_ID", "MLFLOW_", "SWEEPS_", "SPT_", "PL_", "_MLFLOW_", NVML_CHECK)
"""Prefixes of environment variables that may differ between workers, since no module reads them during its import; Ray
sends a fork its job (``RAY_JOB_ID``) when it first uses it."""
OF_RAY = ("RAY_", "TUNE_")
"""Prefixes of environment variables that only Ray's modules read during their import."""
MODULES = ("pandas", "pyarrow", "pydantic", "jsonschema", "sweeps_train.loop", "sweeps.compose.composition")
"""Modules that all workers import, and dependencies of Ray that are slow to import."""
RAY_MODULES = ("sweeps.runtime.trainable", "sweeps.runtime.worker_loop", "sweeps.runtime.broker_actor")
"""Modules that need Ray and most workers import."""
TASK_MODULES = {
    "causal_lm": ("torch.distributed.tensor", "transformers.modeling_utils", "sweeps_train.tasks.causal_lm"),
    "image_classification": ("sweeps_train.tasks.image_classification",),
    "classification": ("sweeps_train.tasks.table_task",),
    "regression": ("sweeps_train.tasks.table_task",),
}
"""Additional modules that workers import, by the kind of the task."""
START = """
import sys
if not sys.flags.safe_path:
    del sys.path[0]  # modules of the working folder are not these
from sweeps.runtime.fork_server import main
main()
"""
REQUEST_TIMEOUT_S = 5.0
"""Maximum seconds for a connected script to send its request for a fork."""


def task_modules(config: SweepConfig) -> tuple[str, ...]:
    """Return the names of the additional modules that workers import for a sweep's task."""
    peft = ("peft",) if getattr(config.model, "lora", None) is not None else ()
    return (*TASK_MODULES.get(config.task.kind, ()), *peft)


class ForkServer:
    """A running fork server of this process, which ends with the context or with this process."""

    def __init__(self, modules: Sequence[str], ray_modules: Sequence[str], environment: dict[str, str]) -> None:
        """
        Args:
            modules: Names of the modules to import. Modules that cannot be imported are left to the workers.
            ray_modules: Names of the modules to import when the first worker asks, and all its environment is known.
            environment: Environment variables of the worker processes, as far as known.
        """
        self._modules, self._ray_modules, self._environment = modules, ray_modules, environment

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="sweeps-forks-", ignore_cleanup_errors=True)
        self.address = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.address)
            listening.listen()
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", START, str(listening.fileno())),
                    *(",".join(modules) for modules in (self._modules, self._ray_modules)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C is the driver's
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._folder.cleanup()


@dataclass(frozen=True)
class Request:
    """Request for a fork that becomes a worker process."""

    command: list[str]
    """A worker's command, without the Python interpreter."""
    environment: dict[str, str]
    folder: str
    """Working folder of the worker."""
    max_files: tuple[int, int]
    """Soft and hard limit of open files, which Ray raises."""
    oom_score: str
    """The kernel's preference to kill the process when memory runs out, which Ray raises."""
    files: list[int]
    """File descriptors of standard input, output and errors."""

    @classmethod
    def read(cls, connected: socket.socket) -> Request:
        """Read the request of a connected script.

        Raises:
            OSError: The client sends nothing.
            ValueError: The client sends anything but a request.
        """
        _, files, _, _ = socket.recv_fds(connected, 1, 3)
        try:
            with connected.makefile("rb") as lines:
                command, environment, folder, (soft, hard), oom_score = json.loads(lines.readline())
        except (OSError, ValueError, TypeError) as error:
            _close(files)
            raise ValueError(f"invalid request: {error}") from None
        return cls(command, environment, folder, (soft, hard), oom_score, [*files])

    def has_environment(self, environment: Mapping[str, str], may_differ: tuple[str, ...]) -> bool:
        """Whether the worker's environment equals this process's, in which the modules were imported.

        Args:
            may_differ: Prefixes of the variables that may have another value.
        """
        names = (name for name in {*environment, *self.environment} if not name.startswith(may_differ))
        return all(environment.get(name) == self.environment.get(name) for name in names)

    def set_environment(self) -> None:
        """Give this process the worker's environment variables."""
        os.environ.clear()
        os.environ.update(self.environment)

    def become_worker(self) -> None:
        """Turn this forked process into the worker, and run it."""
        os.setsid()  # Ray ends the group of a process with it
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, file in enumerate(self.files):
            os.dup2(file, number)
        _close(self.files)
        resource.setrlimit(resource.RLIMIT_NOFILE, self.max_files)
        with contextlib.suppress(OSError):  # lowering it needs privileges
            Path("/proc/self/oom_score_adj").write_text(self.oom_score, encoding="ascii")
        self.set_environment()
        os.chdir(self.folder)
        if "numpy" in sys.modules:  # else all forks would draw the same random numbers
            importlib.import_module("numpy").random.seed()
        script = next(index for index, argument in enumerate(self.command) if argument.endswith(".py"))
        sys.argv = self.command[script:]
        if not sys.flags.safe_path:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


def serve(listening: socket.socket, modules: Sequence[str], ray_modules: Sequence[str]) -> Request:
    """Import the modules, and fork for each request until standard input ends. Returns only in the forks."""
    own, left, has_ray = dict(os.environ), deque(modules), False
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    asks: list[int] = [listening.fileno(), 0]
    while 0 not in (ready := select.select(asks, [], [], 0 if left else None)[0]):
        if ready:
            with contextlib.suppress(OSError, ValueError), listening.accept()[0] as connected:
                connected.settimeout(REQUEST_TIMEOUT_S)
                request = Request.read(connected)
                is_like = request.has_environment(own, MAY_DIFFER if has_ray else MAY_DIFFER + OF_RAY)
                if is_like and not has_ray:
                    own, has_ray = request.environment, True
                    _import_ray(ray_modules, request)
                try:
                    is_fork = is_like and os.fork() == 0
                except OSError:  # no memory
                    is_fork = False
                if is_fork:
                    listening.close()
                    if not _is_wanted(connected):
                        os._exit(1)
                    return request
                _close(request.files)
        elif left:
            _import(left.popleft())
            if not left:
                _freeze()
    shutil.rmtree(Path(listening.getsockname()).parent, ignore_errors=True)  # the driver may have been killed
    os._exit(0)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _is_wanted(connected: socket.socket) -> bool:
    """Whether the script still waits for this fork, and has not started a Python process of its own instead."""
    try:
        connected.sendall(b"forked")
        return connected.recv(1) != b""
    except OSError:
        return False


def _import(name: str) -> None:
    # A worker that needs what cannot be imported says why.
    with contextlib.suppress(Exception):
        importlib.import_module(name)
    if initialized_gpus() is not None:
        os._exit(1)  # a fork could not use them


def _import_ray(modules: Sequence[str], request: Request) -> None:
    request.set_environment()
    os.environ["RAY_JOB_ID"] = NO_JOB  # else all forks would be workers of the first one's job
    os.environ.setdefault(NVML_CHECK, "1")
    with defining_actors_before_forks():
        for name in modules:
            _import(name)
    if modules and not forks_draw_other_ids():
        os._exit(1)  # Ray would confuse their objects
    _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all that was imported


def main() -> None:
    """Serve requests, and run the worker in each fork."""
    os.environ.setdefault(NVML_CHECK, "1")  # an import that asks for GPUs does not initialise them
    modules, ray_modules = ([name for name in names.split(",") if name] for names in sys.argv[2:])
    serve(socket.socket(fileno=int(sys.argv[1])), modules, ray_modules).become_worker()
