"""The soak in its short form: `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run_python

SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_services_lose_nothing_and_do_nothing_twice_while_everything_fails(tmp_path: Path) -> None:
    done = run_python(str(SOAK), "--minutes=2", "--sweeps=8", folder=tmp_path)
    assert "| sweeps | 8, " in done.stdout
