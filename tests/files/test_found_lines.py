"""Tests of the search for lines in a large file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.files.found_lines import lines_with


@given(st.lists(st.sampled_from([b"", b"a", b"key", b"a key", b"key key", b"ke", b"y"])), st.booleans())
def test_exactly_the_lines_that_contain_the_text_are_found_with_the_positions_after_them(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool
) -> None:
    path: Path = tmp_path_factory.mktemp("found") / "lines"
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)

    expected, end = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        end += len(line)
        expected += [(end, line)] * (b"key" in line)
    assert list(lines_with(path, b"key")) == expected


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert not list(lines_with(tmp_path / "missing", b"key"))
