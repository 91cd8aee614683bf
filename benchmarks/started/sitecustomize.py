"""Loaded by every Python of a measured sweep: writes which packages the process imports, and their processor seconds.

``-X importtime`` cannot be used, since Ray takes the stderr of its processes away before they have imported much. A
line of ``$SWEEPS_IMPORTS/PID`` is ``package seconds``, without the seconds of other packages that it imports.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_stacks = threading.local()


class _Timed(Loader):
    """Runs a module by its own loader, and counts the time for its package."""

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        module.__loader__ = self._loader
        if spec is not None:
            spec.loader = self._loader
        stack: list[list[Any]] = _stacks.__dict__.setdefault("stack", [])
        now = time.thread_time()
        if stack:
            stack[-1][1] += now - stack[-1][2]
        stack.append([module.__name__.partition(".")[0], 0.0, now])
        try:
            self._loader.exec_module(module)
        finally:
            package, seconds, since = stack.pop()
            now = time.thread_time()
            if stack:
                stack[-1][2] = now
            # By the id of the process: it may have been forked since.
            with open(os.path.join(os.environ["SWEEPS_IMPORTS"], str(os.getpid())), "a") as file:  # noqa: PTH118, PTH123 - imports nothing
                file.write(f"{package} {seconds + now - since:.6f}\n")


class _TimedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Timed(spec.loader)
        return spec


if "SWEEPS_IMPORTS" in os.environ:
    sys.meta_path.insert(next(i for i, each in enumerate(sys.meta_path) if each is PathFinder), _TimedFinder())
