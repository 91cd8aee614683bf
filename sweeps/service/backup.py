"""Backups of a service: its database, its saved schedules, MLflow's SQLite file, and the folders of sweeps."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import URL, create_engine, func, inspect, make_url, select, update

from sweeps.config.service import Service
from sweeps.errors import ConfigError, SweepsError, UserError
from sweeps.files.whole_files import FILE_MODE, FOLDER_MODE, make_private, replacing
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.service.database import tables
from sweeps.service.database.engine import opened_database, writing
from sweeps.service.database.schema_version import copy_sqlite
from sweeps.service.schedules.saved import FOLDER as SCHEDULES
from sweeps.service.service_log import LOG_FILE
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.journal import POSITION_FILE
from sweeps.tracking.uris import sqlite_path

FORMAT = 1
CONTENTS = "backup.json"
SQLITE, DUMP, STORE = "service.db", "service.dump", "mlflow.db"
OUTPUTS, ARTIFACTS = "outputs", "mlruns"
"""Folders in the archive: files of the service's output folder, and MLflow's artifacts."""
MAX_AT_ONCE = 16 << 20
"""Maximum size in bytes of a file that is read at once."""
_PROGRAMS = Path("/usr/lib/postgresql")
"""Folder of PostgreSQL's programs in Debian, which are not on PATH."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    format: int
    taken: float
    """Unix time of the backup."""
    database: str
    """``sqlite`` or ``postgresql``."""
    jobs: Mapping[str, int]
    """Number of jobs in each state."""
    has_store: bool
    """Whether the backup has MLflow's SQLite file; an MLflow server must be backed up separately."""
    has_sweeps: bool
    """Whether the backup has the folders of the sweeps and their artifacts."""

    def describe(self) -> str:
        """Describe the contents in one line."""
        jobs = ", ".join(f"{count} {state}" for state, count in sorted(self.jobs.items())) or "none"
        parts = ["the service's database", "its saved schedules"]
        parts += ["MLflow's records"] if self.has_store else []
        parts += ["the folders of the sweeps"] if self.has_sweeps else []
        return f"{', '.join(parts)}; jobs: {jobs}"


def backup(config: Service, file: Path, *, sweeps: bool) -> Contents:
    """Write a backup while the service runs.

    The database is copied first: a sweep that starts meanwhile is then at most a folder without a job. MLflow's file is
    next: entries that a sweep delivers later are delivered again when the sweep is resumed from the backup. The folders
    of the sweeps, with their checkpoints, are added only if ``sweeps``.

    Raises:
        SweepsError: Something could not be read or written; no file is left.
    """
    if file.exists():
        raise UserError(f"{file}: already exists; give another file")
    if not file.absolute().parent.is_dir():
        raise UserError(f"{file}: there is no folder {file.parent}; make it, or give another file")
    url, store, output_dir = make_url(config.database), sqlite_path(config.tracking_uri), config.folder.resolve()
    store = store if store is not None and store.is_file() else None
    is_sqlite = url.get_backend_name() == "sqlite"
    if is_sqlite and not Path(str(url.database)).is_file():
        raise ConfigError(
            f"database={redact_uri(config.database)}: there is no such file; run this where the service runs"
        )
    try:
        with replacing(file) as unfinished, tempfile.TemporaryDirectory(dir=file.absolute().parent) as folder:
            make_private(unfinished)
            copy = Path(folder) / (SQLITE if is_sqlite else DUMP)
            make_private(copy)
            if is_sqlite:
                _checked_copy(Path(str(url.database)), copy)
            else:
                _run("pg_dump", url, ["--format=custom", "--no-owner", "--no-privileges", f"--file={copy}"])
            positions = {path: path.read_bytes() for path in output_dir.glob(f"*/{POSITION_FILE}")}
            contents = Contents(
                format=FORMAT,
                taken=time.time(),
                database=url.get_backend_name(),
                jobs=_jobs(config.database),
                has_store=store is not None,
                has_sweeps=sweeps,
            )
            with tarfile.open(unfinished, "w:gz", compresslevel=3) as archive:
                _add_bytes(archive, CONTENTS, json.dumps(asdict(contents), indent=2).encode())
                archive.add(copy, copy.name)
                left_out = [
                    output_dir / SQLITE,
                    output_dir / STORE,
                    output_dir / LOG_FILE,
                    copy,
                    Path(folder, STORE),
                    unfinished,
                ]
                left_out += [Path(str(url.database))] if is_sqlite else []
                left_out += [store] if store is not None else []
                left_out = [each.resolve() for each in left_out]
                if store is not None:
                    _checked_copy(store, Path(folder) / STORE)
                    archive.add(Path(folder) / STORE, STORE)
                    if sweeps:
                        artifacts = (store.absolute().parent / ARTIFACTS).resolve()
                        _add_folder(archive, artifacts, ARTIFACTS, artifacts, positions, left_out)
                added = output_dir if sweeps else output_dir / SCHEDULES
                _add_folder(archive, added, OUTPUTS, output_dir, positions, left_out)
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        raise SweepsError(f"{file}: could not be written ({error})") from error
    return contents


