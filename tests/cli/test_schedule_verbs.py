"""``schedule list``, ``next`` and ``run`` on the command line, with a service and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import SHORT, verb
from scheduled import at, defined, set_state

from sweeps.service.clock import Clock
from sweeps.service.database.engine import open_database
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.schedules.firing import decide
from sweeps.tracking.reader import load_sweep

HERE = "sqlite:///outputs/service.db"


def write_schedule(folder: Path, cron: str = "30 4 * * *", more: str = "") -> None:
    (folder / "schedule").mkdir()
    (folder / "schedule" / "mine.yaml").write_text(f"name: mine\ncron: {cron}\nconf: digits\n{more}")


@pytest.fixture
def schedule(typed: Any) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        """Output of ``python -m sweeps schedule ...``."""
        status, out, err = typed("schedule", *arguments)
        assert status == 0, err
        return out + err

    return run


def test_before_anything_has_fired_schedules_are_listed_and_nothing_is_made(schedule: Any) -> None:
    (nightly,) = json.loads(schedule("list", "--json", "enable=[nightly]"))
    assert (nightly["name"], nightly["conf"], nightly["last"]) == ("nightly", "llm_lora", None)
    assert nightly["next"]["due"].endswith("T02:00:00+00:00")
    assert "nightly" in schedule("list")
    assert not Path("outputs").exists()


def test_the_shipped_schedule_is_disabled_and_the_line_that_enables_it_is_told(schedule: Any) -> None:
    (nightly,) = json.loads(schedule("list", "--json"))
    assert (nightly["enabled"], nightly["next"]) == (False, None)
    assert "paused; `schedule resume nightly` lets it fire" in schedule("list")
    assert "enable=[nightly]" in Path(__file__).parents[2].joinpath("conf/schedule/nightly.yaml").read_text()
    told = "nightly is disabled. `python -m sweeps schedule resume nightly` enables it."
    assert told in " ".join(schedule("next").split())
    assert told in " ".join(schedule("next", "nightly").split())
    schedule("resume", "nightly")
    assert "disabled" not in schedule("next", "nightly")
    Path("outputs/service.db").write_text("no database that this user can read")
    assert "disabled" not in schedule("next", "nightly")


def test_a_disabled_schedule_that_is_asked_for_is_told_beside_the_firings_of_others(
    schedule: Any, tmp_path: Path
) -> None:
    write_schedule(tmp_path)
    both = schedule("next", "mine", "nightly", "--config-dir", str(tmp_path))
    assert "nightly is disabled" in both
    assert "04:30" in both
    assert "nightly" not in schedule("next", "--config-dir", str(tmp_path))


def test_the_next_firings_are_shown_in_the_schedules_own_time(schedule: Any, tmp_path: Path) -> None:
    write_schedule(tmp_path, "30 4 1 1,7 *", "timezone: Europe/Berlin\njitter_s: 60\n")
    firings = json.loads(schedule("next", "mine", "-n", "4", "--json", "--config-dir", str(tmp_path)))
    assert [each["due"][5:] for each in firings if each["due"][5:7] == "07"] == ["07-01T04:30:00+02:00"] * 2
    assert all(each["starts"] > each["due"] and each["end_by"] is None for each in firings)
    assert "04:30+01:00" in schedule("next", "mine", "--config-dir", str(tmp_path))
    assert len(json.loads(schedule("next", "--json", "enable=[nightly]", "--config-dir", str(tmp_path)))) == 5


def test_what_became_of_a_firing_is_listed(schedule: Any) -> None:
    engine = open_database(HERE)
    for time, state in (("2026-01-01 12:00", "running"), ("2026-01-02 02:00", "failed")):
        decide(engine, defined(), at(time))
        set_state(engine, state)
    last = json.loads(schedule("list", "--json"))[0]["last"]
    assert (last["due"], last["sweep"], last["state"]) == (
        "2026-01-02T02:00:00+00:00",
        "nightly-20260102-020000",
        "failed",
    )
    assert "nightly-20260102-020000 (failed)" in schedule("list")


def test_with_a_service_up_a_schedule_that_is_run_goes_into_its_queue(schedule: Any) -> None:
    Heartbeat(open_database(HERE), Clock(), 30.0)
    job = json.loads(schedule("run", "nightly", "--json"))
    assert (job["verb"], job["schedule"], job["state"], job["request"]["conf"]) == (
        "run",
        "nightly",
        "queued",
        "llm_lora",
    )
    assert "in the queue of the service, as job 2" in schedule("run", "nightly")
    last = json.loads(schedule("list", "--json"))[0]["last"]
    assert (last["outcome"], last["state"]) == ("by hand", "queued")


def test_a_schedule_that_only_the_start_of_the_service_enables_is_shown_as_it_fires_and_can_be_paused(
    schedule: Any,
) -> None:
    """As after `serve enable=[nightly]`."""
    engine = open_database(HERE)
    decide(engine, defined(), Clock().now())
    assert "paused" in schedule("list"), "no service is up"
    Heartbeat(engine, Clock(), 30.0)
    (nightly,) = json.loads(schedule("list", "--json"))
    assert (nightly["enabled"], nightly["next"]["due"][-14:]) == (True, "02:00:00+00:00")
    assert "disabled" not in schedule("next", "nightly")
    schedule("pause", "nightly")
    assert "paused" in schedule("list"), "also before the service has read it"
    schedule("resume", "nightly")
    assert "paused" not in schedule("list")
    schedule("pause", "nightly")
    assert "enabled: false" in Path("outputs/schedules/nightly.yaml").read_text(), "its own file does not count there"


@pytest.mark.slow
def test_without_a_service_it_runs_at_once(tmp_path: Path) -> None:
    lines = "".join(f"  - {each}\n" for each in [*SHORT, "search.num_trials=2", "tracking.report=false"])
    write_schedule(tmp_path, "'@daily'", f"overrides:\n{lines}")
    document = verb(tmp_path, "schedule", "run", "mine", "--json", "--config-dir", str(tmp_path)).document
    assert document["sweep"].startswith("mine-2")
    assert len(load_sweep(f"sqlite:///{tmp_path}/mlflow.db", document["sweep"]).trials) == 2


def test_a_schedule_is_paused_and_resumed_and_its_history_is_shown(schedule: Any, tmp_path: Path) -> None:
    write_schedule(tmp_path)
    mine = ("--config-dir", str(tmp_path))
    schedule("pause", "mine", *mine)
    assert {each["name"]: each["enabled"] for each in json.loads(schedule("list", "--json", *mine))}["mine"] is False
    assert "enabled: false" in Path("outputs/schedules/mine.yaml").read_text()
    schedule("resume", "mine", *mine)
    assert not Path("outputs/schedules/mine.yaml").exists()  # the file in the folder of configs says the same
    history = json.loads(schedule("history", "mine", "--json", *mine))
    assert [(each["number"], each["action"]) for each in history] == [(2, "resumed"), (1, "paused")]
    assert "-enabled: false" in schedule("history", "mine", *mine)
    noted = [json.loads(line) for line in Path("outputs/audit.jsonl").read_text().splitlines()]
    assert [each["action"] for each in noted] == ["schedule paused", "schedule resumed"]
