"""Threads of the model's linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import scipy.linalg  # noqa: F401  the controller finds the libraries that are loaded
from threadpoolctl import ThreadpoolController

Function = TypeVar("Function", bound=Callable[..., Any])

_LIBRARIES = ThreadpoolController()


def on_one_thread(function: Function) -> Function:
    """Decorate a function so that NumPy and SciPy use one thread in it.

    The model's matrices have a few hundred rows. More threads would gain little; while all processors train, the
    threads would wait for each other and take processor time from the training.
    """
    return cast("Function", _LIBRARIES.wrap(limits=1, user_api="blas")(function))