def restore(config: Service, file: Path) -> Contents:
    """Restore a backup to the places that the service's config names, where nothing may exist yet.

    Raises:
        SweepsError: Something already exists, or the backup cannot be read; nothing was changed.
    """
    if not file.is_file():
        raise UserError(f"{file}: there is no such file; give one that `python -m sweeps backup` has written")
    url, store, output_dir = make_url(config.database), sqlite_path(config.tracking_uri), config.folder
    places = {SQLITE: Path(str(url.database)), OUTPUTS: output_dir}
    if store is not None:
        places |= {STORE: store, ARTIFACTS: store.absolute().parent / ARTIFACTS}
    try:
        with tarfile.open(file, "r:gz") as archive:
            contents = _read_contents(archive, file)
            _check_empty(config, contents, archive, places)
            for member in archive:
                _extract(archive, member, places, url)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise SweepsError(f"{file}: cannot be restored ({error})") from error
    with opened_database(config.database) as engine, writing(engine) as connection:  # also upgrades it
        # The services of the backup are gone: their sweeps may be taken over at once.
        connection.execute(update(tables.services).values(beat=0.0))
    return contents


def _jobs(url: str) -> dict[str, int]:
    state = tables.jobs.c.state
    with opened_database(url) as engine, engine.connect() as connection:
        return {str(name): count for name, count in connection.execute(select(state, func.count()).group_by(state))}


def _checked_copy(source: Path, target: Path) -> None:
    copy_sqlite(source, target)
    with closing(sqlite3.connect(target)) as copy:
        (found,) = copy.execute("PRAGMA integrity_check").fetchone()
    if found != "ok":
        raise SweepsError(f"{source}: is damaged ({found})")


