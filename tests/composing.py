"""Compositions and plans of sweeps, as their tests ask for them, and the mistakes that the checks find in one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from sweeps.compose import Composition
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError, UserError
from sweeps.plan.plan import Plan, make_plan
from sweeps.validate.config_checks import check_sweep


def composed(conf: str, *tokens: str, folders: Sequence[Path] = ()) -> Composition:
    return compose_sweep(conf, tokens, ConfSearchPath(folders))


@cache
def composed_digits(*overrides: str) -> Composition:
    """Composition of ``conf=digits``, made once in each process, for tests that only read it."""
    return composed("digits", *overrides)


def checked(conf: str, *tokens: str, folders: Sequence[Path] = ()) -> Composition:
    """Composition of a sweep that has passed all checks."""
    composition = composed(conf, *tokens, folders=folders)
    check_sweep(composition)
    return composition


def mistakes(*tokens: str, conf: str = "digits") -> list[str]:
    """Lines of the error with which the checks refuse a sweep; none if they accept it."""
    try:
        checked(conf, *tokens)
    except ConfigError as error:
        return str(error).split("\n")
    return []


def refusal(conf: str, *tokens: str, folders: Sequence[Path] = ()) -> str:
    """Message with which a sweep is refused as its user's mistake."""
    with pytest.raises(UserError) as raised:
        checked(conf, *tokens, folders=folders)
    return str(raised.value)


def planned(*tokens: str, folders: Sequence[Path] = ()) -> Plan:
    """Plan of a sweep without a name."""
    return make_plan(tokens, folders, None, "")
