"""Schedules that are saved through the service: by whom, what is checked, and what is kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import API, Api, Asking, serving
from sqlalchemy import insert, select

from sweeps.errors import ConfigError, Conflict, UserError
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.schedules import saved as saved_schedules
from sweeps.service.schedules.firing import fire_now
from sweeps.service.schedules.local_schedules import LocalSchedules
from sweeps.service.schedules.saved import Owner, SavedSchedules
from sweeps.service.schedules.schedule_file import has_more_comments

MINE = {"name": "mine", "cron": "30 4 * * *", "conf": "digits", "overrides": ["search.num_trials=3"]}
OPERATORS = "name: theirs\ncron: 0 3 * * *\nconf: digits\nproject: ada\n"
OWN_CODE = """# Our own training, every night.
name: own_code
cron: 0 3 * * *
conf: ray_train_function
overrides: ["tracking.experiment=a/../b", "cluster.env=[OUR_KEY]"]
"""
FIRST, SECOND = "# First\nname: a\n", "# Second\nname: a\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "conf" / "schedule").mkdir(parents=True)
    (folder / "conf" / "schedule" / "theirs.yaml").write_text(OPERATORS)
    (folder / "conf" / "schedule" / "ours.yaml").write_text(OWN_CODE)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Api]:
    with serving(folder, f"config_dirs=[{folder / 'conf'}]", "access.max_schedules=2") as api:
        api.token("root", "admin")
        yield api


@pytest.fixture
def api(service: Api) -> Api:
    """The service, with no saved schedules."""
    shutil.rmtree(service.service.saved_schedules.folder, ignore_errors=True)
    service.service.scheduler.refresh()
    return service


def save(client: TestClient, status: int = 201, tag: str | None = None, **settings: Any) -> Any:
    answer = client.post(f"{API}/schedules", json={"schedule": {**MINE, **settings}, "tag": tag})
    assert answer.status_code == status, answer.text
    return answer.json()


def change(client: TestClient, status: int, tag: str | None = None, **settings: Any) -> Any:
    schedule = {**MINE, **settings}
    answer = client.put(f"{API}/schedules/{schedule['name']}", json={"schedule": schedule, "tag": tag})
    assert answer.status_code == status, answer.text
    return answer.json()


def write(saved: SavedSchedules, name: str, text: str | None, **more: Any) -> list[str]:
    given: dict[str, Any] = {"tag": None, "user": "u", "now": 1.0, "action": "saved"}
    return saved.write(name, text, **given | more)


def test_a_user_makes_a_schedule_which_the_scheduler_sees_at_once(api: Api, asking: Asking, folder: Path) -> None:
    made = save(asking("bob"))
    assert (made["schedule"]["user"], made["schedule"]["project"], made["may_change"]) == ("bob", "bob", True)
    definition = api.service.scheduler.definitions["mine"]
    assert (definition.is_saved, definition.schedule.cron) == (True, "30 4 * * *")
    text = (folder / "outputs" / "schedules" / "mine.yaml").read_text()
    assert text.startswith("# mine\nname: mine\ncron: 30 4 * * *\nconf: digits\n")
    assert {each["name"] for each in asking("bob").get(f"{API}/schedules").json()} == {"mine"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cron": "66 4 * * *"}, "its minute must be 0-59"),
        ({"timezone": "Europe/Berln"}, "there is no such time zone"),
        ({"overrides": ["train.lrr=1"]}, "train.lrr"),
        ({"overlop": "skip"}, "there is no such key"),
        ({"overrides": ["output_dir=/tmp"]}, "sweeps of the service are written to its own folder"),
        ({"overrides": ["name=${oc.env:HOME}"]}, "name"),
        ({"conf": "ray_train_function"}, "_target_"),
        ({"project": "ada"}, "is not one of yours"),
        ({"priority": 5}, "access.runner_priority"),
        ({"nights": {"warm_start": 3}}, "needs a token with the role admin"),
        ({"overlap": "queue"}, "needs a token with the role admin"),
        ({"missed": "all"}, "needs a token with the role admin"),
        ({"name": "theirs"}, "there is a schedule of this name already"),
        ({"name": "../x"}, "name"),
        ({"window": {"hours": 1e300}}, "window.hours"),
        ({"jitter_s": 1e300}, "jitter_s"),
    ],
    ids=str,
)
def test_nothing_is_saved_that_is_wrong_or_not_allowed(
    asking: Asking, folder: Path, settings: dict[str, Any], words: str
) -> None:
    client = asking("bob")
    for path in ("schedules", "schedules/check"):
        answer = client.post(f"{API}/{path}", json={"schedule": {**MINE, **settings}})
        assert answer.status_code in (404, 409, 422)
        assert words in answer.json()["detail"]
    assert not list(folder.glob("outputs/schedules/*.yaml"))


def test_readers_change_nothing_and_users_change_their_own(api: Api, asking: Asking) -> None:
    save(asking("bob", "run", "chat"), project="chat")
    ada = asking("ada", "run", "chat")
    change(ada, 403, cron="0 0 * * *")
    for verb in ("pause", "resume"):
        assert ada.post(f"{API}/schedules/mine/{verb}").status_code == 403
    assert ada.delete(f"{API}/schedules/mine").status_code == 403
    assert ada.get(f"{API}/schedules/mine").json()["may_change"] is False
    assert asking("cyd").get(f"{API}/schedules/mine").status_code == 404
    assert asking("cyd").put(f"{API}/schedules/mine", json={"schedule": MINE}).status_code == 404
    assert asking("bob", "read").post(f"{API}/schedules/mine/pause").status_code == 403
    assert change(asking("eve", "admin"), 200, cron="0 5 * * *", user="bob")["schedule"]["cron"] == "0 5 * * *"


def test_a_user_has_only_so_many(asking: Asking) -> None:
    bob = asking("bob")
    for name in ("a", "b"):
        save(bob, name=name)
    assert "access.max_schedules" in save(bob, 422, name="c")["detail"]
    save(asking("eve", "admin"), name="c")


def test_what_is_kept_of_removed_schedules_has_a_bound(
    api: Api, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who makes and removes schedules without end fills no disk and slows down nobody's page."""
    monkeypatch.setattr(saved_schedules, "KEPT_REMOVED", 2)
    bob, saved = asking("bob"), api.service.saved_schedules
    for name in ("one", "two", "three"):
        save(bob, name=name, enabled=False)
        with writing(api.service.database) as connection:
            skipped = {"outcome": "skipped", "reason": "bobs-sweep still runs"}
            connection.execute(insert(tables.firings).values(schedule=name, due=1.0, decided=1.0, **skipped))
        bob.delete(f"{API}/schedules/{name}")
    assert saved.removed() == ["three", "two"]
    save(bob, name="four", enabled=False)
    save(bob, name="five", enabled=False)
    assert bob.post(f"{API}/schedules/two/versions/1/bring-back").status_code == 422  # access.max_schedules
    ada = asking("ada")
    save(ada, name="one", enabled=False)
    assert "bobs-sweep" not in ada.get("/schedules/one").text
    assert "there was one" in save(ada, 409, name="two")["detail"]


