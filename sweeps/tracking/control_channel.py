"""Requests to a running sweep from another terminal or machine, such as to stop or extend it. A request is a tag on the
parent run, which the sweep's driver polls, and the answer is another tag, so that both sides need only the tracking
store. For a sweep in an object store, request and answer are objects there, and both sides need only that store.

There is one tag for the requests of all senders. A sender whose request was replaced sends it again when the other one
is answered."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sweeps.constants import TAG_ANSWER, TAG_FOLDER, TAG_REQUEST, TAG_STATE
from sweeps.errors import SweepsError, UserError
from sweeps.folders.driver_lock import DRIVER_FILE
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import ObjectStore
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import REACH_WITHIN_S, connect, first_cause, request_limits
from sweeps.tracking.record import MlflowIds, SweepRecord
from sweeps.tracking.store import fetch_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient

POLL_S = 0.5
"""Seconds between two polls; a poll is a query by primary key in SQLite, or one request to a server."""
STORE_POLL_S = 2.0
"""Seconds between two polls of an object store."""
ANSWER_WITHIN_S = 30.0

Request = Mapping[str, Any]
"""A request, such as ``{"verb": "extend", ...}``."""

logger = logging.getLogger(__name__)


def send_request(record: SweepRecord, request: Request) -> str | None:
    """Send a request to the driver of a running sweep, and return the text of its answer; None if the sweep ends before
    answering.

    Raises:
        UserError: The driver refuses the request, or does not answer; or the store does not take the request, as from
            a user who may only read.
    """
    channel, ident = _Channel(record.mlflow, record.tags.get(TAG_FOLDER, "")), uuid.uuid4().hex
    sent, last = {"id": ident, **request}, dict[str, Any]()
    try:
        channel.write(TAG_REQUEST, sent)
    except SweepsError:
        raise
    except Exception as error:  # of MLflow, the file system or boto
        raise UserError(
            f"{record.sweep}: {channel.place} does not take the request to its driver ({first_cause(error)}); ask for "
            "the permission to change the sweep, or try again later"
        ) from error
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        answer, is_running = channel.read(TAG_ANSWER), channel.is_running()
        if answer.get("id") == ident:
            if not answer["done"]:
                raise UserError(answer["text"])
            return str(answer["text"])
        if not is_running:
            return None
        # At the second look, since the other sender has read its answer by then.
        if answer and answer == last and channel.read(TAG_REQUEST).get("id") == answer["id"]:
            channel.write(TAG_REQUEST, sent)
        last = answer
    raise UserError(
        f"{record.sweep}: its driver has not answered for {ANSWER_WITHIN_S:.0f} s; "
        f"check whether it is alive with `python -m sweeps show {record.sweep}`, and try again"
    )


def clear_request(record: SweepRecord) -> None:
    """Delete a request that an earlier driver left unanswered."""
    if is_remote(location := record.tags.get(TAG_FOLDER, "")):
        ObjectStore(location).remove(_object(TAG_REQUEST))
    if TAG_REQUEST in record.tags:
        connect(record.mlflow.tracking_uri).delete_tag(record.mlflow.run_id, TAG_REQUEST)


class _Channel:
    """Requests and answers as tags of a sweep's run, or as objects in the store that has the sweep's folder."""

    def __init__(self, ids: MlflowIds, location: str) -> None:
        self._ids, self._store = ids, ObjectStore(location) if is_remote(location) else None
        self.poll_s = POLL_S if self._store is None else STORE_POLL_S
        self.place = redact_uri(ids.tracking_uri if self._store is None else location)
        """The tracking store or the sweep's folder, for messages."""

    @cached_property
    def _client(self) -> MlflowClient:
        """Client that serves all calls, since each ``connect`` asks the store whether it answers."""
        return connect(self._ids.tracking_uri)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content)
        if self._store is None:
            self._client.set_tag(self._ids.run_id, name, text)
        else:
            self._store.write(_object(name), text.encode())

    def read(self, name: str) -> dict[str, Any]:
        text = self._tags().get(name) if self._store is None else self._store.read(_object(name))
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def is_running(self) -> bool:
        """Whether the sweep has a running driver according to its record, or to the driver's file in an object store,
        even if its heartbeat is old."""
        if self._store is None:
            return self._tags().get(TAG_STATE) == "running"
        return self._store.read(DRIVER_FILE) is not None

    def _tags(self) -> Mapping[str, str]:
        return fetch_tags(self._client, self._ids.run_id)


def _object(name: str) -> str:
    return f"{name.removeprefix('sweeps.')}.json"


class RequestListener:
    """Polls for requests on a thread of the driver inside a ``with`` block."""

    def __init__(self, ids: MlflowIds, handle: Callable[[Request], str], location: str = ""):
        """
        Args:
            ids: The sweep's ids in MLflow.
            handle: Carries out a request and returns the text of the answer; raises ``SweepsError`` if that is
                impossible.
            location: Path or URI of the sweep's folder.
        """
        self._ids, self._handle, self._channel = ids, handle, _Channel(ids, location)
        self._answers: dict[str, dict[str, Any]] = {}
        """Answers by request id. One is sent again if the store did not take it, or its sender has missed it."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="requests", daemon=True)

    def __enter__(self) -> RequestListener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop polling. The answer to a request in progress is waited for as long as its sender waits."""
        self._closed.set()
        self._thread.join(ANSWER_WITHIN_S)

    def _follow(self) -> None:
        answered = None
        while not self._closed.wait(self._channel.poll_s):
            try:
                request = self._channel.read(TAG_REQUEST)
                if not request or request["id"] == answered or self._closed.is_set():  # it may have hung meanwhile
                    continue
                if request["id"] != self._channel.read(TAG_ANSWER).get("id"):  # else answered in an earlier stage
                    if request["id"] not in self._answers:
                        self._answers[request["id"]] = self._answer_to(request)
                    with request_limits(REACH_WITHIN_S):  # MLflow's own retries take minutes
                        self._channel.write(TAG_ANSWER, self._answers[request["id"]])
                answered = request["id"]
            except Exception as error:  # noqa: BLE001 - the next poll tries again
                logger.debug("requests of run %s cannot be read: %s", self._ids.run_id, error)

    def _answer_to(self, request: Request) -> dict[str, Any]:
        """Carry out a request, once, and return the answer."""
        try:
            text, done = self._handle(request), True
        except SweepsError as error:
            text, done = str(error), False
        except Exception as error:
            logger.exception("a request could not be carried out")
            text, done = f"its driver could not do that ({type(error).__name__}: {error}); try again", False
        return {"id": request["id"], "done": done, "text": text}
