"""Clients of a soak: of three roles, polling, submitting, cancelling and signing in, and one that asks for health."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import requests

HEALTH_EVERY_S = 0.1
THINKS_S = (0.2, 2.0)
ANSWERED_WITHIN_S = 30.0
ENDED_SHARE = 0.15
"""Share of the sweeps that clients cancel or stop."""
READS = ("jobs", "sweeps", "schedules", "firings", "confs", "jobs/1", "sweeps/soak-1")


@dataclass
class Seen:
    """Answers that all clients have got."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Answers by status, and connections that were refused by a service that did not run."""
    took: list[float] = field(default_factory=list)
    """Seconds of each answer."""
    health: list[float] = field(default_factory=list)
    """Seconds of each answer of ``/health`` of a service that ran all the time."""
    accepted: dict[str, int] = field(default_factory=dict)
    """Sweeps that were accepted, with the number of the job."""
    submitting: int = 0
    """Sweeps that have been submitted, and not answered yet."""
    ended_by_us: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Clients:
    """Threads that use two services until they are told to stop."""

    def __init__(self, urls: list[str], tokens: dict[str, str], sweeps: int, seconds: float, seed: int) -> None:
        """Submit so many sweeps within some seconds. The first service runs all the time; the names of tokens'
        users begin with their role."""
        self.seen = Seen()
        self._urls, self._sweeps, self._seconds = urls, sweeps, seconds
        self._names, self._stopping, self._began = count(1), threading.Event(), time.monotonic()
        work = [(self._use, user, token, random.Random(f"{seed} {user}")) for user, token in tokens.items()]
        self._threads = [threading.Thread(target=do, args=arguments) for do, *arguments in work]
        self._threads.append(threading.Thread(target=self._ask_for_health))
        for thread in self._threads:
            thread.start()

    def stop(self) -> Seen:
        """Stop all; returns what they have seen."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return self.seen

    def _use(self, user: str, token: str, chance: random.Random) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        while not self._stopping.wait(chance.uniform(*THINKS_S)):
            url = f"{chance.choice(self._urls)}/api/v1"
            if user.startswith("run") and self._begin_submitting():
                self._submit(session, url, f"soak-{next(self._names)}")
            elif user.startswith("run") and (ending := self._next_to_end(chance)) is not None:
                self._ask(session, "POST", f"{url}/jobs/{ending}/cancel")
            elif user.startswith("admin") and chance.random() < 0.1:
                self._ask(session, "POST", f"{url}/tokens", {"user": "guest", "role": "read"})
            else:
                self._ask(session, "GET", f"{url}/{chance.choice(READS)}")

    def _begin_submitting(self) -> bool:
        """Whether a further sweep is due."""
        with self.seen.lock:
            share = min(1.0, (time.monotonic() - self._began) / (0.6 * self._seconds))
            is_due = len(self.seen.accepted) + self.seen.submitting < int(share * self._sweeps)
            self.seen.submitting += is_due
            return is_due

    def _submit(self, session: requests.Session, url: str, name: str) -> None:
        body = {"conf": "digits", "name": name, "project": "soak", "overrides": ["tracking.report=false"]}
        answer = self._ask(session, "POST", f"{url}/sweeps", body)
        with self.seen.lock:
            self.seen.submitting -= 1
            if answer is not None and answer.status_code == 202:
                if name in self.seen.accepted:
                    self.seen.wrong.append(f"{name} was accepted twice")
                self.seen.accepted[name] = answer.json()["id"]

    def _next_to_end(self, chance: random.Random) -> int | None:
        """Number of a job to cancel, if enough others have been accepted since the last one."""
        with self.seen.lock:
            others = self.seen.accepted.keys() - self.seen.ended_by_us
            if not others or len(self.seen.ended_by_us) >= int(ENDED_SHARE * len(self.seen.accepted)):
                return None
            name = chance.choice(sorted(others))
            self.seen.ended_by_us.add(name)  # also if the answer gets lost
            return self.seen.accepted[name]

    def _ask(
        self, session: requests.Session, method: str, url: str, body: dict[str, object] | None = None
    ) -> requests.Response | None:
        began = time.monotonic()
        try:
            answer = session.request(method, url, json=body, timeout=ANSWERED_WITHIN_S)
        except requests.ConnectionError:
            with self.seen.lock:
                self.seen.statuses["no service"] += 1
            return None
        except requests.Timeout:
            with self.seen.lock:
                self.seen.wrong.append(f"{method} {url}: no answer within {ANSWERED_WITHIN_S:.0f} s")
            return None
        with self.seen.lock:
            self.seen.took.append(time.monotonic() - began)
            self.seen.statuses[str(answer.status_code)] += 1
            if answer.status_code >= 500 and answer.status_code not in (503, 504):
                self.seen.wrong.append(f"{method} {url}: {answer.status_code} {answer.text[:200]}")
        return answer

    def _ask_for_health(self) -> None:
        session = requests.Session()
        while not self._stopping.wait(HEALTH_EVERY_S):
            began = time.monotonic()
            try:
                session.get(f"{self._urls[0]}/api/v1/health", timeout=ANSWERED_WITHIN_S).raise_for_status()
            except requests.RequestException as error:
                with self.seen.lock:
                    self.seen.wrong.append(f"health: {error!r}")
            self.seen.health.append(time.monotonic() - began)
