"""JSON lines and documents that end with a checksum, by which damage is detected and a flipped bit corrected.

A line ``{"step": 10}`` is written as ``{"step": 10,"crc":"32eaac10"}``: the last key has the CRC-32 of all bytes before
it. A reader that does not check it sees one additional key. Files of older releases have lines without a checksum, as
do files to which other programs append, such as optuna-dashboard: such lines are accepted as they are.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKSUM = "crc"
"""Key of the checksum."""
CORRECTED_UP_TO = 1 << 16
"""Maximum length in bytes of text in which a flipped bit is corrected. In longer ones, the probability that greater
damage looks like a flipped bit would exceed one in ten thousand."""
MOST_DAMAGED = 4
"""Maximum number of damaged characters, of ten, with which the end of a line is still recognised as a checksum."""
_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_LENGTH = len(b',"crc":"00000000"}')
_FIXED = (*range(8), 16, 17)
"""Positions, in the checksum at the end of a line, whose characters are always the same."""
_TABLE = [zlib.crc32(bytes([each])) ^ zlib.crc32(b"\0") for each in range(256)]
"""Change of the checksum by the last character."""
_BY_BIT = {_TABLE[1 << bit]: 1 << bit for bit in range(8)}
_BY_FIRST_BYTE = {value >> 24: each for each, value in enumerate(_TABLE)}
_TEXT = re.compile(rb"[\x20-\x7e\t]*")
"""Bytes that a JSON line may contain; other characters are written as escapes."""


def with_checksum(text: bytes) -> bytes:
    """Return a JSON object with its checksum.

    >>> with_checksum(b'{"step": 10}')
    b'{"step": 10,"crc":"32eaac10"}'
    """
    body = text.rstrip().removesuffix(b"}").rstrip()
    return body + _end(body)


def undamaged(text: bytes) -> bytes | None:
    """Return a JSON object as it was written, with a flipped bit corrected; None if there is more damage.

    An object without a checksum is returned as it is.

    >>> undamaged(b'{"step": 18,"crc":"32eaac10"}')
    b'{"step": 10,"crc":"32eaac10"}'
    >>> undamaged(b'{"step": 99,"crc":"32eaac10"}') is None
    True
    """
    text = text.rstrip(b"\n")
    if is_intact(text):
        return text
    if is_intact(text[:-1]):  # followed by a damaged newline
        return text[:-1]
    if not _has_checksum(text):
        return text
    return _corrected(text)


def parsed(text: bytes) -> dict[str, Any]:
    """Parse a JSON object, without its checksum.

    Raises:
        ValueError: The text is damaged or not a JSON object.
    """
    if (intact := undamaged(text)) is None:
        raise ValueError("its checksum does not match")
    document = json.loads(intact.decode())
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - callers know one error for what cannot be read
    document.pop(CHECKSUM, None)
    return document


def parsed_lines(lines: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """Return each JSON object of lines without its checksum; None for a line that ``parsed`` refuses.

    >>> parsed_lines([with_checksum(b'{"step": 10}'), with_checksum(b"{step}")])
    [{'step': 10}, None]
    """
    if all(map(is_intact, lines)):
        with suppress(ValueError):
            together: list[dict[str, Any] | None] = json.loads(b"[%b]" % b",".join(lines))  # in a third of the time
            for document in together:
                assert document is not None
                del document[CHECKSUM]
            return together
    documents: list[dict[str, Any] | None] = []
    for line in lines:
        try:
            documents.append(parsed(line))
        except ValueError:
            documents.append(None)
    return documents


def is_intact(text: bytes) -> bool:
    """Whether a JSON object without a newline has the right checksum."""
    return text[-_LENGTH:] == _end(text[:-_LENGTH])


def undamaged_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield JSON lines with flipped bits corrected, except those with more damage. Lines without a checksum and
    incomplete lines are yielded unchanged."""
    before = b""
    for line in lines:
        text = line.rstrip(b"\n")
        changes = None if is_intact(text) else _changes_of_newlines(before, text)
        if changes is None:
            if (found := undamaged(text)) is not None:
                yield found
        elif changes[0][0] < 0:
            yield before + changes[0][1] + text
        else:
            start = 0
            for end, _ in changes:
                yield text[start:end]
                start = end + 1
            yield text[start:]
        before = text


@dataclass(frozen=True)
class Damage:
    """Damage found in a file of JSON lines."""

    corrected: tuple[int, ...] = ()
    """Numbers of the lines, from 1, in which a flipped bit was corrected."""
    lost: tuple[int, ...] = ()
    """Numbers of the lines that cannot be read."""

    def __bool__(self) -> bool:
        return bool(self.corrected or self.lost)

    def __str__(self) -> str:
        parts = [
            f"{_lines(numbers)} {done}"
            for numbers, done in (
                (self.corrected, "had a flipped bit, which was corrected"),
                (self.lost, "cannot be read"),
            )
            if numbers
        ]
        return "; ".join(parts)


