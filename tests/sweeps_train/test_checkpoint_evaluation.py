"""Trainings whose checkpoints are evaluated elsewhere report what their workers would have reported."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import IMAGES, TEXT, Recorder, configured, on_two_workers, run, write_prompts

from sweeps_train.checkpoints.checkpoint import complete_checkpoints
from sweeps_train.checkpoints.checkpoint_evaluation import evaluate_checkpoint
from sweeps_train.checkpoints.checkpoint_metrics import METRICS_FILE, OF_ANOTHER_TRAINING, read_metrics
from sweeps_train.checkpoints.integrity import find_damage, replace_sealed
from sweeps_train.reports import pending_reports


class Late:
    """Evaluates checkpoints in this process, each after it has been asked some times."""

    def __init__(self, times: float):
        self._times = times
        self._begun: deque[Path] = deque()
        self._asked = 0
        self.most_begun = 0

    def begin(self, checkpoint: Path) -> None:
        self._begun.append(checkpoint)
        self.most_begun = max(self.most_begun, len(self._begun))

    def next_result(self, within_s: float) -> dict[str, float] | None:
        self._asked += 1
        if self._asked < self._times:
            return None
        self._asked = 0
        with torch.random.fork_rng():  # the training in this process draws dropout masks
            return evaluate_checkpoint(self._begun.popleft())

    def cancel(self) -> None:
        self._begun.clear()


def evaluated(recorder: Recorder) -> list[tuple[int, bool, dict[str, float]]]:
    return [
        (step, done, {name: value for name, value in metrics.items() if name.startswith("eval/")})
        for step, metrics, _, done in recorder.reports
    ]


@pytest.mark.parametrize("base", [IMAGES, TEXT], ids=["images", "text"])
def test_a_checkpoint_is_evaluated_like_its_training(base: dict[str, Any], working_folder: Path) -> None:
    write_prompts(working_folder)
    recorder = run(configured(base, checkpoint={"keep": ["last"]}), working_folder / "trial")
    (checkpoint,) = complete_checkpoints(working_folder / "trial")
    found = evaluate_checkpoint(checkpoint)
    assert found == pytest.approx({name: recorder.final[name] for name in found}, rel=1e-6)
    assert set(found) == {name for name in recorder.final if name.startswith("eval/")}


@pytest.mark.parametrize("keep", [["best"], ["last"]])
def test_late_evaluations_give_the_same_reports_and_keep_the_same_checkpoint(tmp_path: Path, keep: list[str]) -> None:
    config = configured(IMAGES, train={"max_steps": 12, "eval_every": 2, "log_every": 1}, checkpoint={"keep": keep})
    plain = run(config, tmp_path / "plain")
    late, evaluator = tmp_path / "late", Late(times=3)
    recorder = run(config, late, evaluator=evaluator)
    assert [(step, done) for step, done, _ in evaluated(recorder)] == [(step, step == 12) for step in range(2, 14, 2)]
    for mine, theirs in zip(evaluated(recorder), evaluated(plain), strict=True):
        assert mine[2] == pytest.approx(theirs[2], rel=1e-6)
    assert all("train/loss" in metrics for _, metrics, _, _ in recorder.reports)
    assert 1 < evaluator.most_begun <= 4
    (kept,) = complete_checkpoints(late)
    assert [kept.name] == [path.name for path in complete_checkpoints(tmp_path / "plain")]
    assert find_damage(kept) is None
    stored = {name: value for name, value in (read_metrics(kept) or {}).items() if not name.startswith("time/")}
    assert stored == next(each for step, each, _, _ in recorder.reports if f"{step:08d}" in kept.name)


def test_a_training_that_stops_before_its_evaluations_makes_them_when_it_goes_on(tmp_path: Path) -> None:
    config = configured(IMAGES, train={"eval_every": 2, "log_every": 1})
    stopped = run(config, tmp_path, stop_when_asked=9, evaluator=Late(times=float("inf")))
    assert not stopped.reports
    recorder = run(config, tmp_path, evaluator=Late(times=1))
    assert [step for step, *_ in recorder.reports] == [2, 4, 6, 8]
    assert recorder.final["eval/loss"] == pytest.approx(run(config).final["eval/loss"], rel=1e-6)


def test_an_evaluation_that_ended_and_was_not_reported_is_reported_when_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    config = configured(IMAGES, train={"eval_every": 2, "log_every": 1})
    with monkeypatch.context() as patched:
        patched.setattr(pending_reports, "remove_superseded", die)  # just before the report
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path, evaluator=Late(times=3))
    assert read_metrics(tmp_path / "step-00000002")
    assert len(complete_checkpoints(tmp_path)) > 1
    recorder = run(config, tmp_path, evaluator=Late(times=1))
    assert [step for step, *_ in recorder.reports] == [2, 4, 6, 8]


def test_the_last_checkpoint_of_another_training_is_evaluated_since_nothing_else_is_reported(tmp_path: Path) -> None:
    config = configured(IMAGES)
    final = run(config, tmp_path).final
    (copied,) = complete_checkpoints(tmp_path)
    replace_sealed(copied, METRICS_FILE, OF_ANOTHER_TRAINING)
    recorder = run(config, tmp_path, evaluator=Late(times=1))
    assert recorder.final["eval/loss"] == pytest.approx(final["eval/loss"], rel=1e-6)


def test_a_metric_that_no_evaluation_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"search\.metric=eval/f1 is not reported; use one of"):
        run(configured(IMAGES), tmp_path, metric="eval/f1", evaluator=Late(times=1))


def late_on_two_workers() -> list[tuple[int, bool, dict[str, float]]]:
    config = configured(IMAGES, train={"eval_every": 2, "log_every": 1})
    return evaluated(run(config, Path("late"), evaluator=Late(times=2)))


@pytest.mark.slow
def test_workers_that_train_together_do_not_evaluate(tmp_path: Path) -> None:
    first, second = on_two_workers(late_on_two_workers, tmp_path)
    assert [(step, done) for step, done, _ in first] == [(2, False), (4, False), (6, False), (8, True)]
    assert second == []
