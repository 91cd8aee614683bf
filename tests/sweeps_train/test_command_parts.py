"""Parts of ``task=command``: placeholders, command lines, config files, checkpoints, the process."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from waiting import wait_until

from sweeps_train.command import guard
from sweeps_train.command import run as module
from sweeps_train.command.checkpoints import CheckpointWatch, put_back, put_into, set_aside
from sweeps_train.command.command_line import command_line, words
from sweeps_train.command.config_files import UnknownPath, read_document, write_files
from sweeps_train.command.launch import Place
from sweeps_train.command.placeholders import Template, config_values
from sweeps_train.command.program import Program
from sweeps_train.command.run import TrialIdentity
from sweeps_train.config import Checkpoint, CommandConfig, CommandTask
from sweeps_train.config.command import ConfigFile, ProgramCheckpoints

VALUES: dict[str, Any] = {"lr": 1e-05, "name": "a b; rm -rf /", "r": 8, "none": None, "flag": True, "list": [1, "x"]}
LOOKUP = VALUES.__getitem__


def task(command: str | list[str | int | float] = "train", **fields: Any) -> CommandTask:
    return CommandTask(kind="command", command=command, **fields)


# --- command lines ------------------------------------------------------------------------------------------


def test_values_are_filled_in_after_splitting_so_that_each_stays_one_word() -> None:
    line = command_line(task("train 'my file' --name {name} --lr={lr:.0e} {{braces}} {list}"), LOOKUP)
    assert line == ["train", "my file", "--name", "a b; rm -rf /", "--lr=1e-05", "{braces}", '[1, "x"]']


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_command_goes_on_after_a_backslash_at_the_end_of_a_line(end: str) -> None:
    command = "train 'a\\\n' \\\n  --lr {lr} \\\n  --name b\\ c".replace("\n", end)
    assert command_line(task(command), LOOKUP) == ["train", f"a\\{end}", "--lr", "1e-05", "--name", "b c"]


@pytest.mark.parametrize("low", [-1e-05, -2.5e-7, -0.5, -1e22, 1e-05, np.float64(-1e-05)])
def test_a_small_negative_number_is_no_option_to_argparse(low: float) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--low", type=float)
    for program in (task("train --low {low}"), task(options={"--low": "{low}"})):
        _, *words = command_line(program, {"low": low}.__getitem__)
        assert parser.parse_args(words).low == low


def test_a_command_may_be_a_list_of_words() -> None:
    assert command_line(task(["train", "--epochs", 3, "{name}"]), LOOKUP) == ["train", "--epochs", "3", VALUES["name"]]


def test_options_without_a_value_are_left_out_and_true_adds_the_name_alone() -> None:
    options = {"--resume": "{none}", "--fp16": "{flag}", "lr=": "{lr}", "--no": False, "--rank": "{r}", "--x": "r{r}"}
    line = command_line(task(options=options), LOOKUP)
    assert line == ["train", "--fp16", "lr=1e-05", "--rank", "8", "--x", "r8"]
    options = {"amp=": "{flag}", "compile=": False, "resume=": "{none}"}  # a value left out would be the program's own
    flags = {"--amp=": "{flag}", "--compile=": False, "fast": True}
    assert command_line(task(options=options | flags), LOOKUP)[1:] == ["amp=true", "compile=false", "--amp", "fast"]


def test_all_arguments_can_be_given_as_options_at_once() -> None:
    arguments = {"lr": 0.1, "fast": True, "slow": False, "name": "a b"}
    assert command_line(task("train {arguments}"), {"arguments": arguments}.__getitem__) == [
        "train", "--lr=0.1", "--fast", "--name=a b"
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{", "a } b", '{"a": 1}', "{}", "{lr!r}", "{a b}", "{lr:{r}}"])
def test_braces_that_hold_no_name_are_named_with_the_way_to_write_them(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \{\{ and \}\} for literal braces"):
        Template(text)


@pytest.mark.parametrize("command", ["train 'a", "", []])
def test_a_command_without_a_word_or_with_an_open_quote_is_refused(command: Any) -> None:
    with pytest.raises(ValueError, match=r"contains no program|No closing quotation"):
        words(task(command))


def test_a_placeholder_is_an_argument_or_else_a_value_of_the_config() -> None:
    program = task("train {lr} {train.lr} {seed} {rank} {optimizer.beta} {nothing}", arguments={
        "lr": 1.0, "rank": 4, "optimizer": {"beta": 0.9}
    })  # fmt: skip
    values, unknown = config_values(program, {"lr": 2.0, "seed": 3, "train": {"lr": 4.0}})
    assert values == {"lr": 1.0, "train.lr": 4.0, "seed": 3, "rank": 4, "optimizer.beta": 0.9}
    assert unknown == ["nothing"]


@pytest.mark.parametrize("trial", ["0003", "s1-0003", "0003r2"], ids=["search", "stage", "repeat"])
def test_a_trial_of_a_stage_and_one_that_is_trained_again_have_a_number_for_the_program(trial: str) -> None:
    config, folder = CommandConfig(task=task(), checkpoint=Checkpoint(), objectives=["loss"]), Path("program")
    values = module._values(config, Place(0, 0, 0, 1, 1, 1, "", 0), folder, TrialIdentity("sweep", trial, 1), None)
    assert (values["trial.number"], values["trial.id"], values["trial.name"]) == (3, trial, f"sweep-{trial}")


# --- config files -------------------------------------------------------------------------------------------

BASE_YAML = """\
base: &base {lr: 1e-3, on: yes}
model:
  <<: *base
  name: tiny
