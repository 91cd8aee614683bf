"""Schedules from their files: checked before anything starts, followed while the service runs, shown to people."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from scheduled import Travelling, at, defined, outcomes, set_state, sweeps
from sqlalchemy import insert
from sqlalchemy.exc import OperationalError

from sweeps.config.nights import Champion, Nights
from sweeps.config.service import Service
from sweeps.errors import ConfigError, UnknownName
from sweeps.plan.plan import make_plan
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.timeouts import waiting_at_most
from sweeps.service.nights.checks import check_nights
from sweeps.service.schedules.definition import load_definitions
from sweeps.service.schedules.firing import decide, fire_now, retire
from sweeps.service.schedules.overview import coming, states
from sweeps.service.schedules.saved import define_saved
from sweeps.service.schedules.scheduler import LOAD_AGAIN_AFTER_S, Scheduler
from sweeps.service.service_context import ServiceContext

NOW = at("2026-01-01 12:00")
DIGITS = "cron: 0 3 * * *\nconf: digits\n"


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / "schedule" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(text if "name:" in text else f"name: {name}\n{text}")
    os.utime(file, ns=(len(text), file.stat().st_ino))  # two files written within a tick of the disk's clock differ
    return file


def refused(folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        load_definitions([folder], NOW)
    return str(error.value)


def test_a_firing_says_its_own_time_to_its_sweep_in_the_schedules_zone(tmp_path: Path) -> None:
    more = "timezone: Asia/Tokyo\noverrides: ['seed={due:%H%M}', 'search.points=[{train.lr: 0.01}]']\n"
    write(tmp_path, "mine", DIGITS + more)
    mine = load_definitions([tmp_path], NOW)["mine"]
    assert mine.overrides(at("2026-01-01 18:05")) == ["seed=0305", "search.points=[{train.lr: 0.01}]"]


@pytest.mark.parametrize(
    ("own", "overrides", "expected"),
    [
        ("", [], ["output_dir=srv"]),
        ("output_dir: elsewhere\n", [], []),
        ("", ["output_dir=elsewhere"], ["output_dir=elsewhere"]),
        ("", ["++output_dir=elsewhere"], ["++output_dir=elsewhere"]),
        ("", ["+site=big", "seed={due:%d}"], ["+site=big", "seed=01"]),
    ],
)
def test_a_sweep_goes_to_the_folder_of_the_service_unless_its_config_or_schedule_names_another(
    tmp_path: Path, own: str, overrides: list[str], expected: list[str]
) -> None:
    (tmp_path / "base.yaml").write_text(f"# Ours.\ndefaults: [digits, _self_]\n{own}")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "big.yaml").write_text("# @package _global_\noutput_dir: elsewhere\n")
    write(tmp_path, "mine", f"cron: '@daily'\nconf: base\noverrides: {overrides}\n")
    mine = load_definitions([tmp_path], NOW, placed=["output_dir=srv"])["mine"]
    assert mine.overrides(NOW) == expected
    paused = replace(mine.schedule, enabled=False)
    assert define_saved(Service(), [tmp_path], {"mine": mine}, paused).overrides(NOW) == expected


def test_data_of_the_day_need_not_have_arrived_when_a_service_starts(tmp_path: Path) -> None:
    path = f"data.path={tmp_path}/{{due:%Y-%m-%d}}.csv"
    write(tmp_path, "mine", f"cron: 0 3 * * *\nconf: tabular\noverrides: ['{path}', data.target=label]\n")
    mine = load_definitions([tmp_path], NOW)["mine"]
    with pytest.raises(ConfigError, match="there are no such files"):
        mine.plan(NOW)  # as the firing's own sweep does


def test_the_shipped_schedule_runs_llm_lora_every_night_once_it_is_enabled() -> None:
    assert not any(each.schedule.enabled for each in load_definitions([], NOW).values())
    nightly = load_definitions([], NOW, enable=["nightly"])["nightly"]
    assert (nightly.schedule.conf, nightly.schedule.enabled) == ("llm_lora", True)
    assert list(islice(nightly.line.after(NOW), 2)) == [at("2026-01-02 02:00"), at("2026-01-03 02:00")]


def test_ones_own_schedule_takes_the_place_of_ours_and_may_build_on_it(tmp_path: Path) -> None:
    write(tmp_path, "nightly", "cron: 0 4 * * *\nconf: digits\n")
    write(tmp_path, "mine", "defaults: [nightly, _self_]\nname: mine\ntimezone: Asia/Tokyo\n")
    found = load_definitions([tmp_path], NOW)
    assert {name: (each.schedule.cron, each.schedule.conf) for name, each in found.items()} == {
        "mine": ("0 4 * * *", "digits"),
        "nightly": ("0 4 * * *", "digits"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cron: 0 25 * * *\nconf: digits\n", ["schedule/bad.yaml: cron='0 25 * * *': its hour must be 0-23"]),
        (f"{DIGITS}timezone: Europe/Berln\n", ["timezone='Europe/Berln': there is no such time zone", "Europe/Berlin"]),
        (f"{DIGITS}overlop: skip\n", ["overlop='skip': there is no such key", "overlap"]),
        (f"{DIGITS}overlap: wait\n", ["overlap='wait': must be 'skip', 'queue' or 'stop_old'"]),
        (f"{DIGITS}window: {{start: '22:00'}}\n", ["window", "needs start and end"]),
        (f"{DIGITS}window: {{start: 22:00, end: 25:00}}\n", ["window.end"]),
        (
            f"{DIGITS}window: {{start: 22:00, end: 01:00}}\n",
            ["end: 01:00}", "never fires within"],
        ),
        (f"{DIGITS}window: {{hours: 1}}\njitter_s: 3600\n", ["jitter_s=3600 is longer than window.hours=1"]),
        (f"{DIGITS}overrides: [train.lrr=1]\n", ["its sweep (run conf=digits train.lrr=1) cannot run", "train.lr"]),
        (f"{DIGITS}budget: {{gpu_hours: 1}}\n", ["search.stop.gpu_hours=1", "trials use no GPU"]),
        ("cron: '@daily'\nconf: digitss\n", ["conf=digitss: there is no such conf; did you mean digits"]),
        (f"{DIGITS}name: a/b\n", ["name='a/b'"]),
        ("name: [\n", ["schedule/bad.yaml: line 2", "expected"]),
        ("name: bad\n", ["cron: is required", "conf: is required"]),
        (f"{DIGITS}name: nightly\n", ["name=nightly: schedule/", "has the same"]),
    ],
)
def test_a_mistake_is_named_with_its_file_key_and_fix(tmp_path: Path, text: str, words: list[str]) -> None:
    write(tmp_path, "bad", text)
    message = refused(tmp_path)
    assert all(word in message for word in words), message


def test_all_mistakes_of_all_files_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path, "one", "cron: x\nconf: digits\ntimezone: Here\n")
    write(tmp_path, "two", f"{DIGITS}jitter_s: -1\npriority: high\n")
    assert len(refused(tmp_path).splitlines()) >= 3


def test_of_a_disabled_schedule_the_sweep_may_be_unfinished(tmp_path: Path) -> None:
    write(tmp_path, "later", "cron: '@daily'\nconf: not_written_yet\nenabled: false\n")
    assert not load_definitions([tmp_path], NOW)["later"].schedule.enabled


def test_a_schedule_that_is_to_be_enabled_must_exist() -> None:
    with pytest.raises(UnknownName, match="did you mean nightly"):
        load_definitions([], NOW, enable=["nigtly"])


def test_a_scheduler_follows_its_files_and_keeps_what_was_right(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    write(tmp_path, "mine", DIGITS)
    scheduler = Scheduler(ServiceContext(Service(), engine, clock, [tmp_path]), number="s")
    assert set(scheduler.definitions) == {"mine", "nightly"}
    scheduler.poll()
    write(tmp_path, "mine", "cron: 0 25 * * *\nconf: digits\n")
    clock.time = at("2026-01-02 03:00")
    scheduler.poll()
    assert "its hour must be 0-23" in str(scheduler.trouble)
    assert outcomes(engine, "mine") == {"02 03:00": "queued"}
    set_state(engine, "finished")
    write(tmp_path, "mine", "cron: 0 5 * * *\nconf: digits\n")
    scheduler.poll()
    clock.time = at("2026-01-02 05:00")
    scheduler.poll()
    assert scheduler.trouble is None
    assert outcomes(engine, "mine") == {"02 03:00": "queued", "02 05:00": "queued"}
    (tmp_path / "schedule" / "mine.yaml").unlink()
    clock.time = at("2026-01-04 12:00")
    scheduler.poll()
    assert outcomes(engine, "mine")["04 05:00"] == "missed"
    write(tmp_path, "mine", DIGITS)
    clock.time = at("2026-01-06 03:00")
    scheduler.poll()
    assert list(outcomes(engine, "mine")) == ["02 03:00", "02 05:00", "03 05:00", "04 05:00"]


def test_a_schedule_whose_config_comes_after_it_is_loaded_within_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    scheduler = Scheduler(ServiceContext(Service(), engine, clock, [tmp_path]), number="s")
    write(tmp_path, "mine", "cron: 0 3 * * *\nconf: mine\n")
    for _ in range(3):
        scheduler.poll()
        clock.time += LOAD_AGAIN_AFTER_S
    assert "conf=mine" in str(scheduler.trouble)
    assert caplog.text.count("the schedules are not reloaded") == 1
    (tmp_path / "mine.yaml").write_text("defaults: [digits, _self_]\n")
    scheduler.poll()
    assert ("mine" in scheduler.definitions, scheduler.trouble) == (True, None)


def test_a_saved_file_that_cannot_be_read_is_named_and_counts_once_it_can_be(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    (mine := tmp_path / "schedules" / "mine.yaml").mkdir(parents=True)
    write(tmp_path, "other", DIGITS)
    config = Service(schedules=["other"], output_dir=str(tmp_path))
    scheduler = Scheduler(ServiceContext(config, engine, clock, [tmp_path]), number="s")
    assert "schedules/mine.yaml: cannot be read (Is a directory)" in str(scheduler.trouble)
    scheduler.poll()
    clock.time = at("2026-01-02 03:00")
    scheduler.poll()
    assert outcomes(engine, "other") == {"02 03:00": "queued"}
    mine.rmdir()
    mine.write_text(f"name: mine\n{DIGITS}")
    (mine.parent / "nightly.yaml").write_text("name: nightly\nenabled: true\n")  # which `schedules` leaves to others
    scheduler.poll()
    assert (set(scheduler.definitions), scheduler.trouble) == ({"mine", "other"}, None)
    assert scheduler.known["nightly"].schedule.enabled


def test_a_saved_file_that_cannot_be_read_for_a_moment_is_read_again_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    (mine := tmp_path / "schedules" / "mine.yaml").parent.mkdir()
    mine.write_text(f"name: mine\n{DIGITS}")
    scheduler = Scheduler(ServiceContext(Service(output_dir=str(tmp_path)), engine, clock, [tmp_path]), number="s")
    with monkeypatch.context() as patch:
        unreadable(patch, "mine.yaml", errno.ESTALE)
        for _ in range(3):
            scheduler.poll()
        assert "mine" in scheduler.definitions
        assert "schedules/mine.yaml: cannot be read (Stale file handle); let" in str(scheduler.trouble)
    assert caplog.text.count("Stale file handle") == 1
    scheduler.poll()
    assert scheduler.trouble is None


def unreadable(patch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let each file of a name fail to open, as on a network file system whose server is away."""
    opened = Path.open

    def fail(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == name:
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *arguments, **options)

    patch.setattr(Path, "open", fail)


