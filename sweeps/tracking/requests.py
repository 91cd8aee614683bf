"""What a person asks of a running sweep from another terminal, or another machine: a tag on its parent run, which its
driver looks at, and another that answers. So it works wherever both reach the tracking store.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sweeps import constants
from sweeps.errors import SweepsError, UserError
from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.store import fetch_runs

POLL_S = 1.0
ANSWER_WITHIN_S = 30.0

Request = Mapping[str, Any]
"""``{"verb": "extend", ...}``."""

logger = logging.getLogger(__name__)


def ask(record: SweepRecord, request: Request) -> str | None:
    """Ask the driver of a running sweep for something, and wait for its answer; None if the sweep ends meanwhile.

    Raises:
        UserError: It refuses, or does not answer.
    """
    client = connect(record.mlflow.tracking_uri)
    ident = uuid.uuid4().hex
    client.set_tag(record.mlflow.run_id, constants.TAG_REQUEST, json.dumps({"id": ident, **request}))
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        tags = _tags(record.mlflow.tracking_uri, record.sweep)
        answer = json.loads(tags.get(constants.TAG_ANSWER, "{}"))
        if answer.get("id") == ident:
            if not answer["done"]:
                raise UserError(answer["text"])
            return str(answer["text"])
        if tags.get(constants.TAG_STATE) != "running":
            return None
    raise UserError(
        f"{record.sweep}: its driver has not answered for {ANSWER_WITHIN_S:.0f} s; "
        f"see whether it is alive with `python -m sweeps show {record.sweep}`, and try again"
    )


class Requests:
    """The driver's side: looks for a request now and then, on a thread of its own."""

    def __init__(self, uri: str, sweep: str, handle: Callable[[Request], str]):
        """
        Args:
            uri: Tracking URI.
            sweep: The sweep's name.
            handle: Does what is asked and says so; raises ``SweepsError`` if it cannot.
        """
        self._uri, self._sweep, self._handle = uri, sweep, handle
        self._closed = threading.Event()
        self._answered: str | None = self._latest().get("id")  # of an earlier driver
        self._thread = threading.Thread(target=self._follow, name="requests", daemon=True)

    def __enter__(self) -> Requests:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """No request is taken any more; one that is being answered is answered."""
        self._closed.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                request = self._latest()
                if request and request["id"] != self._answered:
                    self._answered = request["id"]
                    self._answer(request)
            except Exception as error:  # noqa: BLE001 - a store that is away is asked again
                logger.debug("requests of %s cannot be read: %s", self._sweep, error)

    def _latest(self) -> dict[str, Any]:
        latest: dict[str, Any] = json.loads(_tags(self._uri, self._sweep).get(constants.TAG_REQUEST, "{}"))
        return latest

    def _answer(self, request: Request) -> None:
        try:
            text, done = self._handle(request), True
        except SweepsError as error:
            text, done = str(error), False
        answer = json.dumps({"id": request["id"], "done": done, "text": text})
        client = connect(self._uri)
        client.set_tag(_run_id(self._uri, self._sweep), constants.TAG_ANSWER, answer)


def _tags(uri: str, sweep: str) -> dict[str, str]:
    runs = fetch_runs(uri, {constants.TAG_SWEEP: sweep, constants.TAG_KIND: "sweep"})
    return runs[0].tags if runs else {}


def _run_id(uri: str, sweep: str) -> str:
    return fetch_runs(uri, {constants.TAG_SWEEP: sweep, constants.TAG_KIND: "sweep"})[0].run_id
