"""The story of a sweep: plan, check, start, search, record, end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps.cluster import Fit, connected, fit
from sweeps.errors import UserError
from sweeps.monitor import Monitor, View
from sweeps.objectives import Objectives
from sweeps.plan import Plan
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.tracking.recorder import Recorder


STOP_WITHIN_S = 6.0


class _LeaveNow(BaseException):
    """Raised in the main thread by a signal; like KeyboardInterrupt, it must pass through ``except Exception``."""


def run(plan: Plan, view: View) -> SweepRecord:
    """Run a sweep to its end, or until a person stops it.

    Raises:
        UserError: A mistake that only the tracking server or the cluster could show; nothing was started.
    """
    from sweeps.tracking.client import connect

    config = plan.config
    _make_folder(plan)
    try:
        connect(config.tracking.uri)  # nothing may start that could not be recorded
        with connected(config) as nodes:
            places = fit(config, plan.scalings, nodes)
            recorder = _recorder(plan)
            recorder.open(plan.composition.as_yaml(), plan.command, f"`{plan.command}`")
            _record(plan, recorder, view, places)
    except UserError:
        with contextlib.suppress(OSError):  # not empty, if it comes from the search itself
            plan.folder.rmdir()
        raise
    return load_sweep(config.tracking.uri, plan.name)


def _record(plan: Plan, recorder: Recorder, view: View, places: Fit) -> None:
    """Search, and record how it ended, however it ends."""
    status = "failed"
    try:
        monitor = Monitor(plan.name, plan.composition, recorder, view, places.concurrent)
        view.event(monitor, f"{plan.name}: {plan.config.search.num_trials} trials; {places.describe()}")
        status = _search(plan, monitor, use_gpu=places.use_gpu)
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        recorder.close(status)


def _make_folder(plan: Plan) -> None:
    try:
        plan.folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"output_dir={plan.config.output_dir}: cannot make the folder {plan.folder} ({error.strerror}); "
            "set output_dir to a folder that can be written"
        ) from None


def _recorder(plan: Plan) -> Recorder:
    from sweeps.tracking.recorder import Recorder

    config = plan.config
    return Recorder(
        config.tracking.uri,
        config.tracking.experiment or plan.composition.conf,
        sweep=plan.name,
        conf=plan.composition.conf,
        objectives=Objectives.of(config.search),
        checkpoints=config.tracking.checkpoints,
    )


def _search(plan: Plan, monitor: Monitor, *, use_gpu: bool) -> str:
    """Let Tune search; returns how the sweep ended."""
    from sweeps.mailbox import open_mailbox
    from sweeps.trial import TrialContext
    from sweeps.tuning import build_tuner

    monitor.mailbox = open_mailbox()
    context = TrialContext(plan.composition, str(plan.folder), use_gpu, monitor.mailbox)
    tuner = build_tuner(plan, monitor, context)
    monitor.start()
    try:
        with _stopping_on_signals(monitor):
            tuner.fit()
    finally:
        monitor.all_ended()
        monitor.close()
    if monitor.stopping:
        return "interrupted"
    return "finished" if monitor.counts()["finished"] else "failed"


@contextlib.contextmanager
def _stopping_on_signals(monitor: Monitor) -> Iterator[None]:
    """Ctrl-C, or SIGTERM: the workers save and stop at their next boundary. Who is not done within the deadline
    (it may still be starting), or when a person presses again, is killed with the connection to the cluster."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    armed = True

    def stop(*_: object) -> None:
        if not armed:
            return
        if monitor.stopping:
            raise _LeaveNow
        monitor.stopping = True
        monitor.view.event(monitor, "stopping: trials save their state and end; once more to leave at once")
        monitor.mailbox.stop_all.remote()
        signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    except BaseException:  # raised within Ray's own code, _LeaveNow comes out as something else
        if not monitor.stopping:
            raise
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
