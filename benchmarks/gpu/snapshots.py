"""Seconds for which a save blocks a training on the GPU, and seconds to resume from memory and from a disk."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import Any

from gpu.results import Results, run_part, say

SIZES_MIB = (1000, 250, 25)
SAVES = 3
"""Saves of each kind, with the first one, which allocates."""


def measure(results: Results, tiny: bool) -> None:
    """Measure each way to save a state of each size, and resuming."""
    say("importing torch and sweeps_train")
    from checkpoint import measure_recovery
    from saved.arms import clear
    from saved.state import build_state

    from sweeps_train.workers.distributed import Workers

    workers, failed = Workers.current(), 0
    for mib in (12,) if tiny else SIZES_MIB:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "files"
            say(f"building a state of {mib} MiB")
            state = build_state(mib, workers)
            for number, name in enumerate(_names(state)):
                if number == 2:  # after what it is compared with, before what is known from other measurements
                    say(f"{mib} MiB: resuming")
                    results.add("recovery", mib=mib, **measure_recovery(state, folder, SAVES - 1, None))
                say(f"{mib} MiB: {name}")
                clear(folder)
                failed += not _saved(results, mib, name, state, folder)
    if failed:
        raise SystemExit(f"{failed} ways to save failed")


def _names(state: Any) -> list[str]:
    """Ways to save, those of Sweeps and what they are compared with first; without those that need other workers."""
    from checkpoint import COPY, OURS, SYNCHRONOUS
    from saved.arms import APART, ARMS, IN_PROCESS, UNLOCKED

    from sweeps_train.devices.device_operations import pins_memory

    left_out = {APART, IN_PROCESS} | (set() if pins_memory(state.strategy.workers.device) else {UNLOCKED})
    first = [COPY, OURS, SYNCHRONOUS, UNLOCKED]
    return [name for name in [*first, *(name for name in ARMS if name not in first)] if name not in left_out]


def _saved(results: Results, mib: int, name: str, state: Any, folder: Path) -> bool:
    from checkpoint import seconds_of
    from saved.arms import ARMS

    try:
        first, *following = seconds_of(ARMS[name](state, folder), SAVES)
    except Exception as error:  # noqa: BLE001 - one way that fails does not cost the others
        traceback.print_exc()
        results.add("failed", mib=mib, arm=name, error=repr(error)[:500])
        return False
    results.add("save", mib=mib, arm=name, first=first, next=following)
    return True


if __name__ == "__main__":
    run_part("snapshots", measure)
