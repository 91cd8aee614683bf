"""Response times of the front page and the job routes with 200,000 jobs in the table, while others write to it.

A real service with SQLite on one machine; jobs of many users that have ended, and some that wait. Writers submit,
reorder and cancel jobs all the time, as other services do; a client requests each kind of page in turn. The benchmark
fails if the 99th percentile of a kind is above 100 ms, unless `--limit` sets another limit.

    python benchmarks/jobs.py
    python benchmarks/jobs.py --jobs 30000 --writers 2 --requests 200
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import requests
from service import address_in, shares

USERS = [f"user{number:02}" for number in range(20)]
STATES = ("finished", "stopped", "failed", "cancelled")
WAITING = 20


def fill(folder: Path, count: int, seed: int = 0) -> None:
    """Write jobs that have ended, and some that wait, into the database of a service."""
    from sqlalchemy import insert

    from sweeps.service.database.engine import open_database, writing
    from sweeps.service.database.tables import jobs

    rng = random.Random(seed)
    engine = open_database(f"sqlite:///{folder}/outputs/service.db")
    now = time.time()
    for start in range(0, count, 10_000):
        rows = [
            _row(number, count, rng.choice(USERS), rng.choice(STATES), now) for number in range(start, start + 10_000)
        ]
        with writing(engine) as connection:
            connection.execute(insert(jobs), rows[: count - start])
    engine.dispose()


def _row(number: int, count: int, user: str, state: str, now: float) -> dict[str, Any]:
    sweep, submitted = f"digits-{number}", now - 60.0 * (count - number)
    waits = number >= count - WAITING
    return {
        "verb": "run",
        "sweep": sweep,
        "makes": None if state == "cancelled" else sweep,
        "request": {"verb": "run", "conf": "digits", "overrides": ["search.num_trials=24"], "name": sweep},
        "user": user,
        "project": f"of-{user}",
        "priority": 0,
        "state": "queued" if waits else state,
        "submitted": submitted,
        "started": None if waits else submitted + 5,
        "ended": None if waits else submitted + 50,
        "attempts": 0 if waits else 1,
        "told": None if waits else submitted + 51,
        "schedule": "nightly" if number % 50 == 0 else None,
        "due": submitted if number % 50 == 0 else None,
    }


def write(folder: Path) -> None:
    """Submit a job, change its order and take it out again, until killed: what other services and the runner do."""
    from sweeps.service.database.engine import open_database, writing
    from sweeps.service.queue import jobs
    from sweeps.service.queue.job_requests import Run

    engine = open_database(f"sqlite:///{folder}/outputs/service.db")
    while True:
        with writing(engine) as connection:
            user = random.choice(USERS)
            job = jobs.submit(connection, Run(conf="digits"), "written", user=user, project=user, now=time.time())
        with writing(engine) as connection:
            jobs.prioritise(connection, job.id, -2)
        with writing(engine) as connection:
            jobs.cancel(connection, job.id, time.time())
        time.sleep(0.05)


def ask(url: str, count: int, times: int) -> dict[str, list[float]]:
    """Seconds that each kind of answer took."""
    kinds = {
        "front page": "/",
        "page of the queue": "/queue",
        "page of schedules": "/schedules",
        "jobs": "/api/v1/jobs",
        "jobs, far down": f"/api/v1/jobs?before={count // 2}",
        "jobs that failed": "/api/v1/jobs?state=failed",
        "jobs of a user": "/api/v1/jobs?user=user07",
        "jobs of a project": "/api/v1/jobs?project=of-user07&state=stopped",
        "jobs of a schedule": "/api/v1/jobs?schedule=nightly",
        "jobs of nobody": "/api/v1/jobs?user=nobody",
        "queue": "/api/v1/jobs?state=queued",
        "one job": f"/api/v1/jobs/{count // 3}",
        "schedules": "/api/v1/schedules",
    }
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    session = requests.Session()
    for turn in range(-3, times):  # the first are not counted
        for kind, path in kinds.items():
            began = time.monotonic()
            session.get(url + path, timeout=60).raise_for_status()
            if turn >= 0:
                took[kind].append(time.monotonic() - began)
            time.sleep(0.01)
    return took


def measure(folder: Path, count: int, writers: int, times: int) -> dict[str, Any]:
    """Measure the response times of a service with this many jobs and writers."""
    from sweeps.tracking.client import connect

    connect(f"sqlite:///{folder}/mlflow.db")
    fill(folder, count)
    options = ["port=0", "schedules=[]", "queue.per_user=1"]
    log = (folder / "serve.log").open("w+")
    # Nothing starts: one job of a user that runs, on a machine that is not here, holds the only place.
    _hold_the_queue(folder)
    service = subprocess.Popen([sys.executable, "-m", "sweeps", "serve", *options], cwd=folder, stdout=log, stderr=log)
    command = [sys.executable, __file__, "--write", str(folder)]
    beside = [subprocess.Popen(command) for _ in range(writers)]
    try:
        took = ask(address_in(folder / "serve.log"), count, times)
        written = [process.poll() is None for process in beside]
    finally:
        for process in (service, *beside):
            process.terminate()
            process.wait()
    return {
        "jobs": count,
        "writers": writers,
        "requests_of_each_kind": times,
        "writers_at_the_end": sum(written),
        "ms": {kind: shares(each) for kind, each in took.items()},
    }


def _hold_the_queue(folder: Path) -> None:
    """Let a job run for ever, as far as the service can see: it would start the others otherwise."""
    import socket

    from sqlalchemy import insert, update

    from sweeps.service.database.engine import open_database, writing
    from sweeps.service.database.tables import jobs, services

    engine = open_database(f"sqlite:///{folder}/outputs/service.db")
    with writing(engine) as connection:
        far = time.time() + 86400
        connection.execute(insert(services).values(id="held", host=socket.gethostname(), pid=1, started=far, beat=far))
        held = update(jobs).where(jobs.c.id == 1).values(state="running", service="held", host=socket.gethostname())
        connection.execute(held)
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--requests", type=int, default=200, help="of each kind")
    parser.add_argument("--limit", type=float, default=100.0, help="ms that the 99th percentile may be")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(arguments.write)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = measure(Path(folder), arguments.jobs, arguments.writers, arguments.requests)
    print(json.dumps(found, indent=2))
    slow = {kind: each["p99"] for kind, each in found["ms"].items() if each["p99"] > arguments.limit}
    if slow:
        sys.exit(f"above {arguments.limit:g} ms: {slow}")


if __name__ == "__main__":
    main()
