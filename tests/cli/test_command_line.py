"""The command line: what is printed, which exit status, and that mistakes start nothing and cost no time."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import run_python
from recording import free_port
from stores import make_store

from sweeps.folders.shadowing_file import shadowing_file

HEAVY = ("ray", "torch", "mlflow", "transformers", "optuna", "datasets", "sklearn", "pandas", "plotly", "matplotlib")


Typed = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], ["conf=NAME", "digits", "llm_lora"]),
        (["run", "conf=digits", "conf=llm_lora"], ["once"]),
        (["run", "conf=digits", "--multirun"], ["--multirun is an option of Hydra's own program", "leave it out"]),
        (["run", "conf=digits", "-m"], ["-m is an option of Hydra's own program"]),
        (["run", "--config-name=digits"], ["--config-name", "write conf=NAME"]),
        (["run", "conf=digits", "--resume"], ["--resume", "--name"]),
        (["submit", "--to=slurm"], ["conf=NAME", "--resume SWEEP"]),
        (["submit", "conf=digits", "--to=slum"], ["slum", "slurm"]),
        (["submit", "--resume=nothing", "--to=slurm"], ["nothing"]),
        (["run", "conf=digits", "scaling.num_workers=8", "cluster.num_cpus=2"], ["num_workers=8", "cluster.num_cpus"]),
        (
            ["run", "conf=digits", "scaling.resources_per_worker={TPU: 4}"],
            ["scaling.num_workers=2", "0 workers", "0 TPU"],
        ),
        (["run", "conf=digits", "scaling.use_gpu=true", "cluster.num_gpus=0"], ["GPU", "scaling.num_workers"]),
        (["run", "conf=llm_lora", "data=text", "data.path=./no.jsonl"], ["data.path=./no.jsonl", "no such file"]),
        (
            ["run", "conf=digits", "space=none", "model=custom", "model._target_=nowhere.Net"],
            ["model._target_=nowhere.Net", "no module"],
        ),
        (
            ["run", "conf=digits", "space=none", "model=custom", "model._target_=collections.OrderedDic"],
            ["collections", "OrderedDic"],
        ),
        (["run", "conf=ray_train_function", "task._target_=mine:train"], ["mine:train", "such as mine.train"]),
        (["run", "conf=digits", "--config-dir=nowhere"], ["--config-dir=nowhere", "no such folder"]),
        (["run", f"conf={'x' * 300}.yaml"], [f"{'x' * 300}.yaml: File name too long; use another path"]),
        (["run", "conf=digits", f"output_dir={'x' * 300}"], ["x/digits-", ": File name too long; use another path"]),
        (["init", "--kind=function", "x" * 300], ["x/train.py: File name too long; use another path"]),
        (["conf", "modle"], ["modle", "model"]),
        (["schedule", "lst"], ["lst", "did you mean list"]),
        (["schedule", "next", "nigtly"], ["nigtly", "did you mean nightly"]),
        (["schedule", "list", "service=team"], ["service=team", "no such option"]),
        (["show", "nothing"], ["nothing"]),
        (["show", "nothing", "--curves=curves.csv"], ["--curves=curves.csv: is written as Parquet", "curves.parquet"]),
        (["best", "nothing", "--alias=prod", "--save-model=x"], ["--alias has no effect here: add --register NAME"]),
        (["best", "nothing", "--merge"], ["--merge", "add --register NAME or --save-model DIR"]),
        (["retrain", "nothing", "--register=m", "--no-register"], ["--register", "--no-register", "remove one"]),
    ],
)
def test_a_mistake_exits_2_with_one_message_and_no_traceback(
    arguments: list[str], words: list[str], typed: Typed
) -> None:
    status, out, err = typed(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("sweeps: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert list(Path().iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may look into every folder")
@pytest.mark.parametrize(
    "arguments",
    ["run conf=locked/mine.yaml", "run conf=digits output_dir=locked/outputs", "init locked/mine --kind=lora"],
)
def test_a_path_in_a_folder_that_the_user_may_not_enter_is_named(arguments: str) -> None:
    Path("locked").mkdir(mode=0)
    restricted = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--") if os.geteuid() == 0 else ()
    command = [*restricted, sys.executable, "-m", "sweeps", *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "locked" in done.stderr
    assert "Permission denied; use another path" in done.stderr


def test_a_path_that_the_driver_of_a_sweep_cannot_reach_is_no_mistake_of_what_was_typed(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere")

    monkeypatch.setattr("sweeps.driver.run.announce_start", fails)
    status, _, err = typed("run", "conf=digits")
    assert (status, "use another path" in err) == (1, False), err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_started_with_closed_streams_works_and_no_file_gets_their_numbers(closed: str) -> None:
    code = "import sweeps.cli\nassert open('kept', 'w').fileno() > 2\nsweeps.cli.main()"
    done = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" list {closed}', sys.executable, code], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("verb", ["--version", "conf"], ids=["printed by click", "printed by rich"])
def test_a_command_whose_reader_has_ended_has_done_its_work(verb: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run([sys.executable, "-m", "sweeps", verb], stdout=closed, check=False)
    assert ended.returncode == 0


FAILED = """
import sys
from types import SimpleNamespace
from sweeps.cli import app, main
from sweeps.cli.app import as_json, stdout
from sweeps.cli.output import show_outcome
from sweeps.cli.remote import _print_reproduction
from sweeps.cli.simulation import _simulate
from sweeps.operations.local import Local
from sweeps.tracking.reader import record_of
from sweeps.tracking.store import RawRun

