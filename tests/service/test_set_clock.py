"""Schedules, when somebody sets the machine's clock: by weeks, for a moment or for hours, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from scheduled import Travelling, outcomes, sweeps
from sqlalchemy import Engine

from sweeps.config.service import Service
from sweeps.service.queue.heartbeat import Heartbeat, last_beat
from sweeps.service.schedules.firing import decide
from sweeps.service.schedules.scheduler import Scheduler
from sweeps.service.service_context import ServiceContext

MONTH_S = 30 * 86400.0


class Served:
    """A scheduler of one hourly schedule, looked at every two minutes."""

    def __init__(self, engine: Engine, folder: Path, clock: Travelling | None = None) -> None:
        (folder / "schedule").mkdir(exist_ok=True)
        lines = "name: nightly\ncron: '@hourly'\nconf: digits\noverlap: queue\n"
        (folder / "schedule" / "nightly.yaml").write_text(lines)
        self.engine, self.clock = engine, clock or Travelling("2026-01-01 00:30")
        self.scheduler = Scheduler(ServiceContext(Service(schedules=["nightly"]), engine, self.clock, [folder]))

    def live(self, minutes: int) -> None:
        for _ in range(minutes // 2):
            self.scheduler.poll()
            self.clock.time += 120

    def queued(self) -> list[str]:
        return [due for due, outcome in outcomes(self.engine).items() if outcome == "queued"]


@pytest.fixture
def served(engine: Engine, tmp_path: Path) -> Served:
    return Served(engine, tmp_path)


EVERY_HOUR = [f"01 {hour:02}:00" for hour in range(1, 5)]


@pytest.mark.parametrize(
    "seconds", [MONTH_S, -7200.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (-MONTH_S, 7200.0))]
)
def test_a_clock_that_is_wrong_for_some_minutes_changes_nothing(served: Served, seconds: float) -> None:
    served.live(90)
    served.clock.put(seconds)
    served.live(8)
    served.clock.put(-seconds)
    served.live(120)
    assert outcomes(served.engine) == dict.fromkeys(EVERY_HOUR, "queued")


def test_a_clock_that_is_a_month_ahead_for_hours_costs_no_firing_after_it(served: Served) -> None:
    served.live(90)
    served.clock.put(MONTH_S)
    served.live(120)
    assert len(outcomes(served.engine)) > 700  # what it says is taken for true in the end: an outage of a month
    served.clock.put(-MONTH_S)
    served.live(6 * 60)
    found = outcomes(served.engine)
    assert {due for due, outcome in found.items() if outcome == "missed"} == {"01 03:00", "01 04:00"}  # it was wrong
    assert {found[f"01 {hour:02}:00"] for hour in range(5, 10)} == {"queued"}
    assert len(set(sweeps(served.engine))) == len(sweeps(served.engine))


def test_what_a_wrong_clock_has_fired_ahead_does_not_fire_again(served: Served) -> None:
    served.live(90)
    served.clock.put(86400.0)
    served.live(60)
    ahead = [due for due in served.queued() if due.startswith("02 ")]
    assert ahead
    served.clock.put(-86400.0)
    served.live(30)
    served.clock.time += 22.5 * 3600
    served.live(90)
    assert [due for due in served.queued() if due in ahead] == ahead
    assert len(sweeps(served.engine)) == len(served.queued())


def test_a_service_that_starts_after_a_clock_was_wrong_puts_right_what_it_did(
    served: Served, engine: Engine, tmp_path: Path
) -> None:
    served.live(90)
    decide(engine, served.scheduler.definitions["nightly"], served.clock.now() + MONTH_S)
    assert list(outcomes(engine).values()).count("missed") > 700
    later = Served(engine, tmp_path, clock=served.clock)
    later.live(9)
    assert list(outcomes(engine).values()).count("missed") > 700  # its own clock may be the wrong one
    later.live(120)
    found = outcomes(engine)
    assert list(found.values()).count("missed") == 1  # that of the hour in which nobody knew better
    assert found["01 03:00"] == found["01 04:00"] == "queued"


@pytest.mark.parametrize("is_asleep", [True, False], ids=["asleep", "paused"])
def test_a_real_outage_counts_as_missed(served: Served, is_asleep: bool) -> None:
    """The steady clock counts a machine's sleep; while a virtual machine is paused, it may stand."""
    served.live(90)
    if is_asleep:
        served.clock.time += 5 * 3600
    else:
        served.clock.put(5 * 3600)
    served.live(15)
    found = outcomes(served.engine)
    assert list(found.values()).count("missed") >= 3
    assert found[max(found)] == "queued"


def test_a_service_gives_signs_of_life_after_its_clock_was_put_back(engine: Engine) -> None:
    clock = Travelling("2026-02-01 00:00")
    heartbeat = Heartbeat(engine, clock, 30.0, host="here")
    clock.put(-MONTH_S)
    heartbeat.beat()
    with engine.connect() as connection:
        assert last_beat(connection, "here") == clock.now()
