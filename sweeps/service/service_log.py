"""Logging of the service, to standard error and to a rotating file."""

from __future__ import annotations

import json
import logging
import logging.handlers
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType

from sweeps.config.service import Service
from sweeps.files.whole_files import private_opener
from sweeps.service.counters import CountingHandler

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_FILE = "service.log"
"""Default name of the log file, in the folder of the sweeps."""


_about: ContextVar[Mapping[str, str | int | None]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def logged_about(**ids: str | int | None) -> Iterator[None]:
    """Add the ids of objects to the log messages of a ``with`` block; the format ``json`` shows them."""
    before = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(before)


class JsonFormatter(logging.Formatter):
    """Formats messages as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in _about.get().items() if value is not None},
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document)


class PrivateRotatingFileHandler(logging.handlers.RotatingFileHandler):
    """Rotating log files that only their owner can read, from their creation on."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=private_opener)


def log_service(config: Service) -> None:
    """Set up logging by the service's config."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    file = Path(config.log.file or Path(config.output_dir) / LOG_FILE).expanduser()
    problem = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        size = config.log.max_mib << 20
        handlers.append(
            PrivateRotatingFileHandler(file, maxBytes=size, backupCount=config.log.files - 1, encoding="utf-8")
        )
    except OSError as error:
        problem = str(error.strerror)
    for handler in handlers:
        handler.setFormatter(JsonFormatter() if config.log.format == "json" else logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[*handlers, CountingHandler(logging.WARNING)])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it lists its plugins; migrations are logged by us
    logging.raiseExceptions = False  # a full disk would print a traceback for every line
    if problem:
        logging.getLogger(__name__).warning("log.file=%s: cannot be written (%s)", file, problem)
