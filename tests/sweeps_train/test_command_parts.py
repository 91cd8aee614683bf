"""Parts of ``task=command``: placeholders, command lines, config files, metrics in output and files, checkpoints."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tensorboardX import SummaryWriter

from sweeps_train.command.checkpoints import CheckpointWatch
from sweeps_train.command.command_line import command_line, words
from sweeps_train.command.config_files import UnknownPath, read_document, write_files
from sweeps_train.command.measurements import Measurements
from sweeps_train.command.output import dictionary_record, json_record, parsers, pattern_record, record_in
from sweeps_train.command.placeholders import Template, config_values
from sweeps_train.command.program import Program
from sweeps_train.command.sources import CsvTail, EventFiles, JsonLinesTail, MlflowStore, file_sources
from sweeps_train.config import CommandTask
from sweeps_train.config.command import ConfigFile, JsonLines, MlflowRun, PrintedDictionaries, ProgramCheckpoints

VALUES: dict[str, Any] = {"lr": 1e-05, "name": "a b; rm -rf /", "r": 8, "none": None, "flag": True, "list": [1, "x"]}
LOOKUP = VALUES.__getitem__


def task(command: str | list[str | int | float] = "train", **fields: Any) -> CommandTask:
    return CommandTask(kind="command", command=command, **fields)


# --- command lines ------------------------------------------------------------------------------------------


def test_values_are_filled_in_after_splitting_so_that_each_stays_one_word() -> None:
    line = command_line(task("train 'my file' --name {name} --lr={lr:.0e} {{braces}} {list}"), LOOKUP)
    assert line == ["train", "my file", "--name", "a b; rm -rf /", "--lr=1e-05", "{braces}", '[1, "x"]']


def test_a_command_may_be_a_list_of_words() -> None:
    assert command_line(task(["train", "--epochs", 3, "{name}"]), LOOKUP) == ["train", "--epochs", "3", VALUES["name"]]


def test_options_without_a_value_are_left_out_and_true_adds_the_name_alone() -> None:
    options = {"--resume": "{none}", "--fp16": "{flag}", "lr=": "{lr}", "--no": False, "--rank": "{r}", "--x": "r{r}"}
    line = command_line(task(options=options), LOOKUP)
    assert line == ["train", "--fp16", "lr=1e-05", "--rank", "8", "--x", "r8"]


def test_all_arguments_can_be_given_as_options_at_once() -> None:
    arguments = {"lr": 0.1, "fast": True, "slow": False, "name": "a b"}
    assert command_line(task("train {arguments}"), {"arguments": arguments}.__getitem__) == [
        "train", "--lr=0.1", "--fast", "--name=a b"
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{", "a } b", '{"a": 1}', "{}", "{lr!r}", "{a b}", "{lr:{r}}"])
def test_braces_that_hold_no_name_are_named_with_the_way_to_write_them(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \{\{ and \}\} for braces"):
        Template(text)


@pytest.mark.parametrize("command", ["train 'a", "", []])
def test_a_command_without_a_word_or_with_an_open_quote_is_refused(command: Any) -> None:
    with pytest.raises(ValueError, match=r"names no program|No closing quotation"):
        words(task(command))


def test_a_placeholder_is_an_argument_or_else_a_value_of_the_config() -> None:
    program = task("train {lr} {train.lr} {seed} {rank} {optimizer.beta} {nothing}", arguments={
        "lr": 1.0, "rank": 4, "optimizer": {"beta": 0.9}
    })  # fmt: skip
    values, unknown = config_values(program, {"lr": 2.0, "seed": 3, "train": {"lr": 4.0}})
    assert values == {"lr": 1.0, "train.lr": 4.0, "seed": 3, "rank": 4, "optimizer.beta": 0.9}
    assert unknown == ["nothing"]


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


@pytest.mark.parametrize(("kind", "text"), [("yaml", "a: [1"), ("json", "{a}"), ("toml", "a = ")])
def test_a_file_that_does_not_parse_is_said_with_the_place(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (YAML|JSON|TOML) \(.*(line|column) \d"):
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


# --- metrics in the output ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"loss": 0.5, "step": 3}', {"loss": 0.5, "step": 3}),
        ('2026-01-01 INFO {"eval": {"loss": "0.5"}, "done": true}', {"eval/loss": 0.5}),
        ("{'loss': '2.578', 'grad_norm': nan, 'epoch': '1e-2'}", {"loss": 2.578, "grad_norm": math.nan, "epoch": 0.01}),
        (
            "{'a': tensor(-0.5, device='cuda:0'), 'b': np.float64(1.5), 'c': -inf}",
            {"a": -0.5, "b": 1.5, "c": -math.inf},
        ),
        ("{'loss': __import__('os').system('x')}", {}),
        ("{'loss': (lambda: 1)()}", {}),
        ("{" * 10_000, {}),
        ("loss 0.5", {}),
        ("[1, 2]", {}),
        ("{1, 2}", {}),
    ],
)
def test_numbers_are_found_in_json_lines_and_printed_dictionaries(line: str, expected: dict[str, float]) -> None:
    found = record_in(line, parsers([JsonLines(kind="json"), PrintedDictionaries(kind="dict")]))
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_printed_dictionary_is_never_evaluated(capfd: pytest.CaptureFixture[str]) -> None:
    assert dictionary_record("{'loss': print('evaluated')}") == {}
    assert capfd.readouterr().out == ""


def test_json_is_no_pattern_and_a_pattern_gives_its_named_groups() -> None:
    assert json_record("{'loss': 1}") == {}
    parse = pattern_record(r"\[(?P<step>\d+)\]\s+eval-rmse:(?P<rmse>\S+)( .*(?P<note>fast))?")
    assert parse("[7]\teval-rmse:0.25 fast") == {"step": 7, "rmse": 0.25}
    assert parse("[7]") == {}


# --- steps and reports --------------------------------------------------------------------------------------


def measured(measurements: Measurements, *records: dict[str, float]) -> list[tuple[int, bool]]:
    taken = [measurements.take(record) for record in records]
    return [(each.step, each.is_report) for each in taken]


def test_records_are_counted_if_none_has_a_step() -> None:
    measurements = Measurements(objectives=["eval/loss"], rename={"eval_loss": "eval/loss"})
    assert measured(measurements, {"loss": 1}, {"eval_loss": 2}, {"loss": 1}) == [(1, False), (2, True), (3, False)]


def test_a_program_that_continues_does_not_report_steps_again() -> None:
    measurements = Measurements(objectives=["loss"], done=4)
    records: list[dict[str, float]] = [{"step": 4, "loss": 1.0}, {"step": 5, "loss": 1.0}]
    assert measured(measurements, *records) == [(4, False), (5, True)]


def test_a_report_is_made_when_all_objectives_have_come_and_has_limited_metrics() -> None:
    measurements = Measurements(objectives=["loss", "size"], limited=["memory"])
    taken = [
        measurements.take(record)
        for record in ({"step": 1.0, "memory": 9.0}, {"step": 2.0, "size": 3.0}, {"step": 2.0, "loss": 1.0})
    ]
    assert [each.is_report for each in taken] == [False, False, True]
    assert taken[-1].metrics == {"memory": 9.0, "size": 3.0, "loss": 1.0}


def test_a_step_that_goes_back_is_recorded_and_said_once_to_the_user() -> None:
    notes: list[str] = []
    measurements = Measurements(objectives=["loss"], note=notes.append)
    records: list[dict[str, float]] = [{"step": 5, "loss": 1.0}, {"step": 5, "loss": 1.0}, {"step": 4, "loss": 1.0}]
    assert [is_report for _, is_report in measured(measurements, *records)] == [True, False, False]
    assert notes == ["its report of step 5 follows that of step 5: it is recorded, not judged"]


def test_a_step_that_is_no_whole_number_is_refused_if_it_was_named() -> None:
    assert measured(Measurements(objectives=["loss"]), {"step": 0.5, "loss": 1}) == [(1, True)]
    with pytest.raises(ValueError, match=r"task\.step=epoch: it was 0\.5, and a step is a whole number"):
        Measurements(objectives=["loss"], step="epoch").take({"epoch": 0.5, "loss": 1})


# --- metrics in files ---------------------------------------------------------------------------------------


def test_a_csv_file_is_read_as_it_grows_without_half_lines(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    source = CsvTail(file)
    assert source.read() == []
    with file.open("a", buffering=1) as log:
        log.write("step, loss,note\n1,0.5,a\n2,0.")
        log.flush()
        assert source.read() == [{"step": 1, "loss": 0.5}]
        log.write("25,b\n3,0.125")
        log.flush()
        assert source.read() == [{"step": 2, "loss": 0.25}]
        assert source.read(at_end=True) == [{"step": 3, "loss": 0.125}]


def test_what_an_earlier_attempt_has_written_is_left_out_and_a_new_file_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss\n1,0.5\n2,0.4\n")
    source = CsvTail(file)
    with file.open("a") as log:
        log.write("3,0.3\n")
    assert source.read() == [{"step": 3, "loss": 0.3}]
    file.write_text("loss\n0.1\n")
    assert source.read() == [{"loss": 0.1}]


def test_a_file_of_json_lines_is_read_as_it_grows(tmp_path: Path) -> None:
    source = JsonLinesTail(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text('{"current_steps": 5, "loss": 0.5}\n{"current')
    assert source.read() == [{"current_steps": 5, "loss": 0.5}]


def test_tensorboards_events_are_read_by_step_from_any_depth(tmp_path: Path) -> None:
    source = EventFiles(tmp_path)
    with SummaryWriter(str(tmp_path / "run" / "deep")) as writer:
        for step in (1, 2):
            writer.add_scalar("eval/loss", 1 / step, step)
            writer.add_scalar("train/loss", 2 / step, step)
            writer.add_text("note", "x", step)
    assert source.read() == [
        {"step": 1, "eval/loss": 1.0, "train/loss": 2.0},
        {"step": 2, "eval/loss": 0.5, "train/loss": 1.0},
    ]
    assert source.read() == []


def test_an_event_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        writer.add_scalar("loss", 0.5, 1)
    (whole,) = (tmp_path / "whole").iterdir()
    data = whole.read_bytes()
    part = tmp_path / "run" / "events.out.tfevents.1"
    part.parent.mkdir()
    source = EventFiles(part.parent)
    part.write_bytes(data[:-5])
    assert source.read() == []
    part.write_bytes(data)
    assert source.read() == [{"step": 1, "loss": 0.5}]
    assert struct.unpack("<Q", data[:8])[0] > 0


def test_metrics_that_a_program_logs_to_mlflow_are_read_from_its_store(tmp_path: Path) -> None:
    store = tmp_path / "mlruns"
    source = MlflowStore(store)
    code = (
        "import mlflow\n"
        "with mlflow.start_run():\n"
        "    for step in (1, 2):\n"
        "        mlflow.log_metrics({'eval/loss': 1 / step, 'train/loss': 2 / step}, step=step)\n"
    )
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store.as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, check=True, capture_output=True)
    assert source.read() == [
        {"step": 1, "eval/loss": 1.0, "train/loss": 2.0},
        {"step": 2, "eval/loss": 0.5, "train/loss": 1.0},
    ]
    assert [type(each) for each in file_sources([MlflowRun(kind="mlflow")], tmp_path, LOOKUP)] == [MlflowStore]


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


def test_a_program_that_fails_leaves_no_checkpoint_that_it_was_just_writing(tmp_path: Path) -> None:
    watch = CheckpointWatch(ProgramCheckpoints(folder="out", settled_s=5), tmp_path)
    for name, age in (("checkpoint-1", 60), ("checkpoint-2", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("x")
        os.utime(tmp_path / name / "weights", (time.time() - age,) * 2)
    assert [each.step for each in watch.find(ended_well=False)] == [1]
    assert [each.step for each in watch.find(ended_well=True)] == [2]


# --- the process --------------------------------------------------------------------------------------------

TREE = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(child.pid, flush=True)
print("error", file=sys.stderr, flush=True)
time.sleep(60)
"""


