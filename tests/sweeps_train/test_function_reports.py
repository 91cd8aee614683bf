"""Reports of a user's function on its worker: what is demanded, refused, recorded and judged."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
import torch
from killed_anywhere import all_kills
from ray.train import Checkpoint
from training_runs import Recorder

from sweeps_train.checkpoints.checkpoint import FILES, prepare_resume
from sweeps_train.config import Checkpoint as CheckpointConfig
from sweeps_train.config import FunctionConfig, FunctionTask
from sweeps_train.config.better import as_objectives
from sweeps_train.frameworks import ray_train, step_log
from sweeps_train.frameworks.ray_train import TrialTrainFnUtils
from sweeps_train.reports.reporter import Stop


class Alone(TrialTrainFnUtils):
    """The only worker of a trial, outside Ray."""

    def get_context(self) -> Any:
        return SimpleNamespace(get_world_rank=lambda: 0, get_local_rank=lambda: 0)

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return data


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_train, "broadcast_in_report", lambda value: value)


def worker(root: Path, needed: tuple[str, ...] = (), *, trains_here: bool = False) -> tuple[Alone, Recorder]:
    recorder = Recorder()
    return Alone(CheckpointConfig(), recorder, root, as_objectives("loss", "min"), {}, needed, trains_here), recorder


def steps(recorder: Recorder) -> list[tuple[int, float]]:
    return [(step, metrics["loss"]) for step, metrics, _, _ in recorder.reports]


def checkpoint(folder: Path) -> Checkpoint:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text("x", encoding="utf-8")
    return Checkpoint(str(folder))


def test_every_metric_that_the_search_reads_is_demanded_at_the_first_report(tmp_path: Path) -> None:
    utils, recorder = worker(tmp_path, ("accuracy", "memory"))
    with pytest.raises(ValueError, match=r"memory, which the search reads, is not reported; use one of \['accuracy'"):
        utils.report({"loss": 1.0, "accuracy": 0.5})
    assert recorder.reports == []
    utils.report({"loss": 1.0, "accuracy": 0.5, "memory": 3})
    utils.report({"loss": 0.5})
    with pytest.raises(ValueError, match=r"search\.metric=loss is not reported; use one of \['accuracy'\]"):
        utils.report({"accuracy": 0.5})
    assert steps(recorder) == [(1, 1.0), (2, 0.5)]


@pytest.mark.parametrize(
    ("needed", "expected"), [((), [True, False]), (("system/memory_mib", "system/gpu_memory_mib"), [True, True])]
)
def test_a_function_need_not_measure_its_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: tuple[str, ...], expected: list[bool]
) -> None:
    """It is measured from time to time, and at each report if the search has a limit on it."""
    monkeypatch.setattr(ray_train, "SYSTEM_EVERY_S", 1e6)
    utils, recorder = worker(tmp_path, needed, trains_here=True)
    for _ in expected:
        utils.report({"loss": 1.0})  # nor is memory of a GPU demanded where there is none
    memory = [metrics.get("system/memory_mib", 0.0) for _, metrics, _, _ in recorder.reports]
    assert [each > 10 for each in memory] == expected


def test_a_metric_that_the_search_reads_must_be_a_number(tmp_path: Path) -> None:
    utils, _ = worker(tmp_path, ("accuracy",))
    with pytest.raises(TypeError, match=r"search\.metric=loss was reported as a str; report a number, such as"):
        utils.report({"loss": "0.5", "accuracy": 1})
    with pytest.raises(TypeError, match=r"accuracy, which the search reads, was reported as a Tensor of 2 elements"):
        utils.report({"loss": 1, "accuracy": torch.ones(2)})


class OnAnotherNode(Alone):
    """The second worker of a trial, on a node that shares no folder with the first one's."""

    def get_context(self) -> Any:
        return SimpleNamespace(get_world_rank=lambda: 1, get_local_rank=lambda: 0)

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return None


def test_a_node_whose_files_of_checkpoints_do_not_reach_the_store_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decided = iter([(1, Stop.NO), Stop.NO, (2, Stop.NO), Stop.NO])
    monkeypatch.setattr(ray_train, "broadcast_in_report", lambda value: next(decided))
    utils = OnAnotherNode(CheckpointConfig(), None, tmp_path / "trial", as_objectives("loss", "min"))
    for step in (1, 2):
        utils.report({"loss": 1.0}, checkpoint(tmp_path / f"{step}"))
    assert capsys.readouterr().err.count("this node's files of checkpoints are lost") == 1


def test_what_is_left_out_is_said_once(tmp_path: Path) -> None:
    utils, recorder = worker(tmp_path)
    for _ in range(2):
        utils.report({"loss": 1, "note": "x", "matrix": torch.ones(2, 2)})
    what = "reported values that are not numbers are not recorded"
    assert recorder.notes == [f"{what}: note (str), matrix (Tensor of 4 elements)"]


