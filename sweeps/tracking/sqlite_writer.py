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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.compat.mlflow import accepts, run_artifacts
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.run_batch import RunBatch, first_tags
from sweeps.tracking.sqlite_file import has_tried_tables, writing

if TYPE_CHECKING:
    from sweeps.tracking.record import MlflowIds

NEW_RUN = """
    INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time,
        source_version, lifecycle_stage, artifact_uri, experiment_id)
    VALUES (?, ?, 'UNKNOWN', '', '', ?, 'RUNNING', ?, '', 'active', ?, ?)"""
PARAMETER = "INSERT INTO params (run_uuid, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
POINT = """
    INSERT INTO metrics (run_uuid, key, step, timestamp, value, is_nan) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
LATEST = """
    INSERT INTO latest_metrics AS l (run_uuid, key, step, timestamp, value, is_nan) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key, run_uuid) DO UPDATE SET
        step = excluded.step, timestamp = excluded.timestamp, value = excluded.value, is_nan = excluded.is_nan
        WHERE (excluded.step, excluded.timestamp, excluded.value) > (l.step, l.timestamp, l.value)"""
TAG = """
    INSERT INTO tags (run_uuid, key, value) VALUES (?, ?, ?)
    ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"""
NO_TAG = "DELETE FROM tags WHERE run_uuid = ? AND key = ?"
STATUS = "UPDATE runs SET status = ?, end_time = ifnull(?, end_time) WHERE run_uuid = ?"
STATEMENTS = (NEW_RUN, PARAMETER, POINT, LATEST, TAG, NO_TAG, STATUS)
"""All statements, in their order."""

Rows = dict[str, list[tuple[Any, ...]]]
"""Values for each statement."""


class SqliteWriter:
    """Writes what MLflow's client would write, to tables of a version that was tested."""

    def __init__(self, path: Path, ids: MlflowIds) -> None:
        self._path, self._ids = path, ids

    def write(self, batches: Mapping[str, RunBatch], run_ids: Mapping[str, str], *, creates: bool) -> dict[str, str]:
        """Write the batches that MLflow would accept.

        Args:
            batches: Batches by key of the run.
            run_ids: MLflow's ids of the runs that exist, by key.
            creates: Whether the other runs may be created; not if MLflow may have some of them.

        Returns:
            MLflow's ids of the runs whose batches were written, by key. The others are for MLflow's client, which says
            what is wrong with them.

        Raises:
            sqlite3.Error: The file cannot be written at the moment; nothing was written.
        """
        with writing(self._path) as database:
            database.execute("BEGIN IMMEDIATE")
            if not has_tried_tables(database):
                return {}
            # Without the sweep's own run the file is another store, whose experiments have the same numbers.
            creates = creates and _is_active(database, self._ids.run_id)
            root = self._artifact_root(database) if creates else None
            written: dict[str, str] = {}
            rows: Rows = defaultdict(list)
            for key, batch in batches.items():
                if key in run_ids:
                    run_id, can_be_written = run_ids[key], _is_active(database, run_ids[key])
                else:
                    run_id, can_be_written = uuid.uuid4().hex, root is not None and batch.new is not None
                if can_be_written and self._add(rows, run_id, batch, None if key in run_ids else root):
                    written[key] = run_id
            try:
                for statement in STATEMENTS:
                    database.executemany(statement, rows[statement])
            except (sqlite3.IntegrityError, OverflowError):
                return {}
            database.execute("COMMIT")
            return written

    def _artifact_root(self, database: sqlite3.Connection) -> str | None:
        """Return the folder of the experiment's artifacts; None if a user has deleted the experiment."""
        query = "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND lifecycle_stage = 'active'"
        row = database.execute(query, (self._ids.experiment_id,)).fetchone()
        return None if row is None else str(row[0])

    def _add(self, rows: Rows, run_id: str, batch: RunBatch, root: str | None) -> bool:
        """Add the rows of a batch, with its new run if ``root`` is given; add none and return False if MLflow would
        refuse some of its values."""
        params, tags = batch.params_and_tags()
        if not accepts(batch.points, params, tags):
            return False
        if root is not None:
            assert batch.new is not None
            name = storable(batch.new.name)
            tags = first_tags(batch.new, self._ids.run_id) | {"mlflow.runName": name} | tags
            user, folder = tags.get("mlflow.user", "unknown"), run_artifacts(root, run_id)
            rows[NEW_RUN].append((run_id, name, user, batch.new.started_ms, folder, self._ids.experiment_id))
        rows[PARAMETER] += [(run_id, name, text) for name, text in params.items()]
        points = [(run_id, name, step, timestamp, *_stored(value)) for name, value, timestamp, step in batch.points]
        rows[POINT] += points
        rows[LATEST] += {point[1]: point for point in sorted(points)}.values()
        rows[TAG] += [(run_id, name, text) for name, text in tags.items()]
        rows[NO_TAG] += [(run_id, name) for name in batch.deleted_tags()]
        if batch.status is not None:
            rows[STATUS].append((batch.status.status, batch.status.ended_ms, run_id))
        return True


def _is_active(database: sqlite3.Connection, run_id: str) -> bool:
    """Whether the store has a run, and no user has deleted it."""
    query = "SELECT 1 FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"
    return database.execute(query, (run_id,)).fetchone() is not None


def _stored(value: float) -> tuple[float, bool]:
    """Return a metric's value in MLflow's columns ``value`` and ``is_nan``."""
    if math.isnan(value):
        return 0.0, True
    return max(-sys.float_info.max, min(float(value), sys.float_info.max)), False
