"""Feed of trials for the lanes of a slot, whose main worker takes trials from the broker and reports the end of each
one."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from sweeps.folders.trial_files import START_LINE, log_name
from sweeps.provenance.redacted_text import redacted_error
from sweeps.runtime.events import Ended
from sweeps.runtime.lane_number import LaneNumber
from sweeps.runtime.signs_of_life import signs_of_life
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_reporter import BrokerReporter
from sweeps.worker_error import describe_exception
from sweeps_train.config import TrainingConfig
from sweeps_train.config.better import as_objectives

if TYPE_CHECKING:
    from sweeps.runtime.broker_sides import WorkersSide
    from sweeps_train.training_request import TrainingRequest


@dataclass(frozen=True)
class _Lane:
    """A trial in a lane."""

    assignment: Assignment
    reporter: BrokerReporter
    signs: contextlib.ExitStack


class LaneFeed:
    """Feed of trials for one slot; see ``sweeps_train.lanes.feed.Feed``."""

    def __init__(self, slot: str, broker: WorkersSide, num_workers: int, log_folder: str, number: LaneNumber) -> None:
        self._number = number
        self._slot, self._broker, self._num_workers, self._log_folder = slot, broker, num_workers, log_folder
        self._lanes: dict[int, _Lane] = {}
        """Trials in lanes, by the identity of their requests."""
        self._waits = broker.wait_for_trial(slot)

    @property
    def measures(self) -> bool:
        """Whether the number of trials at a time is still being found."""
        return not self._number.is_found

    def has_next(self) -> bool:
        """Whether a trial waits for a lane."""
        if len(self._lanes) >= self._number.number:
            return False
        is_known, _ = ray.wait([self._waits], timeout=0)
        return bool(is_known) and ray.get(self._waits)

    def next(self, free: int) -> Sequence[TrainingRequest]:
        """Take at most ``free`` waiting trials. If no lane is training, wait for a trial; return none when the slot is
        closed."""
        requests: list[TrainingRequest] = []
        while not requests and (self.has_next() if self._lanes else self._wait()):
            most = min(free, self._number.number - len(self._lanes))
            assignments = self._broker.take_trials(self._slot, most)
            self._waits = self._broker.wait_for_trial(self._slot)
            requests = [request for each in assignments if (request := self._begun(each)) is not None]
        return requests

    def _wait(self) -> bool:
        return ray.get(self._broker.wait_for_trial(self._slot, is_idle=True))

    def _begun(self, assignment: Assignment) -> TrainingRequest | None:
        """Begin a trial; if that fails, tell the broker and return None."""
        from sweeps_train.training_request import TrainingRequest  # imports torch

        signs = contextlib.ExitStack()
        try:
            process = f"{self._num_workers} workers, the first on {socket.gethostname()}, process {os.getpid()}"
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            shared = f"the trial shares them with other trials, and their output is in {self._log_folder}"
            self._write_log(assignment, f"{START_LINE}{process}, {now}; {shared} ---\n")
            end_signs = signs.enter_context(signs_of_life(assignment))
            assert isinstance(assignment.training, TrainingConfig)  # since no other one may share its workers
            lane = _Lane(assignment, BrokerReporter(assignment), signs)
            request = TrainingRequest(
                config=assignment.training,
                reporter=lane.reporter,
                checkpoint_folder=assignment.checkpoint_folder,
                objectives=as_objectives(assignment.metrics, assignment.modes),
                largest_micro_batch=assignment.largest_micro_batch,
                on_prepared=end_signs,
                failures=assignment.failures,
            )
        except Exception as error:  # noqa: BLE001 - such as of a full disk
            signs.close()
            self._end(assignment, error)
            return None
        self._lanes[id(request)] = lane
        return request

    def trains_alone(self, reason: str) -> bool:
        """Settle on one trial at a time for the given reason; return False if the group already trains more at a
        time."""
        if self._number.number > 1:
            return False
        self._number.take(1)
        self._broker.set_lanes(1, reason)
        return True

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        """Tell the broker when a step shows that another number of lanes is faster, and adopt a number that another
        group has found."""
        if self._number.add(lanes, tokens, seconds):
            number = self._number
            self._broker.set_lanes(number.number, number.reason if number.is_found else None)
            found, reason = self._broker.lanes()
            if reason is not None:
                number.take(found)

    def ended(self, request: TrainingRequest, error: Exception | None) -> None:
        """Tell the broker of a trial's end."""
        lane = self._lanes.pop(id(request))
        lane.signs.close()
        try:
            lane.reporter.flush()
        except Exception as late:  # noqa: BLE001 - of this trial alone
            error = error or late
        self._end(lane.assignment, error)

    def _end(self, assignment: Assignment, error: Exception | None) -> None:
        from sweeps_train.errors import MicroBatchHalved

        end = Ended(*assignment.key)
        if isinstance(error, MicroBatchHalved):
            end = Ended(*assignment.key, str(error), halved_to=error.half)
        elif error is not None:
            self._write_log(assignment, "".join(traceback.format_exception(error)))
            description = redacted_error(describe_exception(error, 0, self._num_workers))
            self._broker.worker_failed(*assignment.key, description)
            end = Ended(*assignment.key, description.described)
        self._broker.lane_ended(self._slot, end)

    def _write_log(self, assignment: Assignment, text: str) -> None:
        """Append to the trial's own log, which contains only this trial's output."""
        with contextlib.suppress(OSError):  # the training needs no log
            folder = Path(assignment.log_folder)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / log_name(0)).open("a", encoding="utf-8") as file:
                file.write(text)
