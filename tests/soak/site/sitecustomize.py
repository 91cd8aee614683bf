"""ServiceContext of the processes of a soak: a clock that may jump, and a driver without Ray (``light_driver``)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
runpy.run_path(str(TESTS / "faults" / "clock" / "sitecustomize.py"))


class _Light(ModuleType):
    """Takes the place of ``sweeps.driver.run``; imports the driver when it is asked for it."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("run", "resume"):
            raise AttributeError(name)
        sys.path.insert(0, str(TESTS / "soak"))
        import light_driver

        return getattr(light_driver, name)


sys.modules["sweeps.driver.run"] = _Light("sweeps.driver.run")
