"""The account of a sweep's time, made of the events of its trials' workers."""

from __future__ import annotations

import pytest
from records import sweep_record, trial_record

from sweeps.driver.time_ledger import TimeLedger, TrialTime
from sweeps.runtime.events import Report
from sweeps.tracking.record import SweepRecord, SweepTime
from sweeps.tracking.time_account import TimeAccount, describe_rest
from sweeps.tracking.trial_history import Span

TWO = "host", "host"
"""Hosts of a trial's two workers."""


def span(held: float, trained: float, workers: tuple[str, ...] = TWO) -> Span:
    return Span(held=held, trained=trained, workers=workers)


def report(moment: float, *, steps: float, kept: float | None = None, **spent: float) -> Report:
    """A report of the training loop: seconds of steps in this attempt and in all attempts (``kept``), and of other
    activities."""
    seconds = {"setup": 0.0, "data_wait": 0.0, "communication": 0.0, "evaluation": 0.0, "checkpoint": 0.0} | spent
    metrics = {f"time/{name}_s": value for name, value in {**seconds, "steps": steps}.items()}
    progress = {"steps": 1, "seconds": steps if kept is None else kept}
    return Report("0", 1, 1, metrics, int(moment * 1000), progress=progress)


def end(moment: float, *, failed: bool = False) -> tuple[float, bool]:
    return moment, failed


def live(*events: Span | Report | tuple[float, bool], time: TrialTime | None = None, exploits: int = 0) -> TrialTime:
    """The account of a trial after the starts, reports and ends of its attempts."""
    time = time or TrialTime()
    for each in events:
        match each:
            case Span():
                time.start(each, exploits)
            case Report():
                time.report(each)
            case moment, failed:
                time.end(moment, failed=failed)
    return time


def test_an_attempt_is_divided_into_what_its_workers_have_timed():
    spent = {"setup": 4, "data_wait": 6, "communication": 10, "evaluation": 5, "checkpoint": 3}
    time = live(span(100, 110), report(170, steps=46, **spent), end(171))
    assert time.account(200) == TimeAccount(
        start=28, training=60, data_wait=12, communication=20, evaluation=10, checkpoint=6, other=6
    )
    assert time.account(200).total == 2 * (171 - 100)


def test_work_after_the_checkpoint_of_a_failed_attempt_is_lost():
    time = live(span(0, 10), report(60, steps=50), end(70, failed=True))
    assert time.account(70) == TimeAccount(start=20, training=100, lost=20)
    # It begins from the checkpoint after 30 of the 50 seconds.
    live(span(70, 75), report(90, steps=15, kept=45), end(90), time=time)
    assert time.account(90) == TimeAccount(start=30, training=60 + 30, lost=20 + 40)
    assert time.account(90).total == 180


def test_work_that_the_next_attempt_still_has_was_not_lost():
    kept = 50 + 9 + 10  # a checkpoint after the last report
    time = live(span(0, 0), report(50, steps=50), end(60, failed=True), span(60, 61), report(71, steps=10, kept=kept))
    assert time.account(71) == TimeAccount(start=2, training=2 * (50 + 9 + 10), lost=2)


def test_what_a_trial_takes_over_from_another_one_is_no_work_of_its_own():
    time = live(span(0, 0), report(50, steps=50), end(50))
    from_another = span(50, 50), report(60, steps=10, kept=310), end(65, failed=True)  # with 300 seconds of steps
    live(*from_another, span(65, 65), report(75, steps=10, kept=320), time=time, exploits=1)
    assert time.account(75) == TimeAccount(training=2 * 70, lost=2 * 5)


def test_a_function_that_does_not_time_itself_loses_what_came_after_its_last_checkpoint():
    reports = (Report("0", 1, 1, {"loss": 1.0}, at * 1000, checkpoint=saved) for at, saved in ((30, "c"), (50, None)))
    time = live(span(0, 10), *reports, end(60, failed=True))
    assert time.account(60) == TimeAccount(start=20, training=40, lost=60)
    live(span(60, 62), end(82), time=time)
    assert time.account(82) == TimeAccount(start=24, training=80, lost=60)


