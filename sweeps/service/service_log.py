"""Logging of the service, to standard error and to a rotating file."""

from __future__ import annotations

import logging
import logging.handlers
from io import TextIOWrapper
from pathlib import Path

from sweeps.config.service import Service
from sweeps.files import private_opener

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_FILE = "service.log"
"""Default name of the log file, in the folder of the sweeps."""


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
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=handlers)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it lists its plugins; migrations are logged by us
    logging.raiseExceptions = False  # a full disk would print a traceback for every line
    if problem:
        logging.getLogger(__name__).warning("log.file=%s: cannot be written (%s)", file, problem)