def test_the_operators_schedules_do_not_count_as_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was paused and fires again has versions, and no file here."""
    monkeypatch.setattr(saved_schedules, "KEPT_REMOVED", 1)
    saved, owner, forgotten = SavedSchedules(tmp_path), Owner("ada", "ada"), list[str]()
    for name in ("nightly", "weekly", "gone", "gone-too"):
        more: dict[str, Any] = {"owner": owner, "operators": ("nightly", "weekly")}
        write(saved, name, f"name: {name}\nenabled: false\n", action="paused", **more)
        forgotten = write(saved, name, None, action="resumed", **more)
    assert forgotten == ["gone"]
    assert len(saved.versions("nightly")) == 2


def test_versions_have_a_bound_in_bytes(tmp_path: Path) -> None:
    saved = SavedSchedules(tmp_path)
    large = "#" * (saved_schedules.LARGEST - 10)
    for number in range(40):
        write(saved, "a", f"{large}{number}")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.json")) < 1.01 * saved_schedules.KEPT_BYTES
    assert saved.versions("a")[0].number == 40
    with pytest.raises(ConfigError, match="has more than 64 KiB"):
        write(saved, "a", f"{large}{'#' * 11}")


def test_the_page_reads_no_yaml_of_removed_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, owner = SavedSchedules(tmp_path), Owner("bob", "chat")
    for text in (FIRST, None):
        write(saved, "a", text, owner=owner)
    monkeypatch.setattr(saved_schedules, "read_schedule", None)
    assert saved.last_owner("a") == owner


def test_two_who_edit_at_once_are_told(asking: Asking) -> None:
    bob, eve = asking("bob"), asking("eve", "admin")
    tag = save(bob)["tag"]
    change(eve, 200, tag, cron="0 5 * * *", user="bob", project="bob")
    refused = change(bob, 409, tag, cron="0 6 * * *")
    assert "was changed by eve" in refused["detail"]
    present = bob.get(f"{API}/schedules/mine").json()
    assert present["schedule"]["cron"] == "0 5 * * *"
    assert change(bob, 200, present["tag"], cron="0 6 * * *")["schedule"]["cron"] == "0 6 * * *"


def test_every_version_is_kept_and_can_be_brought_back(api: Api, asking: Asking) -> None:
    bob = asking("bob")
    save(bob)
    change(bob, 200, cron="0 6 * * *")
    bob.post(f"{API}/schedules/mine/pause")
    assert bob.delete(f"{API}/schedules/mine").status_code == 204
    assert "mine" not in api.service.scheduler.definitions
    versions = bob.get(f"{API}/schedules/mine/versions").json()
    assert [(each["number"], each["action"], each["user"]) for each in versions] == [
        (4, "removed", "bob"),
        (3, "paused", "bob"),
        (2, "saved", "bob"),
        (1, "saved", "bob"),
    ]
    assert [each.get(f"{API}/schedules/mine/nights").status_code for each in (bob, asking("ada"))] == [200, 404]
    assert bob.post(f"{API}/schedules/mine/versions/4/bring-back").status_code == 404
    back = bob.post(f"{API}/schedules/mine/versions/1/bring-back").json()
    assert (back["schedule"]["cron"], back["schedule"]["enabled"]) == ("30 4 * * *", True)
    assert asking("ada").get(f"{API}/schedules/mine/versions").status_code == 404
    bob.delete(f"{API}/schedules/mine")
    assert "there was one" in save(asking("ada"), 409)["detail"]  # its firings and versions are Bob's


def test_the_operators_own_schedule_is_replaced_and_not_written(api: Api, asking: Asking, folder: Path) -> None:
    eve, file = asking("eve", "admin"), folder / "conf" / "schedule" / "theirs.yaml"
    assert eve.delete(f"{API}/schedules/theirs").status_code == 422
    paused = eve.post(f"{API}/schedules/theirs/pause").json()
    assert (paused["is_saved"], paused["schedule"]["enabled"]) == (True, False)
    assert eve.post(f"{API}/schedules/theirs/pause").status_code == 422
    resumed = eve.post(f"{API}/schedules/theirs/resume").json()
    assert (resumed["is_saved"], resumed["schedule"]["enabled"]) == (False, True)
    change(eve, 200, name="theirs", cron="0 7 * * *")
    assert api.service.scheduler.definitions["theirs"].schedule.cron == "0 7 * * *"
    assert file.read_text() == OPERATORS
    assert eve.delete(f"{API}/schedules/theirs").status_code == 204
    assert api.service.scheduler.definitions["theirs"].schedule.cron == "0 3 * * *"


OWN = {"name": "own_code", "cron": "0 7 * * *", "conf": "ray_train_function"}
OWN_OVERRIDES = ["tracking.experiment=a/../b", "cluster.env=[OUR_KEY]"]


def test_a_paused_schedule_of_the_operators_follows_its_file(api: Api, asking: Asking, folder: Path) -> None:
    eve, file = asking("eve", "admin"), folder / "conf" / "schedule" / "theirs.yaml"
    scheduler, text = api.service.scheduler, "# theirs\nname: theirs\nenabled: false\n"
    assert eve.post(f"{API}/schedules/theirs/pause").status_code == 200
    assert api.service.saved_schedules.text("theirs") == text
    try:
        file.write_text(OPERATORS.replace("0 3", "0 5"))
        scheduler.refresh()
        paused = scheduler.definitions["theirs"].schedule
        assert (paused.cron, paused.enabled) == ("0 5 * * *", False)
        assert eve.post(f"{API}/schedules/theirs/resume").json()["is_saved"] is False
        assert scheduler.definitions["theirs"].schedule.cron == "0 5 * * *"
        assert eve.post(f"{API}/schedules/theirs/versions/1/bring-back").json()["schedule"]["enabled"] is False
        file.unlink()
        scheduler.refresh()
        assert ("theirs" in scheduler.definitions, scheduler.trouble) == (False, None)
    finally:
        file.write_text(OPERATORS)
        scheduler.refresh()


def test_an_operators_schedule_with_its_own_code_can_be_changed_and_fires(api: Api, asking: Asking) -> None:
    service = api.service
    change(asking("eve", "admin"), 200, **OWN, overrides=[*OWN_OVERRIDES, "search.num_trials=3"])
    definition = service.scheduler.definitions["own_code"]
    assert (definition.is_saved, definition.schedule.cron) == (True, "0 7 * * *")
    with writing(service.database) as connection:
        job = fire_now(connection, definition, service.clock.now())
    service.runner.check(job)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["task._target_=os.system"], "task._target_=os.system: is not among the import paths"),
        (["cluster.env=[OUR_KEY, HOME]"], "HOME is not among the environment variables"),
        (["tracking.experiment=../b"], "'..' leads out of the service's folders"),
    ],
    ids=str,
)
def test_what_the_operators_schedule_does_not_have_stays_refused(
    asking: Asking, overrides: list[str], words: str
) -> None:
    refused = change(asking("eve", "admin"), 422, **OWN, overrides=[*OWN_OVERRIDES, *overrides])
    assert words in refused["detail"]
    assert "OUR_KEY is not" not in refused["detail"]


def test_a_paused_schedule_keeps_its_description(api: Api, asking: Asking, folder: Path) -> None:
    eve = asking("eve", "admin")
    assert eve.get(f"{API}/schedules/own_code").json()["description"] == "Our own training, every night."
    assert eve.post(f"{API}/schedules/own_code/pause").status_code == 200
    assert (folder / "outputs/schedules/own_code.yaml").read_text().startswith("# Our own training, every night.\n")


def test_pages_of_a_schedule_whose_file_cannot_be_read_say_so(api: Api, asking: Asking) -> None:
    bob, saved = asking("bob"), api.service.saved_schedules
    save(bob)
    file = saved.folder / "mine.yaml"
    file.rename(saved.folder / "kept")
    file.mkdir()
    api.service.scheduler.poll()
    try:
        for answer in (bob.get(f"{API}/schedules/mine"), bob.post(f"{API}/schedules/mine/pause")):
            assert answer.status_code == 422
            assert "schedules/mine.yaml: cannot be read (Is a directory); let" in answer.json()["detail"]
    finally:
        file.rmdir()


def test_a_file_that_is_edited_by_hand_counts_and_is_kept_as_a_version(api: Api, asking: Asking) -> None:
    bob, saved = asking("bob"), api.service.saved_schedules
    save(bob)
    file = saved.folder / "mine.yaml"
    file.write_text(file.read_text().replace("30 4", "45 4") + "# my own remark\n")
    api.service.scheduler.poll()
    assert api.service.scheduler.definitions["mine"].schedule.cron == "45 4 * * *"
    bob.post(f"{API}/schedules/mine/pause")
    assert "# my own remark" in file.read_text()
    assert [each.action for each in saved.versions("mine")] == ["paused", "edited in its file", "saved"]
    file.write_text("name: mine\ncron: nonsense\nconf: digits\n")
    api.service.scheduler.poll()
    assert api.service.scheduler.definitions["mine"].schedule.enabled is False
    assert "schedules/mine.yaml: cron='nonsense'" in str(api.service.scheduler.trouble)
    assert bob.post(f"{API}/schedules/mine/versions/1/bring-back").status_code == 200
    assert api.service.scheduler.trouble is None


def test_a_saved_schedules_sweep_is_checked_again_before_it_starts(api: Api, asking: Asking) -> None:
    """Its file may have been changed, or the operator's policy."""
    save(asking("bob"))
    service = api.service
    definition = service.scheduler.definitions["mine"]
    evil = replace(definition, schedule=replace(definition.schedule, overrides=["tracking.uri=sqlite:////tmp/x.db"]))
    own = service.scheduler.definitions["theirs"]
    with writing(service.database) as connection:
        good, bad, operators = (fire_now(connection, each, service.clock.now()) for each in (definition, evil, own))
    check = service.runner.check
    check(good)
    check(operators)
    with pytest.raises(UserError, match="recorded in its own store"):
        check(bad)


