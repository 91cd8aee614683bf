"""CONTRIBUTING.md: its worked examples run, and the files and targets that it names exist."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documents import CHECKOUT, blocks_of
from recording import open_recorder
from training_runs import IMAGES, configured, run

from sweeps.config.samplers import CustomSampler
from sweeps.config.space import FloatDistribution
from sweeps.constants import COMPLETED
from sweeps.search import OptunaSearcher, Space, build_sampler
from sweeps.service.notify.address import check_address
from sweeps.service.notify.sending import deliver
from sweeps.tracking.journal import Journal
from sweeps_train.config import TrainingConfig
from sweeps_train.lanes import group
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.strategy import Capabilities
from sweeps_train.workers.distributed import Workers

PAGE = CHECKOUT / "CONTRIBUTING.md"
MOST_LINES = 40
EXAMPLES = {block.file: block.text for block in blocks_of(PAGE) if block.language == "python"}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Function that imports an example of the page."""

    def load(name: str) -> ModuleType:
        (tmp_path / name).write_text(EXAMPLES[name], encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        spec = importlib.util.spec_from_file_location(Path(name).stem, tmp_path / name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, Path(name).stem, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_each_place_to_extend_has_a_short_example() -> None:
    assert len(EXAMPLES) == 5
    assert [name for name, text in EXAMPLES.items() if len(text.splitlines()) >= MOST_LINES] == []


def test_every_file_and_target_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`((?:sweeps|src|conf|tests|docs)/[\w./-]*)`", text)
    assert len(named) > 20
    assert [name for name in named if "NAME" not in name and not (CHECKOUT / name).exists()] == []
    assert [name for name in re.findall(r"\]\(([\w./]+)\)", text) if not (CHECKOUT / name).exists()] == []
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in re.findall(r"`?make ([a-z-]+)[` ]", text) if f"\n{target}:" not in makefile] == []


def test_the_sampler_comes_nearer_to_the_best_point(example: Any) -> None:
    example("my_sampler.py")
    config = CustomSampler(kind="custom", _target_="my_sampler.NearTheBest", arguments={"radius": 0.1})
    space = Space({"lr": FloatDistribution(type="float", low=0.0, high=1.0)})
    searcher = OptunaSearcher(space, metric="loss", mode="min", sampler=build_sampler(config, 0, space))
    points = []
    for number in range(8):
        points.append(searcher.suggest(str(number))["lr"])
        searcher.on_trial_complete(str(number), {"loss": points[-1], "training_iteration": 1, COMPLETED: True})
    best = [min(points[:number]) for number in range(1, 8)]
    assert all(abs(point - before) <= 0.1 for point, before in zip(points[1:], best, strict=True))


def test_the_task_learns(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = example("smoothed_classification.py").SmoothedClassification
    monkeypatch.setattr(group, "build_task", task)
    smoothed = final_loss()
    monkeypatch.setattr(task, "smoothing", 0.0)
    assert smoothed < 2.3  # that of a guess
    assert final_loss() != smoothed


def test_the_strategy_learns(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = example("signed_gradients.py").SignedGradients

    def build(config: object, workers: Workers, precision: Precision) -> Any:
        return strategy(workers, precision, Capabilities(random_stream=0))

    usual = final_loss()
    monkeypatch.setattr(group, "build_strategy", build)
    assert usual != final_loss() < 2.3


def final_loss() -> float:
    config: TrainingConfig = configured(IMAGES)
    return run(config).final["eval/loss"]


def test_the_notifier_writes_the_message(example: Any, tmp_path: Path) -> None:
    example("lines_of_a_file.py")
    address = f"lines://localhost{tmp_path}/messages.txt"
    check_address(address, "notifications.0")
    message = {"event": "failed", "sweep": "first", "title": "first has failed", "lines": ["no disk"], "links": []}
    assert deliver(address, message) is None
    assert (tmp_path / "messages.txt").read_text().startswith("failure: first has failed: no disk")


def test_the_tracker_continues_where_it_was(example: Any, uri: str, working_folder: Path) -> None:
    deliver_new = example("second_tracker.py").deliver
    file, folder = working_folder / "metrics.jsonl", working_folder / "first"
    recorder = open_recorder(uri, "first", folder=folder)
    recorder.trials.start("0000", {"train.lr": 0.1}, "", 1)
    recorder.trials.log("0000", 1, {"eval/loss": 1.0}, 1000)
    assert not recorder.close("finished")
    journal = Journal(folder)
    assert deliver_new(journal, file) > 0
    assert deliver_new(journal, file) == 0
    journal.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {"trial": "0000", "step": 1, "eval/loss": 1.0}.items() <= lines[0].items()
