"""The broker's process dies: another one takes its place, and no trial loses a report or a retry."""

from __future__ import annotations

from pathlib import Path

import pytest
from lost_broker import SLOW_NET, run_and_kill_broker
from running import NO_PREFLIGHT, SHORT, Done

TWO_AT_ONCE = ("cluster.num_cpus=2", "scaling.num_workers=1")
SEARCH = ("conf=digits", *SHORT, *SLOW_NET, *TWO_AT_ONCE, "search/sampler=random", "search.num_trials=4", NO_PREFLIGHT)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheduler", ["none", "asha", "hyperband", "pbt"])
def test_trials_go_on_and_every_report_is_recorded_once_though_the_broker_dies(tmp_path: Path, scheduler: str) -> None:
    mutated = ["train.lr=tag(log, interval(1e-4, 1e-2))"] if scheduler == "pbt" else []
    arguments = (*SEARCH, f"search/scheduler={scheduler}", "search.max_retries=0", *mutated)
    done, killed = run_and_kill_broker(tmp_path, *arguments, moments=(2, 11, 12, 30))
    assert killed >= 2
    assert done.document["counts"]["failed"] == done.document["counts"]["stopped"] == 0, done.err
    assert {trial["attempts"] for trial in done.document["trials"]} == {1} or scheduler in ("hyperband", "pbt")
    assert "the process of the sweep's broker has died" in done.err
    assert "Traceback" not in done.err
    for trial, run in zip(done.document["trials"], done.trials(), strict=True):
        evaluated = [(each.step, each.value) for each in history(done, run.info.run_id, "eval/accuracy")]
        assert [step for step, _ in evaluated] == list(range(10, trial["steps"] + 1, 10))
        assert trial["value"] == max(value for _, value in evaluated)
        logged = [each.step for each in history(done, run.info.run_id, "train/loss")]
        assert logged == list(range(5, trial["steps"] + 1, 5))
        if trial["state"] == "finished":
            assert trial["steps"] == 40


def history(done: Done, run_id: str, metric: str) -> list[object]:
    return sorted(done.client.get_metric_history(run_id, metric), key=lambda each: each.step)
