"""Script that Ray runs for each new worker process of a cluster on this machine instead of Ray's ``setup_worker``.

Ray's own script imports ray, which takes a second, only to read one argument, and then executes Python, which imports
ray again. This script imports only modules that Python has loaded anyway. Anything that a runtime environment needs
beyond environment variables is left to Ray's script.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORKED_WITHIN_S = 20.0
"""Seconds to wait for the fork server, which may be in the middle of a long import."""


def main(arguments: list[str]) -> None:
    """Turn this process into a Ray worker.

    Args:
        arguments: The worker's command, without the Python interpreter but with the arguments of Ray's script.
    """
    context, language, worker = _parsed(arguments)
    variables = context.pop("env_vars", {})
    executable = context.pop("py_executable", sys.executable)
    script = next((argument for argument in worker if argument.endswith(".py")), "")  # after flags of Python
    is_plain = language == "PYTHON" and executable == sys.executable and sys.platform == "linux"
    if not is_plain or any(context.values()) or any("$" in value for value in variables.values()):
        setup = os.path.join(os.path.dirname(script), "setup_worker.py")  # noqa: PTH118, PTH120 - pathlib
        _become(setup, *arguments)
    os.environ.update(variables)
    if _is_forked(worker):
        return
    _become(*worker)


def _become(*arguments: str) -> None:
    """Replace this process by Python with these arguments. It hears of SIGHUP, which is blocked in Ray's own
    processes."""
    import signal

    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - Ray's own command


def _is_forked(worker: list[str]) -> bool:
    """Whether the cluster's fork server, if there is one, has created a worker process."""
    if not (address := os.environ.pop("SWEEPS_FORK_SERVER", "")):  # the worker may be a driver itself
        return False
    import resource
    import socket

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:  # noqa: PTH123 - pathlib
            oom_score = file.read()
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(FORKED_WITHIN_S)
            server.connect(address)
            socket.send_fds(server, [b"."], [0, 1, 2])
            server.sendall(json.dumps([worker, dict(os.environ), os.getcwd(), limits, oom_score]).encode() + b"\n")  # noqa: PTH109
            if server.recv(6) != b"forked":
                return False
            server.sendall(b".")
            return True
    except OSError:
        return False


def _parsed(arguments: list[str]) -> tuple[dict[str, Any], str, list[str]]:
    """Return the runtime environment, the language, and the command of the worker."""
    context, language, worker = "{}", "", []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "--serialized-runtime-env-context":
            context = value
        elif name == "--language":
            language = value
        else:
            worker.append(argument)
    return json.loads(context or "{}"), language, worker


if __name__ == "__main__":
    main(sys.argv[1:])
