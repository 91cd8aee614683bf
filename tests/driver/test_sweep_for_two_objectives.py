"""``search=sweeps`` for two objectives: real trials go on at rungs, and a replay makes the same decisions."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import outputs
from running import NO_PREFLIGHT, run, start


@pytest.mark.slow
@pytest.mark.timeout(300)  # a sweep, and a replay of it
def test_a_sweep_for_two_objectives_finishes_trials_of_a_front_and_is_replayed_alike(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("conf=digits", "search=sweeps", "search.metric=[eval/loss,train/loss]", "search.mode=[min,min]"),
        *("search.num_trials=12", "scaling=single_worker", "cluster.num_cpus=2", NO_PREFLIGHT, "--name=two"),
        *("train.max_steps=80", "train.eval_every=10"),
    )
    states = [each["state"] for each in done.document["trials"]]
    assert set(states) == {"finished", "pruned"}, done.err
    said, _ = outputs(start(tmp_path, "replay", "two"), 100)
    assert "11 suggestions" in said  # and the first one, of the config's own values
    assert "repeated: all are the same" in said
