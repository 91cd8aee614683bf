"""Requests to a running sweep from another terminal or machine, such as to stop or to extend it. A request is a tag on
the parent run that the sweep's driver polls, and the answer another tag: both sides need only the tracking store.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sweeps.constants import TAG_ANSWER, TAG_REQUEST, TAG_STATE
from sweeps.errors import SweepsError, UserError
from sweeps.tracking.client import connect
from sweeps.tracking.record import MlflowIds, SweepRecord
from sweeps.tracking.store import fetch_tags

POLL_S = 0.5
"""Seconds between two polls; one is a query by primary key in SQLite, or a small request to a server."""
ANSWER_WITHIN_S = 30.0

Request = Mapping[str, Any]
"""A request, such as ``{"verb": "extend", ...}``."""

logger = logging.getLogger(__name__)


def send_request(record: SweepRecord, request: Request) -> str | None:
    """Send a request to the driver of a running sweep, and wait for the answer.

    Returns:
        The text of the answer, or None if the sweep ends before.

    Raises:
        UserError: The driver refuses the request, or does not answer.
    """
    ids = record.mlflow
    ident = uuid.uuid4().hex
    connect(ids.tracking_uri).set_tag(ids.run_id, TAG_REQUEST, json.dumps({"id": ident, **request}))
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        tags = fetch_tags(ids.tracking_uri, ids.run_id)
        answer = json.loads(tags.get(TAG_ANSWER, "{}"))
        if answer.get("id") == ident:
            if not answer["done"]:
                raise UserError(answer["text"])
            return str(answer["text"])
        if tags.get(TAG_STATE) != "running":
            return None
    raise UserError(
        f"{record.sweep}: its driver has not answered for {ANSWER_WITHIN_S:.0f} s; "
        f"see whether it is alive with `python -m sweeps show {record.sweep}`, and try again"
    )


def clear_request(record: SweepRecord) -> None:
    """Delete a request that an earlier driver has not answered."""
    if TAG_REQUEST in record.tags:
        connect(record.mlflow.tracking_uri).delete_tag(record.mlflow.run_id, TAG_REQUEST)


class RequestListener:
    """Polls for requests on a thread of the driver inside a ``with`` block."""

    def __init__(self, ids: MlflowIds, handle: Callable[[Request], str]):
        """
        Args:
            ids: The sweep's ids in MLflow.
            handle: Carries out a request and returns the text of the answer; raises ``SweepsError`` if it cannot.
        """
        self._ids, self._handle = ids, handle
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="requests", daemon=True)

    def __enter__(self) -> RequestListener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop polling, after the answer to a request that is being carried out."""
        self._closed.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                tags = fetch_tags(self._ids.tracking_uri, self._ids.run_id)
                request, answer = (json.loads(tags.get(tag, "{}")) for tag in (TAG_REQUEST, TAG_ANSWER))
                if request and request["id"] != answer.get("id"):
                    self._answer(request)
            except Exception as error:  # noqa: BLE001 - the next poll tries again
                logger.debug("requests of run %s cannot be read: %s", self._ids.run_id, error)

    def _answer(self, request: Request) -> None:
        try:
            text, done = self._handle(request), True
        except SweepsError as error:
            text, done = str(error), False
        answer = json.dumps({"id": request["id"], "done": done, "text": text})
        connect(self._ids.tracking_uri).set_tag(self._ids.run_id, TAG_ANSWER, answer)
