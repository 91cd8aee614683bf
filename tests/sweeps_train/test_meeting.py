"""Workers wait for each other's data and model for longer than any collective operation may take."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch.distributed as dist
from test_checkpoint_evaluation import Late
from training_runs import IMAGES, configured, on_two_workers

from sweeps_train.loop import train
from sweeps_train.workers.distributed import Workers

GROUP_TIMEOUT, LATE_S = timedelta(seconds=0.5), 1.5


def meet_late() -> dict[str, str]:
    workers = Workers.current()
    impatient = dist.new_group(timeout=GROUP_TIMEOUT)
    said: dict[str, str] = {}
    if workers.rank == 1:
        time.sleep(LATE_S)
    began = time.monotonic()
    workers.meet()
    said["waited"] = f"{time.monotonic() - began:.1f}"
    workers.meet()  # a second time, at once
    if workers.rank == 1:
        time.sleep(LATE_S)
    try:
        dist.barrier(group=impatient)
        said["barrier"] = "passed"
    except RuntimeError as error:
        said["barrier"] = str(error)
    did: list[str] = []

    def meet(self: Workers) -> None:
        did.append("meets")

    with mock.patch.object(Workers, "meet", meet):
        train(
            configured(IMAGES, train={"max_steps": 1}),
            reporter=None,
            checkpoint_folder=None,
            on_prepared=lambda: did.append(f"{workers.rank} is prepared"),
        )
        said["did"] = ", ".join(did)
        did.clear()
        evaluator = Late(times=1)
        evaluator.begin = lambda _: did.append("begins")  # type: ignore[method-assign]
        evaluator.next_result = lambda _: {"eval/loss": 1.0}  # type: ignore[method-assign]
        train(
            configured(IMAGES, train={"max_steps": 2, "eval_every": 1, "log_every": 1}),
            reporter=None,
            checkpoint_folder="evaluated",
            evaluator=evaluator,
        )
    said["evaluated"] = ", ".join(did)
    if workers.rank == 0:
        try:
            workers.meet(timedelta(seconds=0.2))
        except TimeoutError as error:
            said["missing"] = str(error)
    return said


def test_workers_wait_for_a_late_one_where_a_barrier_fails(tmp_path: Path) -> None:
    first, second = on_two_workers(meet_late, tmp_path)
    assert float(first["waited"]) > LATE_S - 0.5
    assert float(second["waited"]) < 0.5
    assert "passed" not in first["barrier"]
    assert (first["did"], second["did"]) == ("0 is prepared, meets", "1 is prepared, meets")
    resumes, reports = "meets, meets", ["begins, meets"] * 2  # the first worker may wait for evaluations that run
    assert first["evaluated"] == ", ".join([resumes, *reports])
    assert second["evaluated"] == ", ".join([resumes, "meets", "meets"])
    assert first["missing"] == "worker 1 did not prepare data and model within 0:00:00.200000"
