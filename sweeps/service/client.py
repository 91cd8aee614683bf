"""Client of the REST API, for ``--server URL``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import requests

from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName, UserError
from sweeps.service.api.serialization import read_record
from sweeps.texts.redact import redact_uri
from sweeps.tracking.record import SweepRecord, SweepSummary
from sweeps.tracking.trial_logs import LogPart

TOKEN, TOKEN_FILE = "SWEEPS_TOKEN", "SWEEPS_TOKEN_FILE"
"""Environment variables for the token, or a file with it. There is no option, since the arguments of a process are
visible to every user of the machine."""
TIMEOUTS_S = (10.0, 300.0)
"""Timeouts for connecting and for an answer; the report of a large sweep takes long."""
PAGE_SIZE = 1000
MAX_RETRY_S = 60.0
"""Maximum seconds of retries after status 429 (too many requests)."""


class ServerUnreachable(TrackingUnreachable):
    """Raised when the service does not answer."""


class _Bearer(requests.auth.AuthBase):
    """Token authentication that takes precedence over a .netrc file."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Client:
    """A service at an address. Its errors are raised with its messages, most of them as ``UserError``."""

    def __init__(self, server: str) -> None:
        """
        Args:
            server: Address, such as ``http://127.0.0.1:8642``.

        Raises:
            UserError: The address is invalid, or the file with the token cannot be read.
        """
        if not server.startswith(("http://", "https://")):
            raise UserError(f"--server={server}: must begin with http:// or https://, as in http://127.0.0.1:8642")
        self.server = server.rstrip("/")
        self._session = requests.Session()
        self._session.auth = _Bearer(_token())

    # --- reading ------------------------------------------------------------------------------------------------

    def sweeps(self) -> list[SweepSummary]:
        """Return all sweeps, newest first."""
        return [_summary(line) for line in self._pages("sweeps", "sweeps")]

    def record(self, sweep: str) -> SweepRecord:
        """Return the record of a sweep."""
        return read_record(self._request("GET", f"{_path(sweep)}/record").content)

    def trial(self, sweep: str, trial: str) -> dict[str, Any]:
        """Return the document of ``show --trial --json``."""
        return cast(dict[str, Any], self._json("GET", f"{_path(sweep)}/trials/{quote(trial, safe='')}"))

    def log_workers(self, sweep: str, trial: str) -> list[int]:
        """Return the ranks of a trial's workers that have a log."""
        found: list[int] = self._json("GET", f"{_path(sweep)}/trials/{quote(trial, safe='')}/logs")["workers"]
        return found

    def log_part(self, sweep: str, trial: str, worker: int, position: int) -> LogPart:
        """Return a part of a worker's log."""
        path = f"{_path(sweep)}/trials/{quote(trial, safe='')}/logs/{worker}"
        return LogPart(**self._json("GET", path, params={"position": position}))

    def config_text(self, record: SweepRecord) -> str | None:
        """Return a sweep's config as YAML; None if it is not recorded."""
        return self._request("GET", f"{_path(record.sweep)}/config").text or None

    def exported(self, sweep: str, trial: str | None, file: Path) -> str:
        """Return the text of a config that trains one trial."""
        query = {"file": file.name} | ({} if trial is None else {"trial": trial})
        return self._request("GET", f"{_path(sweep)}/best.yaml", params=query).text

    def confs(self, group: str | None) -> dict[str, dict[str, str]]:
        """Return the names of configs, or of a group's options, with a line about each."""
        return cast(dict[str, dict[str, str]], self._json("GET", "confs" if group is None else f"confs/{quote(group)}"))

    def job(self, number: int) -> dict[str, Any]:
        """Return the document of a job."""
        return cast(dict[str, Any], self._json("GET", f"jobs/{number}"))

    def outcome(self, number: int) -> Any:
        """Return the ``--json`` document of a job's command line; None if it is unknown."""
        return self._json("GET", f"jobs/{number}/outcome")["document"]

    def schedules(self) -> list[dict[str, Any]]:
        """Return the document of ``schedule list --json``."""
        return cast(list[dict[str, Any]], self._json("GET", "schedules"))

    def nights(self, schedule: str) -> list[dict[str, Any]]:
        """Return the document of ``schedule nights --json``."""
        return cast(list[dict[str, Any]], self._json("GET", f"{_schedule(schedule)}/nights"))

    def firings(self, names: Sequence[str], count: int) -> list[dict[str, Any]]:
        """Return the document of ``schedule next --json``."""
        return cast(list[dict[str, Any]], self._json("GET", "firings", params={"schedule": [*names], "limit": count}))

    # --- changing -------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST request and return the document of the answer."""
        return self._json("POST", path, json={} if body is None else body)

    def ask(self, sweep: str, verb: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a command for a sweep and return the document of the answer."""
        return self.post(f"{_path(sweep)}/{verb}", body)

    def fire(self, schedule: str) -> Any:
        """Fire a schedule now and return its job."""
        return self.post(f"{_schedule(schedule)}/run")

    def pause(self, schedule: str, *, is_paused: bool) -> Any:
        """Pause a schedule, or let it fire again, and return its document."""
        return self.post(f"{_schedule(schedule)}/{'pause' if is_paused else 'resume'}")

    def versions(self, schedule: str) -> list[dict[str, Any]]:
        """Return the saved versions of a schedule, the newest first."""
        return cast(list[dict[str, Any]], self._json("GET", f"{_schedule(schedule)}/versions"))

    def report(self, sweep: str) -> bytes:
        """Make a report and return its files as a ZIP archive."""
        archive = self.ask(sweep, "report")["archive"]
        return self._request("GET", archive).content

    # --- inside -------------------------------------------------------------------------------------------------

    def _pages(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        offset, total = 0, 1
        while offset < total:
            page = self._json("GET", path, params={"limit": PAGE_SIZE, "offset": offset})
            yield from page[key]
            offset, total = offset + PAGE_SIZE, page["total"]

    def _json(self, method: str, path: str, **more: Any) -> Any:
        return self._request(method, path, **more).json()

    def _request(self, method: str, path: str, **more: Any) -> requests.Response:
        deadline = time.monotonic() + MAX_RETRY_S
        while True:
            answer = self._send(method, path, **more)
            wait_s = float(answer.headers.get("Retry-After", 1)) if answer.status_code == 429 else 0.0
            if answer.status_code != 429 or time.monotonic() + wait_s > deadline:
                break
            time.sleep(wait_s)
        if answer.ok and not answer.is_redirect:
            return answer
        raise _error(self.server, answer)

    def _send(self, method: str, path: str, **more: Any) -> requests.Response:
        address = f"{self.server}/api/v1/{path}"
        try:
            return self._session.request(method, address, timeout=TIMEOUTS_S, allow_redirects=False, **more)
        except requests.RequestException as error:
            text = str(getattr(error.args[0], "reason", error) if error.args else error)
            reason = redact_uri(text).rpartition(": ")[2]
            raise ServerUnreachable(
                f"--server={redact_uri(self.server)}: does not answer ({reason}); "
                "is `python -m sweeps serve` running there?"
            ) from None


def _path(sweep: str) -> str:
    """Return the API path of a sweep; the name is escaped to a single path segment."""
    return f"sweeps/{quote(sweep, safe='')}"


def _schedule(name: str) -> str:
    """Return the API path of a schedule."""
    return f"schedules/{quote(name, safe='')}"


def _error(server: str, answer: requests.Response) -> SweepsError:
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"--server={redact_uri(server)}: answers with status {answer.status_code}; is it a service of Sweeps?"
    match answer.status_code:
        case 401:
            return UserError(f"{detail}; the command line takes it from {TOKEN}, or from the file {TOKEN_FILE} names")
        case 404:
            return UnknownName(detail)
        case 503:
            return TrackingUnreachable(detail)
        case 409 | 500:
            return SweepsError(detail)
        case _:
            return UserError(detail)


def _token() -> str | None:
    if token := os.environ.get(TOKEN):
        return token
    file = os.environ.get(TOKEN_FILE)
    if file is None:
        return None
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"{TOKEN_FILE}={file}: cannot be read ({error.strerror})") from None


def _summary(line: Mapping[str, Any]) -> SweepSummary:
    def several(names: str | list[str]) -> tuple[str, ...]:
        return (names,) if isinstance(names, str) else tuple(names)

    alike = ("sweep", "conf", "experiment", "experiment_id", "status", "best", "counts", "started", "wall_s", "run_id")
    return SweepSummary(
        metrics=several(line["metric"]),
        modes=several(line["mode"]),
        planned=line["planned"],
        **{name: line[name] for name in alike},
    )
