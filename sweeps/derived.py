"""Derived values: ``${calc:'2 * model.lora.r'}`` in a config follows what is sampled."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


def register_calc() -> None:
    """Make ``calc`` known to OmegaConf, in whatever process a config is resolved."""
    if not OmegaConf.has_resolver("calc"):
        OmegaConf.register_new_resolver("calc", _calc)


def _calc(text: str, _root_: DictConfig) -> Any:
    """
    Args:
        text: An expression; OmegaConf has replaced the interpolations in it by their values.
        _root_: The whole config, by OmegaConf's own name for it.

    Raises:
        ValueError: It cannot be computed; OmegaConf adds the key.
    """
    from sweeps.expressions import Absent, Expression

    def value(path: str) -> Any:
        try:
            found = OmegaConf.select(_root_, path, throw_on_missing=True, default=Absent)
        except RecursionError:
            raise ValueError(f"{path} depends on itself") from None
        except OmegaConfBaseException as error:
            raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None
        if found is Absent:
            raise Absent(path)
        return OmegaConf.to_container(found) if isinstance(found, DictConfig | ListConfig) else found

    try:
        return Expression(str(text)).evaluate(value)
    except Absent as error:
        raise ValueError(f"calc:{text!r} names {error}, which the YAML does not list; give it a value there") from None
    except ValueError as error:
        raise ValueError(f"calc:{text!r} {error}") from None
