"""The audit log: every change has an entry, which only admins read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import API, Api, serving

from sweeps.service import audit as audit_module
from sweeps.service.audit import Audit
from sweeps.service.auth.permissions import Principal
from sweeps.service.clock import Clock

SCHEDULE = {"name": "mine", "cron": "30 4 * * *", "conf": "digits", "enabled": False}
ADA = Principal("ada", "run", (), 7, "10.0.0.7")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("audit")) as api:
        api.token("root", "admin")
        yield api


@pytest.fixture(scope="module")
def eve(api: Api) -> TestClient:
    return api.client(api.token("eve", "admin"))


def test_every_change_is_noted_with_who_and_from_where(api: Api, eve: TestClient) -> None:
    bob = api.client(api.token("bob", "run"))

    def ask(method: str, path: str, body: Any = None, client: TestClient = bob) -> Any:
        answer = client.request(method, f"{API}{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    job = ask("POST", "/sweeps", {"conf": "digits", "name": "mine-2"})
    ask("PATCH", f"/jobs/{job['id']}", {"priority": -1})
    ask("POST", f"/jobs/{job['id']}/cancel")
    ask("POST", "/sweeps/mine/stop")
    ask("POST", "/schedules", {"schedule": SCHEDULE})
    fired = ask("POST", "/schedules/mine/run")
    ask("DELETE", "/schedules/mine")
    made = ask("POST", "/tokens", {"user": "cyd", "role": "read"}, eve)
    cyd = api.client(made["token"])
    ask("GET", "/sweeps", None, cyd)
    assert made["token"] not in eve.get(f"{API}/tokens").text
    ask("DELETE", f"/tokens/{made['id']}", None, eve)
    assert cyd.get(f"{API}/sweeps").status_code == 401
    assert bob.post(f"{API}/tokens", json={"user": "bob", "role": "admin"}).status_code == 403

    page = eve.get(f"{API}/audit").json()
    bobs = [each for each in page["entries"] if each["user"] == "bob"]
    assert [(each["action"], each["about"].get("job")) for each in reversed(bobs)] == [
        ("submitted", job["id"]),
        ("priority changed", job["id"]),
        ("cancelled", job["id"]),
        ("stopped", None),
        ("schedule saved", None),
        ("schedule fired", fired["id"]),
        ("schedule removed", None),
    ]
    assert {(each["role"], each["address"], each["token"]) for each in bobs} == {("run", "testclient", 3)}
    assert [(each["action"], each["about"]["token"], each["about"]["of"]) for each in page["entries"][:2]] == [
        ("token revoked", made["id"], "cyd"),
        ("token made", made["id"], "cyd"),
    ]
    assert made["token"] not in api.service.audit.file.read_text()
    assert api.service.audit.file.stat().st_mode & 0o077 == 0
    assert [each["about"]["sweep"] for each in eve.get(f"{API}/audit?q=CANCELLED").json()["entries"]] == ["mine-2"]


def test_the_page_is_for_admins_and_says_the_same(api: Api, eve: TestClient) -> None:
    api.service.audit.note(ADA, "stopped", sweep="<b>theirs</b>")
    api.service.audit.note(ADA, "stopped", sweep="Größe-1")
    text = eve.get("/audit").text
    assert ("&lt;b&gt;theirs&lt;/b&gt;" in text, "token 7 from 10.0.0.7" in text) == (True, True)
    assert "Nothing was found" in eve.get("/audit?q=nobody-at-all").text
    assert "Größe-1" in eve.get("/audit?q=gRÖße ada").text
    assert 'href="/audit"' in eve.get("/queue").text
    bob = api.client(api.token("bob", "run"))
    assert [bob.get(path).status_code for path in ("/audit", f"{API}/audit")] == [403, 403]
    assert 'href="/audit"' not in bob.get("/queue").text


def test_pages_of_a_long_log_have_each_entry_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_READ", 1000)
    audit = Audit(tmp_path, Clock())
    assert audit.read(10) == ([], None)
    for number in range(25):
        audit.note(ADA, "submitted", job=number, sweep="a\nb" * (number % 3 * 40))
        if number == 3:
            with audit.file.open("a") as file:
                file.write('{"time": 1.0, "us')  # the disk was full
    found, before = list[int](), None
    while True:
        entries, before = audit.read(10, before)
        found += [int(each.about["job"] or 0) for each in entries]
        if before is None:
            break
    assert found == [*reversed(range(25))]
    lines = audit.file.read_text().splitlines()
    assert json.loads(lines[3]) == {
        "time": json.loads(lines[3])["time"],
        "user": "ada",
        "role": "run",
        "token": 7,
        "address": "10.0.0.7",
        "action": "submitted",
        "about": {"job": 3, "sweep": ""},
    }


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "audit.jsonl").symlink_to(target)
    Audit(tmp_path, Clock()).note(ADA, "submitted", job=1)
    assert target.read_text() == ""
    assert "not recorded" in caplog.text
