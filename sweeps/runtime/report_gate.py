"""Hand-over of a trial's reports from its workers, which post them, to Tune, which asks for them one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sweeps.runtime.events import Ended, Event, Report, Saved


class ReportGate:
    """Queue of one attempt's reports that tracks which of them Tune has decided on.

    Tune decides to continue a trial after a report by asking for the next one. Under a scheduler that may stop a trial
    at a report while it trains on, events after an undecided report are withheld: if the trial stops there, they are
    no part of it.
    """

    def __init__(self, publish: Callable[[Event], None], *, withholds: bool, last_delivered: int | None) -> None:
        """
        Args:
            publish: Passes an event on to the driver.
            withholds: Whether to withhold events after an undecided report.
            last_delivered: Step of the last report that Tune received from earlier attempts.
        """
        self.last_delivered = last_delivered
        """Step of the last report that Tune received; None if there was none."""
        self._publish, self._withholds = publish, withholds
        self._reports: asyncio.Queue[Report | Ended] = asyncio.Queue()
        self.published_step = -1
        """Step of the last report that was published."""
        self._requested = 0
        self._posted = 0
        self._decided = asyncio.Event()
        self._withheld: list[tuple[int, Event]] = []
        """Events with the number of reports before each."""

    def post(self, event: Event, *, stopping: bool) -> None:
        """Publish or withhold an event; queue it for Tune if it is a report.

        Args:
            event: Posted by a worker.
            stopping: Whether the attempt has been asked to stop, so that workers wait for no decision.
        """
        if isinstance(event, Saved) and event.step <= self.published_step:  # it belongs to that report
            self._publish(event)
            return
        undecided = self._withholds and self._posted >= max(self._requested, 1)
        if undecided or self._withheld:
            self._withheld.append((self._posted, event))
        else:
            self._publish_now(event)
        if isinstance(event, Report):
            self._posted += 1
            if self._requested <= self._posted and not stopping:
                self._decided.clear()
            self._reports.put_nowait(event)

    def request(self) -> bool:
        """Register that Tune asks for the next report; returns whether this lets waiting workers train on."""
        self._requested += 1
        while self._withheld and self._withheld[0][0] < self._requested:
            self._publish_now(self._withheld.pop(0)[1])
        resumes = self._requested > self._posted and not self._decided.is_set()
        if resumes:
            self._decided.set()
        return resumes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell Tune at the moment."""
        return self._reports.empty()

    async def next(self, timeout_s: float) -> Report | Ended:
        """
        Raises:
            TimeoutError: Nothing was posted in time.
        """
        event = await asyncio.wait_for(self._reports.get(), timeout_s)
        if isinstance(event, Report):
            self.last_delivered = max(event.step, self.last_delivered or 0)  # earlier ones may be posted again
        return event

    async def wait_for_decision(self) -> None:
        """Return when Tune has decided on the last report, or the attempt is asked to stop."""
        await self._decided.wait()

    def end(self, event: Ended) -> None:
        """Queue the attempt's end for Tune."""
        self._reports.put_nowait(event)

    def open(self) -> None:
        """Make workers no longer wait for decisions."""
        self._decided.set()

    def drop_withheld(self, *, announces: bool) -> None:
        """Drop the events after the undecided report; see ``drop``."""
        withheld, self._withheld = self._withheld, []
        if announces:
            for _, event in withheld:
                self.drop(event)

    def drop(self, event: Event) -> None:
        """Drop an event that was posted after the trial's end. Its checkpoint is still announced, since the workers may
        have removed the earlier ones for it."""
        if isinstance(event, Report | Saved) and event.checkpoint is not None:
            self._publish(
                Saved(
                    event.trial,
                    event.attempt,
                    event.step,
                    event.metrics,
                    event.timestamp_ms,
                    checkpoint=event.checkpoint,
                    held=event.held,
                )
            )

    def _publish_now(self, event: Event) -> None:
        if isinstance(event, Report):
            self.published_step = event.step
        self._publish(event)
