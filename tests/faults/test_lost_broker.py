"""The broker's process dies: another one takes its place, and no trial loses a report or a retry."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from continuing import journal
from lost_broker import NET, SLOW_NET, run_and_kill_broker
from running import NO_PREFLIGHT, SHORT, Done, run

TWO_AT_ONCE = ("cluster.num_cpus=2", "scaling.num_workers=1")
SEARCH = ("conf=digits", *SHORT, *SLOW_NET, *TWO_AT_ONCE, "search/sampler=random", "search.num_trials=4", NO_PREFLIGHT)
ORIGIN = "sweeps:origin:"


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
    taken_over = exploits(done)
    assert not taken_over or scheduler == "pbt"
    for trial, recorded in zip(done.document["trials"], done.trials(), strict=True):
        parts = lineages(trial["steps"], taken_over.get(trial["trial"], []))
        evaluated = [(each.step, each.value) for each in history(done, recorded.info.run_id, "eval/accuracy")]
        assert [step for step, _ in evaluated] == steps(parts, 10)
        assert trial["value"] == max(value for _, value in evaluated)
        logged = [each.step for each in history(done, recorded.info.run_id, "train/loss")]
        assert logged == steps(parts, 5)
        if trial["state"] == "finished":
            assert trial["steps"] == 40


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_goes_on_though_ray_finds_that_memory_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.0001")  # more is used
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    done = run(tmp_path, *SEARCH, "search/scheduler=none")
    assert done.document["counts"]["finished"] == 4, done.err
    assert "has died" not in done.err


def history(done: Done, run_id: str, metric: str) -> list[object]:
    return sorted(done.client.get_metric_history(run_id, metric), key=lambda each: each.step)


def exploits(done: Done) -> dict[str, list[tuple[int, int]]]:
    """By trial, in their order: the step at which population based training has let it take over another trial's state,
    and the step of that state."""
    study = optuna.load_study(study_name="often", storage=journal(done.folder / "outputs" / "often" / "optuna.log"))
    found: dict[str, list[tuple[int, int]]] = {}
    for trial in study.get_trials():
        origins = {int(name[len(ORIGIN) :]): each for name, each in trial.user_attrs.items() if name.startswith(ORIGIN)}
        for _, origin in sorted(origins.items()):
            steps_of_both = origin["decision"]["step"], origin["step"]
            found.setdefault(f"{trial.user_attrs['sweeps:trial']:04}", []).append(steps_of_both)
    return found


def lineages(last: int, taken_over: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The steps after which and until which a trial has trained: from another trial's state it repeats steps, with
    other weights and values, and MLflow has both."""
    begins, ends = [0, *(origin for _, origin in taken_over)], [*(step for step, _ in taken_over), last]
    return list(zip(begins, ends, strict=True))


def steps(parts: list[tuple[int, int]], every: int) -> list[int]:
    return sorted(step for begin, end in parts for step in range(begin + every, end + 1, every))
