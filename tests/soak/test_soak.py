"""The soak in its short form: `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_services_lose_nothing_and_do_nothing_twice_while_everything_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SOAK), "--minutes=2", "--sweeps=8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| sweeps | 8, " in done.stdout