datasets:
  - path: a.jsonl
  - path: b.jsonl
version: 1.20
"""


def test_a_yaml_file_gets_values_and_keeps_all_others_as_they_are_spelt() -> None:
    document = read_document(BASE_YAML, "yaml")
    document.set("model.lr", 1e-05)
    document.set("datasets.1.path", "c.jsonl")
    document.set("model.dropout.p", 0.5, new=True)
    text = document.text()
    assert "lr: 1e-3" in text, "the anchor's own value stays"
    assert "version: 1.20" in text
    assert "on: yes" in text
    loaded = yaml.safe_load(text)
    assert loaded["model"] == {"lr": 1e-05, True: True, "name": "tiny", "dropout": {"p": 0.5}}
    assert isinstance(loaded["model"]["lr"], float)
    assert [each["path"] for each in loaded["datasets"]] == ["a.jsonl", "c.jsonl"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("yaml", "a: {b: 1}\n'x.y': 2\n"),
        ("json", '{"a": {"b": 1}, "x.y": 2}'),
        ("toml", '# a comment\n"x.y" = 2\n[a]\nb = 1 # another\n'),
    ],
)
def test_values_are_set_at_dotted_paths_with_their_type_in_every_format(kind: str, text: str) -> None:
    document = read_document(text, kind)
    document.set("a.b", 2.0)
    document.set("x.y", True)
    document.set("new.part", [1, 2], new=True)
    with pytest.raises(UnknownPath):
        document.set("a.c", 1)
    load: Callable[[str], Any] = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}[kind]
    loaded = load(document.text())
    assert loaded == {"a": {"b": 2.0}, "x.y": True, "new": {"part": [1, 2]}}
    assert isinstance(loaded["a"]["b"], float)
    assert kind != "toml" or "# a comment" in document.text()


def test_of_merged_sections_the_first_one_counts_and_of_a_key_twice_the_last() -> None:
    document = read_document("x: &x {s: {p: 1}}\ny: &y {s: {p: 2, q: 3}}\nz: {<<: [*x, *y]}\nlr: 1\nlr: 2\n", "yaml")
    document.set("z.s.p", 9)
    document.set("lr", 3)
    loaded = yaml.safe_load(document.text())
    assert loaded["z"]["s"] == {"p": 9}, "as the program reads the file without it: that of x"
    assert loaded["y"]["s"] == {"p": 2, "q": 3}
    assert loaded["lr"] == 3


def test_a_section_that_an_alias_shares_is_written_without_aliases_of_keys() -> None:
    document = read_document("a: &a {p: 1, q: 2}\nb: *a\n", "yaml")
    document.set("b.p", 9)
    assert "*" not in document.text(), "many readers take the colon after an alias as a part of its name"
    assert yaml.safe_load(document.text()) == {"a": {"p": 1, "q": 2}, "b": {"p": 9, "q": 2}}


@pytest.mark.parametrize("value", ["1e-5", "2E7", "0o17", ".5e3", "+1e3"])
def test_a_text_that_looks_like_a_number_to_other_versions_of_yaml_is_quoted(value: str) -> None:
    document = read_document("x: 1\n", "yaml")
    document.set("x", value)
    assert document.text() == f"x: '{value}'\n"


@pytest.mark.parametrize(("kind", "text"), [("yaml", "a:\nb: 1\n"), ("json", '{"a": null, "b": 1}')])
def test_a_new_value_makes_a_section_of_null_and_of_nothing_else(kind: str, text: str) -> None:
    document = read_document(text, kind)
    document.set("a.x.y", 2, new=True)
    assert yaml.safe_load(document.text()) == {"a": {"x": {"y": 2}}, "b": 1}
    with pytest.raises(UnknownPath):
        document.set("b.x", 2, new=True)
    with pytest.raises(UnknownPath):
        read_document(text, kind).set("a.x", 2)


def test_a_new_section_of_toml_keeps_its_value_if_the_section_above_is_in_several_places() -> None:
    document = read_document("[a.one]\nx = 1\n[b]\ny = 1\n[a.two]\nz = 1\n", "toml")
    document.set("a.three.new", 5, new=True)
    assert tomllib.loads(document.text())["a"] == {"one": {"x": 1}, "two": {"z": 1}, "three": {"new": 5}}


def test_null_within_a_list_of_toml_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="TOML has no null; remove it from the list or section"):
        read_document("", "toml").set("x", [1, None], new=True)


@pytest.mark.parametrize(("kind", "text"), [("yaml", "a: [1"), ("json", "{a}"), ("toml", "a = ")])
def test_a_file_that_does_not_parse_is_said_with_the_place(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is not valid (YAML|JSON|TOML) \(.*(line|column) \d"):
        read_document(text, kind)


def test_a_trial_gets_its_files_with_types_and_null(tmp_path: Path) -> None:
    (tmp_path / "base.yml").write_text("lr: 1\nresume: x\nname: y\n")
    files = {
        "main": ConfigFile(
            source=str(tmp_path / "base.yml"), values={"lr": "{lr}", "resume": "{none}", "name": "run-{r}"}
        ),
        "other": ConfigFile(format="toml", values={"+lr": "{lr}", "+resume": "{none}"}),
    }
    write_files(files, tmp_path, LOOKUP)
    assert yaml.safe_load((tmp_path / "main.yml").read_text()) == {"lr": 1e-05, "resume": None, "name": "run-8"}
    assert tomllib.loads((tmp_path / "other.toml").read_text()) == {"lr": 1e-05}


# --- checkpoints --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_complete_when_its_last_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "done").write_text("old")
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", complete="done"), tmp_path)
    folder = tmp_path / "checkpoint-10"
    folder.mkdir()
    (folder / "weights").write_text("x")
    assert [watch.find() for _ in range(3)] == [[], [], []]
    (folder / "done").write_text("")
    found = [each.step for _ in range(3) for each in watch.find()]
    assert found == [10], "once, and not the one that was there before"


def test_a_checkpoint_without_a_last_file_is_complete_when_it_has_settled(tmp_path: Path) -> None:
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", pattern="*.pt", settled_s=0.2), tmp_path)
    (tmp_path / "epoch3-step40.pt").write_text("x")
    assert watch.find() == []
    time.sleep(0.1)
    (tmp_path / "epoch3-step40.pt").write_text("xy")
    time.sleep(0.15)
    assert watch.find() == []
    time.sleep(0.25)
    (found,) = watch.find()
    assert (found.path.name, found.step) == ("epoch3-step40.pt", 40)
    assert watch.find(ended_well=True) == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("weights.03-0.25.hdf5", 3),  # as Keras names them
        ("epoch=3-step=40-val_loss=0.25.ckpt", 40),
        ("ckpt.1000", 1000),
        ("model_v1.5_step20.pt", 20),
        ("best-0.93.pt", None),
        ("best.h5", None),
    ],
)
def test_the_step_of_a_checkpoint_is_no_metric_in_its_name(name: str, step: int | None, tmp_path: Path) -> None:
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", pattern="*"), tmp_path)
    (tmp_path / name).write_text("x")
    assert [each.step for each in watch.find(ended_well=True)] == [step]


def test_a_program_that_fails_leaves_no_checkpoint_that_it_was_just_writing(tmp_path: Path) -> None:
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", settled_s=5), tmp_path)
    for name, age in (("checkpoint-1", 60), ("checkpoint-2", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("x")
        os.utime(tmp_path / name / "weights", (time.time() - age,) * 2)
    assert [each.step for each in watch.find(ended_well=False)] == [1]
    assert [each.step for each in watch.find(ended_well=True)] == [2]


def test_a_program_may_remove_checkpoints_while_they_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint-1" / "shards").mkdir(parents=True)
    (tmp_path / "checkpoint-1" / "shards" / "weights").write_text("x")
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", settled_s=0.0), tmp_path)
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "weights").write_text("x")
    scan = os.scandir

    def removing(path: Any) -> Any:
        if not isinstance(path, int) and Path(path) == tmp_path / "checkpoint-1" / "shards":
            shutil.rmtree(tmp_path / "checkpoint-1", ignore_errors=True)
        return scan(path)

    monkeypatch.setattr(os, "scandir", removing)
    assert [each.step for each in watch.find(ended_well=True)] == [2]
    assert not (tmp_path / "checkpoint-1").exists()


# --- the process --------------------------------------------------------------------------------------------

TREE = r"""
import subprocess, sys, time
deaf = r"import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf\n', end='', flush=True); time.sleep(60)"
for own_session in (False, True):  # the latter as torchrun starts its workers
    child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=own_session)
    print(f"{child.pid}\n", end="", flush=True)
