"""Somebody else's word on a sweep before it is checked any further: the service, which runs what others ask for, lets
no composition pass that reaches where it must not, whichever verb it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sweeps.compose import Composition

Approve = Callable[[Composition], None]
"""Raises a ``ConfigError`` that says what may not be."""

_approve: ContextVar[Approve | None] = ContextVar("approve", default=None)


@contextmanager
def approved_by(approve: Approve) -> Iterator[None]:
    """Within this, and in this thread, every sweep that is planned or reopened is shown to ``approve`` first: before
    its import paths are followed, its constraints computed or its files looked at."""
    token = _approve.set(approve)
    try:
        yield
    finally:
        _approve.reset(token)


def check_approval(composition: Composition) -> None:
    """
    Raises:
        ConfigError: The one who must approve does not.
    """
    approve = _approve.get()
    if approve is not None:
        approve(composition)
