"""Python's arithmetic with results of bounded size, for expressions that other people write: one that would make a
number, a text or a list of millions is an error before it is made."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

MAX_BITS = 4096
"""Maximum bits of a whole number, some 1,200 digits. Floats have their own bound."""
MAX_CHARACTERS = 10_000
"""Maximum characters of a text."""
MAX_ITEMS = 1000
"""Maximum items of a list, nested ones included."""


class TooLarge(ValueError):
    """A result that is not made."""


def add(left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str | bytes | list | tuple):
        _check_size(size(left) + size(right), left)
    return _checked(left + right)


def multiply(left: Any, right: Any) -> Any:
    """``left * right``; of texts and lists, the repetition."""
    for one, times in ((left, right), (right, left)):
        if isinstance(one, str | bytes | list | tuple) and isinstance(times, int):
            _check_size(max(size(one), 1) * times, one)
    _check_bits(bits(left) + bits(right))
    return left * right


def power(base: Any, exponent: Any) -> Any:
    """``base ** exponent``."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        _check_bits((bits(base) - 1) * exponent)  # that many at least
    return _checked(base**exponent)


def modulo(left: Any, right: Any) -> Any:
    """``left % right``, of numbers: of a text it would be C's formatting, of any width."""
    if isinstance(left, str | bytes):
        raise TypeError("% takes numbers")
    return left % right


def rounded(number: Any, digits: Any = None) -> Any:
    """``round``: of a whole number it would compute a power of ten."""
    if digits is not None and abs(digits) > MAX_BITS // 4:
        raise TooLarge(f"round(..., {repr(digits)[:50]}): at most {MAX_BITS // 4} digits")
    return round(number, digits)


def joined(values: list[Any]) -> list[Any]:
    """A list that is written out, or what ``min`` and ``max`` are given."""
    _check_size(size(values), values)
    return values


def size(value: Any) -> int:
    """Characters of a text; items of a list, with those of lists in it, counted no further than is allowed."""
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, list | tuple):
        return 1
    total = 1
    for each in value:
        total += size(each) if isinstance(each, list | tuple) else 1
        if total > 10 * MAX_ITEMS:
            break
    return total


def bits(value: Any) -> int:
    """Bits of a whole number; 0 for anything else."""
    return value.bit_length() if isinstance(value, int) else 0


def _checked(value: Any) -> Any:
    _check_bits(bits(value))
    return value


def _check_bits(count: int) -> None:
    if count > MAX_BITS:
        raise TooLarge(f"makes a whole number of more than {MAX_BITS} bits; make one of its numbers a float, as in 2.0")


def _check_size(count: int, of: Any) -> None:
    most, what = (MAX_CHARACTERS, "text of more than {} characters")
    if not isinstance(of, str | bytes):
        most, what = (MAX_ITEMS, "list of more than {} items")
    if count > most:
        raise TooLarge(f"makes a {what.format(f'{most:,}')}; make it shorter")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": add,
    "*": multiply,
    "**": power,
    "%": modulo,
    "-": lambda left, right: _checked(operator.sub(left, right)),
}
"""By the sign that they stand for."""
