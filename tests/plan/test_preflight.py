"""A look at a user's data and model, in a process of its own, finds what would fail every trial."""

from __future__ import annotations

import json
import re
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from composing import checked, planned
from stores import make_store

from sweeps.cli import run_command
from sweeps.errors import ConfigError
from sweeps.plan import preflight_process
from sweeps.plan.preflight import Preflight, configs_to_check
from sweeps.runtime.cluster import Connection
from sweeps.runtime.fork_server import ADDRESS, TASK_MODULES
from sweeps_train.config import TRAINING_CONFIG, TrainingConfig
from sweeps_train.one_batch_check import examine

MINE = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import TensorDataset
from preflight_data import data_with

def data(what="good"):
    if what == "hangs":
        time.sleep(3600)
    if what == "dies":
        os.kill(os.getpid(), 11)
    if what == "cuda":
        raise RuntimeError("Found no NVIDIA driver on your system.")
    if what == "a GPU":
        assert torch.cuda.is_available()
    if what == "a worker":
        os.environ["LOCAL_RANK"]
    if what == "a server":
        raise RuntimeError("HTTPSConnectionPool(host='hub'): Max retries exceeded: Read timed out.")
    if what == "a secret":
        raise RuntimeError("cannot open postgresql://me:hunter2@host/data")
    print("x" * 1_000_000)
    return data_with(what)

class Net(nn.Module):
    def __init__(self, width=8, features=6):
        super().__init__()
        self.a, self.b = nn.Linear(features, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())

class Tolerant(Net):
    def forward(self, x):
        return super().forward(x.nan_to_num())

class Normed(Net):
    def __init__(self, width=8, features=6):
        super().__init__(width, features)
        self.norm = nn.BatchNorm1d(features)  # in training, of two samples or more

    def forward(self, x):
        return super().forward(self.norm(x))

class Staged(Net):
    def parts(self):
        return [self.a, self.b]

class Huge(Net):
    def __init__(self, width=8, features=6):
        super().__init__(100_000, 100_000)
