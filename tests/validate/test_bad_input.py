"""Bad input of every kind on the command line: one message that names the key or the file and what to do, exit status
2, no traceback."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from recording import CONFIG, open_recorder, record_small_sweep

import sweeps
from sweeps.cli import run_command
from sweeps.cli.exit_status import TRY_AGAIN
from sweeps.errors import RayNotStarted, UserError

WITH_DIGITS = "defaults: [digits, _self_]\n"


@pytest.fixture(autouse=True)
def store_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` sets the variable for its process, which here is that of the tests."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    """Exit status and message of the command line for a mistake."""
    assert run_command(arguments)[0] == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sweeps: ")
    assert "Traceback" not in err
    assert "unexpected" not in err
    return err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\xff\xfe\0", ["is not written in UTF-8", "0xff"]),
        ("- a\n- b\n", ["not a list"]),
        ("3\n", ["one plain value"]),
        ("", ["is empty", "defaults: [digits, _self_]"]),
        ("# only a comment\n", ["is empty"]),
        (WITH_DIGITS + "train:\n\tlr: 3\n", ["line 3", "spaces, and not with tabs"]),
        (WITH_DIGITS + "seed: 1\nseed: 2\n", ["line 3", "duplicate key seed", "keep one"]),
        (WITH_DIGITS + "search:\n  num_trials: 4\n   mode: min\n", ["line 4", "indentation"]),
        (WITH_DIGITS + "train: {lr: 0.1\n", ["line 3", "expected"]),
        (WITH_DIGITS + "train: !!python/object:os.system {}\n", ["line 2", "python/object"]),
        (WITH_DIGITS + 'name: "a\x01b"\n', ["0x01", "remove it"]),
        ("defaults: 3\n", ["defaults must be a list"]),
        ("defaults: [3]\n", ["conf=mine", "int"]),
        ("defaults: [digit, _self_]\n", ["mine.yaml", "digit", "did you mean digits"]),
        ("defaults: [mine, _self_]\n", ["conf=mine", "refer to themselves"]),
        ("defaults: [digits, override modle: conv_net, _self_]\n", ["modle", "did you mean model"]),
        (WITH_DIGITS + "train: {lr: 1e400}\n", ["train.lr=inf", "finite"]),
        (WITH_DIGITS + "search: {num_trials: 99999999999999999999}\n", ["search.num_trials"]),
        (WITH_DIGITS + "train: [1, 2]\n", ["conf=mine: train=[1, 2]: must have keys of its own"]),
        (WITH_DIGITS + "space: [train.lr]\n", ["conf=mine: space=['train.lr']: must have keys of its own"]),
        (WITH_DIGITS + "space: {train.lr: [0.1, 0.2]}\n", ["as in {type: float, low: 0, high: 1}"]),
        (WITH_DIGITS + "checkpoint: {keep: {a: 1}}\n", ["checkpoint.keep={'a': 1}: must be a list"]),
        (
            WITH_DIGITS + "data: {loader: {path: x}}\n",
            ["data.loader.path='x': there is no such key; use one of data.loader.num_workers"],
        ),
        (WITH_DIGITS + "search: {objectives: [a, b]}\n", ["did you mean search.metric?", "search.metric=[A,B]"]),
        (
            WITH_DIGITS + "search: {sampler: {kind: random}}\n",
            ["search.sampler.startup_trials=8: there is no such key in kind=random, only in", "search/sampler=OPTION"],
        ),
        (
            WITH_DIGITS + "train: {lr: '${oc.env:NOT_SET}'}\n",
            ["train.lr=${oc.env:NOT_SET}: the environment has no NOT_SET; set it", "${oc.env:NOT_SET,VALUE}"],
        ),
        (WITH_DIGITS + "space: {train.lr: {type: loguniform}}\n", ["loguniform", "log: true"]),
        (WITH_DIGITS + "space: {train.lr: {min: 1, max: 2}}\n", ["train.lr.min", "did you mean space.train.lr.low"]),
        (WITH_DIGITS + "space: {train.lr: 'tune.uniform(1, 2)'}\n", ["write 'train.lr=interval(1, 2)'"]),
    ],
)
def test_a_mistake_in_a_yaml_file_is_told_with_its_file_and_line(
    content: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(content, encoding="latin-1")
    err = refused(capsys, "run", "conf=mine.yaml")
    for word in words:
        assert word in err


def test_the_file_of_a_config_may_be_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "far.yaml").write_text(WITH_DIGITS + "serach: 3\n")
    assert "serach=3" in refused(capsys, "run", "conf=~/far.yaml")


def test_a_config_that_ends_in_yml_is_told_to_be_renamed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yml").write_text(WITH_DIGITS)
    assert "rename it to mine.yaml" in refused(capsys, "run", "conf=mine.yml")
    assert "rename it to mine.yaml" in refused(capsys, "run", "conf=mine", "--config-dir=.")
    assert "for a key of the config write conf=VALUE" in refused(capsys, "run", "--conf", "mine")


def test_mistakes_in_code_and_in_data_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    mistakes = ("model.path=./no-model", "data=text", "data.path=./no.jsonl")
    model, data = refused(capsys, "run", "conf=llm_lora", *mistakes).splitlines()
    assert "model.path=./no-model: there is no such folder" in model
    assert "data.path=./no.jsonl" in data


def test_a_mistake_in_an_option_of_a_group_names_that_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own/model").mkdir(parents=True)
    Path("own/model/net.yaml").write_bytes(b"\xff")
    err = refused(capsys, "run", "conf=digits", "model=net", "--config-dir=own")
    assert "own/model/net.yaml: is not written in UTF-8" in err


def test_a_config_in_place_of_a_group_is_told_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "lightning_module: is a config to run, not a group" in refused(capsys, "conf", "lightning_module")


def test_an_option_of_a_group_that_a_config_does_not_choose_from_can_be_added(
    capsys: pytest.CaptureFixture[str],
) -> None:
    err = refused(capsys, "run", "conf=ray_train_function", "model=conv_net")
    assert err == (
        "sweeps: conf=ray_train_function: has no option of the group model to replace; +model=OPTION adds one\n"
    )
    err = refused(capsys, "run", "conf=ray_train_function", "modle=conv_net")
    assert "did you mean model" in err or "no such key" in err


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lr=loguniform(1e-5, 1e-2)", ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("train.lr=log_uniform(1e-5,1e-2)", ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("train.lr=tune.loguniform(1e-5,1e-2)", ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("train.lr=uniform(0, 1)", ["train.lr=interval(0, 1)"]),
        (
            "train.max_grad_norm=choice(null, 1.0)",
            ["has a null in a range", "space.train.max_grad_norm={type: categorical, choices: [null, 1.0]}"],
        ),
        ("train.lr=tag(log, uniform(1e-5, 1e-2))", ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("train.lr=log(interval(1e-5, 1e-2))", ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("space.train.lr.prior=3e-3", ["must have keys of its own, as in {value: 0.01, confidence: 0.5}"]),
        ("space.train.lr.when=sgd", ["must have keys of its own, as in {PATH: VALUE}"]),
        ("train.lr=quniform(0, 1, 0.1)", ["space.train.lr={type: float, low: 0, high: 1, step: 0.1}"]),
        ("train.max_steps=tune.randint(1, 9)", ["train.max_steps=int(interval(1, 9))", "both ends"]),
        ("train.lr=tune.choice([1, 2])", ["train.lr=choice(1, 2)"]),
        ("train.lr=hp.Choice('lr', values=[1, 2])", ["train.lr=choice(1, 2)"]),
        ("train.lr=hp.Choice(name='lr', values=[1, 2])", ["train.lr=choice(1, 2)"]),
        (
            "train.lr=hp.Float('lr', min_value=1e-5, max_value=1e-2, sampling='log')",
            ["train.lr=tag(log, interval(1e-5, 1e-2))"],
        ),
        ('train.lr=trial.suggest_float("lr", 1e-5, 1e-2, log=True)', ["train.lr=tag(log, interval(1e-5, 1e-2))"]),
        ("train.lr=normal(0, 1)", ["prior: {value: 0"]),
        ("space.train.lr.type=loguniform", ["type: float", "log: true"]),
        ("space.train.lr={type: float, min: 1, max: 2}", ["did you mean space.train.lr.low?"]),
        ("train.lr=[1, 2]", ["train.lr=choice(1, 2)"]),
        ("train.lr=range(1e-5, 1e-2)", ["only the value", "interval(1e-05, 0.01)"]),
        ("train.lr=interval(1e-3)", ["argument: 'end'); the forms are interval(LOW, HIGH)"]),
        ("lr=3", ["did you mean train.lr?"]),
        ("num_trials=3", ["did you mean search.num_trials?"]),
        ("train.lr=foo(1)", ["train.lr=foo(1)", "quote a text with such characters"]),
    ],
)
def test_what_other_tools_write_is_answered_with_how_it_is_written_here(
    override: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, "run", "conf=digits", override)
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    "overrides", [["train.lr=tag(log, interval(1e-5, 1e-2))"], ["train.max_steps=int(interval(1, 9))"]]
)
def test_what_the_hints_say_to_write_is_taken(overrides: list[str]) -> None:
    assert sweeps.dry_run("digits", overrides).space


# --- stores ------------------------------------------------------------------------------------------------------


def _tables(*statements: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        database = sqlite3.connect(file)
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.close()

    return make


def _truncated(file: Path) -> None:
    _tables("CREATE TABLE experiments (a)", "CREATE TABLE runs (a)", *(f"CREATE TABLE t{n} (a)" for n in range(20)))(
        file
    )
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


MLFLOW = ("experiments", "runs", "tags", "params")
STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda file: file.write_text("hello\n"), "damaged"),
    "noise": (lambda file: file.write_bytes(bytes(range(256)) * 20), "damaged"),
    "folder": (Path.mkdir, "is a folder"),
    "truncated": (_truncated, "damaged"),
    "of something else": (_tables("CREATE TABLE dogs (a)"), "its tables are dogs"),
    "of Optuna": (_tables("CREATE TABLE studies (a)", "CREATE TABLE alembic_version (a)"), "its tables are"),
    "of an old MLflow": (_tables(*(f"CREATE TABLE {name} (a)" for name in MLFLOW)), "mlflow db upgrade"),
}


OTHER_VERBS = (["show", "a"], ["ui"], ["clean", "--keep-last=1"], ["run", "conf=digits"])


@pytest.mark.parametrize(
    ("verb", "kind"),
    [*((["list"], kind) for kind in STORES), *((verb, "of something else") for verb in OTHER_VERBS)],
)
def test_a_store_that_cannot_be_read_is_named_and_not_written_to(
    kind: str, verb: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = STORES[kind]
    make(Path("store.db"))
    before = Path("store.db").read_bytes() if kind != "folder" else None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///store.db")
    err = refused(capsys, *verb)
    assert "sqlite:///store.db" in err
    assert words in err
    assert before is None or Path("store.db").read_bytes() == before


def test_an_empty_store_is_told_by_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["list", "--tracking-uri=sqlite:///nowhere.db"])[0] == 0
    assert "sqlite:///nowhere.db" in capsys.readouterr().out
    assert not Path("nowhere.db").exists()


# --- names, options, folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", ".hidden", "a b", "x" * 121, "模" * 67, "a\u200db", "a\nb"])
def test_a_name_that_a_folder_or_a_command_cannot_have_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, "run", "conf=digits", f"--name={name}")
    assert "--name=" in err
    assert "letters" in err
    assert not Path("outputs").exists()


def test_a_name_may_have_letters_of_any_language() -> None:
    for name in ("größe-模型", "模" * 66):
        assert sweeps.dry_run("digits", name=name).name == name
    assert sweeps.dry_run("digits", {"name": "größe-模型"}).name.startswith("größe-模型-")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["run", "conf=digits", "--nme=x"],
            ["no option --nme", "did you mean --name, --resume?", "sweeps run [OPTIONS]"],
        ),
        (["run", "--dry"], ["did you mean --dry-run?", "Try: python -m sweeps run --help"]),
        (["run", "conf=digits", "--train.lr=0.1"], ["no option --train.lr", "write train.lr=VALUE"]),
        (["extend", "first", "--search.num_trials", "9"], ["write search.num_trials=VALUE"]),
        (["show"], ["SWEEP", "Try: python -m sweeps show --help"]),
        (["token", "create", "--usr=x"], ["did you mean --user?", "Try: python -m sweeps token create --help"]),
        (["lst"], ["did you mean list", "Try: python -m sweeps --help"]),
        (["ui", "--port=99999"], ["--port", "65535", "Try: python -m sweeps ui --help"]),
        (["serve", "port=99999"], ["port=99999"]),
        (["serve", "host=nowhere.invalid"], ["host=nowhere.invalid"]),
        (["list", "--tracking-uri=foo://x"], ["foo", "sqlite:///mlflow.db"]),
        (["list", "--tracking-uri=mlruns"], ["a folder of files"]),
        (["list", "--tracking-uri=sqlite:"], ["sqlite:"]),
        (["list", "--tracking-uri=http://[::1"], ["http://[::1"]),
        (["list", "--tracking-uri=http://127.0.0.1:1"], ["does not answer", "refused"]),
        (["list", "--server=nowhere"], ["--server=nowhere", "http://"]),
        (["list", "--server=http://127.0.0.1:1"], ["--server=http://127.0.0.1:1", "does not answer"]),
        (["run", "conf=digits", "output_dir=/proc/x"], ["output_dir=/proc/x"]),
        (["run", "conf=digits", "output_dir=/dev/full"], ["output_dir", "/dev/full"]),
        (["schedule", "nights", "nigtly"], ["nigtly", "did you mean nightly"]),
        (["conf", "--config-dir=/dev/null"], ["--config-dir=/dev/null"]),
        (["run", "conf=dir.yaml"], ["conf=dir.yaml"]),
        (["run", "conf=nothing.yaml"], ["conf=nothing.yaml", "no such file"]),
    ],
)
def test_a_wrong_option_address_or_folder_is_named_with_what_to_write(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, *arguments)
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("folder", "conf", "option"),
    [(".", "mine", "my_conf"), (".", "my_conf/mine", "my_conf"), ("my_conf", "mine", "."), ("my_conf", "quick", None)],
)
def test_a_conf_in_a_folder_below_is_named_with_the_option_that_finds_it(
    folder: str, conf: str, option: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my_conf/train").mkdir(parents=True)
    for file in ("mine", "train/quick"):  # the second one is an option of a group
        Path(f"my_conf/{file}.yaml").write_text("defaults: [digits, _self_]\n")
    monkeypatch.chdir(folder)
    err = refused(capsys, "run", f"conf={conf}", "--dry-run")
    assert f"conf={conf}: there is no such conf" in err
    assert ("--config-dir" in err) == (option is not None)
    if option is not None:
        assert err.endswith(f"write conf=mine --config-dir {option}\n")


def test_a_group_of_verbs_alone_shows_its_help_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["token"])[0] == 2
    err = capsys.readouterr().err
    assert err.count("Usage: python -m sweeps token") == 1
    assert "create" in err


def test_the_ui_on_a_taken_port_says_so_and_prints_no_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        err = refused(capsys, "ui", f"--port={port}")
    assert f"--port={port}" in err
    assert "http://" not in err


def test_reports_and_trials_that_cannot_be(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    record_small_sweep(uri)
    Path("file").touch()
    place = f"--tracking-uri={uri}"
    assert "file/below" in refused(capsys, "report", "digits-1", "--output=file/below", place)
    assert "--output" in refused(capsys, "report", "digits-1", "--output=file", place)
    assert "/proc/x" in refused(capsys, "report", "digits-1", "--output=/proc/x", place)
    for trial in ("99", "", "abc", "-1"):
        err = refused(capsys, "best", "digits-1", f"--trial={trial}", place)
        assert f"--trial={trial}" in err
        assert "it has 0 to 3" in err
        assert "did you mean" not in err
    with pytest.raises(UserError, match="cannot be written"):
        sweeps.write_report("digits-1", "/proc/x", tracking_uri=uri)


def test_what_nobody_foresaw_is_one_line_and_a_file_with_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("sweeps.plan.plan.make_plan", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_command(["run", "conf=digits"])[0] == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "unexpected KeyError" in err
    (file,) = tmp_path.glob("sweeps-error-*.txt")
    assert str(file) in err
    assert "broken" in file.read_text(encoding="utf-8")

    assert run_command(["run", "conf=digits", "--debug"])[0] == 1
    assert "Traceback" in capsys.readouterr().err
    assert run_command(["run", "conf=digits"], is_log=True)[0] == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_background_process_for_which_ray_did_not_start_may_succeed_when_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise RayNotStarted("Ray failed twice to start")

    monkeypatch.setattr("sweeps.plan.plan.make_plan", busy)
    assert run_command(["run", "conf=digits"])[0] == 2
    assert run_command(["run", "conf=digits"], is_log=True) == (TRY_AGAIN, "Ray failed twice to start")


# --- text that is printed as it is ----------------------------------------------------------------------------------


def test_text_of_users_is_no_markup(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own/model").mkdir(parents=True)
    header = "My [bold]net[/bold] :warning: of ray-sweeps[lightning]"
    Path("own/model/net.yaml").write_text(f"# {header}\n", encoding="utf-8")
    assert run_command(["conf", "model", "--config-dir=own"])[0] == 0
    assert header in capsys.readouterr().out

    recorder = open_recorder(uri)
    recorder.trials.start("0", {"task.arguments.tag": "[red]x[/red]", "model": ":dog:"}, CONFIG, 1)
    recorder.trials.log("0", 1, {"eval/loss": 1.0}, 1000)
    recorder.trials.end("0", "failed", 1, 1, "ValueError: [/nothing] opened")
    assert not recorder.close("failed")
    assert run_command(["show", "digits-1", f"--tracking-uri={uri}"])[0] == 0
    out = capsys.readouterr().out
    for text in ("[red]x[/red]", ":dog:", "[/nothing] opened"):
        assert text in out


def test_the_version_is_the_packages_and_costs_no_import(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert sweeps.__version__ == version("ray-sweeps")
    assert run_command(["--version"])[0] == 0
    assert capsys.readouterr().out == f"sweeps {version('ray-sweeps')}\n"
    with pytest.raises(AttributeError, match="nothing"):
        _ = sweeps.nothing