def test_a_fired_sweep_is_its_users(api: Api, asking: Asking) -> None:
    save(asking("bob"))
    assert asking("bob").post(f"{API}/schedules/mine/run").status_code == 202
    with api.service.database.connect() as connection:
        newest = select(tables.jobs).where(tables.jobs.c.schedule == "mine").order_by(tables.jobs.c.id.desc())
        row = connection.execute(newest).mappings().first()
    assert row is not None
    assert (row["user"], row["project"]) == ("bob", "bob")
    assert any(each.startswith("output_dir=") for each in row["request"]["overrides"])


@pytest.mark.parametrize("name", ["mine", "theirs"])
def test_the_service_and_the_command_line_fire_saved_and_own_schedules_into_the_folder_of_the_service(
    api: Api, asking: Asking, folder: Path, name: str
) -> None:
    save(asking("bob"))
    schedules = LocalSchedules([f"output_dir={folder}/outputs"], [folder / "conf"], print)
    overrides = api.service.scheduler.definitions[name].overrides(0.0)
    assert schedules.find(name).overrides(0.0) == overrides
    assert overrides[-1] == f"output_dir='{folder}/outputs'"


@pytest.mark.parametrize(
    ("rest", "has_more"),
    [
        ("name: a\ncron: 0 3 * * *\n", False),
        ("name: a\n# Only on weekdays.\ncron: 0 3 * * *\n", True),
        ("name: a # mine\n", True),
        ("overrides: ['name=\"#1\"', a#b]\n", False),
        ("name: [\n", False),
    ],
)
def test_comments_that_the_form_would_drop_are_found(rest: str, has_more: bool) -> None:
    assert has_more_comments(f"# First\n{rest}") == has_more


