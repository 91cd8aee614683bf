"""Handling of SIGTERM on a worker, which Kubernetes, Slurm and people send before they kill it: the trial saves its
state and moves to other workers."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.runtime.broker_sides import WorkersSide


def announce_sigterm(broker: WorkersSide, slot: str, rank: int) -> None:
    """Tell the broker when this process receives SIGTERM, instead of ending immediately; a second one ends the process.

    Runs in the main thread of a worker's process. The training is in another thread, and continues until the broker
    asks it to stop.
    """
    before, process, received = signal.getsignal(signal.SIGTERM), os.getpid(), threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        if os.getpid() == process:
            received.set()
        else:  # in a fork of the worker
            signal.raise_signal(number)

    def tell() -> None:
        received.wait()  # a handler itself may interrupt a call of Ray, and must not make another one
        broker.worker_terminated(slot, rank)

    threading.Thread(target=tell, name="sigterm", daemon=True).start()
    signal.signal(signal.SIGTERM, handle)
