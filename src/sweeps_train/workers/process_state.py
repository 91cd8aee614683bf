"""Restores process settings that user code changes for one training, so that the next one does not inherit them."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sweeps_train.compat.accelerate import restore_settings, settings
from sweeps_train.devices.numerics import algorithms_restored, precision_restored

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (Path.cwd, os.chdir),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
)
"""Functions that return and set a setting of the process."""


@contextlib.contextmanager
def process_state_restored() -> Iterator[None]:
    """Restore environment variables, the working folder, the standard streams, Python's logging, recursion limit,
    timeout of sockets and filters of warnings, and the global settings of NumPy, torch and Accelerate after a ``with``
    block, and discard what torch compiled in it.

    Libraries change these, too: Hugging Face Accelerate sets a variable that makes later trainings use FSDP, and
    Lightning removes the variable with the number of workers. Torch stops compiling a function after some
    recompilations.
    """
    environment = dict(os.environ)
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    found = [(get(), put) for get, put in _SETTINGS]
    device, accelerate = torch.get_default_device(), settings()
    handlers, level, collects = _handlers(), logging.getLogger().level, gc.isenabled()
    try:
        with precision_restored(), algorithms_restored(), _warnings_restored(), np.errstate():
            yield
    finally:
        _restore_environment(environment)
        for value, put in found:
            put(value)
        _restore_streams(streams)
        _restore_handlers(handlers)
        logging.getLogger().setLevel(level)
        (gc.enable if collects else gc.disable)()
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
        restore_settings(accelerate)


def _handlers() -> dict[logging.Logger, list[logging.Handler]]:
    """Return the handlers of each logger."""
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    return {each: [*each.handlers] for each in known if isinstance(each, logging.Logger)}


def _restore_handlers(before: dict[logging.Logger, list[logging.Handler]]) -> None:
    """Restore the handlers of loggers, lest the next training writes into the log file of this one, or each line twice.
    A logger without a handler writes to the worker's log."""
    for logger, handlers in _handlers().items():
        own = before.get(logger, [])
        logger.handlers[:] = own
        for handler in (each for each in handlers if each not in own):
            with contextlib.suppress(OSError, ValueError):  # a full disk, or a stream that is closed already
                handler.close()


@contextlib.contextmanager
def _warnings_restored() -> Iterator[None]:
    """Restore the filters of warnings, and whether they are logged."""
    with warnings.catch_warnings():
        shows = warnings.showwarning
        try:
            yield
        finally:
            if warnings.showwarning is not shows:  # else logging would believe that it still captures them
                logging.captureWarnings(capture=False)


_REPLACED: list[Any] = []
"""Streams of user code that were replaced. They are kept, since their finalizers would close the files that they share
with ours."""


def _restore_streams(before: dict[str, Any]) -> None:
    """Restore the standard streams that user code has replaced, and not closed."""
    for name, stream in before.items():
        own = getattr(sys, name)
        if own is not stream and not _is_closed(stream):
            _REPLACED.append(own)
            setattr(sys, name, stream)


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream.closed)
    except ValueError:  # detached
        return True


def _restore_environment(before: dict[str, str]) -> None:
    """Set and remove only the changed variables, since other threads read the environment."""
    for name in [name for name in os.environ if name not in before]:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
