"""Examples of sweeps over other programs (docs/examples): their plans, their files, and real runs of some."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import run_python
from running import run

from sweeps.cli import run_command
from sweeps_train.command.config_files import write_files
from sweeps_train.config.command import ConfigFile

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
CONFS = {file.stem: file for file in sorted(EXAMPLES.rglob("*.yaml")) if "defaults" in yaml.safe_load(file.read_text())}
TINY_LLAMA = str(ROOT / "src" / "sweeps_train" / "models" / "tiny_llama")


@pytest.mark.parametrize("name", CONFS)
def test_each_example_plans_where_its_program_is_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / yaml.safe_load(CONFS[name].read_text())["task"]["command"].split()[0]
    program.write_text("#!/bin/sh\nexit 1\n")  # found, never run
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(ROOT)
    assert run_command(["run", f"conf={name}", "--config-dir", str(CONFS[name].parent), "--dry-run"]) == (0, None)
    printed = capsys.readouterr().out
    assert "\nsearched  " in printed, "the table of the space"
    assert "\ntask.arguments." in printed


def test_values_of_beta_are_not_compared_by_the_loss_that_contains_it() -> None:
    conf = yaml.safe_load(CONFS["trl_dpo"].read_text())
    assert "task.arguments.beta" in conf["space"]
    assert (conf["search"]["metric"], conf["search"]["mode"]) == ("eval/accuracy", "max")
    assert conf["task"]["rename"]["eval_rewards/accuracies"] == "eval/accuracy"


def written_file(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file that the program of a trial gets."""
    monkeypatch.chdir(ROOT)
    task = yaml.safe_load(CONFS[name].read_text())["task"]
    values = {**task["arguments"], "trial.folder": str(folder), "checkpoint": None, "seed": 0}
    write_files({"config": ConfigFile(**task["files"]["config"])}, folder, values.__getitem__)
    return folder / "config.yaml"


AXOLOTL = """
import sys, yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
unknown = set(yaml.safe_load(open(sys.argv[1]))) - set(AxolotlInputConfig.model_fields)
assert not unknown, unknown
config = AxolotlInputConfig(**yaml.safe_load(open(sys.argv[1])))
assert config.learning_rate == 0.0002 and config.lora_r == 16, config
"""
LLAMA_FACTORY = """
import dataclasses, sys, typing, yaml
from llamafactory.hparams import DataArguments, FinetuningArguments, ModelArguments, TrainingArguments
values = yaml.safe_load(open(sys.argv[1]))
kinds = (ModelArguments, DataArguments, FinetuningArguments, TrainingArguments)
fields = {field.name: field for kind in kinds for field in dataclasses.fields(kind)}
assert not set(values) - set(fields), set(values) - set(fields)
for kind in kinds[1:3]:
    names = {field.name for field in dataclasses.fields(kind)}
    kind(**{name: value for name, value in values.items() if name in names})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "check"),
    [("axolotl", "axolotl==0.19.0", AXOLOTL), ("llama_factory", "llamafactory==0.9.5", LLAMA_FACTORY)],
)
def test_the_config_of_a_trial_is_valid_by_the_programs_own_schema(
    name: str, package: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written_file(name, tmp_path, monkeypatch)
    run_python("-m", "pip", "download", "-q", "--no-deps", "--dest", tmp_path, package)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "package")
    environment = {"PYTHONPATH": str(tmp_path / "package"), "DISABLE_VERSION_CHECK": "1"}
    run_python("-c", check, file, folder=tmp_path, environment=environment)


def write_split(folder: Path, rows: list[dict[str, Any]]) -> str:
    folder.mkdir()
    for split, some in (("train", rows[:32]), ("test", rows[32:])):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, some)))
    return str(folder)


def count(number: int, *, down: bool = False) -> str:
    return " ".join(map(str, range(number, 0, -1) if down else range(1, number + 1)))


ROWS = {
    "trl_sft": [{"prompt": f"Count to {n}: ", "completion": count(n)} for n in range(1, 41)],
    "trl_dpo": [
        {"prompt": f"Count to {n}: ", "chosen": count(n), "rejected": count(n, down=True)} for n in range(1, 41)
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_program_is_searched_by_the_lines_that_xgboost_prints(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    done = run(tmp_path, "conf=xgboost", "--config-dir=docs/examples/xgboost", "search.num_trials=6", within_s=500)
    assert done.status == 0, done.err
    trials = done.document["trials"]
    assert {trial["state"] for trial in trials} == {"finished", "pruned"}, done.err
    best = done.document["best"]
    assert best["value"] < 0.2
    history = done.client.get_metric_history(best["run_id"], "eval/loss")
    assert [point.step for point in history] == list(range(60))
    assert list((tmp_path / "outputs").glob("*/trials/*/program/model.ubj"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif("PYTORCH_EXAMPLES" not in os.environ, reason="needs PYTORCH_EXAMPLES, a clone of pytorch/examples")
def test_pytorchs_example_of_a_language_model_is_searched_unchanged(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_text("one two three four five six seven eight nine ten\n" * 60)
    done = run(
        tmp_path,
        "conf=pytorch_word_language_model",
        f"--config-dir={EXAMPLES}",
        f"task.arguments.script={Path(os.environ['PYTORCH_EXAMPLES']) / 'word_language_model' / 'main.py'}",
        f"task.arguments.text={tmp_path}",
        "task.arguments.epochs=9",
        "search.num_trials=4",
        "space.task.arguments.width.high=65",
        within_s=800,
    )
    assert done.status == 0, done.err
    assert done.document["counts"]["failed"] == 0
    best = done.document["best"]
    history = done.client.get_metric_history(best["run_id"], "eval/perplexity")
    assert [point.step for point in history] == list(range(1, 10))
    assert history[-1].value < history[0].value


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ROWS)
def test_trls_own_command_line_is_searched_with_pruning_and_checkpoints(name: str, tmp_path: Path) -> None:
    data = write_split(tmp_path / "data", ROWS[name])
    done = run(
        tmp_path,
        f"conf={name}",
        "--config-dir",
        str(EXAMPLES),
        f"task.arguments.model={TINY_LLAMA}",
        f"task.arguments.dataset={data}",
        "task.arguments.use_cpu=true",
        "task.arguments.max_steps=8",
        "task.arguments.eval_steps=2",
        "search.metric=eval/loss",  # also of DPO, whose accuracy on eight rows is often the same
        "search.mode=min",
        "search.num_trials=3",
        within_s=800,
    )
    assert done.status == 0, done.err
    trials = done.document["trials"]
    assert {trial["state"] for trial in trials} <= {"finished", "pruned"}
    # The losses of eight rows hardly differ: that of a trial which was stopped later may be the best of all.
    complete = next(trial for trial in trials if trial["state"] == "finished")
    steps = [point.step for point in done.client.get_metric_history(complete["run_id"], "eval/loss")]
    assert steps == [2, 4, 6, 8]
    best = done.document["best"]
    assert "adapter_model.safetensors" in {
        Path(each.path).name for each in done.client.list_artifacts(best["run_id"], "checkpoints/best")
    } | {
        Path(each.path).name
        for folder in done.client.list_artifacts(best["run_id"], "checkpoints/best")
        if folder.is_dir
        for each in done.client.list_artifacts(best["run_id"], folder.path)
    }
