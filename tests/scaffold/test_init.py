"""New projects: each kind is written whole, makes a plan as it is, trains, and passes its own test."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from composing import planned
from documents import blocks_of
from processes import outputs, run_python
from running import run
from verbs import refusal

from sweeps.cli import run_command
from sweeps.scaffold.kinds import KINDS


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a plan puts the working folder on the import path."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_of_each_kind_makes_a_plan_as_it_is_written(
    kind: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["init", "mine", f"--kind={kind}"]) == (0, None)
    assert capsys.readouterr().out.splitlines() == [
        "cd mine && python -m sweeps run conf=mine --config-dir conf --dry-run",
        "python -m sweeps run conf=mine --config-dir conf",
    ]
    monkeypatch.chdir(working_folder / "mine")
    plan = planned("conf=mine", folders=[Path("conf")])
    assert plan.space
    told = ["scaling.isolation=auto"] if kind in ("function", "huggingface", "lightning", "script") else []
    assert [note.partition(":")[0] for note in plan.notes] == told
    own_values = plan.points.lookup("search.num_trials")
    assert own_values == 8


def test_every_kind_of_project_and_every_verb_is_in_the_document(checkout: Path) -> None:
    document = checkout / "docs" / "first_steps.md"
    assert [kind for kind in KINDS if f"| `{kind}` |" not in document.read_text(encoding="utf-8")] == []
    verbs = {verb for block in blocks_of(document) for verb in re.findall(r"python -m sweeps (\w+)", block.text)}
    assert verbs == {"init", "convert", "completion"}


def test_every_file_of_a_project_is_formatted_and_free_of_lint(working_folder: Path) -> None:
    for kind in KINDS:
        run_command(["init", kind, f"--kind={kind}"])
    options = ("--isolated", "--line-length=120", str(working_folder))
    for command in ("check", "format --check --diff"):
        run_python("-m", "ruff", *command.split(), *options)


def test_no_file_is_overwritten_and_then_none_is_written(working_folder: Path) -> None:
    (working_folder / "train.py").write_text("mine")
    status, message = run_command(["init", "--kind=function"])
    assert (status, message) == (
        2,
        "train.py already exists, and no file is overwritten; remove it, or choose another folder",
    )
    assert [path.name for path in working_folder.iterdir()] == ["train.py"]
    assert (working_folder / "train.py").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_followed(working_folder: Path) -> None:
    (working_folder / "train.py").symlink_to(working_folder.parent / "elsewhere.py")
    assert run_command(["init", "--kind=function"])[0] == 2
    assert not (working_folder.parent / "elsewhere.py").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init"], ["--kind", "no terminal", "huggingface"]),
        (["init", "--kind=lightening"], ["--kind=lightening", "did you mean lightning"]),
        (["init", "--kind=lora", "--name=a/b"], ["--name=a/b", "letters"]),
        (["init", "file/below", "--kind=lora"], ["file", "cannot be written"]),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments: list[str], words: list[str], working_folder: Path) -> None:
    (working_folder / "file").write_text("")
    message = refusal(*arguments)
    assert [word for word in words if word not in message] == []
    assert [path.name for path in working_folder.iterdir()] == ["file"]


def test_the_name_of_a_folder_becomes_one_that_a_config_can_have(working_folder: Path) -> None:
    assert run_command(["init", "my project (new)", "--kind=lora"])[0] == 0
    assert (working_folder / "my project (new)" / "conf" / "my_project_new.yaml").exists()


def test_on_a_terminal_it_asks_what_is_trained(working_folder: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps", "init"], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.write(controller, f"{[*KINDS].index('lora') + 1}\n".encode())
    out, _ = outputs(process, 60)
    os.close(terminal)
    asked = os.read(controller, 10_000).decode()
    os.close(controller)
    assert process.returncode == 0
    assert "LoRA of a language model" in asked
    assert "What is trained?" in asked
    assert out.startswith("python -m sweeps run conf=work --config-dir conf --dry-run\n")
    assert (working_folder / "make_examples.py").exists()


OWN_DATA = [("lora", "make_examples.py", "examples.jsonl"), ("table", "make_table.py", "table.csv")]


@pytest.mark.parametrize(("kind", "script", "data"), OWN_DATA)
def test_the_script_of_a_project_writes_the_same_data(kind: str, script: str, data: str, working_folder: Path) -> None:
    assert run_command(["init", f"--kind={kind}"])[0] == 0
    written = (working_folder / data).read_text()
    (working_folder / data).unlink()
    subprocess.run([sys.executable, script], check=True)
    assert (working_folder / data).read_text() == written
    columns = json.loads(written.splitlines()[0]) if data.endswith("jsonl") else written.splitlines()[0].split(",")
    assert len(columns) >= 2


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("kind", KINDS)
def test_a_project_of_each_kind_trains_and_passes_its_own_test(kind: str, working_folder: Path) -> None:
    assert run_command(["init", f"--kind={kind}", "--name=mine"])[0] == 0
    short = [f"{key}={value}" for key, value in KINDS[kind].short.items()]
    done = run(working_folder, "conf=mine", "--config-dir=conf", *short, "search.num_trials=2", "cluster.num_cpus=2")
    assert done.status == 0, done.err
    assert done.document["counts"]["failed"] == 0
    assert done.document["best"]["value"] is not None
    own = run_python("-m", "pytest", "-q", "test_sweep.py")
    assert "2 passed" in own.stdout
