"""Every route of the service, as the application lists them: none opens without a token, none does more than its user
may, and none tells of another's sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
from serving import API, Api, serving

from sweeps.service.auth.auth import Authenticator, admin, authenticated, expensive, reader, runner
from sweeps.service.auth.csrf import SAFE_METHODS
from sweeps.service.auth.permissions import LOCAL, Principal, Role

PUBLIC = {f"{API}/health", f"{API}/ready", "/sign-in"}
"""Paths that may be requested without a token."""
USERS: list[tuple[str, Role]] = [("ada", "run"), ("bob", "run"), ("eve", "admin")]
THEIRS, NOBODYS = "theirs", "nobody"
BODIES: dict[str, Any] = {
    f"{API}/sweeps": {"conf": "digits"},
    f"{API}/plans": {"conf": "digits"},
    f"{API}/jobs/{{number}}": {"priority": 1},
    f"{API}/sweeps/{{name}}/extend": {"changes": ["search.num_trials=40"]},
    f"{API}/sweeps/{{name}}/register": {"model": "m"},
    f"{API}/tokens": {"user": "eve", "role": "admin"},
}
"""Valid request bodies of the routes that need one; ``{}`` for the others."""
QUERIES = {f"{API}/compare": "?sweep={name}&sweep=mine"}

Route = tuple[str, str]
"""Method and path."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Ada's and Bob's sweeps; the tests ask as Bob."""
    with serving(tmp_path_factory.mktemp("access"), "access.refusals_per_minute=100000") as api:
        api.token("eve", "admin")  # from here on it demands tokens
        yield api


@pytest.fixture(scope="module")
def bob(api: Api) -> TestClient:
    return asking(api, api.token("bob", "run"))


@pytest.mark.parametrize("path", [f"{API}/health", f"{API}/ready"])
def test_a_monitor_may_ask_for_the_status_alone(api: Api, path: str) -> None:
    """As many do by default; 405 would be an alarm."""
    assert asking(api).head(path).status_code == 200


def asking(api: Api, token: str | None = None) -> TestClient:
    return api.client(token, raise_server_exceptions=False, follow_redirects=False)


def routes(api: Api) -> dict[Route, Any]:
    """Routes with what FastAPI knows of each; mounted files have no methods."""
    found = {
        (method, context.path): context.dependant
        for context in iter_route_contexts(api.app.routes)
        if isinstance(context.original_route, APIRoute)
        for method in sorted((context.methods or set()) - {"HEAD"})
        if context.path is not None and context.path not in PUBLIC
    }
    assert len(found) > 30
    return found


def ask(client: TestClient, route: Route, name: str = NOBODYS, number: int = 999) -> Any:
    method, path = route
    filled = path.replace("{name}", name).replace("{number}", str(number))
    filled = filled.replace("{trial}", "1").replace("{worker}", "0")
    address = re.sub(r"\{[^}]*\}", "x", filled) + QUERIES.get(path, "").format(name=name)
    if method in SAFE_METHODS:
        return client.request(method, address)
    if path.startswith(API):
        return client.request(method, address, json=BODIES.get(path, {}))
    return client.request(method, address, data={"name": name, "changes": "search.num_trials=40", "priority": "1"})


def is_refused(answer: Any) -> bool:
    """Pages lead to where one signs in."""
    to_sign_in = answer.status_code == 303 and answer.headers["location"].startswith("/sign-in")
    return answer.status_code == 401 or to_sign_in


def test_every_route_says_whom_it_is_for(api: Api) -> None:
    def guards(dependant: Any) -> set[Any]:
        return {dependant.call}.union(*(guards(each) for each in dependant.dependencies))

    unguarded = [
        route
        for route, dependant in routes(api).items()
        if not guards(dependant) & {authenticated, reader, runner, admin}
    ]
    assert unguarded == []


def test_no_route_opens_without_a_good_token(api: Api) -> None:
    clients = {"none": asking(api), "wrong": asking(api, "sweeps_" + "A" * 43)}
    opened = [
        (who, *route) for route in routes(api) for who, client in clients.items() if not is_refused(ask(client, route))
    ]
    assert opened == []
    assert asking(api, "'; drop table tokens; --").get(f"{API}/sweeps").status_code == 401


