"""Script that Ray runs on this machine instead of the dashboard's agent of its node.

Without a dashboard the agent only reports that it offers nothing, but imports ray first, while the node waits for more
than a second. This script reports the same, and imports only modules that Python has loaded anyway.
"""

from __future__ import annotations

import os
import sys
import time

CHECKS_EVERY_S = 1.0
"""Seconds between two checks whether the node still runs."""


def main(ports: str, *agent: str) -> None:
    """Report to the node that its agent listens on no port, and end with the node.

    Args:
        ports: Names of the ports that the agent reports, separated by commas.
        agent: The agent's command, without the Python interpreter.
    """
    if "--minimal" not in agent:  # ray[default] is installed: the agent has something to offer
        os.execv(sys.executable, [sys.executable, "-u", *agent])  # noqa: S606 - Ray's own
    node = os.getppid()
    (folder,) = (each.partition("=")[2] for each in agent if each.startswith("--session-dir="))
    for name in ports.split(","):
        path = f"{folder}/{name}_{os.environ['RAY_NODE_ID']}"
        with open(f"{path}.new", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib
            file.write("-1")
        os.replace(f"{path}.new", path)  # noqa: PTH105 - pathlib
    while os.getppid() == node:
        time.sleep(CHECKS_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
