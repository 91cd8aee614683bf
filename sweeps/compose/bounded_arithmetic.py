"""Arithmetic with results of bounded size, for expressions from untrusted users: an operation whose result would be a
huge number, string or list raises an error before it is computed."""

from __future__ import annotations

from typing import Any

MAX_BITS = 4096
"""Maximum number of bits of an integer: about 1,200 digits."""
MAX_CHARACTERS = 10_000
"""Maximum number of characters of a string."""
MAX_ITEMS = 1000
"""Maximum number of items of a list, including those of nested lists."""


class TooLarge(ValueError):
    """The result would be too large."""


def add(left: Any, right: Any) -> Any:
    if isinstance(left, str | bytes | list | tuple):
        _check_size(size(left) + size(right), left)
    return _checked(left + right)


def subtract(left: Any, right: Any) -> Any:
    return _checked(left - right)


def multiply(left: Any, right: Any) -> Any:
    """Return ``left * right``; repeats a string or a list."""
    for one, times in ((left, right), (right, left)):
        if isinstance(one, str | bytes | list | tuple) and isinstance(times, int):
            _check_size(max(size(one), 1) * times, one)
    _check_bits(bits(left) + bits(right))
    return left * right


def power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        _check_bits((bits(base) - 1) * exponent)  # a lower bound of the result's bits
    return _checked(base**exponent)


def modulo(left: Any, right: Any) -> Any:
    """Return ``left % right`` of numbers. Strings are rejected, since they would be formatted to any width."""
    if isinstance(left, str | bytes):
        raise TypeError("% needs numbers")
    return left % right


def rounded(number: Any, digits: Any = None) -> Any:
    """Return ``round(number, digits)`` with a bounded number of digits, since Python computes that power of ten for an
    integer."""
    if digits is not None and abs(digits) > MAX_BITS // 4:
        raise TooLarge(f"round(..., {repr(digits)[:50]}): at most {MAX_BITS // 4} digits")
    return round(number, digits)


def joined(values: list[Any]) -> list[Any]:
    """Return the list after checking its size."""
    _check_size(size(values), values)
    return values


def size(value: Any) -> int:
    """Return the number of characters of a string, or of items of a list, including nested ones; counting stops at ten
    times the limit."""
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
    """Return the number of bits of an integer; 0 for other values."""
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
