"""Exit statuses of the verbs. Errors that a ``SweepsError`` describes have their own (``SweepsError.exit_status``)."""

from __future__ import annotations

NO_SUCCESS = 1
"""Nothing was wrong with the request, but no trial succeeded, or a check failed."""
MISTAKE = 2
"""The request is wrong; nothing was started."""
STORE_AWAY = 75
"""A background process got no answer of MLflow: EX_TEMPFAIL."""
INTERRUPTED = 130
"""Ctrl-C or SIGTERM."""
EXIT_STATUS = {"interrupted": INTERRUPTED, "failed": NO_SUCCESS}
"""Exit status by the status with which a sweep ends; 0 for others."""
