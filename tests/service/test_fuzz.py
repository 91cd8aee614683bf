"""The API, asked all that its own document allows and much that it does not (schemathesis): no answer is a 5xx, and
none has the insides of an error in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from serving import API, Api, serving
from web_server import listening

EXISTING = {"name": "mine", "number": 2, "group": "model", "conf": "digits"}
"""For paths and bodies: every second request comes further than to the first lookup."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    limits = ("access.requests_per_minute=1000000", "access.changes_per_minute=1000000", "access.expensive_at_once=8")
    with serving(tmp_path_factory.mktemp("fuzz"), *limits) as api:
        yield api


@pytest.fixture(scope="module")
def address(api: Api) -> Iterator[str]:
    """Address of a real server: the application behind uvicorn, on a real port."""
    with listening(api.app, http="h11", ws="none") as port:
        yield f"http://127.0.0.1:{port}"


HOSTILE = ('\\"', "a", "[", "(", "${", "password=", "eyJ-", "://", "a.b-", "1", "-", "'", "\\", "not ")
"""Characters of hostile texts, which take long where something looks at them again and again."""


def grown(body: dict[str, Any], number: int) -> dict[str, Any]:
    """The texts of a body, and those in its lists, as long ones."""
    text = HOSTILE[number % len(HOSTILE)] * (1 << (4 + number % 12))
    values: dict[str, Any] = {name: text for name, value in body.items() if isinstance(value, str)}
    values |= {name: [f"a={text}", text] for name in body if name in ("overrides", "changes", "sweeps")}
    return {name: value for name, value in values.items() if name not in EXISTING}


def fuzz(address: str, token: str, examples: int) -> Counter[int]:
    """Ask every operation, rightly and wrongly; returns how often each status was answered."""
    import hypothesis
    import schemathesis  # here, since every process of the tests reads this file

    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"{address}{API}/openapi.json", headers=headers)
    answers: Counter[int] = Counter()
    failures: list[str] = []

    def ask(case: Any) -> None:
        if answers.total() % 2:
            for part in (case.path_parameters, case.body):
                if isinstance(part, dict):
                    part.update({name: given for name, given in EXISTING.items() if name in part})
        if answers.total() % 3 == 2 and isinstance(case.body, dict):
            case.body.update(grown(case.body, answers.total()))
        answer = case.call(headers=headers, timeout=60)
        answers[answer.status_code] += 1
        if (answer.status_code >= 500 and answer.status_code != 504) or b"Traceback" in answer.content:
            failures.append(f"{case.as_curl_command()} -> {answer.status_code} {answer.content[:200]!r}")

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for result in schema.get_all_operations():
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            strategy = result.ok().as_strategy(generation_mode=mode)
            try:
                settings(hypothesis.given(case=strategy)(ask))()
            except hypothesis.errors.Unsatisfiable:
                continue  # there is nothing wrong to ask of it
    assert failures == []
    return answers


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_request_that_the_document_allows_breaks_the_api(api: Api, address: str) -> None:
    answers = {role: fuzz(address, api.token("bob", role), examples=20) for role in ("run", "admin")}
    for role, each in answers.items():
        print(role, each.total(), dict(sorted(each.items())))
    assert sum(each.total() for each in answers.values()) > 2000
    assert {200, 404, 422} <= answers["run"].keys()
