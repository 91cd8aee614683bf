"""Steps of a sweep's end: delivery of its record, removal of checkpoints, and its report."""

from __future__ import annotations

import contextlib
import logging
import math
import traceback
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from sweeps.driver.driver_progress import SEARCHES_WITHIN_S, expect_progress
from sweeps.errors import DriverFailed, ResultUnreachable, SweepsError, TrackingUnreachable, Undelivered, UnknownName
from sweeps.folders.sweep_folder import ERROR_FILE
from sweeps.plan.plan import Plan
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import counted
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.sweep_run import own_start

if TYPE_CHECKING:
    from sweeps.tracking.recorder import Recorder

LEAVE_WITHIN_S = 15.0
"""Maximum seconds that a sweep ended by a person waits for its tracking server."""

logger = logging.getLogger(__name__)


def close_record(plan: Plan, recorder: Recorder, status: str) -> None:
    """Deliver the rest of the record, and close it with the sweep's status.

    Raises:
        Undelivered: The tracking server has not received the whole record.
    """
    patience_s, total_s = plan.config.tracking.patience_s, math.inf
    waited = f" within tracking.patience_s={patience_s:g} s of its last answer"
    if status in ("interrupted", "stopped"):  # a person waits
        patience_s, total_s, waited = min(patience_s, LEAVE_WITHIN_S), LEAVE_WITHIN_S, ""
    alive = partial(expect_progress, SEARCHES_WITHIN_S + patience_s)
    alive()
    if left := recorder.close(status, patience_s, total_s, alive):
        raise Undelivered(
            f"{plan.name}: {status}, and MLflow at {redact_uri(plan.config.tracking.uri)} has not received all of its "
            f"record{waited}: {counted(left.points, 'point')} of metrics and "
            f"{counted(left.artifacts, 'artifact')} wait in {plan.folder}; "
            f"`python -m sweeps resume {plan.name}` delivers them"
        )


def kept_error(plan: Plan, error: Exception) -> DriverFailed:
    """Write the traceback of an unexpected error into the sweep's folder, and return an error that names that file."""
    file = plan.folder / ERROR_FILE
    with contextlib.suppress(OSError), file.open("a", encoding="utf-8") as log:
        log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{''.join(traceback.format_exception(error))}\n")
    while (cause := error.__cause__ or error.__context__) is not None and isinstance(cause, Exception):
        error = cause  # Tune wraps what is raised in its loop
    first_line = str(error).strip().partition("\n")[0]
    return DriverFailed(plan.name, f"{type(error).__name__}: {first_line}", str(file))


def finish(plan: Plan) -> SweepRecord:
    """Remove checkpoints that need not be kept, write the report, and return the sweep's record.

    An error or a signal in the report is only logged, because the sweep is complete without it. After an interruption
    no report is written, because a person is waiting.

    Raises:
        ResultUnreachable: MLflow, which has the whole record, no longer answers.
        SweepsError: The sweep's run in MLflow was deleted.
    """
    tracking, num_kept, started_ms = plan.config.tracking, plan.config.checkpoint.trials, own_start(plan.folder)
    if num_kept is not None:
        from sweeps.cleaning.cleaning import keep_only_the_best

        keep_only_the_best(tracking.uri, plan.name, num_kept, started_ms)
    try:
        record = load_sweep(tracking.uri, plan.name, started_ms)
    except TrackingUnreachable as error:
        raise ResultUnreachable(
            f"{plan.name}: has ended and is recorded, but {error}; then `python -m sweeps show {plan.name}` has the "
            f"result, and `python -m sweeps report {plan.name}` makes the report"
        ) from error
    except UnknownName as error:
        raise SweepsError(
            f"{plan.name}: has ended, and its run in MLflow was deleted meanwhile; restore it there, and "
            f"`python -m sweeps resume {plan.name}` records its end"
        ) from error
    if tracking.report and record.status != "interrupted":
        from sweeps.report.report_folder import report_folder

        try:
            from sweeps.report.page.report import make_report

            make_report(record, report_folder(record))
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - any error of a figure or of the store
            why = error if isinstance(error, Exception) else "interrupted"
            logger.warning("%s has no report: %s; `python -m sweeps report %s` makes it", plan.name, why, plan.name)
    return record
