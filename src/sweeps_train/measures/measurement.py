"""Measurements that may fail: the failure is logged once, and the training continues without them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Measurement:
    """A measurement that is skipped once a library raises an exception in it.

    Workers exchange their measurements, so one that has failed on a worker takes part as NaN.
    """

    def __init__(self, name: str, note: Callable[[str], None] | None = None):
        """Name the measurement, by its metric or in a few words. A failure is always logged, and told to the user by
        ``note``."""
        self._name, self._note = name, note
        self.failed = False

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Context manager around code that measures: its first exception is logged and ends the block, but not the
        training."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a library raises, training must continue
            self.fail(error)

    def value(self, read: Callable[[], T], unknown: T) -> T:
        """Return the result of ``read``, or ``unknown`` if it raises an exception."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - as above
            self.fail(error)
            return unknown

    @contextmanager
    def around(self, measuring: Callable[[], AbstractContextManager[T]]) -> Iterator[T | None]:
        """Context manager around training code that is being measured. The code runs even if the context manager of
        ``measuring`` fails, and the code's own exceptions pass through."""
        stack, entered = ExitStack(), None
        with self.attempt():
            entered = stack.enter_context(measuring())
        try:
            yield entered
        finally:
            with self.attempt():
                stack.close()

    def fail(self, error: Exception) -> None:
        """Log once what could not be measured, and why."""
        if self.failed:
            return
        self.failed = True
        text = f"{self._name} cannot be measured and is left out ({type(error).__name__}: {error})"
        _log.warning(text)
        if self._note is not None:
            self._note(text)