"""
CONF = """
defaults: [digits, override model: custom, override data: custom, override space: none, _self_]
name: mine
model: {_target_: mine.Net}
data: {_target_: mine.data}
space: {train.lr: {type: float, low: 1e-4, high: 1e-1, log: true}}
"""


@pytest.fixture(autouse=True)
def _modules(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / "mine.py").write_text(MINE)
    (working_folder / "mine.yaml").write_text(CONF)
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])
    sys.path_importer_cache.pop(str(working_folder), None)
    sys.modules.pop("mine", None)


def examined(what: str, model: str = "mine.Net", strategy: str = "ddp", **arguments: int) -> list[tuple[str, str]]:
    config = {
        "task": {"kind": "image_classification"},
        "model": {"kind": "custom", "_target_": model, "arguments": arguments},
        "data": {"kind": "custom", "_target_": "preflight_data.data_with", "arguments": {"what": what}},
        "train": {"max_steps": 1},
        "strategy": {"kind": strategy},
        "checkpoint": {},
    }
    return [(found.kind, found.text) for found in examine(TRAINING_CONFIG.validate_python(config), num_workers=2)]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "a column of NaN",
            "training feature column 2 (price): NaN or infinite in 200 of 200 samples, so that the loss",
        ),
        ("an infinite value", "training feature column 4 (year): NaN or infinite in 1 of 200 samples"),
        ("a large label", "training label 7 is out of range: the model has 3 outputs, for labels 0 to 2"),
        ("a large label held out", "held-out label 3 is out of range"),
        ("a negative label", "training label -1 is negative"),
        ("real labels", "training labels are torch.float32 numbers; give class indices"),
        ("NaN labels", "training labels are NaN or infinite in 1 of 200 samples"),
    ],
)
def test_values_that_cannot_be_learned_from_are_mistakes(what: str, message: str) -> None:
    kind, text = examined(what)[0]
    assert (kind, message in text) == ("mistake", True), text


def test_a_column_of_nan_that_a_model_tolerates_is_a_warning_that_names_it() -> None:
    ((kind, text),) = examined("a column of NaN", "mine.Tolerant")
    assert kind == "warning"
    assert "column 2 (price): NaN or infinite in 200 of 200 samples, which the model tolerates" in text


def test_good_data_and_a_model_that_takes_it_find_nothing() -> None:
    assert examined("good") == []


def test_a_pipeline_needs_a_model_that_lists_as_many_parts_as_it_has_stages() -> None:
    assert examined("good", "mine.Staged", "pipeline") == []
    with pytest.raises(ValueError, match=r"strategy.kind=pipeline: a Net does not list its parts; give it a method"):
        examined("good", strategy="pipeline")


def test_a_model_too_large_for_a_look_is_not_built() -> None:
    ((kind, text),) = examined("good", "mine.Huge")
    assert kind == "warning"
    assert "are not tried before the sweep" in text


def findings_of(what: str) -> list[tuple[str, str]]:
    """Findings of the preflight's process, in this one, on data of the user's function."""
    plan = planned("conf=mine.yaml", f"data.arguments.what='{what}'")
    ((_, config),) = configs_to_check(plan)
    return [(found.kind, found.text) for found in preflight_process._findings(config, list(plan.space))]


def look(*tokens: str) -> list[str]:
    with Preflight(planned("conf=mine.yaml", *tokens)) as preflight:
        return preflight.result()


def test_data_that_cannot_be_read_are_found() -> None:
    ((kind, text),) = findings_of("a missing file")
    assert kind == "mistake"
    assert re.match(r"data._target_=mine.data: FileNotFoundError: .*none.csv.*preflight_data.py", text), text
    with pytest.raises(ValueError, match=r"data._target_=preflight_data.data_with: the training data is empty"):
        examined("nothing")


def test_what_only_a_value_of_the_space_makes_fail_is_a_warning_and_so_is_a_look_that_dies() -> None:
    fails, died = look("model.arguments.features=choice(6, 7)", "data.arguments.what=choice(good, dies)")
    assert fails.startswith("with model.arguments.features=7: model._target_=mine.Net: RuntimeError: mat1")
    assert re.search("the check of data and model ended with status -11; .* the sweep continues", died)


def test_a_look_that_takes_too_long_ends_by_itself_as_when_its_driver_has_died_and_the_sweep_continues() -> None:
    plan = planned("conf=mine.yaml", "data.arguments.what=hangs", "preflight.timeout_s=1")
    with Preflight(plan) as preflight:
        assert preflight._process is not None
        assert preflight._process.wait(60) == -signal.SIGALRM
        (said,) = preflight.result()
    assert said.endswith("took longer than preflight.timeout_s=1; the sweep continues")


@pytest.mark.parametrize(
    ("what", "warning"),
    [
        ("cuda", "Found no NVIDIA driver"),
        ("a GPU", "AssertionError .*torch.cuda.is_available"),
        ("a worker", "KeyError: 'LOCAL_RANK'"),
        ("a server", "Read timed out"),
    ],
)
def test_what_may_be_there_in_a_training_is_a_warning(what: str, warning: str) -> None:
    ((kind, text),) = findings_of(what)
    assert kind == "warning"
    assert re.search(warning, text), text


def test_secrets_in_a_users_error_are_hidden() -> None:
    ((kind, text),) = findings_of("a secret")
    assert (kind, "cannot open postgresql://me:***@host/data" in text) == ("mistake", True), text
    assert "hunter2" not in text


def test_held_out_samples_go_through_the_model_as_in_an_evaluation() -> None:
    assert examined("one held out", "mine.Normed") == []


def test_no_process_is_started_for_what_ships_or_when_it_is_left_out() -> None:
    for tokens in (
        ["conf=digits"],
        ["conf=llm_lora"],
        ["conf=ray_train_function"],
        ["conf=mine.yaml", "preflight.timeout_s=0"],
    ):
        with Preflight(planned(*tokens)) as preflight:
            assert preflight._process is None
            assert preflight.result() == []


def test_a_text_file_is_looked_at_through_its_model(working_folder: Path) -> None:
    (working_folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in ("a document", None)))
    plan = planned("conf=llm_lora", "data=text", "data.path=texts.jsonl", "data.sequence_length=8")
    assert [config.data for _, config in configs_to_check(plan)] == [plan.config.data]
    training = plan.config.training()
    assert isinstance(training, TrainingConfig)
    with pytest.raises(ValueError, match=r"data.text_field=text: document .* is empty"):
        list(examine(training, num_workers=1))


@pytest.mark.parametrize(
    "how", ["run on a cluster that is there", *(pytest.param(each, marks=pytest.mark.slow) for each in ("run", "plan"))]
)
def test_a_dry_run_looks_too_and_a_run_refuses_before_a_trial_starts(
    how: str, working_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if how not in ("run", "plan"):
        there = nullcontext(Connection([{"CPU": 4.0}], None))
        monkeypatch.setattr("sweeps.driver.run.joined_cluster", lambda plan, forks: there)
        monkeypatch.setenv(ADDRESS, "")  # no fork server, which prepares for trials
    more = ["--dry-run"] if how == "plan" else []
    left = working_folder / "left"
    (working_folder / "library.py").write_text(
        "import pathlib, signal, sys\n"
        "if 'preflight_process' in sys.argv[0]:  # and not in the fork server\n"
        f"    pathlib.Path({str(left)!r}).write_text(str(signal.getitimer(signal.ITIMER_REAL)[0]))"
    )
    monkeypatch.setitem(TASK_MODULES, "image_classification", ("library",))
    make_store(working_folder / "mlflow.db")
    status, mistake = run_command(["run", "conf=mine.yaml", "model.arguments.features=7", "--name=refused", *more])
    first, last = str(mistake).splitlines()
    assert status == 2, first
    assert first.startswith(
        "model._target_=mine.Net: RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x6 and 7x8)"
    )
    assert "mine.py:32 in forward" in first
    assert "preflight.timeout_s=0" in last
    assert "Traceback" not in capsys.readouterr().err
    assert not (working_folder / "outputs" / "refused").exists()
    assert left.read_text() == "0.0"  # the time of the check does not run while libraries are imported


@pytest.mark.parametrize(
    ("conf", "tokens", "message"),
    [
        ("llm_lora", ["data=streamed_text", "data.path=x.txt"], "data.sequence_length=2048: .* has 1024 positions"),
        ("llm_lora", ["data.sequence_length=choice(128, 4096)"], "data.sequence_length=4096: .* at most 1024"),
        (
            "digits",
            ["space=none", "model=vision_transformer", "model.patch_size=3"],
            "patch_size=3: .* use 1, 2, 4 or 8",
        ),
        ("digits", ["space=none", "model.blocks=4"], "model.blocks=4: .* use at most 3"),
    ],
)
def test_a_model_that_cannot_take_the_data_is_refused_without_a_look(
    conf: str, tokens: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(conf, *tokens)
