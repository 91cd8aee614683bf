"""Mistakes in ``task=command`` that are found before anything starts, each with its key and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from composing import planned

from sweeps.config import COMMAND_TASK
from sweeps.errors import ConfigError
from sweeps_train.command.command_line import command_line

DEFAULTS = ["task: command", "search: random", "scaling: single_worker", "checkpoint: last", "tracking: mlflow"]
CHECKPOINTS = {"folder": "{trial.folder}/out"}
RESUME = {"--resume": "{checkpoint}"}
OWN = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--amp", type=bool)
parser.add_argument("--fast", action=argparse.BooleanOptionalAction)
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("words", nargs="*")
args = parser.parse_args()
"""
SHARED = OWN.replace("args = parser.parse_args()", "args, _ = parser.parse_known_args()")


def plan(task: dict[str, Any], **sections: Any) -> list[str]:
    """Make the plan of a sweep over ``lr`` with this task; return its notes."""
    config = {
        "defaults": [
            *(dict([each.split(": ")]) for each in DEFAULTS),
            {"cluster": "local"},
            "_self_",
        ],
        "name": "mine",
        "task": {"command": "true {lr}", "arguments": {"lr": 0.1}, **task},
        "space": {"task.arguments.lr": {"type": "float", "low": 0.1, "high": 1.0}},
        "search": {"metric": "loss", "mode": "min", "num_trials": 2},
        **sections,
    }
    Path("mine.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return planned("conf=mine.yaml").notes


def pattern(text: str) -> dict[str, Any]:
    return {"read": [{"kind": "regex", "pattern": text}]}


def file(source: str | None = "base.yaml", **fields: Any) -> dict[str, Any]:
    return {"files": {"config": {"source": source, **fields}}, "command": "true {lr} {files.config}"}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"command": "true 'a {lr}"}, "task.command: No closing quotation"),
    ({"command": ""}, "task.command: '' contains no program"),
    ({"command": "no-such-program {lr}"}, "the program 'no-such-program' is not found on PATH; install it"),
    ({"command": "./train.sh {lr}"}, "task.command: there is no program ./train.sh"),
    ({"command": "python trian.py {lr}"}, "task.command: there is no file trian.py; give a script that exists"),
    ({"command": "python own.py --lr {lr} --wd 1"}, "task.command: own.py has no option --wd; use one of amp, fast"),
    ({"command": "true {lrr}"}, "task.command: the config has no value for {lrr}; did you mean {lr}"),
    ({"command": "true {lr} {train.lr}"}, "task.command: the config has no value for {train.lr}"),
    ({"command": "true {lr} {trial.nummer}"}, "did you mean {trial.number}"),
    ({"command": 'true {lr} {"a": 1}'}, "write {{ and }} for literal braces"),
    ({"command": "true {lr:x}"}, "{lr:x} of 0.1: Unknown format code 'x'"),
    ({"command": "true {lr} {rank}"}, "task.command: {rank} exists only with a process for each worker; set"),
    ({"command": "true {lr} {checkpoint}", "checkpoints": CHECKPOINTS}, "{checkpoint} has no value at a trial's first"),
    ({"options": RESUME}, "{checkpoint} never has a value; say where the program saves"),
    ({"checkpoints": CHECKPOINTS}, "task.checkpoints: the program is not told from which checkpoint to continue"),
    ({"checkpoints": CHECKPOINTS}, "if it never continues, remove task.checkpoints: its files stay in {trial.folder}"),
    ({"checkpoints": {"folder": "{rank}"}, "options": RESUME}, "{rank} differs between a trial's processes"),
    ({"environment": {"A": "{seeed}"}}, "task.environment.A: the config has no value for {seeed}; did you mean {seed}"),
    ({"environment": {"A-B": "1"}}, "task: environment.A-B: is not the name of a variable"),
    ({"grace_s": "long"}, "task.grace_s='long': must be a valid number"),
    ({"command": 3}, "task.command=3: must be a valid"),
    ({"checkpoint": {}}, "task.checkpoint={}: there is no such key; did you mean task.checkpoints"),
    ({"working_folder": "nowhere"}, "task.working_folder=nowhere: there is no such folder"),
    ({"command": "true"}, "space.task.arguments.lr: the program does not get it, so it has no effect; put {lr} into"),
    (pattern("loss=(?P<loss"), "is not a regular expression: missing"),
    (pattern(r"loss=(\S+)"), r"has no named group, so no metric; write (?P<loss>\S+) around a number"),
    (pattern(r"(?P<los>\S+)"), "search.metric=loss: task.read has only regular expressions, and none"),
    (pattern(r"(?P<los>\S+)"), "; did you mean los?"),
    ({"rename": {"loss": "eval/loss"}}, "search.metric=loss: task.rename gives it the name eval/loss; use that"),
    ({"metrics": ["accuracy"]}, "search.metric=loss: the task command does not report it; it reports accuracy"),
    ({"metrics": ["los"]}, "; it reports los, and its workers "),
    ({"metrics": ["los"]}, "; did you mean los?"),
    ({"metrics": ["accuracy"]}, "; if the program reports loss, add it to task.metrics"),
    ({"read": []}, "read=[]: no metric can be read"),
    (file("none.yaml"), "task.files.config.source=none.yaml: there is no such file"),
    (file("broken.json"), "task.files.config.source=broken.json: is not valid JSON (Expecting"),
    (file("base.txt"), "its name does not tell its format; set task.files.config.format to yaml, json or toml"),
    (file(None), "task.files.config: source: name the file to start from, or a format"),
    (file(values={"optim.lrr": 1}), "values.optim.lrr: base.yaml has no such value; did you mean optim.lr"),
    (file(values={"optim.lrr": 1}), "To add it, write +optim.lrr"),
    (file(values={"+optim.lr.x": 1}), "values.+optim.lr.x: base.yaml has a value at optim.lr that is not a section"),
    (file(values={"+layers.2": 1}), "values.+layers.2: base.yaml has a value at layers that is not a section; set it"),
    ({"read": [{"kind": "csv", "path": "{lr:d}/log.csv"}]}, "task.read.0.path: {lr:d} of 0.1: Unknown format code"),
    ({"checkpoints": {"folder": "{lr:d}"}, "options": RESUME}, "task.checkpoints.folder: {lr:d} of 0.1: Unknown"),
    (file(values={"layers.2": 1}), "values.layers.2: base.yaml has no such value"),
    (file(values={"optim.lr": "{rank}"}), "task.files.config.values.optim.lr: {rank} differs"),
    ({"command": "true {lr} {files.confg}", "files": {"config": {"format": "json"}}}, "did you mean {files.config}"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _files(working_folder: Path) -> None:
    (working_folder / "base.yaml").write_text("optim: {lr: 1}\nlayers: [1, 2]\n")
    (working_folder / "base.txt").write_text("optim: {lr: 1}\n")
    (working_folder / "broken.json").write_text("{")
    (working_folder / "own.py").write_text(OWN)
    (working_folder / "shared.py").write_text(SHARED)


@pytest.mark.parametrize(("task", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_key_and_the_fix(task: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan(task)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"command": ["true", "{lr}", 3, "{trial.name}", "{seed}", "{scaling.num_workers}", "{{}}"]},
        {"command": "true {arguments}"},
        {"command": "true", "environment": {"LR": "{lr}"}},
        {"command": "true", "files": {"config": {"source": "base.yaml", "values": {"optim.lr": "{lr}", "+new": 1}}}},
        {"options": RESUME, "checkpoints": CHECKPOINTS},
        {"command": "true {lr} {rank} {local_rank} {node_rank} {master_port}", "processes": "per_worker"},
        {"working_folder": "{trial.folder}", "read": [{"kind": "csv", "path": "{trial.folder}/log.csv"}]},
        {"rename": {"eval_loss": "loss"}, "metrics": ["loss"]},
        {"command": "python {trial.folder}/train.py {lr}"},
        {"command": "python own.py --lr {lr} --amp off --no-fast", "options": {"--fast": True}},
        {"command": "python own.py --lr {lr} --no-cuda"},
        {"command": "python own.py --lr {lr} '--see below' -- --x"},
        {"command": "python shared.py --lr {lr} --wd 1"},
        {"command": "python train.py {lr}", "working_folder": "{trial.folder}/cloned"},
    ],
)  # fmt: skip
def test_what_works_passes(task: dict[str, Any]) -> None:
    plan(task)


def test_a_fixed_argument_that_the_program_does_not_get_is_noted() -> None:
    notes = plan({"arguments": {"lr": 0.1, "net": {"width": 8, "depth": 2}}, "command": "true {lr} {net.width}"})
    expected = "task.arguments.net.depth: the program does not get it; put {net.depth} into task.command, task.options"
    assert [note for note in notes if "task.arguments" in note] == [f"{expected} or task.files"]
    for command in ("true {arguments}", "true {lr} {net}", "true {lr} {net.width} {net.depth}"):
        assert not plan({"arguments": {"lr": 0.1, "net": {"width": 8, "depth": 2}}, "command": command})


def test_signs_of_a_shell_that_reach_the_program_as_words_are_noted() -> None:
    (note,) = plan({"command": "true {lr} 'a && b' && true > log $HOME/x"})
    assert note.startswith(
        "task.command: the program gets &&, >, $HOME/x as words, since no shell reads them; for a shell"
    )
    assert plan({"command": "bash -c 'true {lr} && true > log'"}) == plan({"command": ["true", "{lr}", "&&"]}) == []


@pytest.mark.parametrize(("grace_s", "is_noted"), [(160, False), (161, True)])
def test_a_program_that_may_end_after_the_time_limit_of_its_slurm_job_is_noted(grace_s: float, is_noted: bool) -> None:
    notes = plan({"grace_s": grace_s}, cluster={"slurm": {"stop_before_limit_s": 180}})
    assert any("cluster.slurm.stop_before_limit_s=180" in note and "181 or more" in note for note in notes) == is_noted


def test_a_config_file_that_the_program_is_not_told_of_is_noted() -> None:
    files = {"config": {"source": "base.yaml", "values": {"optim.lr": "{lr}"}}}
    (note,) = plan({"command": "true base.yaml", "files": files})
    assert note.startswith("task.files.config: the program is not told of it, and finds it only as config.yaml in the")
    assert plan({"command": "true {files.config}", "files": files}) == []


def test_sections_of_the_training_are_checked_and_searched_through_placeholders() -> None:
    space = {"train.lr": {"type": "float", "low": 0.1, "high": 1.0}}
    plan({"command": "true {train.lr}"}, train={"lr": 0.5, "epochs": 1}, space=space)
    with pytest.raises(ConfigError, match=r"space\.train\.lr: the program does not get it"):
        plan({"command": "true {lr}"}, train={"lr": 0.5, "epochs": 1}, space=space)


def test_a_scheduler_that_pauses_trials_needs_checkpoints() -> None:
    search = {"metric": "loss", "mode": "min", "num_trials": 4}
    scheduler = {"scheduler": {"kind": "hyperband", "longest": 9}}
    with pytest.raises(ConfigError, match=r"search\.scheduler\.kind=hyperband: continues trials from checkpoints"):
        plan({}, search=search | scheduler)
    plan({"options": RESUME, "checkpoints": CHECKPOINTS}, search=search | scheduler)


def test_a_program_of_another_cluster_is_not_looked_for_here() -> None:
    plan({"command": "no-such-program {lr}"}, cluster={"address": "auto"})


def test_programs_that_keep_their_own_checkpoints_need_none_by_name(working_folder: Path) -> None:
    back = {**CHECKPOINTS, "put_back": True}
    plan({"checkpoints": back})
    plan({"checkpoints": back, "command": "sh -c 'true {lr} --init_from={checkpoint?resume:scratch}'"})
    plan({"checkpoints": back, "options": {"--init_from": "{checkpoint?resume}"}})


def test_the_recipe_for_nanogpt_starts_it_from_scratch_and_continues_it(working_folder: Path, checkout: Path) -> None:
    text = (checkout / "docs/any_program.md").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text.split("```yaml\n# nanoGPT", 1)[1].split("\n", 1)[1].split("```", 1)[0])["task"]
    Path("train.py").touch()
    space = {"task.arguments.learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True}}
    plan({"arguments": {}, **recipe}, space=space, search={"metric": "val_loss", "mode": "min", "num_trials": 2})
    task = COMMAND_TASK.validate_python(recipe)
    for checkpoint, word in ((None, "scratch"), ("out/ckpt.pt", "resume")):
        values = {"checkpoint": checkpoint, "trial.folder": "/t", "learning_rate": 0.1}
        line = command_line(task, values.__getitem__)
        assert line[3:5] == [f"--init_from={word}", "--out_dir=/t/out"]