def mend(path: Path) -> Damage:
    """Correct flipped bits in a file of JSON lines, in place, and return the lines with more damage.

    Half a line at the end, which a killed writer has left, does not count as damage, nor do those between lines without
    checksums: older releases ended them with a newline.

    Raises:
        OSError: The file cannot be read or written.
    """
    corrected: list[int] = []
    lost: list[int] = []
    patches: list[tuple[int, bytes]] = []
    start, before, has_checksums = 0, b"", True
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip(b"\n")
            if is_intact(text):
                has_checksums = True
            else:
                changes = _changes_of_newlines(before, text)
                if changes is None and _has_checksum(text) and (whole := _corrected(text)) is not None:
                    changes = [(0, whole)]
                if changes is not None:
                    corrected.append(number)
                    patches += [(start + position, content) for position, content in changes]
                    if lost and changes[0][0] < 0 and lost[-1] == number - 1:
                        lost.pop()
                elif (
                    _has_checksum(text)
                    or _TEXT.fullmatch(text) is None
                    or (has_checksums and line != text and not _is_json(text))
                ):
                    lost.append(number)
                else:
                    has_checksums = False
            start, before = start + len(line), text
    if patches:
        _write(path, patches)
    return Damage(tuple(corrected), tuple(lost))


def end_last_line(path: Path) -> None:
    """Make a file of JSON lines end with a whole line: half a line that a killed writer has left is cut off.

    Raises:
        OSError: The file cannot be read or written.
    """
    with path.open("rb+") as file:
        end, tail = file.seek(0, os.SEEK_END), b""
        while end and b"\n" not in tail:
            start = max(0, end - (1 << 16))
            file.seek(start)
            end, tail = start, file.read(end - start) + tail
        last = tail[tail.rfind(b"\n") + 1 :]
        whole = undamaged(last)
        file.seek(-len(last), os.SEEK_END)
        if whole is None:  # ``mend`` names it
            file.write(last + b"\n")
        elif last and _is_json(whole):  # only its newline is missing or damaged
            file.write(whole + b"\n")
        file.truncate()


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text or b"{}")
    except ValueError:
        return False
    return True


def _changes_of_newlines(before: bytes, text: bytes) -> list[tuple[int, bytes]] | None:
    """Return changes to a line, as positions and characters, that undo a damaged newline: they split two joined lines,
    or join a line to the previous one."""
    if before and not is_intact(before):
        for bit in range(8):
            character = bytes([ord("\n") ^ 1 << bit])
            if is_intact(before + character + text):
                return [(-1, character)]
    ends = [match.end() for match in _END.finditer(text) if match.end() < len(text)]
    if ends and is_intact(text[ends[-1] + 1 :]):
        starts = [0, *(end + 1 for end in ends)]
        if all(is_intact(text[start:end]) for start, end in zip(starts, ends, strict=False)):
            return [(end, b"\n") for end in ends]
    return None


def _write(path: Path, patches: list[tuple[int, bytes]]) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        for position, content in patches:
            os.pwrite(file, content, position)
        os.fsync(file)
    finally:
        os.close(file)


def _end(body: bytes) -> bytes:
    return b',"crc":"%08x"}' % zlib.crc32(body)


def _has_checksum(text: bytes) -> bool:
    """Whether text was written with a checksum, even if damaged characters partly hide it."""
    end, model = text[-_LENGTH:], _end(b"")
    return len(end) == _LENGTH and sum(end[position] != model[position] for position in _FIXED) <= MOST_DAMAGED


def _corrected(text: bytes) -> bytes | None:
    """Return the text with its flipped bit restored; None if no single bit makes the checksum right."""
    body, end = text[:-_LENGTH], text[-_LENGTH:]
    right = _end(body)
    flipped = int.from_bytes(end, "big") ^ int.from_bytes(right, "big")
    if flipped.bit_count() == 1:
        return body + right
    if len(text) > CORRECTED_UP_TO or _END.fullmatch(end) is None:
        return None
    # How a flipped bit changes the checksum depends only on its distance from the end: go back until it is in the last
    # character.
    changed = zlib.crc32(body) ^ int(end[8:16], 16)
    for position in range(len(body) - 1, -1, -1):
        if changed in _BY_BIT:
            character = body[position] ^ _BY_BIT[changed]
            return body[:position] + bytes([character]) + body[position + 1 :] + end
        last = _BY_FIRST_BYTE[changed >> 24]
        changed = (changed ^ _TABLE[last]) << 8 & 0xFFFFFFFF | last
    return None


def _lines(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
    return f"line{'s'[: len(numbers) > 1]} {shown}"
