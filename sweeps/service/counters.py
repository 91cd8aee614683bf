"""Counters of this process for Prometheus; all other numbers are in ``metrics``."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

FIRING_OUTCOMES = ("queued", "skipped", "missed")

PROCESS = CollectorRegistry()
"""The counters, and Python's and the machine's metrics of the process."""
REQUESTS = Counter(
    "sweeps_requests", "Answered requests, by method and status.", ["method", "status"], registry=PROCESS
)
REQUEST_SECONDS = Histogram("sweeps_request_seconds", "Seconds until a request was answered.", registry=PROCESS)
LOGGED = Counter("sweeps_log_messages", "Messages in the service's log, by level.", ["level"], registry=PROCESS)
FIRINGS = Counter("sweeps_firings", "Decided firings of schedules, by outcome.", ["outcome"], registry=PROCESS)
for _outcome in FIRING_OUTCOMES:
    FIRINGS.labels(_outcome)
for _level in ("WARNING", "ERROR"):
    LOGGED.labels(_level)
ProcessCollector(registry=PROCESS)
GCCollector(registry=PROCESS)


class CountingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOGGED.labels(record.levelname).inc()