def wait_for(condition: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_program_is_ended_with_all_that_it_has_started(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    program = Program([sys.executable, "-c", TREE], environment=dict(os.environ), grace_s=0.5, on_line=lines.append)
    wait_for(lambda: len(lines) == 2)
    assert program.poll() is None
    child = int(next(line for line in lines if line.isdecimal()))
    program.end()
    assert program.poll() == -signal.SIGTERM
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    out, err = capfd.readouterr()
    assert str(child) in out
    assert "error" in err
    program.end()  # once more does nothing


def test_a_program_is_ended_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from sweeps_train.command.program import Program\n"
        "Program(['sleep', '61'], environment=dict(os.environ), grace_s=1)\n"
        "open('started', 'w').close()\n"
        "time.sleep(60)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    wait_for((tmp_path / "started").exists)
    (program,) = [each for each in psutil.Process(worker.pid).children() if each.name() == "sleep"]
    worker.kill()
    worker.wait()
    wait_for(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)


def test_lines_that_a_progress_bar_overwrites_are_read_and_text_that_is_no_utf8_is_no_error() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'a\rb\xff\nlast')"]
    program = Program(command, environment=dict(os.environ), grace_s=1, on_line=lines.append)
    assert program.wait() == 0
    program.end()
    assert lines == ["a", "b�", "last"]
    assert list(program.last_lines) == ["a", "b�", "last"]
