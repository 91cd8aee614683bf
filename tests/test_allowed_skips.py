"""CI fails when a test is skipped that it should run."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run_python

LEFT_OUT = "import pytest\n\ndef test_moon():\n    pytest.skip('needs a moon')\n\ndef test_sky():\n    pass\n"


@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n1"]], ids=["one process", "xdist"])
@pytest.mark.parametrize(("allowed", "status"), [("moon|sun", 0), ("sun", 1)])
def test_a_run_fails_for_a_skip_that_is_not_allowed(
    checkout: Path, tmp_path: Path, processes: list[str], allowed: str, status: int
) -> None:
    (tmp_path / "test_night.py").write_text(LEFT_OUT)
    done = run_python(
        *("-m", "pytest", "-p", "allowed_skips", *processes, f"--allowed-skips={allowed}", "test_night.py"),
        folder=tmp_path,
        environment={"PYTHONPATH": str(checkout / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        status=status,
    )
    assert ("skipped, and should not be here: Skipped: needs a moon" in done.stdout) == bool(status)
