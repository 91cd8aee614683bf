"""Each trial of a user's code works in a folder of its own; the paths of its data stay those of the start folder."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from running import NO_PREFLIGHT, run

import sweeps_train
from sweeps.worker_error import FROM_OUTSIDE
from sweeps_train.command.launch import Place
from sweeps_train.command.run import _from_anywhere, _start
from sweeps_train.config import Checkpoint, CommandConfig, CommandTask
from sweeps_train.workers.own_folder import (
    START_FOLDER,
    as_seen_from_anywhere,
    hint,
    own_folder,
    start_folder,
    working_in,
)

COMMON = """
import json, os, sys, time
from pathlib import Path

def own_files(lr, table, waits):
    '''What is in `best.txt`, which each trial writes, when all trials have written theirs.'''
    import sweeps_train
    assert float(Path(table).read_text()) == 0.5
    assert float((sweeps_train.start_folder() / "data" / "rate.csv").read_text()) == 0.5
    assert not Path("best.txt").exists()
    Path("best.txt").write_text(str(lr))
    marks = sweeps_train.start_folder() / "marks"
    (marks / str(lr)).touch()
    until = time.monotonic() + 60
    while len(list(marks.iterdir())) < waits and time.monotonic() < until:
        time.sleep(0.05)
    return float(Path("best.txt").read_text())
"""
PROGRAMS = {
    "users.py": """
import ray.train

def train(config):
    from common import own_files
    loss = own_files(config["lr"], config["table"], config["waits"])
    ray.train.report({"loss": loss})
""",
    "script.py": """
import json, sys
from common import own_files
given = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
print(json.dumps({"loss": own_files(float(given["lr"]), given["table"], int(given["waits"]))}))
""",
}
TASKS = {
    "function": "{kind: function, _target_: users.train, arguments: ARGUMENTS}",
    "script": "{kind: function, framework: script, _target_: script.py, arguments: ARGUMENTS}",
    "command": """{kind: command, command: "python script.py", arguments: ARGUMENTS,
      options: {--lr=: "{lr}", --table=: "{table}", --waits=: "{waits}"}}""",
}
CONF = """
defaults: [{task: KIND}, {search: optuna_asha}, {scaling: single_worker}, {checkpoint: best_and_last},
  {tracking: mlflow}, {cluster: local}, _self_]
name: own
seed: 0
output_dir: outputs
task: TASK
space:
  task.arguments.lr: {type: float, low: 0.1, high: 1.0}
search: {metric: loss, mode: min, num_trials: 2, max_concurrent: 2}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", TASKS)
def test_two_trials_at_once_that_write_the_same_name_do_not_read_each_others_file(kind: str, tmp_path: Path) -> None:
    arguments = "{lr: 0.3, table: data/rate.csv, waits: 2}"
    conf = CONF.replace("KIND", "command" if kind == "command" else "function")
    (tmp_path / "own.yaml").write_text(conf.replace("TASK", TASKS[kind].replace("ARGUMENTS", arguments)))
    for name, text in {"common.py": COMMON, **PROGRAMS}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "marks").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rate.csv").write_text("0.5")
    done = run(tmp_path, "conf=own.yaml", "cluster.num_cpus=2", "search/scheduler=none", NO_PREFLIGHT, "--name=own")
    trials = done.document["trials"]
    assert [trial["value"] for trial in trials] == [trial["params"]["task.arguments.lr"] for trial in trials]
    assert not (tmp_path / "best.txt").exists()
    for trial in trials:
        own = tmp_path / "outputs" / "own" / "trials" / trial["trial"] / "program"
        assert float((own / "best.txt").read_text()) == trial["value"]


