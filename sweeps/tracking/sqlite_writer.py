"""Delivery of a batch to an SQLite tracking store in one transaction.

MLflow's client needs some ten transactions for each run of a batch. In a sweep of 100 workers that was nearly half of
the driver's processor time.
"""

from __future__ import annotations

import math
import sqlite3
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.compat.mlflow import accepts, run_artifacts
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.run_batch import RunBatch, first_tags
from sweeps.tracking.sqlite_file import has_tried_tables, writing

if TYPE_CHECKING:
    from sweeps.tracking.record import MlflowIds

NEW_RUN = """
    INSERT INTO runs (run_uuid, experiment_id, name, user_id, start_time, artifact_uri, status, lifecycle_stage,
        source_type, source_name, entry_point_name, source_version)
    VALUES {rows}"""
PARAMETER = "INSERT INTO params (run_uuid, key, value) VALUES {rows} ON CONFLICT DO NOTHING"
POINT = "INSERT INTO metrics (run_uuid, key, step, timestamp, value, is_nan) VALUES {rows} ON CONFLICT DO NOTHING"
LATEST = """
    INSERT INTO latest_metrics AS l (run_uuid, key, step, timestamp, value, is_nan) VALUES {rows}
    ON CONFLICT (key, run_uuid) DO UPDATE SET
        step = excluded.step, timestamp = excluded.timestamp, value = excluded.value, is_nan = excluded.is_nan
        WHERE (excluded.step, excluded.timestamp, excluded.value) > (l.step, l.timestamp, l.value)"""
TAG = """
    INSERT INTO tags (run_uuid, key, value) VALUES {rows}
    ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"""
NO_TAG = "DELETE FROM tags WHERE (run_uuid, key) IN (VALUES {rows})"
STATUS = "UPDATE runs SET status = ?, end_time = ifnull(?, end_time) WHERE run_uuid = ?"
ACTIVE = "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'active' AND run_uuid IN ({values})"
STATEMENTS = (NEW_RUN, PARAMETER, POINT, LATEST, TAG, NO_TAG, STATUS)
"""All statements that write, in their order; ``{rows}`` stands for the values of several rows."""
VALUES_AT_ONCE = 900
"""Maximum number of values in one statement; older releases of SQLite take 999."""

Rows = dict[str, list[tuple[Any, ...]]]
"""Values for each statement."""


class SqliteWriter:
    """Writes what MLflow's client would write, to tables of a version that was tested."""

    def __init__(self, path: Path, ids: MlflowIds) -> None:
        self._path, self._ids = path, ids

    def write(
        self,
        batches: Mapping[str, RunBatch],
        run_ids: Mapping[str, str],
        *,
        creates: bool,
        is_wanted: Callable[[], bool],
    ) -> dict[str, str]:
        """Write the batches that MLflow would accept.

        Args:
            batches: Batches by key of the run.
            run_ids: MLflow's ids of the runs that exist, by key.
            creates: Whether the other runs may be created; not if MLflow may have some of them.
            is_wanted: Whether the batch is still to be written, asked when everything is prepared; none is written
                otherwise.

        Returns:
            MLflow's ids of the runs whose batches were written, by key. The others are for MLflow's client, which says
            what is wrong with them.

        Raises:
            sqlite3.Error: The file cannot be written at the moment; nothing was written.
        """
        with writing(self._path) as database:
            root = self._artifact_root(database) if creates else None
            # Other writers wait for the transaction, so as much as possible is done before it.
            ids, prepared = dict[str, str](), dict[str, Rows]()
            for key, batch in batches.items():
                known = run_ids.get(key)
                if known is None and (root is None or batch.new is None):
                    continue
                run_id = known or uuid.uuid4().hex
                if (rows := self._rows(run_id, batch, root if known is None else None)) is not None:
                    ids[key], prepared[key] = run_id, rows
            database.execute("BEGIN IMMEDIATE")
            if not has_tried_tables(database):
                return {}
            # Where the sweep's own run is missing, the file is another store, whose experiments have the same numbers.
            needed = {key: run_ids.get(key, self._ids.run_id) for key in ids}
            active = _active(database, list(needed.values()))
            written = {key: run_id for key, run_id in ids.items() if needed[key] in active}
            try:
                for statement in STATEMENTS:
                    _execute(database, statement, [row for key in written for row in prepared[key][statement]])
            except (sqlite3.IntegrityError, OverflowError):
                return {}
            if not is_wanted():
                return {}
            database.execute("COMMIT")
            return written

    def _artifact_root(self, database: sqlite3.Connection) -> str | None:
        """Return the folder of the experiment's artifacts; None if a user has deleted the experiment."""
        query = "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND lifecycle_stage = 'active'"
        row = database.execute(query, (self._ids.experiment_id,)).fetchone()
        return None if row is None else str(row[0])

    def _rows(self, run_id: str, batch: RunBatch, root: str | None) -> Rows | None:
        """Return the rows of a batch, with those of its new run if ``root`` is given; None if MLflow would refuse some
        of its values."""
        params, tags = batch.params_and_tags()
        if not accepts(batch.points, params, tags):
            return None
        rows: Rows = defaultdict(list)
        if root is not None:
            assert batch.new is not None
            name = storable(batch.new.name)
            tags = first_tags(batch.new, self._ids.run_id) | {"mlflow.runName": name} | tags
            user, folder = tags.get("mlflow.user", "unknown"), run_artifacts(root, run_id)
            given = (run_id, self._ids.experiment_id, name, user, batch.new.started_ms, folder)
            rows[NEW_RUN].append((*given, "RUNNING", "active", "UNKNOWN", "", "", ""))
        rows[PARAMETER] += [(run_id, name, text) for name, text in params.items()]
        points = [(run_id, name, step, timestamp, *_stored(value)) for name, value, timestamp, step in batch.points]
        rows[POINT] += points
        rows[LATEST] += {point[1]: point for point in sorted(points)}.values()
        rows[TAG] += [(run_id, name, text) for name, text in tags.items()]
        rows[NO_TAG] += [(run_id, name) for name in batch.deleted_tags()]
        if batch.status is not None:
            rows[STATUS].append((batch.status.status, batch.status.ended_ms, run_id))
        return rows


def _execute(database: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Execute a statement for all rows, with as many as possible in one call: each call releases Python's lock, and
    waits 5 ms for it while another thread computes."""
    if "{rows}" not in statement:
        database.executemany(statement, rows)
        return
    size = VALUES_AT_ONCE // len(rows[0]) if rows else 1
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        row = f"({', '.join('?' * len(some[0]))})"
        database.execute(
            statement.format(rows=", ".join([row] * len(some))), [value for each in some for value in each]
        )


def _active(database: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """Return the runs, out of those given, that the store has and no user has deleted."""
    found: set[str] = set()
    for start in range(0, len(run_ids), VALUES_AT_ONCE):
        some = run_ids[start : start + VALUES_AT_ONCE]
        query = ACTIVE.format(values=", ".join("?" * len(some)))
        found.update(run_id for (run_id,) in database.execute(query, some))
    return found


def _stored(value: float) -> tuple[float, bool]:
    """Return a metric's value in MLflow's columns ``value`` and ``is_nan``."""
    if math.isnan(value):
        return 0.0, True
    return max(-sys.float_info.max, min(float(value), sys.float_info.max)), False
