"""End of an attempt whose workers hang."""

from __future__ import annotations

from dataclasses import replace

from sweeps.runtime.attempt import Attempt, Phase
from sweeps.runtime.events import Ended
from sweeps.runtime.hang import diagnose_hang, flight_records
from sweeps.runtime.slot_queue import SlotQueue


async def hang_end(attempt: Attempt, slot: SlotQueue, silent_s: float) -> Ended:
    """Return the end of an attempt whose workers hang, with a diagnosis of each worker.

    Args:
        attempt: The attempt.
        slot: Slot of the attempt.
        silent_s: Seconds for which the workers were silent.
    """
    starting = attempt.phase is Phase.STARTING
    reason = "its workers do not start; other programs may use their resources" if starting else "its workers hang"
    message = f"no report for {silent_s:.0f} s: {reason}"
    end = Ended(attempt.trial, attempt.number, message)
    if processes := slot.handles.get("processes"):
        error = await diagnose_hang(message, processes, slot.locations, attempt.log_folder)
        records = await flight_records(slot.handles["workers"])
        end = replace(end, error=error.described, failure=error, flight_records=records)
    return end