tags = {"sweeps.sweep": "first", "sweeps.kind": "sweep", "sweeps.state": "failed"}
ids = dict(run_id="1" * 32, experiment_id="0", experiment="digits")
run = RawRun(**ids, status="FAILED", started=1, ended=2, tags=tags, params={})
record = record_of("sqlite:///mlflow.db", run, [])
result = SimpleNamespace(as_json=dict, differences=["one"], describe=str, sweeps=[SimpleNamespace(record=record)])

Local.record = lambda *_: record
for name, functions in {
    "plan.resume": {"reopened": lambda *_: None},
    "simulate.replay": {"replay": lambda _: result},
    "simulate.run": {"simulate": lambda *_, **options: result},
    "simulate.simulation_summary": {"simulation_document": None, "print_simulation": lambda *_: stdout.print("1")},
}.items():
    sys.modules[f"sweeps.{name}"] = SimpleNamespace(**functions)

unequal = {"equal": False, "metrics": []}
app.command("run-here")(as_json(lambda as_json: show_outcome(record, as_json=as_json)))
app.command("reproduce-there")(lambda: _print_reproduction(record, unequal, "first", as_json=False))
app.command("simulate")(lambda: _simulate(None, None, 1, "forest", None, as_json=False))
main()
"""


@pytest.mark.parametrize(
    "typed",
    [
        "run-here",
        "run-here --json",
        "best first",
        "show first --watch",
        "replay first",
        "reproduce-there",
        "simulate",
    ],
)
def test_a_command_without_success_whose_outcome_is_not_read_has_still_none(typed: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run(
            [sys.executable, "-c", FAILED, *typed.split()],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sweeps", "conf"],
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    named = "the disk of the output or of temporary files (TMPDIR)"
    assert done.stderr == f"sweeps: {named}: No space left on device; free some, or use another disk\n"


def test_a_name_that_is_not_in_the_terminals_encoding_is_a_mistake(typed: Typed) -> None:
    make_store(Path("mlflow.db"))
    status, out, err = typed("show", os.fsdecode(b"n\xffthing"))
    assert (status, out) == (2, "")
    assert err.startswith("sweeps: 'n\\udcffthing': is not text in ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("run", "conf=digits", "preflight.timeout_s=0"), ("list", "--tracking-uri=http://127.0.0.1:1")]
)
def test_a_user_without_a_home_folder_is_told_to_set_home(arguments: tuple[str, ...]) -> None:
    """As in a container that runs as a user whom its image does not know."""
    as_unknown = ["unshare", "--user", "--map-user=54321"]
    if subprocess.run([*as_unknown, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "RAY_AUTH_TOKEN")}
    command = [*as_unknown, sys.executable, "-m", "sweeps", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "sweeps: HOME: is not set, and this user has no home folder, which Ray and MLflow need; set it to a folder "
        "that can be written, as in HOME=/tmp"
    )


def test_an_error_that_quotes_an_unknown_home_folder_keeps_its_own_message(typed: Typed) -> None:
    Path("mine.py").write_text("from pathlib import Path\nspace = Path('~nobody-of-this-name').expanduser()\n")
    status, _, said = typed("convert", "mine:space")
    assert (status, "mine cannot be imported" in said) == (2, True), said


def test_the_unknown_home_folder_of_another_user_is_not_taken_for_ones_own(typed: Typed) -> None:
    status, _, said = typed("run", "conf=~nobody-of-this-name/sweep.yaml", "--dry-run")
    assert (status, said) == (
        2,
        "sweeps: ~NAME: there is no user of this name, or none with a home folder; write the whole path\n",
    )


def test_a_folder_that_exists_already_is_not_written_over(typed: Typed) -> None:
    Path("outputs/mine").mkdir(parents=True)
    Path("outputs/mine/notes.txt").touch()
    status, _, err = typed("run", "conf=digits", "--name=mine")
    assert (status, "--name" in err) == (2, True)


def test_an_unreachable_tracking_server_is_named_and_nothing_is_started(typed: Typed) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    status, _, err = typed("run", "conf=digits", f"tracking.uri={uri}", "--name=a")
    assert status == 2
    assert f"tracking.uri={uri}" in err
    assert "Traceback" not in err
    assert not Path("outputs/a").exists()


IMPORT_NOTHING_HEAVY = (
    ["--help"],
    ["list"],
    ["conf"],
    ["schedule", "list"],
    ["run", "conf=digits", "--dry-run"],
    ["run", "conf=llm_lora", "train.lr=abc"],
    ["run", "conf=digits", "scaling.num_workers=8", "cluster.num_cpus=2"],
)


def test_help_lists_plans_and_mistakes_import_nothing_heavy() -> None:
    code = (
        "import sys\nfrom sweeps.cli import run_command\n"
        f"for arguments in {IMPORT_NOTHING_HEAVY!r}:\n"
        "    status, _ = run_command(arguments)\n"
        f"    print(status, [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    done = run_python("-c", code)
    found = [line for line in done.stderr.splitlines() if line.endswith("]") and line[1:3] == " ["]
    assert found == [f"{status} []" for status in (0, 0, 0, 0, 0, 2, 2)], done.stderr


def test_a_dry_run_prints_the_plan_and_starts_nothing(typed: Typed) -> None:
    status, out, _ = typed("run", "conf=digits", "--dry-run", "--name=p", "cluster.num_cpus=4")
    assert status == 0
    for word in ("train.lr", "0.0001 to 0.1, log", "2 workers of 1 CPU; 2 at once", "16 trials", "Nothing was started"):
        assert word in out
    assert "depends on the cluster's nodes" in typed("run", "conf=digits", "--dry-run", "cluster=auto")[1]
    assert list(Path().iterdir()) == []


def test_a_huge_cluster_and_workers_without_resources_are_answered_at_once(typed: Typed) -> None:
    assert typed("run", "conf=digits", "--dry-run", "--name=p", "cluster.num_cpus=1000000000000")[0] == 0
    assert typed("run", "conf=digits", "--dry-run", "scaling.resources_per_worker.CPU=0")[0] == 2


def test_a_dry_run_with_json_is_one_document(typed: Typed) -> None:
    status, out, _ = typed("run", "conf=digits", "--dry-run", "--json", "train.lr=0.01")
    assert status == 0
    document = json.loads(out)
    assert document["config"]["train"]["lr"] == 0.01
    assert document["fixed"] == ["train.lr"]


def test_conf_lists_every_sweep_and_option_with_a_line_on_each(typed: Typed) -> None:
    status, out, _ = typed("conf", "--json")
    assert status == 0
    document = json.loads(out)
    assert {"digits", "llm_lora"} <= set(document["conf"])
    assert {"optuna_asha", "optuna", "asha", "random", "grid"} <= set(document["search"])
    assert all(line for options in document.values() for line in options.values())


def test_a_module_beside_the_working_folder_can_be_a_target(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_nets.py").write_text("from torch import nn\n\ndef Net():\n    return nn.Flatten()\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    tokens = ["space=none", "model=custom", "model._target_=my_nets.Net", "preflight.timeout_s=0", "--dry-run"]
    assert typed("run", "conf=digits", *tokens)[0] == 0


def test_what_a_killed_start_has_left_makes_way_for_the_sweep_that_is_run_again(
    working_folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = working_folder / "outputs" / "mine" / "driver.lock"
    left.parent.mkdir(parents=True)
    left.touch()
    monkeypatch.setattr("sweeps.driver.run.run", lambda plan, _: sys.exit(41 if plan.folder.exists() else 42))
    again = ("run", "conf=digits", "--name=mine", "--resume")
    assert typed(*again, "--dry-run")[0] == 0
    assert left.exists()  # a dry run changes nothing
    assert typed(*again)[0] == 42
    left.parent.mkdir()
    (left.parent / "study.db").touch()
    assert typed(*again)[0] == 2  # a search that has begun is never removed
    assert left.parent.exists()


def test_a_file_with_the_name_of_a_package_is_named(working_folder: Path) -> None:
    (working_folder / "optuna.py").write_text("import optuna\n\nstudy = optuna.create_study()\n")
    done = run_python("-m", "sweeps", "run", "conf=digits", "--dry-run", status=None)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{working_folder}/optuna.py: has the name of the package optuna" in done.stderr
    assert "rename it" in done.stderr


def test_an_error_in_a_users_own_module_is_not_blamed_on_its_name(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / "my_own_training.py").write_text("")
    monkeypatch.syspath_prepend(str(working_folder))
    with pytest.raises(ImportError) as raised:
        importlib.import_module("my_own_training.part")
    assert shadowing_file(raised.value) is None
