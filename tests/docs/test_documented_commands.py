"""Every command and every block of code in the documents works as it stands there.

Commands that only look, check or write files are run here. Of the others the arguments are checked, and commands that
train are planned: ``test_documented_sweeps.py`` runs those, ``test_documented_life.py`` the ones about an ended sweep,
and for the rest ``documents.RUN_ELSEWHERE`` names a test or a reason. A block that cannot be run at all has a comment
before it: ``<!-- not run: reason -->``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
import yaml
from documents import (
    CHECKOUT,
    CODE_RUN_BY,
    DOCUMENTS,
    ENDLESS,
    LANGUAGES,
    OTHER_FILES,
    PROGRAM,
    RUN_ELSEWHERE,
    Block,
    blocks,
    blocks_of,
    commands_about_an_ended_sweep,
    documented_sweeps,
    words,
    write_files,
)
from recording import open_recorder
from stores import make_store

from sweeps.cli import app, run_command
from sweeps.compose.schema_errors import _knows
from sweeps.compose.service_config import compose_service
from sweeps.config import SweepConfig
from sweeps.config.objectives import Objectives
from sweeps.config.schedule import Schedule
from sweeps.config.service import Service
from sweeps.plan.plan import make_plan
from sweeps.service.api.app import openapi_document
from sweeps.service.schedules.definition import Definition

BLOCKS = blocks()
COMMANDS = list(
    {
        tuple(words(command)): (block, command)
        for block in reversed(BLOCKS)
        if block.reason is None
        for command in reversed(block.commands)
    }.values()
)[::-1]
"""Each command once, where it stands first."""
ONE_LINERS = [(path.name, found) for path in DOCUMENTS for found in re.findall(r"`(conf=\w+ [^`]+)`", path.read_text())]
EXAMPLE_NAMES = {"SWEEP": "first", "NAME": "nightly", "DIR": "folder", "HOST:PORT": "127.0.0.1:1"}
NEED_A_MODEL = {"--register", "--export", "--save-model"}
ONLY_PARSED = {"resume", "extend", "stop", "retrain", "reproduce", "report", "submit", "ui", "token", "doctor"}
"""Verbs that train, measure, draw, listen or change a database: their arguments are parsed here."""
PRINTED_OR_PLANNED = {"submit", "serve"}
CHANGES_OF_SCHEDULES = (["run"], ["pause"], ["resume"])
WITH_VALUE = {"--config-dir", "--name", "--server", "--simulate", "--workers", "--seeds", "--between", "--lane-rates"}
"""Options of ``run`` that a value follows."""


ACCURACY = Objectives(("eval/accuracy",), ("max",))
POINT_OF_DIGITS = {
    "model": "conv_net",
    "model.channels": 16,
    "model.dropout": 0.1,
    "train.optimizer": "adamw",
    "train.global_batch_size": 64,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Store with the ended sweeps that the documents name."""
    folder = tmp_path_factory.mktemp("recorded")
    make_store(folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("first", "second", "third", "llm_lora-20261121-020000"):
            record(uri, name)
    return uri


def record(uri: str, name: str) -> None:
    config = "train:\n  lr: 0.01\n"
    recorder = open_recorder(uri, name, ACCURACY, config=config)
    for number in range(8 if name == "first" else 1):
        trial = f"{number:04}"
        recorder.trials.start(trial, {**POINT_OF_DIGITS, "train.lr": 0.001 * (number + 1)}, config, 1)
        recorder.trials.log(trial, 1, {ACCURACY.metrics[0]: 1.0 + number}, 1000)
        logs = Path("outputs", name, "trials", trial, "logs")
        logs.mkdir(parents=True)
        for worker in (0, 1):
            (logs / f"worker-{worker}.log").write_text("a line\n")
        recorder.trials.end(trial, "finished", 1, 1, None)
    counts = {"finished": number + 1, "pruned": 0, "failed": 0, "stopped": 0, "running": 0}
    times = {"wall_s": 7.0, "train_s": 5.0, "goodput": 0.7}
    recorder.update(counts, [("0000", (1.0,), {"train.lr": 0.001})], times)
    assert not recorder.close("finished")


@pytest.fixture
def folder(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with the files that the documents suppose."""
    for name, text in OTHER_FILES.items():
        (working_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (working_folder / name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])
    monkeypatch.setenv("HOME", str(working_folder))
    sys.path_importer_cache.pop(str(working_folder), None)
    return working_folder


def test_every_block_is_in_a_language_that_is_checked() -> None:
    assert {block.language for block in BLOCKS} - LANGUAGES == set()
    assert len(COMMANDS) > 80


@pytest.mark.parametrize(
    ("block", "command"), COMMANDS, ids=[f"{block.document}:{block.line}-{command}" for block, command in COMMANDS]
)
def test_a_documented_command_works(
    block: Block, command: str, folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    write_files(block.document, folder)
    for path in earlier_conversions(block, command):  # a command may use the result of an earlier one
        assert run_command(path) == (0, None)
    if modules := re.match(r"SWEEPS_CONFIG_MODULES=(\w+) ", command):
        monkeypatch.setenv("SWEEPS_CONFIG_MODULES", modules[1])
    check_command(without_variables(command))


def earlier_conversions(block: Block, command: str) -> list[list[str]]:
    lines = block.commands[: block.commands.index(command)]
    return [words(line)[3:] for line in lines if tuple(words(line)[:4]) == (*PROGRAM, "convert")]


def without_variables(command: str) -> list[str]:
    """Words of a command without ``VARIABLE=value`` before it."""
    arguments = words(command)
    while arguments and re.fullmatch(r"[A-Z_]+=.*", arguments[0]):
        arguments = arguments[1:]
    return arguments


def check_command(arguments: list[str]) -> None:
    match arguments:
        case ["python", "-m", "sweeps", verb, *rest]:
            check_verb(verb, [EXAMPLE_NAMES.get(each, each) for each in rest])
        case ["make", target, *_]:
            assert f"\n{target}:" in (CHECKOUT / "Makefile").read_text()
        case ["python", script, *rest]:  # tests/test_benchmarks.py runs benchmarks
            source = (CHECKOUT / script).read_text()
            assert [each for each in rest if each.startswith("--") and f'"{each}"' not in source] == []
        case ["curl", *rest]:
            check_request(rest)
        case ["eval", text]:
            assert re.search(r"\$\(python -m sweeps completion \w+\)", text)
        case ["export" | "sqlite3", *_] | []:
            pass
        case _:
            pytest.fail(f"no test knows how to run {arguments}; add it, or give the block a reason not to be run")


def check_verb(verb: str, rest: list[str]) -> None:
    for name in ("my_module", "objective", "module", "shapes", "train"):  # other files of these names were imported
        sys.modules.pop(name, None)
    if ">" in rest:
        rest = rest[: rest.index(">")]
    rest = [each for each in rest if each not in ENDLESS and not each.startswith("[") and not each.endswith("...]")]
    if verb == "run":
        plan(rest)
    elif verb == "serve":
        folders = [Path(rest[index + 1]) for index, each in enumerate(rest) if each == "--config-dir"]
        compose_service([each for each in rest if "=" in each and not each.startswith("--")], folders)
    elif verb == "submit" and "--resume" not in rest:
        assert run_command([verb, *rest, *({"--print"} - set(rest))]) == (0, None)
    elif is_only_parsed(verb, rest):
        group = app.commands[verb]
        command = group.commands[rest.pop(0)] if hasattr(group, "commands") else group
        command.make_context(verb, rest)
    else:
        if verb == "init" and "--kind" not in rest and "--from" not in rest:  # it asks, and here is no terminal
            rest.append("--kind=function")
        assert run_command([verb, *rest]) == (0, None)


def is_only_parsed(verb: str, rest: list[str]) -> bool:
    return verb in ONLY_PARSED or bool(NEED_A_MODEL & set(rest)) or rest[:1] in CHANGES_OF_SCHEDULES


def is_run_here(arguments: list[str]) -> bool:
    match arguments:
        case ["python", "-m", "sweeps", "run", *rest]:
            return "--dry-run" in rest
        case ["python", "-m", "sweeps", verb, *rest]:
            return verb not in PRINTED_OR_PLANNED and not is_only_parsed(verb, rest)
    return False


def test_each_command_is_run_by_a_test_or_has_a_reason() -> None:
    trained, of_an_ended_sweep = documented_sweeps(), commands_about_an_ended_sweep()
    rows = {
        command: next((each for each in RUN_ELSEWHERE if re.fullmatch(each, command)), None)
        for command in (command.removeprefix("RAY_ADDRESS=HOST:PORT ") for _, command in COMMANDS)
        if not is_run_here(without_variables(command))
        and not (tuple(words(command)[:4]) == (*PROGRAM, "run") and tuple(words(command)[4:]) in trained)
        and tuple(words(command)[3:]) not in of_an_ended_sweep
    }
    assert [command for command, row in rows.items() if row is None] == []
    assert set(RUN_ELSEWHERE) == set(rows.values()), "rows that no document needs"


def test_each_block_of_python_code_is_run_by_a_test() -> None:
    code = {f"{block.document}: {block.text}" for block in PYTHON if block.file is None}
    assert [each for each in code if not each.startswith(tuple(CODE_RUN_BY))] == []
    assert [row for row in CODE_RUN_BY if not any(each.startswith(row) for each in code)] == []


def test_the_tests_that_are_named_for_commands_and_code_exist() -> None:
    reasons = [*RUN_ELSEWHERE.values(), *CODE_RUN_BY.values(), *(block.reason or "" for block in BLOCKS)]
    tests = {name for reason in reasons for name in re.findall(r"tests/[\w/]+\.py", reason)}
    assert len(tests) > 10
    assert [name for name in tests if not (CHECKOUT / name).is_file()] == []


def plan(tokens: list[str]) -> None:
    folders = [Path(tokens[index + 1]) for index, token in enumerate(tokens) if token == "--config-dir"]
    options = {index + 1 for index, token in enumerate(tokens) if token in WITH_VALUE}
    overrides = [token for index, token in enumerate(tokens) if index not in options and not token.startswith("--")]
    make_plan(overrides, folders, None, "")


def check_request(arguments: list[str]) -> None:
    """A request to the service goes to a route, with a body that it takes."""
    (address,) = (each for each in arguments if each.startswith("localhost:8642"))
    body = arguments[arguments.index("-d") + 1] if "-d" in arguments else None
    operations = openapi_document()["paths"][address.removeprefix("localhost:8642")]
    operation = operations["get" if body is None else "post"]
    if body is not None:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        fields = openapi_document()["components"]["schemas"][name]["properties"]
        assert set(json.loads(body)) <= set(fields)


@pytest.mark.parametrize(("document", "one_liner"), ONE_LINERS)
def test_a_documented_one_liner_makes_a_plan_with_the_conf_that_it_names(
    document: str, one_liner: str, folder: Path
) -> None:
    own = "task._target_=module." in one_liner  # whose arguments are not the example's
    plan([*words(one_liner), *(["~task.arguments", "~space"] if own else [])])


PYTHON = [block for block in BLOCKS if block.language == "python" and block.reason is None]
YAML = [block for block in BLOCKS if block.language == "yaml" and block.reason is None]
ROOTS = (SweepConfig, Schedule, Service)
PART_OF_A_SWEEP = {"task", "space", "search"}
"""Sections that some shipped config can have as they stand; those of docs/strategies.md need more workers and larger
models."""


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.document}:{block.line}")
def test_documented_python_is_valid(block: Block) -> None:
    compile(block.text, f"{block.document}:{block.line}", "exec")


@pytest.mark.parametrize("block", YAML, ids=lambda block: f"{block.document}:{block.line}")
def test_documented_yaml_has_only_keys_that_exist(block: Block) -> None:
    if block.file in OTHER_FILES:
        return  # in the form of another tool
    text = block.text
    documents = [text] if not re.search(r"^(\w+):.*\n(?:.*\n)*^\1:", text, re.MULTILINE) else text.splitlines()
    for each in documents:  # alternatives of one key, a line each
        values = yaml.safe_load(each)
        values = {key: value for key, value in values.items() if key != "defaults"}
        group = Path(block.file).parts[-2] if block.file and len(Path(block.file).parts) > 2 else ""
        prefix = f"{group}." if group and group not in ("schedule", "service") else ""
        assert any(all(_knows(root, f"{prefix}{path}".split(".")) for path in paths(values)) for root in ROOTS), each


SCHEDULES = [block for block in YAML if re.search("^cron:", block.text, re.MULTILINE)]


@pytest.mark.parametrize("block", SCHEDULES, ids=lambda block: f"{block.document}:{block.line}")
def test_a_documented_schedule_has_a_sweep_that_can_run(block: Block, folder: Path) -> None:
    sys.modules.pop("module", None)
    Definition(Schedule(**yaml.safe_load(block.text))).check(time.time())


PARTS = [
    block
    for block in YAML
    if block.file is None
    and set(yaml.safe_load(block.text)) <= PART_OF_A_SWEEP
    and block.document != "bring_your_own.md"  # tests/sweeps_train/test_ray_data.py runs such sweeps
    and "warm_start:" not in block.text  # the sources must exist: tests/warm_start/test_other_trials.py makes them
]


@pytest.mark.slow
@pytest.mark.parametrize("block", PARTS, ids=lambda block: f"{block.document}:{block.line}")
def test_a_documented_part_of_a_config_makes_a_plan(block: Block, folder: Path) -> None:
    base = "command" if block.document == "any_program.md" else "digits"
    (folder / "part.yaml").write_text(f"defaults: [{base}, _self_]\n{block.text}\n")
    if "nanoGPT" in block.text:  # whose train.py has other options
        (folder / "train.py").write_text('exec(open("configurator.py").read())\n')
    plan(["conf=part.yaml"])


def paths(values: dict[str, object], above: str = "") -> list[str]:
    """Dotted paths of the values, up to what users name themselves."""
    found = []
    for key, value in values.items():
        path = f"{above}{key}"
        if isinstance(value, dict) and key not in (
            "space",
            "arguments",
            "when",
            "labels",
            "resources_per_worker",
            "limits",
            *("options", "environment", "files", "rename"),
        ):
            found += paths(value, f"{path}.")
        else:
            found.append(path)
    return found


def test_a_reason_is_given_for_every_block_that_is_not_run() -> None:
    assert all(len(block.reason) > 10 for block in BLOCKS if block.reason is not None)
    assert sum(block.reason is not None for block in BLOCKS) <= 8


def test_every_environment_variable_is_documented() -> None:
    text = (CHECKOUT / "docs" / "environment.md").read_text()
    sources = [*(CHECKOUT / "sweeps").rglob("*.py"), *(CHECKOUT / "src").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r'"(SWEEPS_[A-Z_]+)"', path.read_text())}
    internal = {"_SWEEPS_COMPLETE", "SWEEPS_MODEL_RIGHTS"}
    assert sorted(name for name in named - internal if f"`{name}`" not in text) == []
    assert blocks_of(CHECKOUT / "README.md")
