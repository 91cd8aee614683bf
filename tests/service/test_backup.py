"""Backups of a service that runs, and what comes of them on another machine."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres import EMPTY, Postgres
from running import SHORT
from serving import Api, new_api
from sqlalchemy import Engine, insert, make_url, select
from stores import make_store
from test_serve import LONG, Service
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.service import backup as backups
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.tracking.journal import POSITION_FILE


def _rows(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return {name: list(connection.execute(select(table))) for name, table in tables.metadata.tables.items()}


@pytest.fixture
def api(service_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A service with something of everything."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("SWEEPS_DATABASE", service_database)
    monkeypatch.chdir(tmp_path)
    api = new_api(tmp_path, f"database={service_database}")
    for name in ("one", "two"):
        api.submit(name)
    api.token("ada", "admin")
    for name in ("schedules/nightly.yaml", "one/trials/0000/model.safetensors", "one/driver.log", "service.log"):
        file = tmp_path / "outputs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "report.html").write_text("report")
    yield api
    api.close()


def deliver_during_backup(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep that has delivered something, and another one, deliver more when MLflow's file has been taken."""
    (outputs / "one" / POSITION_FILE).write_text("7")
    copy_database = backups.copy_sqlite

    def copy(source: Path, target: Path) -> None:
        copy_database(source, target)
        if source.name == "mlflow.db":
            for name in ("one", "two"):
                (outputs / name).mkdir(exist_ok=True)
                (outputs / name / POSITION_FILE).write_text("8")

    monkeypatch.setattr(backups, "copy_sqlite", copy)


def test_what_was_backed_up_while_others_write_is_restored_as_it_was_and_belongs_to_its_owner(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    before, stopping = _rows(api.service.database), threading.Event()

    def write() -> None:
        while not stopping.is_set():
            with writing(api.service.database) as connection:
                for schedule in ("a", "b"):  # a backup has both or none
                    values = {"schedule": schedule, "due": threading.get_ident() + len(written), "outcome": "missed"}
                    connection.execute(insert(tables.firings).values(**values, decided=1.0))
            written.append(1)

    deliver_during_backup(tmp_path / "outputs", monkeypatch)
    written: list[int] = []
    writer = threading.Thread(target=write)
    writer.start()
    wait_until(lambda: written)
    try:
        status, error = run_command(["backup", "all.tar.gz", "--sweeps", f"output_dir={tmp_path}/outputs"])
    finally:
        stopping.set()
        writer.join()
    assert (status, error) == (0, None)
    assert (tmp_path / "all.tar.gz").stat().st_mode & 0o077 == 0
    assert run_command(["backup", "all.tar.gz"])[0] == 2  # it replaces nothing

    new = tmp_path / "new"
    new.mkdir()
    monkeypatch.chdir(new)
    if make_url(os.environ["SWEEPS_DATABASE"]).get_backend_name() == "sqlite":
        url = f"sqlite:///{new}/service.db"
    else:
        one = make_url(request.getfixturevalue("postgres").database())
        hosts = [f"{one.host}:{one.port}"] * 2  # as of a primary and its standby
        url = one.set(host=None, port=None, query={"host": hosts}).render_as_string(hide_password=False)
    monkeypatch.setenv("SWEEPS_DATABASE", url)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{new}/mlflow.db")
    command = ["restore", str(tmp_path / "all.tar.gz"), f"output_dir={new}/outputs"]
    assert run_command(command) == (0, None)
    engine = open_database(url)
    after = _rows(engine)
    assert len({row.due for row in after["firings"]}) * 2 == len(after["firings"]) <= 2 * len(written)
    assert [row.beat for row in after["services"]] == [0.0]
    assert {name: after[name] for name in ("jobs", "tokens", "schema_versions")} == {
        name: before[name] for name in ("jobs", "tokens", "schema_versions")
    }
    engine.dispose()
    kept = {path.relative_to(new).as_posix(): path for path in new.rglob("*") if path.is_file()}
    assert kept["outputs/schedules/nightly.yaml"].read_text() == "schedules/nightly.yaml"
    assert {"outputs/one/trials/0000/model.safetensors", "outputs/one/driver.log", "mlruns/report.html"} <= kept.keys()
    assert "outputs/service.log" not in kept
    assert kept[f"outputs/one/{POSITION_FILE}"].read_text() == "7"
    assert f"outputs/two/{POSITION_FILE}" not in kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept.values())
    assert run_command(command)[0] == 2  # nor does this