def test_a_checkpoint_is_not_lost_when_its_worker_is_killed_while_another_one_takes_its_place(tmp_path: Path) -> None:
    root, contents = tmp_path / "trial", set[str]()
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "weights").write_text("y", encoding="utf-8")

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)
        worker(root)[0].report({"loss": 1.0}, checkpoint(tmp_path / "first"))

    def replace() -> None:
        utils, _ = worker(root)
        utils.add_checkpoint(utils.progress, None, lambda folder: shutil.copytree(tmp_path / "second", folder))

    for number in all_kills(replace, prepare):
        newest = prepare_resume(root, pytest.fail)
        assert newest == root / "step-00000001", f"killed before operation {number}"
        contents.add((newest / FILES / "weights").read_text(encoding="utf-8"))
    assert contents == {"x", "y"}


def test_a_step_of_any_number_type_counts(tmp_path: Path) -> None:
    utils, recorder = worker(tmp_path)
    utils.report({"loss": 1, "step": 10.0})
    utils.report({"loss": 2, "step": torch.tensor(20)})
    with pytest.raises(ValueError, match=r"step: it was 20.5, and must be a whole number"):
        utils.report({"loss": 3, "step": 20.5})
    assert steps(recorder) == [(10, 1), (20, 2)]


def test_an_evaluation_at_step_0_is_recorded_there_and_does_not_compete(tmp_path: Path) -> None:
    utils, recorder = worker(tmp_path / "trial")
    for step, loss in ((0, 0.1), (10, 0.5), (20, 0.4)):
        utils.report({"loss": loss, "step": step}, checkpoint=checkpoint(tmp_path / f"saved{step}"))
    utils.end()
    assert recorder.logs == {0: {"loss": 0.1, "step": 0}}
    assert steps(recorder) == [(10, 0.5), (20, 0.4), (20, 0.4)]
    assert [each.resources()["evaluations"] for each in recorder.progress] == [1, 2, 2]
    # Its checkpoint is one to continue from, and never the best one.
    assert [(step, metrics) for step, metrics, _ in recorder.checkpoints] == [(0, {})]
    assert [path.name for path in sorted((tmp_path / "trial").glob("step-*"))] == ["step-00000020"]


def test_a_training_that_continues_from_step_0_repeats_no_report(tmp_path: Path) -> None:
    utils, _ = worker(tmp_path / "trial")
    utils.report({"loss": 0.1, "step": 0}, checkpoint=checkpoint(tmp_path / "saved"))
    again, recorder = worker(tmp_path / "trial")
    assert again.get_checkpoint() is not None
    again.report({"loss": 0.5, "step": 10})
    assert steps(recorder) == [(10, 0.5)]


def test_a_training_that_continues_from_step_0_may_report_it_again(tmp_path: Path) -> None:
    for attempt in ("first", "again"):
        utils, recorder = worker(tmp_path / "trial")
        utils.report({"loss": 0.1, "step": 0}, checkpoint=checkpoint(tmp_path / attempt))
    utils.report({"loss": 0.5, "step": 10})
    assert steps(recorder) == [(10, 0.5)]
    assert [path.name for path in (tmp_path / "trial").glob("step-*")] == ["step-00000000"]


def test_a_training_whose_only_report_is_of_step_0_has_it_as_its_result(tmp_path: Path) -> None:
    utils, recorder = worker(tmp_path)
    utils.report({"loss": 0.1, "step": 0})
    utils.end()
    assert recorder.logs == {0: {"loss": 0.1, "step": 0}}
    assert [(step, done) for step, _, _, done in recorder.reports] == [(1, True)]


