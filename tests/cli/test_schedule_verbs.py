"""``schedule list``, ``next`` and ``run`` on the command line, with a service and without one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from running import SHORT, verb
from scheduled import at, defined, set_state

from sweeps.cli import main
from sweeps.service.clock import Clock
from sweeps.service.database.engine import open_database
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.schedules.firing import decide
from sweeps.tracking.reader import load_sweep

HERE = "sqlite:///outputs/service.db"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> str:
        """Output of ``python -m sweeps schedule ...``."""
        monkeypatch.setattr(sys, "argv", ["sweeps", "schedule", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return printed.out + printed.err

    return run


def test_before_anything_has_fired_schedules_are_listed_and_nothing_is_made(typed: Any) -> None:
    (nightly,) = json.loads(typed("list", "--json", "enable=[nightly]"))
    assert (nightly["name"], nightly["conf"], nightly["last"]) == ("nightly", "llm_lora", None)
    assert nightly["next"]["due"].endswith("T02:00:00+00:00")
    assert "nightly" in typed("list")
    assert not Path("outputs").exists()


def test_the_shipped_schedule_is_disabled_and_the_line_that_enables_it_is_told(typed: Any) -> None:
    (nightly,) = json.loads(typed("list", "--json"))
    assert (nightly["enabled"], nightly["next"]) == (False, None)
    assert "paused; `schedule resume nightly` lets it fire" in typed("list")
    assert "enable=[nightly]" in Path(__file__).parents[2].joinpath("conf/schedule/nightly.yaml").read_text()
    told = "nightly is disabled. `python -m sweeps schedule resume nightly` enables it."
    assert told in " ".join(typed("next").split())
    assert told in " ".join(typed("next", "nightly").split())
    typed("resume", "nightly")
    assert "disabled" not in typed("next", "nightly")


def test_a_disabled_schedule_that_is_asked_for_is_told_beside_the_firings_of_others(typed: Any, tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text("name: mine\ncron: 30 4 * * *\nconf: digits\n")
    both = typed("next", "mine", "nightly", "--config-dir", str(tmp_path))
    assert "nightly is disabled" in both
    assert "04:30" in both
    assert "nightly" not in typed("next", "--config-dir", str(tmp_path))


def test_the_next_firings_are_shown_in_the_schedules_own_time(typed: Any, tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text(
        "name: mine\ncron: 30 4 1 1,7 *\nconf: digits\ntimezone: Europe/Berlin\njitter_s: 60\n"
    )
    firings = json.loads(typed("next", "mine", "-n", "4", "--json", "--config-dir", str(tmp_path)))
    assert [each["due"][5:] for each in firings if each["due"][5:7] == "07"] == ["07-01T04:30:00+02:00"] * 2
    assert all(each["starts"] > each["due"] and each["end_by"] is None for each in firings)
    assert "04:30+01:00" in typed("next", "mine", "--config-dir", str(tmp_path))
    assert len(json.loads(typed("next", "--json", "enable=[nightly]", "--config-dir", str(tmp_path)))) == 5


def test_what_became_of_a_firing_is_listed(typed: Any) -> None:
    engine = open_database(HERE)
    for time, state in (("2026-01-01 12:00", "running"), ("2026-01-02 02:00", "failed")):
        decide(engine, defined(), at(time))
        set_state(engine, state)
    last = json.loads(typed("list", "--json"))[0]["last"]
    assert (last["due"], last["sweep"], last["state"]) == (
        "2026-01-02T02:00:00+00:00",
        "nightly-20260102-020000",
        "failed",
    )
    assert "nightly-20260102-020000 (failed)" in typed("list")


def test_with_a_service_up_a_schedule_that_is_run_goes_into_its_queue(typed: Any) -> None:
    Heartbeat(open_database(HERE), Clock(), 30.0)
    job = json.loads(typed("run", "nightly", "--json"))
    assert (job["verb"], job["schedule"], job["state"], job["request"]["conf"]) == (
        "run",
        "nightly",
        "queued",
        "llm_lora",
    )
    assert "in the queue of the service, as job 2" in typed("run", "nightly")
    last = json.loads(typed("list", "--json"))[0]["last"]
    assert (last["outcome"], last["state"]) == ("by hand", "queued")


@pytest.mark.slow
def test_without_a_service_it_runs_at_once(tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    lines = "".join(f"  - {each}\n" for each in [*SHORT, "search.num_trials=2", "tracking.report=false"])
    (tmp_path / "schedule" / "mine.yaml").write_text(f"name: mine\ncron: '@daily'\nconf: digits\noverrides:\n{lines}")
    document = verb(tmp_path, "schedule", "run", "mine", "--json", "--config-dir", str(tmp_path)).document
    assert document["sweep"].startswith("mine-2")
    assert len(load_sweep(f"sqlite:///{tmp_path}/mlflow.db", document["sweep"]).trials) == 2


def test_a_schedule_is_paused_and_resumed_and_its_history_is_shown(typed: Any, tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text("name: mine\ncron: 30 4 * * *\nconf: digits\n")
    mine = ("--config-dir", str(tmp_path))
    typed("pause", "mine", *mine)
    assert {each["name"]: each["enabled"] for each in json.loads(typed("list", "--json", *mine))}["mine"] is False
    assert "enabled: false" in Path("outputs/schedules/mine.yaml").read_text()
    typed("resume", "mine", *mine)
    assert not Path("outputs/schedules/mine.yaml").exists()  # the file in the folder of configs says the same
    history = json.loads(typed("history", "mine", "--json", *mine))
    assert [(each["number"], each["action"]) for each in history] == [(2, "resumed"), (1, "paused")]
    assert "-enabled: false" in typed("history", "mine", *mine)
    noted = [json.loads(line) for line in Path("outputs/audit.jsonl").read_text().splitlines()]
    assert [each["action"] for each in noted] == ["schedule paused", "schedule resumed"]
