"""The names that a sweep may have, on the command line, in configs and in requests to a service."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

MAX_NAME_LENGTH = 120
"""Maximum number of characters of a name."""
MAX_NAME_BYTES = 200
"""Maximum number of bytes of a name in UTF-8. File names can have 255 bytes, including the suffixes that are added to
it."""

NAME_PATTERN = r"^[^\W_][\w.-]*$"
NAME_LETTERS = "letters, digits, '.', '_' and '-', beginning with a letter or a digit"
"""Meaning of the pattern, for messages."""


def _check(name: str) -> str:
    if not name.isprintable():  # such as a zero-width joiner, which \w has: two names would look alike
        raise ValueError("has characters that cannot be seen; use letters, digits, '.', '_' and '-'")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"has more than {MAX_NAME_BYTES} bytes in UTF-8; choose a shorter name")
    return name


SweepName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH), AfterValidator(_check)]
"""Letters of any language, digits, ``.``, ``_`` and ``-``, beginning with a letter or a digit: a name of a folder that
needs no quotes in a shell."""
_SWEEP_NAME: TypeAdapter[str] = TypeAdapter(SweepName)


def is_sweep_name(text: str) -> bool:
    """Whether a string is a valid name of a sweep."""
    try:
        _SWEEP_NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def with_ending(name: str, ending: str) -> str:
    """Return a name with an ending; the name is shortened if the whole would be too long."""
    room = MAX_NAME_BYTES - len(ending.encode())
    return name[: MAX_NAME_LENGTH - len(ending)].encode()[:room].decode(errors="ignore") + ending


def another_name(name: str) -> str:
    """Return advice for a user whose sweep name is taken."""
    return (
        f"choose another --name, or continue it: `python -m sweeps resume {name}`, or `extend {name} "
        "search.num_trials=N` for more trials"
    )