def _run(program: str, url: URL, arguments: list[str]) -> None:
    """Run one of PostgreSQL's programs. The password is passed in the environment, since every user can see
    arguments."""
    found = shutil.which(program) or max(map(str, _PROGRAMS.glob(f"*/bin/{program}")), default=None)
    if found is None:
        raise UserError(f"{program} is not installed: apt-get install postgresql-client")
    from psycopg.conninfo import make_conninfo  # an extra

    _, options = url.set(drivername="postgresql+psycopg").get_dialect()().create_connect_args(url)
    secret = {} if (password := options.pop("password", None)) is None else {"PGPASSWORD": str(password)}
    address = make_conninfo(**{"target_session_attrs": "read-write", **options})
    done = subprocess.run(
        [found, *arguments, f"--dbname={address}"],
        env={**os.environ, **secret},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SweepsError(f"{program} failed: {redact_uri(done.stderr.strip() or str(done.returncode))}")


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(content), FILE_MODE, int(time.time())
    archive.addfile(info, io.BytesIO(content))


def _add_folder(
    archive: tarfile.TarFile,
    folder: Path,
    name: str,
    root: Path,
    positions: Mapping[Path, bytes],
    left_out: Sequence[Path],
) -> None:
    """Add the files of a folder, which may change meanwhile, to the archive. Databases and logs (``left_out``) are
    skipped, with their journals and copies. ``positions`` has the journals' positions from before MLflow's file was
    copied."""
    for path in _files(folder):
        place = path.relative_to(root)
        real = path.resolve()
        if any(real.parent == each.parent and real.name.startswith(each.name) for each in left_out):
            continue
        try:
            if path.name == POSITION_FILE and path not in positions:
                continue
            info = archive.gettarinfo(path, f"{name}/{place}")
            info.type, info.linkname = tarfile.REGTYPE, ""  # a hard link is stored as a file
            with path.open("rb") as file:
                if info.size > MAX_AT_ONCE:
                    archive.addfile(info, file)
                    continue
                content = positions.get(path) or file.read()  # a small file may be rewritten while it is read
        except FileNotFoundError:  # removed meanwhile
            continue
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, following links to sweeps and saved schedules that were moved to another disk. Other
    links to folders, such as to data or earlier backups, are not followed."""
    wanted = [path for path in sorted(folder.glob("*")) if path.name == SCHEDULES or (path / SWEEP_FILE).is_file()]
    moved = [path for path in wanted if path.is_symlink() and not path.resolve().is_relative_to(folder)]
    for top in (folder, *moved):
        for parent, _, names in os.walk(top):
            yield from (path for name in sorted(names) if (path := Path(parent, name)).is_file())


def _read_contents(archive: tarfile.TarFile, file: Path) -> Contents:
    member = archive.next()
    found = archive.extractfile(member) if member is not None and member.name == CONTENTS else None
    if found is None:
        raise UserError(f"{file}: is not a backup of a service")
    document = json.loads(found.read())
    if document.get("format") != FORMAT:
        raise UserError(
            f"{file}: was written by another release (format {document.get('format')}); restore it with that one"
        )
    return Contents(**document)


def _check_empty(config: Service, contents: Contents, archive: tarfile.TarFile, places: Mapping[str, Path]) -> None:
    """Check that a backup replaces nothing.

    Raises:
        UserError: The backup would replace something, is from another kind of database, or has a store for which the
            config names no file.
    """
    backend = make_url(config.database).get_backend_name()
    if backend != contents.database:
        raise UserError(
            f"database={redact_uri(config.database)}: is {backend}, and the backup is of {contents.database}; "
            "give a database of the same kind"
        )
    if contents.has_store and STORE not in places:
        raise UserError(
            f"tracking_uri={redact_uri(config.tracking_uri)}: is not an SQLite file, so MLflow's records in the "
            "backup, which are one, would be left out; name a file, as in tracking_uri=sqlite:///mlflow.db"
        )
    if backend != "sqlite":
        _check_empty_database(config.database)
    for name in archive.getnames():
        target = _target(name, places)
        if target is not None and target.exists():
            raise UserError(f"{target}: already exists, and a restore overwrites nothing; restore into an empty folder")


def _check_empty_database(url: str) -> None:
    engine = create_engine(url)
    try:
        if names := inspect(engine).get_table_names():
            raise UserError(f"database={redact_uri(url)}: already has tables ({names[0]}); give an empty database")
    finally:
        engine.dispose()


def _target(name: str, places: Mapping[str, Path]) -> Path | None:
    """Return the path to which a member of the archive is restored; None if it is not restored to a file."""
    first, _, rest = name.partition("/")
    if first not in places or ".." in rest.split("/") or rest.startswith("/"):
        return None
    return places[first] / rest if rest else places[first]


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, places: Mapping[str, Path], url: URL) -> None:
    source = archive.extractfile(member)
    if source is None or member.name == CONTENTS:
        return
    if member.name == DUMP:
        with tempfile.NamedTemporaryFile() as dump:
            shutil.copyfileobj(source, dump)
            dump.flush()
            _run("pg_restore", url, ["--no-owner", "--no-privileges", "--single-transaction", dump.name])
        return
    target = _target(member.name, places)
    if target is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    make_private(target)
    with target.open("wb") as restored:
        shutil.copyfileobj(source, restored)
    os.utime(target, (member.mtime, member.mtime))
