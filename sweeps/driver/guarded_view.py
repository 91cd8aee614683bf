"""A wrapper that keeps errors of a view from ending the sweep."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sweeps.driver.sweep_state import SweepState, View

logger = logging.getLogger(__name__)


class GuardedView:
    """A view that cannot end the sweep: a closed terminal, or a mistake in a user's own view, must not cost recorded
    results. The first error is logged with its traceback."""

    def __init__(self, view: View):
        self._view = view
        self._has_failed = False

    def changed(self, state: SweepState) -> None:
        self._guarded(lambda: self._view.changed(state))

    def event(self, state: SweepState, text: str) -> None:
        self._guarded(lambda: self._view.event(state, text))

    def starting(self, text: str) -> None:
        if hasattr(self._view, "starting"):
            self._guarded(lambda: self._view.starting(text))

    def _guarded(self, show: Callable[[], None]) -> None:
        try:
            show()
        except (Exception, SystemExit):  # rich exits when the reader of a pipe has ended
            if not self._has_failed:
                self._has_failed = True
                logger.exception("the progress of the sweep could not be shown; the sweep continues")
