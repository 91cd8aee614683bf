"""CI fails when a test is skipped that it should run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LEFT_OUT = "import pytest\n\ndef test_moon():\n    pytest.skip('needs a moon')\n\ndef test_sky():\n    pass\n"


@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n1"]], ids=["one process", "xdist"])
@pytest.mark.parametrize(("allowed", "status"), [("moon|sun", 0), ("sun", 1)])
def test_a_run_fails_for_a_skip_that_is_not_allowed(
    checkout: Path, tmp_path: Path, processes: list[str], allowed: str, status: int
) -> None:
    (tmp_path / "test_night.py").write_text(LEFT_OUT)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "allowed_skips",
            *processes,
            f"--allowed-skips={allowed}",
            "test_night.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(checkout / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert ("skipped, and should not be here: Skipped: needs a moon" in done.stdout) == bool(status)