def test_a_reader_changes_nothing(api: Api) -> None:
    client = asking(api, api.token("bob", "read"))
    done = {
        route: answer.status_code
        for route in routes(api)
        if route[0] not in SAFE_METHODS
        and route[1] != "/sign-out"  # ends a session of their own
        and (answer := ask(client, route, "mine", 2)).status_code != 403
    }
    assert done == {}
    refused = client.post(f"{API}/sweeps", json={"conf": "digits"}).json()["detail"]
    assert refused == "this requires a token with the role run; yours has read"


def test_what_only_an_admin_may_do_a_runner_may_not(api: Api, bob: TestClient) -> None:
    refused = {route for route in routes(api) if ask(bob, route).status_code == 403}
    assert {("POST", f"{API}/clean"), ("GET", f"{API}/tokens"), ("POST", f"{API}/tokens")} <= refused


def test_anothers_sweep_is_answered_like_one_that_was_never_made(api: Api, bob: TestClient) -> None:
    told, looked_at = [], 0
    for route in routes(api):
        if "{name}" not in route[1] and "{number}" not in route[1] and route[1] not in QUERIES:
            continue
        if "/schedules/" in route[1] or "/tokens/" in route[1]:
            continue  # of neither is there one that belongs to somebody else
        looked_at += 1
        theirs, nobodys = ask(bob, route, THEIRS, 1), ask(bob, route, NOBODYS, 998)
        by_hand = ask(bob, route, "made-by-hand", 999)
        texts = {
            each.text.replace(word, "NAME").replace(number, "NAME")
            for each, word, number in ((theirs, THEIRS, "job 1"), (nobodys, NOBODYS, "job 998"))
        }
        if {theirs.status_code, nobodys.status_code, by_hand.status_code} != {404} or len(texts) != 1:
            told.append((route, theirs.status_code, nobodys.status_code, by_hand.status_code, texts))
    assert told == []
    assert looked_at > 20


def test_lists_have_the_callers_own_and_those_of_their_projects_alone(bob: TestClient, api: Api) -> None:
    assert [each["sweep"] for each in bob.get(f"{API}/sweeps").json()["sweeps"]] == ["mine"]
    assert [each["sweep"] for each in bob.get(f"{API}/jobs?user=ada").json()["jobs"]] == []
    assert THEIRS not in bob.get("/").text
    for user, role, projects, seen in (
        ("ada", "run", (), {THEIRS}),
        ("cyd", "read", ("bob",), {"mine"}),
        ("eve", "admin", (), {"mine", THEIRS, "made-by-hand"}),
    ):
        listed = asking(api, api.token(user, role, *projects)).get(f"{API}/sweeps").json()
        assert {each["sweep"] for each in listed["sweeps"]} == seen, user


def test_nobody_learns_from_anothers_sweep(bob: TestClient) -> None:
    answers = {}
    for name in (THEIRS, NOBODYS):
        body = {"conf": "digits", "overrides": [f"search.warm_start=[{name}]"]}
        answer = bob.post(f"{API}/plans", json=body)
        answers[name] = (answer.status_code, answer.text.replace(name, "NAME"))
    assert answers[THEIRS] == answers[NOBODYS]
    assert answers[THEIRS][0] == 422


def test_time_and_cost_are_not_estimated_from_a_sweep_that_the_user_may_see_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = api.service.records
    of_earlier = records.sweeps(LOCAL)  # a list from before the sweep was removed, and its name taken by somebody else
    monkeypatch.setattr(records, "sweeps", lambda _: of_earlier)
    assert {each.sweep for each in records.past_sweeps(Principal("bob", "run"), "digits")} == {"mine"}


def test_nobody_submits_for_anothers_project_or_under_a_name_that_is_taken(bob: TestClient) -> None:
    taken = bob.post(f"{API}/sweeps", json={"conf": "digits", "name": "made-by-hand"})
    assert taken.status_code == 422
    assert "made-by-hand" in taken.json()["detail"]
    assert bob.get(f"{API}/sweeps/made-by-hand").status_code == 404
    assert bob.post(f"{API}/sweeps", json={"conf": "digits", "project": "ada"}).status_code in (404, 422)


