"""Whether trials share their workers, where the config leaves it open."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.plan.plan import make_plan
from sweeps.report.plan_summary import plan_text


@pytest.mark.parametrize(
    ("conf", "overrides", "reason"),
    [
        ("digits", [], "task.kind=image_classification keeps trials from sharing their workers"),
        (
            "llm_lora",
            ["strategy=tensor_parallel"],
            "strategy.kind=tensor_parallel keeps trials from sharing their workers; use strategy=ddp or strategy=fsdp",
        ),
        ("llm_lora", ["search=pbt"], "search.scheduler.kind=pbt makes trials wait for each other's copies"),
        ("llm_lora", ["train.precision=choice(bf16, fp32)"], "space.train.precision: trials with different values"),
    ],
)
def test_trials_that_cannot_share_their_workers_train_alone(
    conf: str, overrides: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan([f"conf={conf}", "scaling.trials_per_group=auto", *overrides], [], "alone", "")
    assert plan.config.scaling.trials_per_group == 1
    assert any(note.startswith(f"scaling.trials_per_group=auto is 1: {reason}") for note in plan.notes), plan.notes
    if plan.config.task.kind == "causal_lm":
        assert f"sharing   none: {reason}" in plan_text(plan)


def test_trials_that_can_share_begin_alone_and_are_as_many_as_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["conf=llm_lora", "cluster.num_cpus=2", "search.num_trials=12"]
    plan = make_plan([*asked, "scaling.trials_per_group=auto"], [], "auto", "")
    assert plan.local_fit is not None
    assert (plan.local_fit.concurrent, plan.local_fit.lanes, plan.local_fit.groups) == (1, 16, 1)
    assert plan.local_fit.describe().endswith("up to 16, on each group of 2 workers of 1 CPU; 1 group at once")
    plan = make_plan([*asked, "scaling.trials_per_group=5", "strategy=fsdp"], [], "five", "")
    assert plan.local_fit is not None
    assert (plan.local_fit.concurrent, plan.local_fit.lanes, plan.local_fit.groups) == (5, 5, 1)
    assert plan.local_fit.describe() == "up to 5 trials on each group of 2 workers of 1 CPU; 5 at once"