def test_the_form_says_before_saving_that_it_drops_comments(api: Api, asking: Asking) -> None:
    ada = asking("ada")
    save(ada)
    assert "drops its other comments" not in ada.get("/schedules/mine/edit").text
    file = api.service.saved_schedules.folder / "mine.yaml"
    file.write_text(f"{file.read_text()}# Ask Grace before changing it.\n")
    api.service.scheduler.refresh()
    assert "drops its other comments" in ada.get("/schedules/mine/edit").text


def test_a_kill_at_any_moment_loses_no_version(tmp_path: Path) -> None:
    """A process that saves without end is killed again and again; the file is always one that was saved."""
    code = (
        "import os, sys; from pathlib import Path; from sweeps.service.schedules.saved import SavedSchedules\n"
        "for line in sys.stdin:\n"
        "    if (child := os.fork()) == 0:\n"
        "        saved, number = SavedSchedules(Path(sys.argv[1])), int(line)\n"
        "        while True:\n"
        "            number += 1\n"
        "            saved.write('a', f'# {number}\\nname: a\\n', tag=None, user='u', now=1.0, action='saved')\n"
        "            os.write(1, f'{os.getpid()} {number}\\n'.encode())  # at once, or not at all\n"
        "    os.waitpid(child, 0)\n"
        "    print('killed', flush=True)\n"
    )
    saved, told = SavedSchedules(tmp_path), 0
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for delay in (0.0, 0.005, 0.013, 0.031):
            process.stdin.write(f"{told}\n")
            process.stdin.flush()
            child, told = map(int, process.stdout.readline().split())
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            for line in iter(process.stdout.readline, "killed\n"):
                told = int(line.split()[1])
            text = saved.text("a")
            assert text is not None
            assert int(text.split()[1]) >= told
            texts = [each.text for each in saved.versions("a")]
            assert text in texts[:2]  # the newest may not have been reached
            assert all(each.action == "saved" for each in saved.versions("a"))
            told = int(text.split()[1])
        process.stdin.close()


def test_a_schedule_is_saved_where_folders_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = os.fsync

    def fsync(file: int) -> None:  # of a folder on CIFS
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    saved = SavedSchedules(tmp_path / "schedules")
    for text in (FIRST, SECOND):
        write(saved, "a", text)
    assert (saved.text("a"), [each.text for each in saved.versions("a")]) == (SECOND, [SECOND, FIRST])


def test_a_change_of_something_else_is_refused_under_the_lock(tmp_path: Path) -> None:
    saved = SavedSchedules(tmp_path / "schedules")
    write(saved, "a", FIRST, tag="")
    tag = saved.tag("a")
    write(saved, "a", SECOND, tag=tag, user="v")
    with pytest.raises(Conflict, match="changed by v"):
        write(saved, "a", None, tag=tag)
    assert saved.text("a") == SECOND
    assert [json.loads(path.read_text())["user"] for path in sorted(tmp_path.rglob("*.json"))] == ["u", "v"]
    assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("schedules/**/*")} == {0}
