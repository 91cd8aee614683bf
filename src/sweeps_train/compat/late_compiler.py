"""Avoids the slow import of ``torch._dynamo``, torch's compiler, in trainings without compilation.

Torch's optimizers and ``DistributedDataParallel`` import the compiler when they are first used, to exclude themselves
from compilation; that takes a worker longer than importing torch. Here the import waits until something else needs the
compiler. If torch has changed, the compiler is imported as before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMPILER = "torch._dynamo"
_KEPT = "__dynamo_disable"
"""Attribute in which torch keeps the uncompiled form of a function after its first call."""


def compiler_is_loaded() -> bool:
    """Whether ``torch._dynamo`` is imported, so that something may compile."""
    return COMPILER in sys.modules


def leave_out_of(optimizer: type[torch.optim.Optimizer]) -> None:
    """Keep the steps of an optimizer class from importing the compiler."""
    for cls in optimizer.__mro__:
        for function in list(vars(cls).values()):
            _call_directly(function)
        step = vars(cls).get("step")
        if isinstance(step, FunctionType) and step.__code__.co_name == "_use_grad":
            setattr(cls, "step", _without_graph_breaks(step))  # noqa: B010 - of any class


def wrap(model: nn.Module, **options: Any) -> DistributedDataParallel:
    """Wrap a model in ``DistributedDataParallel`` without importing the compiler."""
    for function in list(vars(DistributedDataParallel).values()):
        _call_directly(function)
    with _answered_without_compiler():
        return DistributedDataParallel(model, **options)


def _call_directly(function: Any) -> None:
    """Let a function marked as never compiled run without importing the compiler, until something else loads it."""
    while isinstance(function, FunctionType) and not function.__code__.co_qualname.startswith("_disable_dynamo."):
        function = getattr(function, "__wrapped__", None)  # inside of another decorator
    plain: Any = getattr(function, "__wrapped__", None)
    if not isinstance(plain, FunctionType) or hasattr(plain, _KEPT):
        return

    @functools.wraps(plain)
    def direct(*args: Any, **kwargs: Any) -> Any:
        if not compiler_is_loaded():
            return plain(*args, **kwargs)
        vars(plain).pop(_KEPT, None)  # torch makes its own now
        return function(*args, **kwargs)

    setattr(plain, _KEPT, direct)


def _without_graph_breaks(usual: Any) -> Callable[..., Any]:
    """Replace an optimizer's step by one that does not import the compiler. Once the compiler is loaded, torch's own
    step runs."""
    plain: Any = usual.__wrapped__

    @functools.wraps(plain)
    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if compiler_is_loaded():
            return usual(self, *args, **kwargs)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return plain(self, *args, **kwargs)

    return step


@contextlib.contextmanager
def _answered_without_compiler() -> Iterator[None]:
    """Within the block, replace ``torch._dynamo`` by a stand-in for the calls that DDP makes, unless it is imported
    already."""
    if compiler_is_loaded():
        yield
        return
    utils = _Answers(f"{COMPILER}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
    answers = _Answers(COMPILER, utils=utils)
    torch._dynamo = answers
    try:
        yield
    finally:
        if vars(torch).get("_dynamo") is answers:  # an import has not taken its place
            del torch._dynamo


class _Answers:
    """Stands in for a module with some ``answers``; any other attribute imports the real module."""

    def __init__(self, module: str, **answers: Any) -> None:
        self._module = module
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