@contextlib.contextmanager
def calls_to(utils: Alone) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray.train, "report", utils.report)
        patch.setattr(ray.train, "get_checkpoint", utils.get_checkpoint)
        patch.setattr(step_log, "get_train_fn_utils", lambda: utils)
        yield


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions run here, and their calls of Ray Train reach ``Alone``."""
    monkeypatch.setattr(ray_train, "TrialTrainFnUtils", Alone)
    monkeypatch.setattr(ray_train, "replaced_train_fn_utils", calls_to)


def run_function(
    root: Path,
    training: Any,
    framework: Any = "ray_train",
    at_import: Callable[[], object] = lambda: None,
    **options: Any,
) -> Recorder:
    def import_target(*_: Any) -> Any:
        at_import()
        return training

    task = FunctionTask(kind="function", framework=framework, _target_="users.training")
    config, recorder = FunctionConfig(task=task, checkpoint=CheckpointConfig()), Recorder(**options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps_train.frameworks.bound_function.import_target", import_target)
        ray_train.run_function(config, reporter=recorder, checkpoint_folder=str(root), metric="loss", mode="min")
    return recorder


@pytest.mark.usefixtures("in_this_process")
def test_a_function_that_is_stopped_saves_its_report_catches_nothing_and_goes_on_from_it(tmp_path: Path) -> None:
    starts: list[int] = []

    def training(config: dict[str, Any]) -> None:
        saved = ray.train.get_checkpoint()
        starts.append(0 if saved is None else int((Path(saved.path) / "epoch").read_text()))
        for epoch in range(starts[-1], 4):
            own = checkpoint(tmp_path / f"{len(starts)}-{epoch}")
            (Path(own.path) / "epoch").write_text(str(epoch + 1))
            try:
                ray.train.report({"loss": 1.0 - epoch / 10}, checkpoint=own)
            except Exception:  # noqa: BLE001 - any one
                pytest.fail("a stop is none of its business")

    stopped = run_function(tmp_path / "trial", training, stop_when_asked=4)  # twice at each report
    assert steps(stopped) == [(1, 1.0), (2, 0.9)]
    resumed = run_function(tmp_path / "trial", training)
    assert starts == [0, 2]
    assert steps(resumed) == [(2, 0.9), (3, 0.8), (4, 0.7), (4, 0.7)]
    assert resumed.final == {"loss": 0.7}


async def report_in_a_task(loss: float) -> None:
    ray.train.report({"loss": loss})


@pytest.mark.usefixtures("in_this_process")
def test_a_thread_that_a_trial_has_left_in_its_process_reports_for_no_other_trial(tmp_path: Path) -> None:
    work, refused = queue.SimpleQueue[Any](), queue.SimpleQueue[str]()
    of_module, imported = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    loop = asyncio.Runner()  # which keeps the context of its first use

    def try_to_report() -> None:
        for report in (lambda: ray.train.report({"loss": 9.0}), lambda: step_log.log_step(1, {"loss": 9.0})):
            try:
                report()
                refused.put("recorded")
            except Exception as error:  # noqa: BLE001 - compared below
                refused.put(str(error).partition(":")[0])

    def go_on() -> None:
        work.get()  # until another trial runs
        (later := Thread(target=try_to_report)).start()  # as a chain of timers
        later.join()
        try_to_report()

    def leaving(config: dict[str, Any]) -> None:
        loop.run(report_in_a_task(2.0))
        Thread(target=go_on, daemon=True).start()
        of_module.submit(lambda: ray.train.report({"loss": 1.0})).result()

    def next_one(config: dict[str, Any]) -> None:
        work.put(None)
        assert [refused.get() for _ in range(4)] == 2 * ["ray.train.report", "log_step"]
        (own := Thread(target=lambda: ray.train.report({"loss": 0.5}))).start()
        own.join()
        in_context = contextvars.copy_context().run
        of_module.submit(in_context, lambda: ray.train.report({"loss": 0.4})).result()
        with pytest.raises(RuntimeError, match=r"ray\.train\.report: not recorded.*start pools of threads within it"):
            of_module.submit(lambda: ray.train.report({"loss": 0.3})).result()
        loop.run(report_in_a_task(0.2))
        imported.submit(lambda: ray.train.report({"loss": 0.1})).result()

    for number, training in enumerate((leaving, next_one)):  # the first import starts a thread
        recorder = run_function(tmp_path / f"{number}", training, at_import=lambda: imported.submit(int).result())
    assert steps(recorder) == [(1, 0.5), (2, 0.4), (3, 0.2), (4, 0.1), (4, 0.1)]
    assert recorder.logs == {}
    of_module.shutdown()
    imported.shutdown()
    loop.close()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("then", ["goes on", "returns", "fails"])
@pytest.mark.parametrize(("stop", "reported"), [(Stop.SAVE, [(1, 1.0), (2, 0.9)]), (Stop.DISCARD, [(1, 1.0)])])
def test_a_function_that_catches_its_stop_like_any_error_reports_no_more_and_has_neither_ended_nor_failed(
    then: str, stop: Stop, reported: Any, tmp_path: Path
) -> None:
    def training(config: dict[str, Any]) -> None:
        for epoch in range(4):
            try:
                ray.train.report({"loss": 1.0 - epoch / 10})
            except:  # noqa: E722 - as in users' code
                if then == "fails":
                    raise RuntimeError("the training failed") from None
                if then == "returns":
                    return

    stopped = run_function(tmp_path, training, stop_when_asked=4 if stop is Stop.SAVE else 3, stop=stop)
    assert steps(stopped) == reported
    assert [done for *_, done in stopped.reports] == [False] * len(reported)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("framework", "advice"),
    [
        ("ray_train", r"call ray\.train\.report\({'loss': \.\.\.}\) in it, on all workers"),
        ("huggingface", "its Trainer was never evaluated: set eval_strategy"),
        ("lightning", "its Trainer ended before its first validation"),
        ("script", "print a line of JSON with 'loss'"),
    ],
)
def test_a_training_without_a_report_says_how_one_of_its_framework_reports(
    framework: Any, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_train, "_function_of", lambda *_: lambda: None)
    with pytest.raises(ValueError, match=f"task._target_=users.training returned without a report; {advice}"):
        run_function(tmp_path, None, framework)
