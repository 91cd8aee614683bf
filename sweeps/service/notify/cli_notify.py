"""Notifications of a sweep that runs without a service, to the addresses in ``SWEEPS_NOTIFY``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import SweepsError, UserError
from sweeps.service.notify.address import check_address
from sweeps.service.notify.message import Message, of_failure, of_sweep
from sweeps.service.notify.sending import send_in_background
from sweeps.tracking.reader import list_sweeps
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.driver.sweep_state import View
    from sweeps.plan.plan import Plan

logger = logging.getLogger(__name__)

VARIABLE = "SWEEPS_NOTIFY"
"""Environment variable with addresses, separated by spaces; not in the config, which is recorded."""
LOG_FILE = "notifications.log"
"""Log of failed deliveries, in the sweep's folder."""
ATTEMPTS = 5
"""Number of attempts, within seven minutes."""


def checked_addresses() -> list[str]:
    """Return the addresses in the environment, or raise ``ConfigError`` if one is invalid."""
    addresses = os.environ.get(VARIABLE, "").split()
    for address in addresses:
        check_address(address, VARIABLE)
    return addresses


def run_and_notify(run: Callable[[Plan, View], SweepRecord], plan: Plan, view: View) -> SweepRecord:
    """Run a sweep, and send a notification when it has ended, without waiting for the delivery.

    Raises:
        ConfigError: An address is invalid; nothing was started.
    """
    addresses = checked_addresses()
    try:
        record = run(plan, view)
    except UserError:
        raise
    except SweepsError as error:
        _notify(addresses, partial(of_failure, plan.name, str(error)), plan.folder)
        raise
    if record.status != "interrupted":
        _notify(addresses, lambda: of_sweep(record, list_sweeps(record.mlflow.tracking_uri)), plan.folder)
    return record


def _notify(addresses: list[str], message: Callable[[], Message], folder: Path) -> None:
    """Send a message; errors are only logged, so that the result of the sweep is not lost."""
    if not addresses:
        return
    # A sweep that could not start has no folder any more.
    file = folder / LOG_FILE if folder.is_dir() else Path(os.devnull)
    try:
        document = message().as_json()
        with file.open("a", encoding="utf-8") as log:
            for address in addresses:
                send_in_background(address, document, ATTEMPTS, log)
    except Exception as error:  # noqa: BLE001 - a full disk, MLflow that does not answer, a record that cannot be read
        logger.warning("no message about %s could be sent: %s", folder.name, error)