def test_a_backup_without_sweeps_has_what_the_service_knows(api: Api, tmp_path: Path) -> None:
    copy = "service.dump" if "postgresql" in os.environ["SWEEPS_DATABASE"] else "service.db"
    assert run_command(["backup", "small.tar.gz", f"output_dir={tmp_path}/outputs"]) == (0, None)
    with tarfile.open("small.tar.gz") as archive:
        assert archive.getnames() == ["backup.json", copy, "mlflow.db", "outputs/schedules/nightly.yaml"]


def test_databases_of_any_name_are_taken_whole_and_once() -> None:
    """A copy of the file itself, as it lies there, would replace the consistent one when it is restored."""
    Path("outputs/one").mkdir(parents=True)
    Path("outputs/one/team.db").write_text("a sweep's own")
    make_store(Path("outputs/runs.db"))
    tokens = ["database=sqlite:///outputs/team.db", "tracking_uri=sqlite:///outputs/runs.db"]
    engine = open_database("sqlite:///outputs/team.db")
    with writing(engine):  # its journal is there
        assert run_command(["backup", "outputs/all.tar.gz", "--sweeps", *tokens]) == (0, None)
    engine.dispose()
    with tarfile.open("outputs/all.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["backup.json", "mlflow.db", "outputs/one/team.db", "service.db"]


def test_sweeps_that_were_moved_to_another_disk_behind_a_link_are_in_the_backup(working_folder: Path) -> None:
    open_database("sqlite:///outputs/service.db").dispose()
    for name in ("here", "../large_disk/moved"):
        (Path("outputs") / name / "trials").mkdir(parents=True)
        (Path("outputs") / name / "trials" / "weights").write_text(name)
        (Path("outputs") / name / SWEEP_FILE).write_text("{}")
    Path("outputs/moved").symlink_to(working_folder / "large_disk" / "moved")
    Path("outputs/latest").symlink_to("here")
    assert run_command(["backup", "all.tar.gz", "--sweeps"]) == (0, None)
    with tarfile.open("all.tar.gz") as archive:
        names = sorted(archive.getnames())
    sweeps = [f"outputs/{name}/{file}" for name in ("here", "moved") for file in (SWEEP_FILE, "trials/weights")]
    assert names == ["backup.json", *sweeps, "service.db"]


def test_other_links_are_not_followed_and_databases_behind_links_are_taken_whole_and_once(
    working_folder: Path,
) -> None:
    """Links to data and to earlier backups; the folders of schedules and artifacts may be links, too."""
    disk = working_folder / "disk"
    Path("outputs").mkdir()
    for name in ("backups", "data", "schedules", "moved"):
        (disk / name).mkdir(parents=True)
        (disk / name / "file").write_text(name)
        Path("outputs", name).symlink_to(disk / name)
    for file in ("disk/moved", "disk/mlruns/run"):
        Path(file).mkdir(parents=True, exist_ok=True)
        (Path(file) / SWEEP_FILE).write_text("{}")
    Path("disk/mlruns/latest").symlink_to("run")
    Path("mlruns").symlink_to("disk/mlruns")
    make_store(Path("disk/runs.db"))
    for link in ("runs.db", "outputs/runs.db"):
        Path(link).symlink_to(disk / "runs.db")
    tokens = ["database=sqlite:///outputs/moved/team.db", "tracking_uri=sqlite:///runs.db"]
    open_database("sqlite:///outputs/moved/team.db").dispose()
    assert run_command(["backup", "outputs/backups/all.tar.gz", "--sweeps", *tokens]) == (0, None)
    with tarfile.open("outputs/backups/all.tar.gz") as archive:
        names = sorted(archive.getnames())
    behind = [f"mlruns/run/{SWEEP_FILE}", "outputs/moved/file", f"outputs/moved/{SWEEP_FILE}", "outputs/schedules/file"]
    assert names == ["backup.json", "mlflow.db", *behind, "service.db"]


def test_mistakes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres) -> None:
    monkeypatch.chdir(tmp_path)

    def refusal(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        status, error = run_command(arguments)
        assert (status != 0, sorted(tmp_path.rglob("*"))) == (True, before)
        return str(error)

    assert "there is no such file; run this where the service runs" in refusal("backup", "x.tar.gz")
    assert "nowhere/x.tar.gz: there is no folder nowhere; make it" in refusal("backup", "nowhere/x.tar.gz")
    assert "x.tar.gz: there is no such file; give one that" in refusal("restore", "x.tar.gz")
    assert run_command(["restore", "x.tar.gz"])[0] == 2
    with tarfile.open("bad.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("anything"), io.BytesIO())
    assert "is not a backup of a service" in refusal("restore", "bad.tar.gz")
    Path("text.tar.gz").write_text("text")
    assert "cannot be restored" in refusal("restore", "text.tar.gz")
    open_database(f"sqlite:///{tmp_path}/outputs/service.db").dispose()
    assert run_command(["backup", "good.tar.gz"])[0] == 0
    assert "outputs/service.db: already exists" in refusal("restore", "good.tar.gz")
    make_store(Path("mlflow.db"))
    assert run_command(["backup", "store.tar.gz"])[0] == 0
    elsewhere = ["database=sqlite:///new/service.db", "output_dir=new", "tracking_uri=http://127.0.0.1:9"]
    assert "is not an SQLite file, so MLflow's records in the backup" in refusal("restore", "store.tar.gz", *elsewhere)
    monkeypatch.setenv("SWEEPS_DATABASE", postgres.database(EMPTY))
    assert "is postgresql, and the backup is of sqlite" in refusal("restore", "good.tar.gz")
    assert run_command(["backup", "pg.tar.gz"])[0] == 0
    assert "already has tables" in refusal("restore", "pg.tar.gz")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_machine_is_lost_and_its_service_goes_on_from_the_backup(working_folder: Path, tmp_path: Path) -> None:
    service = Service(working_folder)
    service.start()
    done = service.post("sweeps", conf="digits", name="done", overrides=["search.num_trials=1", *SHORT])
    wait_until(lambda: service.job(done["id"])["state"] == "finished", 180)
    running = service.post("sweeps", conf="digits", name="running", overrides=["search.num_trials=4", *LONG])
    queued = service.post("sweeps", conf="digits", name="queued", overrides=["search.num_trials=1", *SHORT])
    wait_until(lambda: service.finished_trials("running") >= 1, 240)
    command = [sys.executable, "-m", "sweeps", "backup", str(tmp_path / "backup.tar.gz"), "--sweeps"]
    subprocess.run(command, cwd=working_folder, check=True, timeout=120)
    kept = service.get("sweeps/running")["trials"]

    # The machine goes: service, driver and disk.
    (lock,) = (working_folder / "outputs" / ".background").glob(f"job-{running['id']}-*/lock")
    service.end(signal.SIGKILL)
    os.killpg(int(lock.read_text()), signal.SIGKILL)
    service.close()
    for path in working_folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    subprocess.run([*command[:3], "restore", *command[4:5]], cwd=working_folder, check=True, timeout=120)
    with Service(working_folder) as service:
        for job in (running, queued):
            wait_until(lambda job=job: service.job(job["id"])["state"] == "finished", 400)
        assert [service.job(job["id"])["attempts"] for job in (done, running, queued)] == [1, 2, 1]
        trials = {trial["trial"]: trial for trial in service.get("sweeps/running")["trials"]}
        assert len(trials) == 4
        for trial in kept:
            if trial["state"] == "finished":  # nothing of it was trained again
                assert trials[trial["trial"]] == trial
        assert service.get("sweeps/done")["counts"]["finished"] == 1
