"""Where a sweep comes from: code, data, packages, and no secrets."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.compose import Composition
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.driver.recorded_provenance import present_provenance, record_composition, record_provenance
from sweeps.plan.plan import make_plan
from sweeps.provenance.code import checkout
from sweeps.provenance.provenance import Provenance, collect_provenance, requirements
from sweeps.provenance.redaction import redacted, redacted_source
from sweeps_train.data import fingerprint as fingerprints
from sweeps_train.data.fingerprint import data_fingerprints

JWT = "eyJ" + "a" * 20 + "." + "b" * 20 + "." + "c" * 10


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=me", "-c", "user.email=me@host")
    return subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(working_folder: Path) -> Path:
    git("init", "-q")
    Path("train.py").write_text("lr = 1\n", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "first")
    return working_folder


def origin(conf: str = "digits", *tokens: str) -> Provenance:
    config = compose_sweep(conf, tokens, ConfSearchPath()).config
    return collect_provenance("python -m sweeps run", config.seed)[0].with_data([config.training()])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("diff.external", "/bin/echo"),
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("color.ui", "always"),
    ],
)
def test_changes_are_a_diff_that_git_applies_also_with_line_ends_of_windows_and_settings_of_the_user(
    repository: Path, setting: str, value: str
) -> None:
    git("config", setting, value)
    Path("train.py").write_bytes(b"lr = 1\r\nwidth = 8\r\n")
    git("commit", "-qam", "second")
    Path("train.py").write_bytes(b"lr = 2\r\nwidth = 8\r\n")
    found = checkout()
    assert found is not None
    git("checkout", "-q", "train.py")
    Path("changes.diff").write_text(found.diff, encoding="utf-8", newline="")
    git("apply", "changes.diff")
    assert Path("train.py").read_bytes() == b"lr = 2\r\nwidth = 8\r\n"


def test_changes_and_new_sources_are_a_diff_that_git_applies_and_the_index_stays(repository: Path) -> None:
    clean = checkout()
    assert clean is not None
    assert (clean.commit, clean.diff) == (git("rev-parse", "HEAD").strip(), "")
    Path("train.py").write_text("lr = 2\n", encoding="utf-8")
    Path("model.py").write_text("width = 8\n", encoding="utf-8")
    Path("data.bin").write_bytes(b"\0" * 10)
    Path(".env").write_text("PASSWORD=geheim\n", encoding="utf-8")
    before = git("status", "--porcelain")
    found = checkout()
    assert found is not None
    assert git("status", "--porcelain") == before
    assert "data.bin" not in found.diff
    assert "geheim" not in found.diff
    git("stash", "-u", "-q")
    Path("changes.diff").write_text(found.diff, encoding="utf-8")
    git("apply", "changes.diff")
    assert Path("train.py").read_text(encoding="utf-8") == "lr = 2\n"
    assert Path("model.py").read_text(encoding="utf-8") == "width = 8\n"


def test_changes_that_git_cannot_tell_are_not_taken_for_none(repository: Path) -> None:
    Path(".gitattributes").write_text("*.bin filter=lfs\n", encoding="utf-8")
    Path("data.bin").write_text("1", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "second")
    git("config", "filter.lfs.clean", "no-such-program")
    git("config", "filter.lfs.required", "true")
    Path("data.bin").write_text("2", encoding="utf-8")
    found = checkout()
    assert found is not None
    assert found.diff.startswith("# Unknown changes: git diff failed")
    assert "data.bin: clean filter 'lfs' failed" in found.diff


def test_a_checkout_of_another_user_that_git_does_not_trust_is_told_with_the_fix(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert checkout() is None
    assert "the commit is not recorded, since the checkout belongs to another user" in caplog.text
    assert f"git config --global --add safe.directory {repository}" in caplog.text


def test_outside_of_a_checkout_there_is_no_commit(working_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert checkout() is None
    assert caplog.text == ""
    assert origin().commit is None


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("run tracking.uri=postgresql://me:geheim@host/db", "run tracking.uri=postgresql://me:***@host/db"),
        ("run task.arguments.api_key=geheim lr=1", "run task.arguments.api_key=*** lr=1"),
        ("AWS_SECRET_ACCESS_KEY=geheim x", "AWS_SECRET_ACCESS_KEY=*** x"),
        ("run data.tokens=128 model.tokenizer=a/b", "run data.tokens=128 model.tokenizer=a/b"),
        ("run model.path=hf_abcdefghijklmnopqrstuvwxyz", "run model.path=***"),
        (f"x-{JWT} and more", "x-*** and more"),
        (f"Bearer {JWT}", "Bearer ***"),
        (f"eyJ-eyJ-{JWT}", "***"),
        ("my.own-api_key = 'hunter2'", "my.own-api_key = '***'"),
        ("my.own-api_key='x y'", "my.own-api_key='***'"),
        ("DB_PASSWORD=hunter2&x=1", "DB_PASSWORD=***&x=1"),
        ("a_token=x_token=hunter2", "a_token=***"),
        ('{"access_key": "hunter2"}', '{"access_key": "***"}'),
        ("https://ada:hunter2@example.org", "https://ada:***@example.org"),
        ("to postgresql+psycopg://me:a/b==@host/db", "to postgresql+psycopg://me:***@host/db"),
        ("at https://host:80/a, then me@host", "at https://host:80/a, then me@host"),
        ('{"db":"postgresql://h:5432/db","mail":"a@b"}', '{"db":"postgresql://h:5432/db","mail":"a@b"}'),
        ("{'db':'mysql://me:a/b@h/db','mail':'a@b'}", "{'db':'mysql://me:***@h/db','mail':'a@b'}"),
        ("token = tokenizer(text)", "token = tokenizer(text)"),
    ],
)
def test_secrets_are_hidden_in_whatever_they_are_part_of(text: str, hidden: str) -> None:
    assert redacted(text) == hidden


def test_in_source_literals_are_hidden_and_code_stays() -> None:
    code = "token = tokenizer(text)\nnum_tokens = 3\n"
    assert redacted_source(code) == code
    assert redacted_source('api_key = "geheim"\n{"password": "geheim"}') == 'api_key = "***"\n{"password": "***"}'
    assert "MIIE" not in redacted_source("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----")


def test_data_is_known_by_its_contents_wherever_it_lies(working_folder: Path) -> None:
    def fingerprint(path: str) -> str | None:
        config = compose_sweep("llm_lora", ["data=text", f"data.path={path}"], ConfSearchPath()).config
        return data_fingerprints(config.training())[path]

    for folder in ("here", "there"):
        Path(folder).mkdir()
        for name in ("a.txt", "b.txt"):
            Path(folder, name).write_text(f"text of {name}", encoding="utf-8")
    assert fingerprint("here") == fingerprint("there") is not None
    Path("there", "b.txt").write_text("text of B.txt", encoding="utf-8")
    assert fingerprint("here") != fingerprint("there")
    assert fingerprint("nowhere/*.txt") is None
    with Path("large.txt").open("wb") as file:
        file.truncate(200 * 2**20)
    before = fingerprint("large.txt")
    with Path("large.txt").open("r+b") as file:
        file.write(b"x")
    assert fingerprint("large.txt") != before


def test_a_functions_source_and_the_files_that_its_arguments_name_are_its_data(working_folder: Path) -> None:
    Path("texts.txt").write_text("a", encoding="utf-8")
    tokens = ["+task.arguments.file=texts.txt", f"+task.arguments.prompt={'long' * 100}"]
    before = data_fingerprints(compose_sweep("ray_train_function", tokens, ConfSearchPath()).config.training())
    Path("texts.txt").write_text("b", encoding="utf-8")
    after = data_fingerprints(compose_sweep("ray_train_function", tokens, ConfSearchPath()).config.training())
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"texts.txt"}
    assert len(before) == 2


def test_a_repeated_trial_of_a_program_is_compared_with_the_arguments_of_its_sweep(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    else_known = collect_provenance("", 0)
    monkeypatch.setattr("sweeps.driver.recorded_provenance.collect_provenance", lambda *_: else_known)  # it is slow
    for name in "ab":
        Path(f"{name}.txt").write_text(name, encoding="utf-8")
    own = "defaults: [command, _self_]\ntask: {options: {--data: a.txt}}\n"
    Path("alone.yaml").write_text(f"{own}space: null\n", encoding="utf-8")
    space = "{task.options.--data: {type: categorical, choices: [a.txt, b.txt]}}"
    Path("own.yaml").write_text(f"{own}space: {space}\n", encoding="utf-8")
    sweep, alone = (make_plan([f"conf={name}.yaml"], [], name, "") for name in ("own", "alone"))
    recorded = present_provenance(sweep)
    assert recorded.data["command"] != data_fingerprints(alone.config.training())["command"]
    assert recorded.differences(present_provenance(alone, lambda: sweep.composition)) == {}
    for name in "ab":  # the trial reads the first one only
        Path(f"{name}.txt").write_text("changed", encoding="utf-8")
    assert recorded.differences(present_provenance(alone, lambda: sweep.composition)) == {
        "data": "other contents of a.txt"
    }


def test_data_that_several_kinds_of_trials_read_are_hashed_once_and_up_to_a_limit(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("texts").mkdir()
    for name in ("1.txt", "2.txt", "3.txt"):
        Path("texts", name).write_text("ten bytes.", encoding="utf-8")
    read: list[str] = []
    blocks = fingerprints._blocks
    monkeypatch.setattr(fingerprints, "_blocks", lambda file: [read.append(file.name), *blocks(file)][1:])
    text = ["data=text", "data.path=texts"]
    kinds = [compose_sweep("llm_lora", [*text, f"data.sequence_length={n}"], ConfSearchPath()).config for n in (8, 16)]
    data_fingerprints(*(each.training() for each in kinds))
    assert read == ["1.txt", "2.txt", "3.txt"]
    read.clear()
    monkeypatch.setattr(fingerprints, "MOST_BYTES", 15)
    data_fingerprints(kinds[0].training())
    assert read == ["1.txt", "2.txt"]


def test_all_else_is_recorded_before_the_data_are_read(working_folder: Path) -> None:
    attached: list[tuple[dict[str, str], dict[str, str]]] = []
    recorder: Any = SimpleNamespace(attach=lambda *given: attached.append(given))
    record_provenance(make_plan(["conf=digits"], [], "digits-1", ""), recorder).join()
    (composition, _), (files, _), (complete, tags) = attached
    assert {*composition, *files} >= {"origin/origin.json", "origin/requirements.txt", "origin/sweep.json"}
    before, after = (Provenance.from_json(each["origin/origin.json"]) for each in (files, complete))
    assert (before, tags) == (replace(after, data={}), {"sweeps.data": after.data_fingerprint})


def test_the_composition_is_recorded_unchanged_but_for_the_password_of_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`reproduce` runs it again, also with arguments that are named like secrets, such as those of a tokenizer."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:s3cret@db:5432/mlflow")
    composition = compose_sweep("ray_train_function", ["+task.arguments.pad_token='<pad>'"], ConfSearchPath())
    recorded: dict[str, str] = {}
    plan: Any = SimpleNamespace(composition=composition)
    recorder: Any = SimpleNamespace(attach=lambda files, _: recorded.update(files))
    record_composition(plan, recorder)
    (text,) = recorded.values()
    assert Composition.from_json(json.loads(text)).config.task == composition.config.task
    assert "s3cret" not in text


def test_what_differs_is_said_and_nothing_else(repository: Path) -> None:
    first = origin()
    assert first.differences(origin()) == {}
    assert Provenance.from_json(first.as_json()) == first
    packages = {"torch": "2.6.0+cu126", "numpy": "2.4.6"}
    assert requirements(replace(first, packages=packages)) == "torch==2.6.0\nnumpy==2.4.6\n"
    Path("train.py").write_text("lr = 2\n", encoding="utf-8")
    assert list(first.differences(origin())) == ["changes"]
    git("commit", "-qam", "second")
    assert list(first.differences(origin())) == ["commit"]
    older = replace(first, packages={**first.packages, "torch": "1.0"}, data={"digits": "x"})
    found = older.differences(first)
    assert list(found) == ["packages", "data"]
    assert found["packages"] == f"torch 1.0, now {first.packages['torch']}"
    unknown = replace(first, data={"digits": None})
    assert unknown.data_fingerprint is None
    assert "unknown contents" in unknown.differences(first)["data"]
