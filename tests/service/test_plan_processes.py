"""Plans are made in processes of their own: what one of them does, or does not end, holds up nobody else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException
from serving import API, Api, serving
from waiting import wait_until
from work_elsewhere import broken, endless, frozen, quick, seen_here, wrong

from sweeps.errors import ConfigError, TimeLimitExceeded
from sweeps.service.queue.plan_processes import PlanFailed, Planner


def everything(_name: str) -> bool:
    return True


@pytest.fixture
def planner() -> Iterator[Planner]:
    planner = Planner(2, 60.0)
    yield planner
    planner.stop()


def test_a_plan_is_made_elsewhere_as_it_would_be_here_without_collecting_what_was_imported(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planner.make("ada", frozen, everything) > 100_000
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", "here")
    sees, folder, process, planted = planner.make("ada", seen_here, lambda name: name == "mine", "mine", "theirs")
    assert (sees, folder, planted) == ([True, False], str(tmp_path), "here")
    assert process != os.getpid()


def test_a_mistake_is_told_in_its_own_words_and_ours_as_ours(planner: Planner) -> None:
    with pytest.raises(ConfigError, match=r"train\.lr=x"):
        planner.make("ada", wrong, everything, "train.lr=x: is no number")
    with pytest.raises(PlanFailed, match="ZeroDivisionError: of ours"):
        planner.make("ada", broken, everything)


def test_what_takes_too_long_is_ended(planner: Planner, tmp_path: Path) -> None:
    assert planner.make("ada", quick, everything, 7) == 7  # from here on a process starts at once
    for seconds in (0.5, 2.0, 8.0, 32.0):  # until it has started: on a busy machine it comes after all others
        hurried = Planner(1, seconds)
        with pytest.raises(TimeLimitExceeded, match=r"access\.plan_within_s"):
            hurried.make("ada", endless, everything, str(tmp_path))
        hurried.stop()
        if started := list(tmp_path.glob("process-*")):
            break
    assert [each for each in started if Path("/proc", each.name.removeprefix("process-")).exists()] == []
    assert len(started) == 1


def test_one_user_leaves_a_place_to_others_and_a_service_that_ends_waits_for_none(
    planner: Planner, tmp_path: Path
) -> None:
    ended: list[str] = []

    def ask() -> None:
        try:
            planner.make("eve", endless, everything, str(tmp_path))
        except (PlanFailed, HTTPException, TimeLimitExceeded) as error:
            ended.append(type(error).__name__)

    threads = [threading.Thread(target=ask) for _ in range(9)]
    for thread in threads:
        thread.start()
    wait_until(lambda: any(tmp_path.glob("process-*")), 50)
    assert planner.make("ada", quick, everything, 7) == 7
    assert len(list(tmp_path.glob("process-*"))) == 1
    assert ended == ["HTTPException"] * 2  # one runs, six wait, and no more may
    since = time.monotonic()
    planner.stop()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - since < 20
    assert len(ended) == 9


def test_a_plan_that_begins_as_the_service_ends_is_ended(
    planner: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = planner._context.Pipe

    def pipe() -> Any:
        planner.stop()
        return make()

    monkeypatch.setattr(planner._context, "Pipe", pipe)
    since = time.monotonic()
    with pytest.raises(PlanFailed):
        planner.make("ada", endless, everything, str(tmp_path))
    assert time.monotonic() - since < 30


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("plans"), "access.plan_within_s=0.001", plans_elsewhere=True) as api:
        yield api


def test_a_plan_that_takes_too_long_is_answered_so(api: Api) -> None:
    for path in ("plans", "sweeps"):
        answer = api.client().post(f"{API}/{path}", json={"conf": "digits"})
        assert answer.status_code == 504
        assert "access.plan_within_s" in answer.json()["detail"]
    page = api.client().post("/submit", data={"conf": "digits", "then": "check"})
    assert (page.status_code, "access.plan_within_s" in page.text) == (422, True)


def test_a_page_says_that_too_many_plans_wait_and_when_to_come_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.service.queue.plan_processes.MAX_WAITING", 0)
    page = api.client().post("/submit", data={"conf": "digits", "then": "check"})
    assert (page.status_code, page.headers["Retry-After"]) == (429, "5")
    assert "not for you" not in page.text
    assert "too many plans are being made" in page.text
