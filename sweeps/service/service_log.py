"""The service's log: on standard error, and in a file that is replaced before it grows too large."""

from __future__ import annotations

import logging
import logging.handlers
from io import TextIOWrapper
from pathlib import Path

from sweeps.config.service import Service
from sweeps.files import private_opener

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG_FILE = "service.log"
"""File in the folder of sweeps, unless the config names another."""


class PrivateRotatingFileHandler(logging.handlers.RotatingFileHandler):
    """Its files are readable by their owner alone, from the moment that they are made."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=private_opener)


def log_service(config: Service) -> None:
    """Log this process's messages as the service's config says."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    file = Path(config.log.file or Path(config.output_dir) / LOG_FILE).expanduser()
    trouble = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        size = config.log.max_mib << 20
        handlers.append(
            PrivateRotatingFileHandler(file, maxBytes=size, backupCount=config.log.files - 1, encoding="utf-8")
        )
    except OSError as error:
        trouble = str(error.strerror)
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=handlers)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it lists its plugins; what is migrated, we say ourselves
    logging.raiseExceptions = False  # a full disk would put a traceback on standard error for every line
    if trouble:
        logging.getLogger(__name__).warning("log.file=%s: cannot be written (%s)", file, trouble)
