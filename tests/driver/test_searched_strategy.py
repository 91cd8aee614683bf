"""A whole sweep that searches how a trial is spread over its workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import points, run

from sweeps.tracking.reader import load_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STRATEGIES = ("ddp", "fsdp", "tensor_parallel", "pipeline")


def test_a_sweep_searches_the_strategy_in_warm_workers_and_every_one_learns_the_same(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "conf=llm_lora",
        "strategy=choice(ddp,fsdp,tensor_parallel,pipeline)",
        points(*({"strategy": strategy} for strategy in STRATEGIES)),
        "search=optuna",
        "search.num_trials=4",
        "search.max_concurrent=1",
        "space=none",
        "train.max_steps=4",
        "train.eval_every=4",
        "train.micro_batch_size=4",
        "data.max_eval_documents=8",
        "--name=spread",
    )
    trials = {trial["params"]["strategy"]: trial for trial in done.document["trials"]}
    assert set(trials) == set(STRATEGIES)
    assert {trial["state"] for trial in trials.values()} == {"finished"}
    values = [trials[strategy]["value"] for strategy in STRATEGIES]
    assert values == pytest.approx([values[0]] * 4, rel=1e-4)
    starting = [span.trained - span.held for trial in load_sweep(done.store, "spread").trials for span in trial.spans]
    assert len(starting) == 4
    assert max(starting[1:]) < min(5.0, starting[0])  # their workers had been started, and were there
