"""The resolver ``calc`` for derived values: ``${calc:'2 * model.lora.r'}`` is computed from the sampled values."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

IN_QUOTES = "write the expression of calc in quotes, as in ${calc:'max(1, 2)'}"


def register_calc() -> None:
    """Register ``calc`` with OmegaConf; needed in every process that resolves a config."""
    if not OmegaConf.has_resolver("calc"):
        OmegaConf.register_new_resolver("calc", _calc)


_being_calculated: ContextVar[tuple[str, ...]] = ContextVar("being_calculated", default=())
"""Stack of the expressions that are being computed, to detect one that depends on itself."""


class _NotCalculated(Exception):
    """An expression cannot be computed. It is not a ``ValueError``, so that it passes through an outer expression."""


def _calc(text: str, *more: Any, _root_: DictConfig) -> Any:
    """Compute an expression, in which OmegaConf has replaced interpolations by their values. OmegaConf passes the whole
    config as ``_root_``.

    Raises:
        _NotCalculated: The expression cannot be computed; OmegaConf adds the key.
    """
    from sweeps.compose.expressions import Absent, Expression

    if more:
        raise _NotCalculated(f"calc has {1 + len(more)} arguments; {IN_QUOTES}")
    around = _being_calculated.get()
    if text in around:
        raise _NotCalculated(f"calc:{text!r} depends on itself")
    token = _being_calculated.set((*around, text))
    try:
        return Expression(str(text)).evaluate(partial(_value, _root_, Absent))
    except Absent as error:
        raise _NotCalculated(
            f"calc:{text!r} names {error}, which the YAML does not list; give it a value there"
        ) from None
    except ValueError as error:
        raise _NotCalculated(f"calc:{text!r} {error}") from None
    finally:
        _being_calculated.reset(token)


def _value(root: DictConfig, absent: type[Exception], path: str) -> Any:
    try:
        found = OmegaConf.select(root, path, throw_on_missing=True, default=absent)
    except OmegaConfBaseException as error:
        raise _NotCalculated(without_prefix(str(error).splitlines()[0])) from None
    if found is absent:
        raise absent(path)
    return OmegaConf.to_container(found) if isinstance(found, DictConfig | ListConfig) else found


def without_prefix(message: str) -> str:
    """Return OmegaConf's message without its prefix."""
    return message.removeprefix(f"{_NotCalculated.__name__} raised while resolving interpolation: ")
