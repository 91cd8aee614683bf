"""Option of pytest with which CI fails when it leaves out a test that it should run."""

from __future__ import annotations

import re

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--allowed-skips", metavar="REGEX", help="fail if a test is skipped for any other reason (CI)")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI that has left out what it should not."""
    allowed, reporter = (
        session.config.getoption("--allowed-skips"),
        session.config.pluginmanager.get_plugin("terminalreporter"),
    )
    if allowed is None or reporter is None:  # a process of xdist has none
        return
    reasons = {report.longrepr[2] for report in reporter.stats.get("skipped", ())}
    if wrong := sorted(reason for reason in reasons if not re.search(allowed, reason)):
        reporter.write_line("")
        reporter.write_line(f"skipped, and should not be here: {'; '.join(wrong)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
