"""Ray clusters of several nodes on this machine, whose nodes can differ in environment, mounts and speed."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STARTS_WITHIN_S = 90.0
RAY = (sys.executable, "-m", "ray.scripts.scripts")


class RayNodes:
    """A cluster whose first node is its head; each node is a process group that ends with ``stop``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        """Environment variables that nodes and drivers need to be let in."""
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(
        self,
        *,
        num_cpus: int = 2,
        environment: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a node and wait until it has joined. ``before`` is a command that runs the node, such as ``unshare``,
        which makes mounts of its own; ``options`` of ``ray start`` replace those of the same name."""
        role = ["--address", self.address] if self.address else ["--head", "--port=0", "--include-dashboard=false"]
        command = [*before, *RAY, "start", *role, f"--num-cpus={num_cpus}", "--block", "--disable-usage-stats"]
        # Nodes of one machine would give their workers the same ports.
        command += ["--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0", *options]
        log = self._folder / f"node-{len(self._nodes)}.log"
        with log.open("wb") as file:
            node = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment, **(environment or {})},
                start_new_session=True,
            )
        self._nodes.append(node)
        until = time.monotonic() + STARTS_WITHIN_S
        while "Ray runtime started" not in (text := log.read_text(errors="replace")):
            assert node.poll() is None, text
            assert time.monotonic() < until, text
            time.sleep(0.2)
        if not self.address:
            found = re.search(r"--address='([^']+)'", text)
            assert found, text
            self.address = found.group(1)
        return node

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End a node at once, with all its workers."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self) -> None:
        for node in reversed(self._nodes):
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGTERM)
        for node in self._nodes:
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)
                node.wait()