def test_a_schedule_of_the_operator_does_not_fire_while_the_saved_file_that_may_pause_it_cannot_be_read(
    tmp_path: Path,
) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    write(tmp_path, "mine", DIGITS)
    (saved := tmp_path / "schedules" / "mine.yaml").mkdir(parents=True)
    config = Service(schedules=["mine"], output_dir=str(tmp_path))
    scheduler = Scheduler(ServiceContext(config, engine, clock, [tmp_path]), number="s")
    scheduler.poll()
    clock.time = at("2026-01-02 03:00")
    scheduler.poll()
    assert outcomes(engine, "mine") == {}
    saved.rmdir()
    saved.write_text("name: mine\nenabled: false\n")
    scheduler.poll()
    assert (scheduler.definitions["mine"].schedule.enabled, scheduler.trouble) == (False, None)


def test_a_schedule_that_is_removed_while_another_ones_removal_is_recorded_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    first, second = (write(tmp_path, name, DIGITS) for name in ("first", "second"))
    scheduler = Scheduler(ServiceContext(Service(), engine, clock, [tmp_path]), number="s")
    scheduler.poll()
    first.unlink()

    def retire_slowly(*arguments: Any) -> Any:
        if second.exists():
            second.unlink()
            refreshing.start()  # as a request to the service would
            refreshing.join(0.5)
        return retire(*arguments)

    refreshing = threading.Thread(target=scheduler.refresh)
    monkeypatch.setattr("sweeps.service.schedules.scheduler.retire", retire_slowly)
    scheduler.poll()
    refreshing.join()
    clock.time = at("2026-01-02 03:00")
    scheduler.poll()
    assert [outcomes(engine, name) for name in ("first", "second")] == [{}, {"02 03:00": "missed"}]


