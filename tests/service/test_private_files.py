"""Files that may hold secrets are readable by their owner alone, and passwords stay out of the process list."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.compose.service_config import compose_service
from sweeps.config.service import Service
from sweeps.driver.folder_access import make_folder
from sweeps.files.whole_files import make_private
from sweeps.folders.sweep_folder import COPY_FILE, LOG_FILE, SWEEP_FILE
from sweeps.plan.plan import make_plan
from sweeps.plan.saved_sweep import save
from sweeps.service import subprocesses
from sweeps.service.database.engine import open_database
from sweeps.service.queue.runner import _sweep_environment
from sweeps.tracking.journal import JOURNAL_FILE, Journal

PASSWORD = "c0rrect-horse"
URL = f"postgresql+psycopg://sweeps:{PASSWORD}@db.example.org/sweeps"


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_services_database_and_its_journals_are_its_owners_alone(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/outputs/service.db")
    with engine.connect():
        files = sorted((tmp_path / "outputs").iterdir())
        assert {each.name: mode(each) for each in files} == dict.fromkeys(
            ("service.db", "service.db-shm", "service.db-wal"), 0o600
        )
    engine.dispose()


def test_a_database_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "service.db"
    file.write_bytes(b"")
    file.chmod(0o644)
    open_database(f"sqlite:///{file}").dispose()
    assert mode(file) == 0o600
    make_private(file)
    assert mode(file) == 0o600


def test_a_sweeps_folder_and_what_says_what_it_is_are_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(["conf=digits"], [], "mine", "run conf=digits")
    make_folder(plan)
    save(plan)
    Journal(plan.folder).close()
    assert mode(plan.folder) == 0o700
    assert [mode(plan.folder / name) for name in (SWEEP_FILE, COPY_FILE, JOURNAL_FILE)] == [0o600] * 3


def test_the_address_of_the_database_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compose_service([], []).database == "sqlite:///outputs/service.db"
    monkeypatch.setenv("SWEEPS_DATABASE", URL)
    assert compose_service([], []).database == URL
    assert compose_service(["database=sqlite:///other.db"], []).database == "sqlite:///other.db"


def test_no_process_that_the_service_starts_gets_the_databases_password_and_its_log_is_its_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPS_DATABASE", URL)
    assert "SWEEPS_DATABASE" not in _sweep_environment(Service())
    monkeypatch.setattr(subprocesses, "ENTRY", "print_environment")
    (tmp_path / "print_environment.py").write_text(
        "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocesses.start(tmp_path / "job", [["--help"]], tmp_path / "sweep", environment)
    assert process is not None
    assert process.wait(60) == 0
    log = tmp_path / "job" / LOG_FILE
    assert (mode(log.parent), mode(log)) == (0o700, 0o600)
    printed = log.read_text()
    assert json.loads(printed)
    assert PASSWORD not in printed


def test_a_password_on_the_command_line_is_warned_of_without_showing_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compose_service([f"database={URL}"], [])
        compose_service(["database=sqlite:///x.db"], [])
    assert len(caplog.records) == 1
    assert "SWEEPS_DATABASE" in caplog.text
    assert PASSWORD not in caplog.text
