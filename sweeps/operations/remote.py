"""The operations over HTTP, through the REST API of a service, for ``--server URL``."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

import requests

from sweeps.constants import REPORT_PAGE
from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName, UserError
from sweeps.operations.operations import Operations, Schedules, Show
from sweeps.operations.serialization import read_record
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord
from sweeps.tracking.trial_logs import LogPart

if TYPE_CHECKING:
    from sweeps.cleaning.policy import CleanOptions
    from sweeps.registry.register import RegisteredModel

T = TypeVar("T")

TOKEN, TOKEN_FILE = "SWEEPS_TOKEN", "SWEEPS_TOKEN_FILE"
"""Environment variables for the token, or a file with it. There is no option, since every user of the machine can see
the arguments of a process."""
TIMEOUTS_S = (10.0, 300.0)
"""Timeouts in seconds for connecting and for an answer; the report of a large sweep takes long."""
REGISTER_TIMEOUT_S = 6 * 3600.0
"""Maximum seconds to wait for the registration of a model: a large one takes hours to copy, and a repetition would
register it twice; but a proxy or a machine may be lost without a sign."""
PAGE_SIZE = 1000
OPEN_STATES = ("queued", "running")
"""States of jobs that have not ended."""
UNRECORDED_FAILURES_S = 86_400.0
"""Age in seconds up to which failed jobs without a record are listed."""
STOP_TIMEOUT_S, STOP_POLL_S = 120.0, 1.0
"""Maximum seconds to wait for the end of a stopped sweep, and seconds between two checks."""
MAX_RETRY_S = 60.0
"""Maximum seconds of retries after status 429 (too many requests)."""


class Remote(Operations, Schedules):
    """Operations of a service at an address. The service's errors are raised with its messages, most of them as
    ``UserError``. Training is submitted as a job (``post``, ``ask``, ``fire``) and then followed."""

    is_remote = True

    def __init__(self, server: str) -> None:
        """
        Args:
            server: Address, such as ``http://127.0.0.1:8642``.

        Raises:
            UserError: The address is invalid, or the file with the token cannot be read.
        """
        if not server.startswith(("http://", "https://")):
            raise UserError(f"--server={server}: must begin with http:// or https://, as in http://127.0.0.1:8642")
        self._server = server.rstrip("/")
        self._session = requests.Session()
        self._session.auth = _bearer(_token())  # takes precedence over a .netrc file

    @property
    def address(self) -> str:
        return redact_uri(self._server)

    # --- reading ------------------------------------------------------------------------------------------------

    def sweeps(self) -> Sequence[SweepSummary]:
        return [_summary(line) for line in self._pages("sweeps", "sweeps")]

    def unrecorded_jobs(self, recorded: Sequence[SweepSummary]) -> list[dict[str, Any]]:
        """Return the jobs whose sweeps are not recorded: those that wait or are starting, and failed ones of the last
        day."""
        names, since = {each.sweep for each in recorded}, time.time() - UNRECORDED_FAILURES_S
        found = [
            *self.get("jobs", state=OPEN_STATES, limit=PAGE_SIZE)["jobs"],
            *self.get("jobs", state="failed")["jobs"],
        ]
        return [each for each in found if each["sweep"] not in names and (each["ended"] or since) >= since]

    def record(self, sweep: str) -> SweepRecord:
        return self._read(self._request("GET", f"{_path(sweep)}/record"), lambda answer: read_record(answer.content))

    def trial(self, sweep: str, trial: str, *, settled: bool = False) -> dict[str, Any]:
        document: dict[str, Any] = self.get(_path(sweep, trial), settled=settled)
        return document

    def log_workers(self, record: SweepRecord, trial: TrialRecord) -> list[int]:
        workers: list[int] = self.get(f"{_path(record.sweep, trial.trial)}/logs")["workers"]
        return workers

    def log_part(self, record: SweepRecord, trial: TrialRecord, worker: int, position: int) -> LogPart:
        return LogPart(**self.get(f"{_path(record.sweep, trial.trial)}/logs/{worker}", position=position))

    def config_text(self, record: SweepRecord) -> str | None:
        return self._request("GET", f"{_path(record.sweep)}/config").text or None

    def exported(self, record: SweepRecord, trial: TrialRecord, file: Path) -> str:
        query = {"file": file.name, "trial": trial.trial}
        return self._request("GET", f"{_path(record.sweep)}/best.yaml", params=query).text

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request and return the document of the answer."""
        return self._read(self._request("GET", path, params=query), requests.Response.json)

    def schedules(self) -> Any:
        return self.get("schedules")

    def firings(self, names: Sequence[str], count: int) -> Any:
        return self.get("firings", schedule=[*names], limit=count)

    def versions(self, name: str) -> Any:
        return self.get(f"{_schedule(name)}/versions")

    def nights(self, name: str) -> Any:
        return self.get(f"{_schedule(name)}/nights")

    # --- changing -------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST request and return the document of the answer."""
        return self._read(self._request("POST", path, json={} if body is None else body), requests.Response.json)

    def ask(self, sweep: str, verb: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a command for a sweep and return the document of the answer."""
        return self.post(f"{_path(sweep)}/{verb}", body)

    def pause(self, name: str, *, is_paused: bool) -> Any:
        return self.post(f"{_schedule(name)}/{'pause' if is_paused else 'resume'}")

    def fire(self, schedule: str) -> Any:
        """Fire a schedule now and return its job."""
        return self.post(f"{_schedule(schedule)}/run")

    def stop(self, sweep: str, trial: str | None) -> SweepRecord | str:
        from sweeps.driver.stop import wait_for_end

        self.ask(sweep, "stop", {} if trial is None else {"trial": trial})
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while True:
            job = None
            try:
                job = next(iter(self.get(f"{_path(sweep)}/jobs")), None)
                return wait_for_end(partial(self.record, sweep), trial, within_s=STOP_TIMEOUT_S, every_s=STOP_POLL_S)
            except UnknownName:
                if job is None:  # a service of 0.2 does not tell the jobs of a sweep without a record
                    ending = "was stopped before anything was recorded, or removed from the queue"
                    raise UserError(f"{sweep}: {ending}") from None
            if job["state"] not in OPEN_STATES:
                return "cancelled" if job["started"] is None else "stopped"
            if time.monotonic() > deadline:
                raise SweepsError(f"{sweep}: its job {job['id']} did not end within {STOP_TIMEOUT_S:.0f} s")
            time.sleep(STOP_POLL_S)

    def register(
        self, record: SweepRecord, trial: TrialRecord, model: str, alias: str | None, *, merged: bool
    ) -> RegisteredModel:
        body = {"model": model, "trial": trial.trial, "alias": alias, "merged": merged}
        within_s = (TIMEOUTS_S[0], REGISTER_TIMEOUT_S)
        answer = self._request("POST", f"{_path(record.sweep)}/register", json=body, timeout=within_s)
        made = self._read(answer, requests.Response.json)

        from sweeps.registry.register import RegisteredModel  # torch, which takes seconds

        return RegisteredModel(made["name"], made["version"], made["alias"])

    def clean(
        self, sweeps: Sequence[str], *, dry_run: bool, **options: Unpack[CleanOptions]
    ) -> tuple[dict[str, Any], Show]:
        found = self.post("clean", {"sweeps": sweeps, "dry_run": dry_run, **options})
        return found["cleaning"], lambda console: console.out(found["text"], end="", highlight=False)

    def report(self, sweep: str, folder: Path | None) -> Path:
        from sweeps.report.report_folder import make_folder

        if folder is not None:
            make_folder(folder)  # fails early, since making the report takes time
        packed = zipfile.ZipFile(io.BytesIO(self._request("GET", self.ask(sweep, "report")["archive"]).content))
        folder = folder or make_folder(Path(f"{sweep}-report"))
        packed.extractall(folder)  # keeps every name within the folder
        return folder / REPORT_PAGE

    # --- inside -------------------------------------------------------------------------------------------------

    def _pages(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        offset, total = 0, 1
        while offset < total:
            page = self.get(path, limit=PAGE_SIZE, offset=offset)
            yield from page[key]
            offset, total = offset + PAGE_SIZE, page["total"]

    def _request(self, method: str, path: str, **more: Any) -> requests.Response:
        deadline = time.monotonic() + MAX_RETRY_S
        while True:
            answer = self._send(method, path, **more)
            wait_s = _retry_after(answer) if answer.status_code == 429 else 0.0
            if answer.status_code != 429 or time.monotonic() + wait_s > deadline:
                break
            time.sleep(wait_s)
        if answer.ok and not answer.is_redirect:
            return answer
        raise _error(self._server, answer)

    def _read(self, answer: requests.Response, read: Callable[[requests.Response], T]) -> T:
        """Return the content of an answer.

        Raises:
            UserError: The answer is not that of a service; it may be the sign-in page of a proxy.
        """
        try:
            return read(answer)
        except (ValueError, KeyError, TypeError):
            raise _error(self._server, answer) from None

    def _send(self, method: str, path: str, **more: Any) -> requests.Response:
        address = f"{self._server}/api/v1/{path}"
        try:
            return self._session.request(method, address, **{"timeout": TIMEOUTS_S, **more}, allow_redirects=False)
        except requests.RequestException as error:
            text = str(getattr(error.args[0], "reason", error) if error.args else error)
            reason = redact_uri(text).rpartition(": ")[2]
            raise TrackingUnreachable(
                f"--server={redact_uri(self._server)}: does not answer ({reason}); "
                "is `python -m sweeps serve` running there?"
            ) from None


def _path(sweep: str, trial: str | None = None) -> str:
    """Return the API path of a sweep or a trial; each name is escaped to a single path segment."""
    return f"sweeps/{quote(sweep, safe='')}" + ("" if trial is None else f"/trials/{quote(trial, safe='')}")


def _schedule(name: str) -> str:
    """Return the API path of a schedule."""
    return f"schedules/{quote(name, safe='')}"


def _error(server: str, answer: requests.Response) -> SweepsError:
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        given, status = redact_uri(server), answer.status_code
        if status in (502, 503, 504):  # from a proxy while the service restarts
            return TrackingUnreachable(f"--server={given}: the proxy in front of it answers with status {status}")
        detail = f"--server={given}: answers with status {status}; give the address of a service of Sweeps"
        if answer.ok:
            detail += " of this release"
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


def _retry_after(answer: requests.Response) -> float:
    """Return the seconds until a request may be repeated, which a proxy may give as a date."""
    try:
        return float(answer.headers.get("Retry-After", 1))
    except ValueError:
        return 1.0


def _bearer(token: str | None) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    def authenticate(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authenticate


def _token() -> str | None:
    source, file = TOKEN, os.environ.get(TOKEN_FILE)
    token = os.environ.get(TOKEN, "").strip()  # it may end with a newline if it was read from a file
    if not token and file is not None:
        source = f"{TOKEN_FILE}={file}"
        try:
            token = Path(file).expanduser().read_text(encoding="utf-8-sig", errors="replace").strip()
        except OSError as error:
            raise UserError(f"{source}: cannot be read ({error.strerror})") from None
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"{source}: has characters that no token has; give it alone, as `token create` prints it")
    return token or None


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
