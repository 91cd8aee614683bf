"""Two services on PostgreSQL, 20 clients of three roles, 50 sweeps, and faults all the time: nothing may be lost or
done twice, memory and open files stay flat, and health is answered at once.

python tests/soak/soak.py [--minutes 20] [--sweeps 50] [--seed 0] [--write docs/operating.md]

The sweeps' drivers are real but for Ray and training (``light_driver.py``).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

import psutil
from clients import Clients, Seen
from outcome import check_sweeps
from postgres_cluster import Cluster
from recording import Server
from stores import SHARED, make_store
from test_serve import Service

from sweeps.service.auth import tokens
from sweeps.service.database.engine import open_database, writing

TESTS = Path(__file__).resolve().parents[1]
ROLES = ("read", "run", "run", "admin")
CLIENTS = 20
EVERY_S = (3.0, 12.0)
"""Seconds between two faults."""
ENDS_WITHIN_S = 300.0
"""Seconds in which all sweeps must have ended after the last fault."""
WARM_S = 30.0
"""Seconds after which memory and files are counted."""
HEALTH_P99_S = 0.1
GROWTH_MIB, GROWTH_FILES = 60, 40
"""Largest growth of a service from the beginning of a soak to its end: caches."""
SERVICE = ("queue.running=3", "queue.restarts=50", "queue.waiting_per_user=1000", "access.requests_per_minute=100000")


@dataclass
class Soak:
    """Everything that runs."""

    folder: Path
    chance: random.Random
    cluster: Cluster
    mlflow: Server
    services: list[Service]
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def disturb(self, until: float) -> None:
        """Inject faults until a time."""
        kinds = list(self.kinds().items())
        deck: list[tuple[str, Callable[[], None]]] = []
        while time.monotonic() < until:
            time.sleep(min(self.chance.uniform(*EVERY_S), max(0.0, until - time.monotonic())))
            deck = deck or self.chance.sample(kinds, len(kinds))
            name, inject = deck.pop()
            try:
                inject()
            except Exception as error:  # noqa: BLE001 - the other faults go on, and this one is told at the end
                self.wrong.append(f"{name}: {error!r}")
            self.faults[name] += 1

    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "service killed": lambda: self.restart(signal.SIGKILL),
            "service ended": lambda: self.restart(signal.SIGTERM),
            "driver killed": lambda: self.signal_driver(signal.SIGKILL),
            "driver ended": lambda: self.signal_driver(signal.SIGTERM),
            "table locked": self.lock_table,
            "database stopped": lambda: self.for_a_while(self.cluster.hang, self.cluster.go_on, most=8),
            "database killed": lambda: self.for_a_while(self.cluster.kill, self.cluster.start, 0, 4),
            "clock jumped": lambda: self.for_a_while(self.jump, lambda: self.set_clock(0)),
            "MLflow killed": lambda: self.for_a_while(self.mlflow.kill, self.mlflow.start),
            "MLflow stopped": lambda: self.for_a_while(
                lambda: self.mlflow.signal(signal.SIGSTOP), lambda: self.mlflow.signal(signal.SIGCONT)
            ),
        }

    def restart(self, number: signal.Signals) -> None:
        service, began = self.services[1], time.monotonic()
        service.end(number)
        if number == signal.SIGTERM and time.monotonic() - began > 10:
            self.wrong.append(f"a service ended {time.monotonic() - began:.0f} s after SIGTERM")
        service.start()

    def signal_driver(self, number: signal.Signals) -> None:
        drivers = [each for each in psutil.process_iter(["cmdline"]) if self._is_driver(each.info["cmdline"] or [])]
        if drivers:
            self.chance.choice(drivers).send_signal(number)

    def _is_driver(self, command: list[str]) -> bool:
        return "sweeps.cli.detached" in command and any(each.startswith(str(self.folder)) for each in command)

    def lock_table(self) -> None:
        with self.cluster.connect() as other:
            other.execute(f"LOCK TABLE {self.chance.choice(('jobs', 'tokens', 'services'))} IN ACCESS EXCLUSIVE MODE")
            time.sleep(self.chance.uniform(1, 6))
            other.rollback()

    def jump(self) -> None:
        self.set_clock(self.chance.choice((-1, 1)) * self.chance.choice((60, 3600, 30 * 86400)))

    def set_clock(self, seconds: int) -> None:
        (self.folder / "clock").write_text(str(seconds))

    def for_a_while(
        self, begin: Callable[[], object], end: Callable[[], object], least: float = 1, most: float = 6
    ) -> None:
        """Do something, and undo it after seconds."""
        begin()
        time.sleep(self.chance.uniform(least, most))
        end()


@dataclass
class Usage:
    """Memory and open files of a service that runs all the time."""

    process: psutil.Process
    mib: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    """Load of the machine."""

    def measure(self) -> None:
        self.load.append(os.getloadavg()[0])
        self.mib.append(self.process.memory_info().rss / 2**20)
        self.files.append(self.process.num_fds())

    def growth(self) -> tuple[float, float]:
        """Growth from the beginning to the end: medians of five measurements."""
        return (
            statistics.median(self.mib[-5:]) - statistics.median(self.mib[:5]),
            statistics.median(self.files[-5:]) - statistics.median(self.files[:5]),
        )


def soak(folder: Path, minutes: float, sweeps: int, seed: int) -> tuple[str, list[str]]:
    """Run it; returns the numbers, as a text, and what was wrong."""
    (folder / "clock").write_text("0")
    make_store(folder / "mlflow.db")
    mlflow = Server(folder)
    with Cluster() as cluster:
        secrets = _tokens(cluster.url)
        services = [_service(folder, name, cluster, mlflow) for name in ("one", "two")]
        run = Soak(folder, random.Random(seed), cluster, mlflow, services)
        try:
            for service in services:
                service.start()
            clients = Clients([each.url for each in services], secrets, sweeps, 60 * minutes, seed)
            time.sleep(min(WARM_S, 15 * minutes))
            assert services[0].process is not None
            usage = Usage(psutil.Process(services[0].process.pid))
            until = time.monotonic() + 60 * minutes
            disturbing = threading.Thread(target=run.disturb, args=[until])
            disturbing.start()
            while disturbing.is_alive():
                usage.measure()
                disturbing.join(2)
            seen, ended = clients.seen, _wait_for_ends(services[0], clients, secrets, sweeps)
            for _ in range(5):
                usage.measure()
                time.sleep(1)
            clients.stop()
            wrong = [*run.wrong, *seen.wrong, *ended]
            wrong += check_sweeps(cluster.url, folder / "mlflow.db", folder / "outputs", seen)
            return _judged(run, seen, usage, minutes, wrong)
        finally:
            for service in services:
                if service.process is not None and service.process.poll() is None:
                    service.end(signal.SIGTERM)
                service.close()
            mlflow.kill()


def _tokens(url: str) -> dict[str, str]:
    engine = open_database(url)
    secrets = {}
    with writing(engine) as connection:
        for number in range(CLIENTS):
            role = ROLES[number % len(ROLES)]
            user = f"{role}{number}"
            secrets[user] = tokens.create(connection, user, role, time.time(), projects=["soak"])[1]
    engine.dispose()
    return secrets


def _service(folder: Path, name: str, cluster: Cluster, mlflow: Server) -> Service:
    own = folder / name
    own.mkdir()
    return Service(
        own,
        f"output_dir={folder / 'outputs'}",
        f"log.file={own / 'service.log'}",
        *SERVICE,
        SWEEPS_DATABASE=cluster.url,
        MLFLOW_TRACKING_URI=mlflow.uri,
        PYTHONPATH=str(TESTS / "soak" / "site"),
        SWEEPS_TEST_CLOCK=str(folder / "clock"),
    )


def _wait_for_ends(service: Service, clients: Clients, secrets: dict[str, str], sweeps: int) -> list[str]:
    """Wait until all sweeps have been submitted and have ended."""
    import requests

    secret = next(secret for user, secret in secrets.items() if user.startswith("admin"))
    until, left = time.monotonic() + ENDS_WITHIN_S, "no answer"
    while time.monotonic() < until:
        answer = requests.get(
            f"{service.url}/api/v1/jobs?limit=500", headers={"Authorization": f"Bearer {secret}"}, timeout=30
        )
        if answer.ok:
            open_jobs = [job["sweep"] for job in answer.json()["jobs"] if job["state"] in ("queued", "running")]
            left = f"{len(clients.seen.accepted)} of {sweeps} were accepted, and {open_jobs} have not ended"
            if len(clients.seen.accepted) >= sweeps and not open_jobs:
                return []
        time.sleep(1)
    return [f"after {ENDS_WITHIN_S:.0f} s {left}"]


def _judged(run: Soak, seen: Seen, usage: Usage, minutes: float, wrong: list[str]) -> tuple[str, list[str]]:
    """Return a table of the numbers, and what was wrong."""
    health, took = sorted(seen.health), sorted(seen.took)
    mib, files = usage.growth()
    p99 = _p99(health)
    if p99 > HEALTH_P99_S:
        wrong.append(f"the 99th percentile of health is {1000 * p99:.0f} ms")
    if mib > GROWTH_MIB or files > GROWTH_FILES:
        wrong.append(f"the service that ran all the time has grown by {mib:.0f} MiB and {files:.0f} open files")
    faults = ", ".join(f"{number} {name}" for name, number in sorted(run.faults.items()))
    statuses = ", ".join(f"{number} {name}" for name, number in sorted(seen.statuses.items()))
    ended = len(seen.ended_by_us)
    rows = {
        "length, machine": f"{minutes:g} minutes, {os.cpu_count()} cores, mean load {statistics.mean(usage.load):.0f}",
        "sweeps": f"{len(seen.accepted)}, {ended} of them cancelled or stopped by clients",
        "faults": f"{run.faults.total()}: {faults}",
        "lost, done twice, wrong": f"{len(wrong)}",
        "answers": f"{len(took)}: {statuses}",
        "time of an answer": f"p50 {_ms(took[len(took) // 2])}, p99 {_ms(_p99(took))}, longest {_ms(took[-1])}",
        "`/health`": f"p50 {_ms(health[len(health) // 2])}, p99 {_ms(p99)}, longest {_ms(health[-1])}",
        "memory of the service that was never ended": f"{usage.mib[-1]:.0f} MiB ({mib:+.0f})",
        "its open files": f"{usage.files[-1]} ({files:+.0f})",
    }
    lines = [f"| {name} | {value} |" for name, value in {"number": "measured", "---": "---", **rows}.items()]
    return "\n".join(lines), wrong


def _p99(times: list[float]) -> float:
    return times[int(0.99 * len(times))]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    parser.add_argument("--write", type=Path, help="a document with two lines `<!-- soak -->`; the numbers go between")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sweeps-soak-"))
    print(folder, flush=True)
    os.environ[SHARED] = str(folder)
    numbers, wrong = soak(folder, options.minutes, options.sweeps, options.seed)
    print(numbers)
    for line in wrong:
        print(f"   {line}")
    if options.write is not None:
        mark = "<!-- soak -->\n"
        head, _, tail = options.write.read_text(encoding="utf-8").split(mark)
        told = "".join(f"\n- {line}" for line in wrong)
        text = f"{numbers}\n{told}".rstrip("\n")
        options.write.write_text(f"{head}{mark}{text}\n{mark}{tail}", encoding="utf-8")
    if not options.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