@pytest.fixture
def start(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, as the one in which the sweep was started."""
    monkeypatch.setenv(START_FOLDER, str(working_folder))
    return working_folder


def test_the_working_folder_is_the_trials_own_and_as_before_afterwards(start: Path) -> None:
    own = own_folder("trials/0003")
    assert own == start / "trials" / "0003" / "program"
    with working_in(own):
        assert Path.cwd() == own
        assert start_folder() == sweeps_train.start_folder() == start
    assert Path.cwd() == start


def test_a_file_that_only_the_start_folder_has_is_named_with_what_to_write(start: Path) -> None:
    (start / "rows.csv").touch()
    with pytest.raises(FileNotFoundError, match=r"start_folder\(\) / 'rows.csv'"), working_in(own_folder("0003")):
        Path("rows.csv").read_text()

    def read(name: str) -> None:
        Path("other.csv").read_text()

    with pytest.raises(FileNotFoundError) as nowhere, working_in(own_folder("0003")):
        read("rows.csv")
    assert "start_folder" not in str(nowhere.value)


CALLS = """
def library(name, text, cache_dir=None):
    raise OSError(text)

def unprepared(name):
    raise FileNotFoundError("run prepare.py first")

def users_own(which, here):
    others = "other.csv"
    if which == 0:
        library("rows.csv", f"Unable to find '{here}/rows.csv'")  # datasets
    elif which == 1:
        library("my data", "Directory my data not found")
    elif which == 2:
        library("tiny model", "Repo id must use alphanumeric chars, '-', '_' or '.': 'tiny model'.")  # transformers
    elif which == 3:
        unprepared("my data")
    elif which == 4:
        library("bert-base-uncased", "cannot connect to the hub", cache_dir="my data")
    library(
        "tiny_model",
        "We couldn't connect to the hub to load the files.\\nCheck your internet connection.",
    )
"""


@pytest.fixture
def users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Path], None]:
    """Function of a user, in a start folder with the files and folders that it names."""
    start = tmp_path / "my 50% project"
    for each in ("tiny model", "tiny_model", "my data"):
        (start / each).mkdir(parents=True)
    for each in ("rows.csv", "other.csv"):
        (start / each).touch()
    (start / "users.py").write_text(CALLS)
    monkeypatch.chdir(start)
    monkeypatch.setenv(START_FOLDER, str(start))
    function: Callable[[int, Path], None] = runpy.run_path(str(start / "users.py"))["users_own"]
    return function


@pytest.mark.parametrize(
    ("which", "name", "more"),
    [
        (0, "rows.csv", ""),
        (1, "my data", "; Directory my data not found"),
        (2, "tiny model", ""),
        (3, "my data", "; run prepare.py first"),
        (5, "tiny_model", ""),
    ],
)
def test_a_library_that_does_not_find_what_the_start_folder_has_is_answered_the_same(
    which: int, name: str, more: str, users_own: Callable[[int, Path], None]
) -> None:
    own = own_folder("0003")
    words = rf"^No such file or directory; the trial works in .*start_folder\(\) / '{name}'{more}$"
    with pytest.raises(FileNotFoundError, match=words) as caught, working_in(own):
        users_own(which, own)
    assert not FROM_OUTSIDE.search(str(caught.value))  # so that the driver does not try it again


def test_an_option_of_a_call_that_does_not_reach_the_network_is_not_what_it_misses(
    users_own: Callable[[int, Path], None],
) -> None:
    own = own_folder("0003")
    with pytest.raises(OSError, match=r"^cannot connect to the hub$"), working_in(own):
        users_own(4, own)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("rows.csv"),
        OSError(28, "No space left: rows.csv"),
        ValueError("rows.csv"),
        TimeoutError("the server does not answer"),
        ConnectionError("the server is gone"),
    ],
)
def test_an_error_about_something_else_stays_as_it_is(error: Exception, start: Path) -> None:
    (start / "rows.csv").touch()

    def raised(name: str) -> None:
        raise error

    with pytest.raises(type(error)) as caught, working_in(own_folder("0003")):
        raised("rows.csv")
    assert caught.value is error


def test_a_program_that_misses_a_file_of_the_start_folder_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    lines = ["reading 'rows.csv'", "FileNotFoundError: [Errno 2] No such file or directory: 'rows.csv'"]
    assert "{start_folder}/rows.csv" in hint(lines, tmp_path)
    assert f"give it {tmp_path}/rows.csv" in hint(lines, tmp_path, str(tmp_path))
    assert hint(lines[:1], tmp_path) == ""
    assert "{start_folder}/./rows.csv" in hint(["FileNotFoundError: ./rows.csv not found."], tmp_path)  # NumPy's
    absolute = f"FileNotFoundError: Unable to find '{tmp_path}/outputs/s/trials/0003/program/rows.csv'"
    assert "{start_folder}/rows.csv" in hint([absolute], tmp_path)
    assert hint([lines[1].replace("rows", "other"), "not found: '\0'"], tmp_path) == ""


def test_a_file_of_the_start_folder_becomes_absolute_in_each_form_of_a_programs_option(tmp_path: Path) -> None:
    (tmp_path / "year=2026").mkdir()
    for file in ("rows.csv", "year=2026/rows.csv"):
        (tmp_path / file).touch()
        for before in ("", "--data=", "data="):
            assert _from_anywhere(before + file, tmp_path) == f"{before}{tmp_path}/{file}"
    assert _from_anywhere("data=other.csv", tmp_path) == "data=other.csv"


def test_a_program_finds_modules_in_relative_folders_of_pythonpath(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (start / "src").mkdir()
    (start / "src" / "of_src.py").touch()
    monkeypatch.setenv("PYTHONPATH", "src")
    works_in = start / "program"
    works_in.mkdir()
    task = CommandTask(kind="command", command="python -c 'import of_src'")
    config = CommandConfig(task=task, checkpoint=Checkpoint(), objectives=["loss"])
    program = _start(config, Place(0, 0, 0, 1, 1, 1, "", 0), works_in, works_in, {}.__getitem__, None)
    assert program.wait() == 0, program.last_lines
    program.end()


def test_texts_that_name_a_file_of_the_start_folder_become_absolute_and_folders_and_other_texts_do_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").touch()
    given = {"table": "data/a.csv", "all": ["./data/a.csv", "data/b.csv"], "out": "data/", "name": "data", "lr": 0.1}
    assert as_seen_from_anywhere(given, tmp_path) == {
        **given,
        "table": f"{tmp_path}/data/a.csv",
        "all": [f"{tmp_path}/data/a.csv", "data/b.csv"],
    }
    for text in ("/etc/hostname", "x/" * 5000, "a\0/b", "..", ""):
        assert as_seen_from_anywhere(text, tmp_path) == text
