"""A sweep that runs without a service tells the addresses in ``SWEEPS_NOTIFY`` how it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import SweepsError, UserError
from sweeps.service.notify.address import check_address
from sweeps.service.notify.message import Message, of_failure, of_sweep
from sweeps.service.notify.sending import send_aside
from sweeps.tracking.reader import list_sweeps
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.driver.state import View
    from sweeps.plan.plan import Plan

VARIABLE = "SWEEPS_NOTIFY"
"""Addresses with spaces between them. In the environment, since a sweep's config and its command are recorded."""
LOG_FILE = "notifications.log"
"""In the sweep's folder: why a message was not taken."""
ATTEMPTS = 5
"""Within seven minutes."""


def telling(story: Callable[[Plan, View], SweepRecord], plan: Plan, view: View) -> SweepRecord:
    """Run a sweep, and tell how it has ended; it does not wait for that.

    Raises:
        ConfigError: Nothing can be sent to an address; nothing was started.
    """
    addresses = os.environ.get(VARIABLE, "").split()
    for address in addresses:
        check_address(address, VARIABLE)
    try:
        record = story(plan, view)
    except UserError:
        raise
    except SweepsError as error:
        _tell(addresses, of_failure(plan.name, str(error)), plan.folder)
        raise
    if record.status != "interrupted":
        _tell(addresses, of_sweep(record, list_sweeps(record.mlflow.tracking_uri)), plan.folder)
    return record


def _tell(addresses: list[str], message: Message, folder: Path) -> None:
    with (folder / LOG_FILE).open("a", encoding="utf-8") as log:
        for address in addresses:
            send_aside(address, message.as_json(), ATTEMPTS, log)