def test_a_late_report_of_an_earlier_attempt_changes_nothing():
    time = live(span(0, 100), report(50, steps=50))
    assert time.account(110) == TimeAccount(start=200, training=20)


def test_a_trial_without_room_waits_and_does_not_start():
    time = TrialTime()
    time.wait(12)
    time.wait(20)
    live(span(10, 40), time=time)
    assert time.account(40) == TimeAccount(start=4, waiting=56)


def test_an_attempt_whose_end_nobody_reported_ends_when_the_next_one_is_assigned():
    time = live(span(0, 0), report(20, steps=20), span(30, 32))
    assert time.account(32) == TimeAccount(start=4, training=40, lost=20)


def recorded(account: TimeAccount, trial: TimeAccount, spans: tuple[Span, ...]) -> SweepRecord:
    """Record of a sweep with one trial, whose driver's last sign of life was at 100."""
    return sweep_record(
        status="interrupted",
        trials=[trial_record("0", state="running", account=trial, spans=spans)],
        time=SweepTime(account=account, sessions=((0.0, 100.0),)),
    )


def test_a_resumed_sweep_continues_its_account():
    before = TimeAccount(start=20, training=160, waiting=30, idle_tail=7)
    done = (Span(held=0, trained=10, ended=90, workers=TWO),)
    ledger = TimeLedger(recorded(before, TimeAccount(start=20, training=160, waiting=10), done))
    ledger.pay(5, workers=1, idle_workers=0)
    ledger.pay(1, workers=2, idle_workers=2)
    assert ledger.account() == TimeAccount(start=20, training=160, waiting=35, idle_tail=9)


def test_the_account_adds_up_to_the_time_of_all_places():
    ledger = TimeLedger(None)
    ledger.pay(100, workers=4, idle_workers=0)
    ledger.pay(10, workers=4, idle_workers=2)
    live(span(0, 10), end(110), time=ledger.of("0"))
    account = ledger.account()
    assert account == TimeAccount(start=20, training=200, waiting=200, idle_tail=20)
    assert account.total == 440


def test_work_of_a_killed_driver_counts_when_the_next_attempt_has_kept_it():
    ledger = TimeLedger(recorded(TimeAccount(), TimeAccount(), (span(0, 10),)))
    assert ledger.account() == TimeAccount(start=20, lost=180)
    live(span(1000, 1005), report(1010, steps=5, kept=65), end(1010), time=ledger.of("0"))
    assert ledger.account() == TimeAccount(start=30, lost=60, training=130)


def test_shares_add_up_to_one_and_name_where_the_time_went():
    account = TimeAccount(training=60, start=24, evaluation=9, lost=6.9, other=0.1)
    assert sum(account.shares().values()) == pytest.approx(1)
    assert account.goodput == pytest.approx(0.6)
    assert account.metrics()["time/goodput"] == pytest.approx(0.6)
    assert account.metrics()["time/lost_share"] == pytest.approx(0.069)
    assert describe_rest(account) == "start 24%, evaluation 9%, lost after failures 7%"
    assert TimeAccount.from_json(account.as_json()) == account
    assert TimeAccount().goodput == 0


def test_each_attempt_counts_with_its_own_number_of_workers():
    # It has trained on for 9 s after its report, and saved its state.
    time = live(span(0, 10, ("host",)), report(60, steps=50), end(70))
    live(span(72, 80, ("host",) * 4), report(90, steps=10, kept=50 + 9 + 10), end(90), time=time)
    assert time.account(90) == TimeAccount(start=10 + 4 * 8, training=50 + 9 + 4 * 10, other=1)
    assert time.account(90).total == 70 + 4 * 18


def test_an_elastic_trial_of_an_earlier_session_keeps_its_account():
    spans = [
        Span(held=0, trained=0, ended=50, workers=("host",)),
        Span(held=50, trained=50, ended=60, workers=("host",) * 4),
    ]
    time = TrialTime.restored(TimeAccount(training=90), spans, 60)
    live(span(100, 100), report(110, steps=10, kept=70), time=time)
    assert time.account(110) == TimeAccount(training=90 + 20)
