"""The campaign of faults in its short form: `make faults` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_twice_or_wrong_after_some_faults_of_every_search(tmp_path: Path) -> None:
    seed = os.environ.get("SWEEPS_TEST_SEED", "0")
    short = ("--faults=32", "--minutes=8", f"--seed={seed}")
    done = subprocess.run(
        [sys.executable, str(CAMPAIGN), *short], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": 0 lost, 0 twice, 0 wrong, 0 stuck." in done.stdout
