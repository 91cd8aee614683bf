"""Verbs of the command line, run in the process of a test."""

from __future__ import annotations

import pytest

from sweeps.cli import run_command


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """Run a verb and return its stdout."""
    capsys.readouterr()
    found, error = run_command(arguments)
    assert found == status, error
    return capsys.readouterr().out


def refusal(*arguments: str) -> str:
    """Message with which a verb refuses what was asked, as a mistake of its user."""
    status, message = run_command(arguments)
    assert status == 2, message
    assert message is not None
    return message