def test_a_file_that_is_back_before_its_removal_was_recorded_loses_no_firing(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    mine = write(tmp_path, "mine", DIGITS)
    scheduler = Scheduler(ServiceContext(Service(), engine, clock, [tmp_path]), number="s")
    scheduler.poll()
    mine.rename(tmp_path / "kept")
    with writing(engine), waiting_at_most(0.1), pytest.raises(OperationalError, match="locked"):
        scheduler.poll()
    (tmp_path / "kept").rename(mine)
    clock.time = at("2026-01-02 03:00")
    scheduler.poll()
    assert outcomes(engine, "mine") == {"02 03:00": "queued"}


def test_a_scheduler_sleeps_until_the_next_firing_and_may_have_few_schedules(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 02:59:58")
    write(tmp_path, "mine", DIGITS)
    scheduler = Scheduler(ServiceContext(Service(schedules=["mine"]), engine, clock, [tmp_path]), number="s")
    assert [scheduler.poll(), scheduler.poll()] == [1.0, 1.0]
    clock.time += 1.5
    assert scheduler.poll() == 0.5
    clock.time += 0.5
    scheduler.poll()
    assert sweeps(engine) == ["mine-20260101-030000"]
    with pytest.raises(UnknownName, match="nigthly"):
        Scheduler(ServiceContext(Service(schedules=["nigthly"]), engine, clock, [tmp_path]))


def test_a_schedule_that_one_of_two_services_enables_fires(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 02:59:50")
    write(tmp_path, "mine", f"{DIGITS}enabled: false\n")
    one, other = (
        Scheduler(ServiceContext(Service(schedules=["mine"], enable=enable), engine, clock, [tmp_path]), number="s")
        for enable in (["mine"], [])
    )
    for _ in range(20):
        clock.time += 0.5
        one.poll()
        clock.time += 0.5
        other.poll()
    assert sweeps(engine) == ["mine-20260101-030000"]


def test_two_services_with_other_cron_lines_for_one_schedule_say_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    lines = {"one": "0 3 * * *", "other": "0 4 * * *"}
    for folder, cron in lines.items():
        write(tmp_path / folder, "mine", f"cron: {cron}\nconf: digits\n")
    one, other = (
        Scheduler(ServiceContext(Service(schedules=["mine"]), engine, clock, [tmp_path / folder])) for folder in lines
    )
    for _ in range(5):
        one.poll()
    assert not caplog.messages
    for _ in range(5):
        other.poll()
        one.poll()
    disputed = [message for message in caplog.messages if "in another service" in message]
    assert disputed[0].startswith("mine: has cron=0 3 * * * timezone=UTC here and cron=0 4 * * * timezone=UTC in")
    assert len(disputed) == 2, "each service once"
    caplog.clear()
    write(tmp_path / "one", "mine", f"cron: {lines['other']}\nconf: digits\n")
    for _ in range(5):
        one.poll()
        other.poll()
    assert not caplog.messages


def test_a_schedule_that_cannot_be_decided_keeps_no_other_from_firing(tmp_path: Path) -> None:
    engine, clock = open_database(f"sqlite:///{tmp_path}/service.db"), Travelling("2026-01-01 12:00")
    for name in ("early", "late"):
        write(tmp_path, name, DIGITS)
    scheduler = Scheduler(ServiceContext(Service(schedules=["early", "late"]), engine, clock, [tmp_path]))
    scheduler.poll()
    with writing(engine) as connection:  # as no service would leave it
        firing = {"schedule": "early", "due": at("2026-01-02 03:00"), "outcome": "queued", "decided": clock.now()}
        connection.execute(insert(tables.firings).values(firing))
    clock.time = at("2026-01-02 03:00")
    assert scheduler.poll() == 0.0
    assert sweeps(engine) == ["late-20260102-030000"]


def test_people_see_what_came_of_the_last_firing_and_when_the_next_one_is(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    berlin = {"timezone": "Europe/Berlin", "window": {"hours": 2}}
    nightly, other, off = defined(**berlin), defined("0 1 * * *", name="other"), defined(name="off", enabled=False)
    definitions = {each.name: each for each in (nightly, other, off)}
    for time in ("2026-07-01 12:00", "2026-07-02 00:00", "2026-07-03 00:00"):
        for each in definitions.values():
            decide(engine, each, at(time))
        set_state(engine, "running")
    with writing(engine) as connection:
        fire_now(connection, other, at("2026-07-03 00:30"))
        shown = {
            state.definition.name: state.as_json() for state in states(definitions, at("2026-07-03 00:30"), connection)
        }
    assert shown["nightly"]["last"]["due"] == "2026-07-03T02:00:00+02:00"
    assert shown["nightly"]["last"]["outcome"] == "skipped"
    assert shown["nightly"]["next"] == {
        "schedule": "nightly",
        "due": "2026-07-04T02:00:00+02:00",
        "starts": "2026-07-04T02:00:00+02:00",
        "end_by": "2026-07-04T04:00:00+02:00",
    }
    assert shown["other"]["last"]["outcome"] == "by hand"
    assert shown["other"]["last"]["state"] == "queued"
    assert (shown["off"]["last"], shown["off"]["next"]) == (None, None)
    order = [each.definition.name for each in islice(coming(definitions.values(), at("2026-07-03 00:30")), 3)]
    assert order == ["other", "nightly", "other"]
    assert states(definitions, NOW)[0].last is None


def test_what_has_no_single_best_or_cannot_be_registered_has_no_champion() -> None:
    tokens = ["conf=digits", "space=none", "train.lr=tag(log, interval(1e-4, 1e-1))"]
    settings = Nights(champion=Champion(model="digits"))
    check_nights(settings, make_plan(tokens, [], None, ""))
    function = make_plan(["conf=ray_train_function"], [], None, "")
    with pytest.raises(ConfigError, match=r"nights.champion.model=digits: task.kind=function"):
        check_nights(settings, function)
    several = [*tokens, "search.metric=[eval/accuracy,eval/loss]", "search.mode=[max,min]"]
    with pytest.raises(ConfigError, match="with several objectives"):
        check_nights(settings, make_plan(several, [], None, ""))