def test_hostile_configs_are_refused_by_the_api(bob: TestClient) -> None:
    """One of each kind; ``test_config_policy.py`` has them all."""
    for overrides in (
        ["search/sampler=custom", "search.sampler._target_=os.system"],
        ["name=${oc.env:HOME}"],
        ["search.warm_start=[theirs]"],
    ):
        for path, more in (
            ("/plans", {"conf": "digits"}),
            ("/sweeps", {"conf": "digits"}),
            ("/sweeps/mine/retrain", {"no_register": True}),
        ):
            answer = bob.post(API + path, json={"overrides": overrides, **more})
            assert (answer.status_code, "Traceback" in answer.text) == (422, False), (path, overrides)


def test_changes_are_judged_before_they_are_parsed(bob: TestClient) -> None:
    for change in ("search.num_trials=" + "9" * 5000, "space.x.choices=['${oc.env:HOME}']"):
        answer = bob.post(f"{API}/sweeps/mine/extend", json={"changes": [change]})
        assert (answer.status_code, "/root" in answer.text) == (422, False)


def test_expensive_routes_are_limited(api: Api, bob: TestClient) -> None:
    authenticator: Authenticator = api.app.state.authenticator
    limited = {
        path
        for (_, path), dependant in routes(api).items()
        if any(each.call is expensive for each in dependant.dependencies)
    }
    assert {f"{API}/compare", f"{API}/sweeps/{{name}}/report", f"{API}/sweeps/{{name}}/register"} <= limited
    with authenticator.rate_limits.expensive(), authenticator.rate_limits.expensive():
        assert bob.get(f"{API}/compare?sweep=mine&sweep=mine").status_code == 429


def test_the_apis_document_is_for_those_who_may_read_and_describes_every_route(api: Api, bob: TestClient) -> None:
    assert asking(api).get(f"{API}/openapi.json").status_code == 401
    document = bob.get(f"{API}/openapi.json").json()
    assert {"/api/v1/sweeps", "/api/v1/jobs/{number}", "/api/v1/clean", "/api/v1/tokens"} <= set(document["paths"])
    for path, verbs in document["paths"].items():
        assert all(verb["summary"] and verb["description"] for verb in verbs.values()), path


def test_a_name_that_is_used_again_shows_nothing_of_the_job_that_had_it(api: Api) -> None:
    """Ada's sweep was cancelled before it began, and Bob's has its name now."""
    ada, bob, eve = (asking(api, api.token(user, role)) for user, role in USERS)
    body = {"conf": "digits", "name": "reused"}
    hers = ada.post(f"{API}/sweeps", json={**body, "overrides": ["search.num_trials=7"]}).json()
    assert ada.post(f"{API}/jobs/{hers['id']}/cancel").json()["state"] == "cancelled"
    his = bob.post(f"{API}/sweeps", json=body).json()
    for client in (bob, eve):
        assert [job["id"] for job in client.get(f"{API}/sweeps/reused/jobs").json()] == [his["id"]]
    assert ada.get(f"{API}/sweeps/reused/jobs").status_code == 404
    assert ada.get(f"{API}/jobs/{hers['id']}").json()["state"] == "cancelled"
    assert "search.num_trials=7" not in bob.get("/sweeps/reused").text
    api.service.operations(Principal("bob", "run")).stop("reused")


def test_a_runner_puts_nothing_before_what_others_have_submitted(api: Api) -> None:
    (_, bob, eve) = (asking(api, api.token(user, role)) for user, role in USERS)
    high = {"conf": "digits", "priority": 1}
    for answer in (
        bob.post(f"{API}/sweeps", json=high),
        bob.post("/submit", data={**high, "overrides": ""}),
    ):
        assert (answer.status_code, "access.runner_priority" in answer.text) == (422, True)
    job = bob.post(f"{API}/sweeps", json={"conf": "digits", "priority": -5}).json()
    for priority, status in ((1000, 422), (1, 422), (0, 200), (-9, 200)):
        assert bob.patch(f"{API}/jobs/{job['id']}", json={"priority": priority}).status_code == status
    assert eve.patch(f"{API}/jobs/{job['id']}", json={"priority": 1000}).json()["priority"] == 1000
    bob.post(f"{API}/jobs/{job['id']}/cancel")
