"""Reading other people's text takes time in proportion to its length: every regular expression of ours, and what is
made of them."""

from __future__ import annotations

import ast
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # the only way to see what a pattern is made of
from typing import Any, TypeGuard

import pytest
from syntax import statements

from sweeps.compose.overrides import written_override
from sweeps.provenance.redaction import redacted
from sweeps.service.auth.middleware import check_json
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.uri_passwords import redact_uri

SHORTEST, LONGEST = 250, 16_000
USES = {"compile", "search", "match", "fullmatch", "sub", "split", "findall", "finditer"}
UNBOUNDED = re.compile(r"[*+]|,\}")
"""Signs of a repetition without a limit."""
TELLING_S = 0.02
"""Minimum seconds: a shorter time says nothing about growth."""
SHORTER, MOST = 4, 9.0
"""Four times the text takes four times the time; 16 times, if that grows with the square."""


def seconds(do: Callable[[str], Any], text: str) -> float:
    """Seconds of this thread's own processor time: what else the machine does counts for nothing."""
    began = time.thread_time()
    do(text)
    return time.thread_time() - began


def is_linear(do: Callable[[str], Any], unit: str, end: str = "", *, begin: str = "", longest: int = LONGEST) -> bool:
    """Whether a text that is longer takes no more than so much longer. It is made longer until it tells something."""

    def text(length: int) -> str:
        return begin + unit * (length // len(unit) + 1) + end

    length = SHORTEST
    while length <= longest:
        if (long := seconds(do, text(length))) >= TELLING_S:
            for _ in range(4):  # a pause of the machine makes either longer, and nothing makes them shorter
                if long < MOST * min(seconds(do, text(length // SHORTER)) for _ in range(3)):
                    break
                long = min(long, seconds(do, text(length)))
            else:
                return False
        length *= SHORTER
    return True


def patterns(checkout: Path) -> Iterator[tuple[str, str, int, str]]:
    """(where, pattern, flags, method) of every regular expression that our code compiles or uses."""
    for path in sorted([*(checkout / "sweeps").rglob("*.py"), *(checkout / "src").rglob("*.py")]):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text) if "re." in text else ast.Module([], [])
        names = {
            node.targets[0].id: node.value
            for node in statements(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and is_use(node.func):
                found = plain(node.args[0], names)
                owner = next((name for name, value in names.items() if value is node), "-")
                used = re.findall(rf"\b{owner}\.(match|fullmatch)\(", text)
                method = used[0] if used else node.func.attr
                if found is not None:  # else it is made of an escaped text
                    yield f"{path.relative_to(checkout)}:{node.lineno}", found, flags_of(node), method


def is_use(function: ast.expr) -> TypeGuard[ast.Attribute]:
    match function:
        case ast.Attribute(value=ast.Name(id="re"), attr=name):
            return name in USES
    return False


def flags_of(node: ast.Call) -> int:
    written = " ".join(ast.unparse(each) for each in (*node.args[1:], *node.keywords))
    flags = re.NOFLAG
    for word in ("IGNORECASE", "DOTALL", "MULTILINE", "ASCII"):
        flags |= re.RegexFlag[word] if word in written else re.NOFLAG
    return flags


def plain(node: ast.AST, names: dict[str, Any]) -> str | None:
    """The text of a literal, or of an f-string of literals."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=bytes() as text):
            return text.decode("latin-1")
        case ast.JoinedStr(values=values):
            parts = [plain(each, names) for each in values]
            return None if None in parts else "".join(each for each in parts if each is not None)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in names:
            return plain(names[name], {})
    return None


def pieces(pattern: str, flags: int) -> set[str]:
    """Texts from which hostile ones are made: the literals of a pattern, whole runs of them, and one of each class."""
    return {" ", "a", "\\", '"', "1", *literals(_parser.parse(pattern, flags))} - {""}


def literals(parsed: Any) -> Iterator[str]:
    run = ""
    for operation, argument in parsed:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        yield run
        run = ""
        if str(operation) == "IN":
            yield from (chr(value) for kind, value in argument if str(kind) == "LITERAL")
            yield from (chr(value[0]) for kind, value in argument if str(kind) == "RANGE")
        for inner in inside(argument):
            yield from literals(inner)
    yield run


def inside(argument: Any) -> Iterator[Any]:
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from inside(each)


def hostile(pattern: str, flags: int) -> Iterator[tuple[str, str]]:
    """(begin, unit): a piece again and again, and two of them in turn, after any piece."""
    found = sorted(pieces(pattern, flags), key=lambda each: (len(each), each))[-10:]
    yield from (("", unit) for unit in [*found, *map("".join, itertools.permutations(found, 2))])
    yield from itertools.permutations(found, 2)


def test_every_regular_expression_takes_time_in_proportion_to_the_text(checkout: Path) -> None:
    looked_at, slow = 0, []
    for where, pattern, flags, method in patterns(checkout):
        looked_at += 1
        if not UNBOUNDED.search(pattern):  # takes at most a constant time at each character
            continue
        compiled = re.compile(pattern, flags)
        use = getattr(compiled, method if method in ("match", "fullmatch") else "findall")
        for begin, unit in hostile(pattern, flags):
            if not is_linear(use, unit, "\n!", begin=begin, longest=4000):
                slow.append(f"{where} {pattern!r} on {begin!r} and then {unit!r} again and again")
                break
    assert slow == []
    assert looked_at > 30


TEXTS = {
    "one long word": ("", "a"),
    "dots and dashes": ("", "a-b."),
    "names of secrets": ("", "token"),
    "a name and then spaces": ("password", " "),
    "names without values": ("", "secret: "),
    "open quotes": ("", "password='a\" "),
    "addresses": ("", "x://a:"),
    "an address and then a long word": ("x://a:", "b"),
    "addresses of databases": ("", "mysql://a:"),
    "a database and then a long word": ("mysql://a:", "b/"),
    "parts of a JSON web token": ("", "eyJ-"),
    "many of them": ("", "eyJaaaaaaaaaaa."),
    "beginnings of keys": ("", "-----BEGIN "),
    "a key and then letters": ("-----BEGIN ", "A"),
    "prefixes of tokens": ("", "sk-"),
    "escapes": ("", '\\"'),
    "backslashes": ("", "\\"),
}


@pytest.mark.parametrize(
    "do", [redacted, redact_uri, lambda text: written_override("a", text)], ids=["redacted", "shown", "written"]
)
@pytest.mark.parametrize(("begin", "unit"), TEXTS.values(), ids=TEXTS)
def test_a_text_of_a_user_is_made_presentable_in_time_that_grows_with_its_length(
    do: Callable[[str], str], begin: str, unit: str
) -> None:
    assert is_linear(do, unit, "\n!", begin=begin)


@pytest.mark.parametrize("unit", ['\\"', "\\", '"', "[]", "{}", '"[",', "1", " "])
def test_a_body_is_looked_at_in_time_that_grows_with_its_length(unit: str) -> None:
    def look(text: str) -> None:
        check_json(text.encode(), 20)

    for begin in ("", '"', "[["):
        assert is_linear(lambda text: refused(look, text), unit, begin=begin, longest=256_000)


def refused(look: Callable[[str], None], text: str) -> bool:
    try:
        look(text)
    except Exception:  # noqa: BLE001 - refused is refused
        return True
    return False


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (json.dumps("[" * 50), True),
        (json.dumps('"' + "[" * 50), True),
        (json.dumps("\\" + "[" * 50), True),
        ('{"a": ' + "[" * 50 + "]" * 50 + "}", False),
        (json.dumps(["\\"]) + "[" * 50, False),
        ("[[[]], [[]], {}]", True),
    ],
    ids=["brackets-in-a-text", "after-a-quote", "after-a-backslash", "deep", "deep-after-a-text", "flat"],
)
def test_brackets_are_counted_outside_of_texts(text: str, kept: bool) -> None:
    assert refused(lambda text: check_json(text.encode(), 20), text) != kept


def test_a_name_of_thousands_of_letters_has_no_near_one() -> None:
    assert did_you_mean("ab" * 5000, ["ba" * 5000, "a"]) == ""
