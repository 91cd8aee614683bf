"""Promises of docs/stability.md: a name that users build on goes only with a note in docs/upgrading.md."""

from __future__ import annotations

from functools import cache

import pytest
from promises import SURFACES, listed, unnamed


@cache
def present(surface: str) -> set[str]:
    return set(SURFACES[surface]())


@pytest.mark.parametrize("surface", SURFACES)
def test_a_name_that_is_gone_is_in_the_notes_for_an_upgrade(surface: str) -> None:
    assert unnamed(listed(surface) - present(surface)) == [], "name them in docs/upgrading.md"


@pytest.mark.parametrize("surface", SURFACES)
def test_every_name_is_listed_from_its_first_release_on(surface: str) -> None:
    assert sorted(present(surface) - listed(surface)) == [], "`python tests/promises.py` adds them"