daemon = r"import os, time; os.fork() and os._exit(0); os.write(1, b'%d\n' % os.getpid()); os.closerange(0, 3)"
subprocess.run([sys.executable, "-c", daemon + "; time.sleep(60)"], start_new_session=True)
print("error", file=sys.stderr, flush=True)
time.sleep(60)
"""


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_program_is_ended_with_all_that_it_has_started_but_daemons(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    program = Program([sys.executable, "-c", TREE], environment=dict(os.environ), grace_s=0.5, on_line=lines.append)
    wait_until(lambda: len(lines) == 6)
    assert program.poll() is None
    *children, daemon = (int(line) for line in lines if line.isdecimal())
    try:
        program.end()
        assert program.poll() == -signal.SIGTERM
        wait_until(lambda: all(has_ended(child) for child in children))
        assert not has_ended(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)
    out, err = capfd.readouterr()
    assert str(children[0]) in out
    assert "error" in err
    program.end()  # once more does nothing


def test_a_process_that_got_the_id_of_an_ended_one_is_left_alone() -> None:
    before, other = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2))
    (start,) = guard.processes_of(other.pid, {}).values()
    before.kill()
    before.wait()
    try:
        guard.end_group(before.pid, 0, {other.pid: start + b"1"})
        assert other.poll() is None
        guard.end_group(before.pid, 0, {other.pid: start})
        assert other.wait() in (-signal.SIGTERM, -signal.SIGKILL)
    finally:
        other.kill()


@pytest.mark.parametrize("launcher", [[], pytest.param(["setsid", "--wait"], marks=pytest.mark.slow)])
def test_a_program_is_ended_when_the_process_that_started_it_is_killed(launcher: list[str], tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from sweeps_train.command.program import Program\n"
        f"Program({[*launcher, 'sleep', '61']}, environment=dict(os.environ), grace_s=1)\n"
        "open('started', 'w').close()\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    wait_until((tmp_path / "started").exists)
    started = psutil.Process(worker.pid).children
    wait_until(lambda: any(each.name() == "sleep" for each in started(recursive=True)))
    (program,) = [each for each in started(recursive=True) if each.name() == "sleep"]
    if launcher:  # the guard has looked by then; and Ray ends a worker's own children before the worker
        time.sleep(3 * guard.LOOK_S)
        started()[0].kill()
    worker.kill()
    worker.wait()
    wait_until(lambda: has_ended(program.pid))


def test_lines_that_a_progress_bar_overwrites_are_read_and_text_that_is_no_utf8_is_no_error() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'a\rb\xff\nlast')"]
    program = Program(command, environment=dict(os.environ), grace_s=1, on_line=lines.append)
    assert program.wait() == 0
    program.end()
    assert lines == ["a", "b�", "last"]
    assert list(program.last_lines) == ["a", "b�", "last"]


def test_a_line_of_any_length_is_read_as_fast_as_it_is_printed() -> None:
    lengths: list[int] = []
    command = [sys.executable, "-c", "print('x' * 10**8); print('end')"]  # joined piece by piece it would take hours
    program = Program(command, environment=dict(os.environ), grace_s=1, on_line=lambda line: lengths.append(len(line)))
    assert program.wait() == 0
    program.end()
    assert lengths == [10**8, 3]


@pytest.mark.parametrize(
    ("text", "at", "value"),
    [
        ("{checkpoint?resume:scratch}", "x", "resume"),
        ("{checkpoint?resume:scratch}", None, "scratch"),
        ("{checkpoint?resume}", None, None),
        ("--from={checkpoint?resume}", None, "--from="),
        ("--from={checkpoint?resume:scratch}", "x", "--from=resume"),
    ],
)
def test_a_placeholder_may_stand_for_a_word_for_each_case(text: str, at: str | None, value: str | None) -> None:
    assert Template(text).value({"checkpoint": at}.__getitem__) == value
    assert Template(text).names == ["checkpoint"]
    assert Template(text).names_of_values == []


@pytest.mark.parametrize("move", [False, True])
def test_a_checkpoint_of_which_the_program_removes_a_file_meanwhile_is_not_set_aside(
    tmp_path: Path, move: bool
) -> None:
    watch = CheckpointWatch(ProgramCheckpoints(folder=str(tmp_path), pattern="c-*"), tmp_path)
    for number in (1, 2):
        (tmp_path / f"c-{number}" / "deep").mkdir(parents=True)
        for name in ("model", "state"):
            (tmp_path / f"c-{number}" / "deep" / name).write_text("x")
    one, two = watch.find(ended_well=True)
    (one.path / "deep" / "model").unlink()
    assert set_aside(one, tmp_path / "aside", move=move) is None
    assert not (tmp_path / "aside").exists()
    assert (one.path / "deep" / "state").exists()
    aside = set_aside(two, tmp_path / "aside", move=move)
    assert aside is not None
    assert sorted(each.name for each in (aside / "deep").iterdir()) == ["model", "state"]


@pytest.mark.parametrize("name", ["step-{}", "step-{}.pt"])
def test_a_program_finds_nothing_newer_than_the_checkpoint_that_is_put_back(name: str, tmp_path: Path) -> None:
    saved, out = tmp_path / "saved", tmp_path / "out"
    for folder, steps in ((saved, [5]), (out, [4, 5, 6, 10])):
        folder.mkdir()
        for step in steps:
            path = folder / name.format(step)
            if path.suffix:
                path.write_text(folder.name)
            else:
                path.mkdir()
                (path / "state").write_text(folder.name)
    (out / "step-notes").touch()
    left = tmp_path / ".sweeps-removed" / name.format(6)  # by an attempt that was killed as it removed a checkpoint
    left.mkdir(parents=True)
    (left / "state").touch()
    put_back(saved / name.format(5), out, "step-*", own=tmp_path)
    assert not left.exists()
    assert {each.name for each in out.iterdir()} == {name.format(4), name.format(5), "step-notes"}
    found = out / name.format(5)
    assert (found if found.is_file() else found / "state").read_text() == "saved"


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [("out", "*/step-*"), ("out", "../../step-*"), ("out", "step-*"), ("out/run", "step-*"), ("../mine", "step-*")],
)
def test_later_checkpoints_are_removed_from_the_trials_own_folder_alone(
    folder: str, pattern: str, tmp_path: Path
) -> None:
    own, out, mine = tmp_path / "own", tmp_path / "own" / "out", tmp_path / "mine"
    for path in (out, mine / "step-9", tmp_path / "step-9"):
        path.mkdir(parents=True)
        (path / "state").touch()
    (out / "run").symlink_to(mine)
    (out / "step-9").symlink_to(mine / "step-9")
    (tmp_path / "step-5").touch()
    put_back(tmp_path / "step-5", own / folder, pattern, own=own)
    assert (own / folder / "step-5").exists()
    assert [each.name for each in own.iterdir()] == ["out"]
    assert (tmp_path / "step-9" / "state").exists()
    assert (mine / "step-9" / "state").exists()
    assert (out / "step-9").is_symlink() == ((folder, pattern) != ("out", "step-*"))


def test_a_later_checkpoint_of_which_something_cannot_be_removed_is_found_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "step-9").mkdir(parents=True)
    (tmp_path / "out" / "step-9" / ".nfs1").touch()
    (tmp_path / "step-5").touch()
    real = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if os.fspath(path).endswith(".nfs1"):  # on a network file system, as long as a process has it open
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        real(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    put_back(tmp_path / "step-5", tmp_path / "out", "step-*", own=tmp_path)
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["step-5"]


def test_a_config_file_is_none_of_the_checkpoints_that_are_removed(tmp_path: Path) -> None:
    own, saved = tmp_path / "own", tmp_path / "step-1"
    own.mkdir()
    saved.touch()
    checkpoints = ProgramCheckpoints(folder=str(own), pattern="*", put_back=True)
    program = task(files={"gpt2": ConfigFile(format="yaml", values={"+r": "{r}"})}, checkpoints=checkpoints)
    module._prepare(program, own, own, str(saved), LOOKUP)
    assert {each.name for each in own.iterdir()} == {"gpt2.yaml", "step-1"}


def test_a_checkpoint_is_put_back_under_its_own_name_and_is_no_new_one(tmp_path: Path) -> None:
    saved, out = tmp_path / "saved", tmp_path / "out"
    (saved / "step-7").mkdir(parents=True)
    (saved / "step-7" / "state").write_text("7")
    (saved / "ckpt.pt").write_text("new")
    out.mkdir()
    (out / "ckpt.pt").write_text("older than that")
    (out / "step-7").mkdir()
    (out / "step-7" / "half written").touch()
    for name in ("ckpt.pt", "step-7"):
        put_into(saved / name, out)
    assert (out / "ckpt.pt").read_text() == "new"
    assert [each.name for each in (out / "step-7").iterdir()] == ["state"]
    watch = CheckpointWatch(ProgramCheckpoints(folder=str(out), pattern="ckpt.pt"), out)
    assert watch.find(ended_well=True) == []
    (out / "ckpt.pt").write_text("newer")
    assert [each.path.name for each in watch.find(ended_well=True)] == ["ckpt.pt"]
