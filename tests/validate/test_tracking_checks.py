"""Mistakes in ``tracking`` are found on the driver, and a password in its URI is written nowhere."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from composing import composed, mistakes
from records import sweep_record

from sweeps.compose import Composition
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.plan.plan import make_plan
from sweeps.plan.resume import reopened
from sweeps.plan.saved_sweep import save
from sweeps.report.plan_summary import plan_document
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.record import MlflowIds
from sweeps.validate.storage_checks import storage_notes

SECRET = "postgresql://me:s3cret@db:5432/mlflow"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            ("tracking.checkpoints=reference", "checkpoint.keep=[]"),
            ["tracking.checkpoints=reference", "checkpoint.keep=[]", "keep=[best]", "checkpoints=none"],
        ),
        ((f"tracking.uri='{SECRET}'",), ["me:***@db", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_PASSWORD"]),
    ],
)
def test_a_mistake_names_key_value_and_fix(tokens: tuple[str, ...], words: list[str]) -> None:
    lines = mistakes(*tokens)
    assert len(lines) == 1
    assert all(word in lines[0] for word in words), lines
    assert "s3cret" not in lines[0]


def test_what_a_reference_needs_is_noted() -> None:
    config = composed("digits", "tracking.checkpoints=reference").config
    (note,) = storage_notes(config)
    assert "output_dir=outputs" in note


def test_a_password_in_the_environment_is_used_and_written_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SECRET)
    caplog.set_level(logging.DEBUG)
    plan = make_plan(["conf=digits"], [], "secret", "python -m sweeps run conf=digits")
    assert plan.config.tracking.uri == SECRET
    plan.folder.mkdir(parents=True)
    save(plan)
    written = [
        plan.composition.as_yaml(),
        plan.composition.as_yaml({"train.lr": 0.1}),
        json.dumps(plan_document(plan)),
        (plan.folder / SWEEP_FILE).read_text(),
        *caplog.messages,
    ]
    assert not [text for text in written if "s3cret" in text]
    assert plan.composition.changed({"search.num_trials": 99}).config.tracking.uri == SECRET


def test_a_sweep_goes_on_where_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SECRET)
    plan = make_plan(["conf=digits"], [], "moved", "python -m sweeps run conf=digits")
    plan.folder.mkdir(parents=True)
    save(plan)
    moved = SECRET.replace("db:5432", "other:5432")
    ids = MlflowIds(tracking_uri=moved, experiment_id="1", run_id="r")
    record = sweep_record(sweep="moved", status="interrupted", mlflow=ids, tags={"sweeps.folder": str(plan.folder)})
    assert reopened(record, {}).config.tracking.uri == moved
    assert "s3cret" not in json.dumps(record.as_json())


@pytest.mark.parametrize("password", ["secret", "p:w", "p@w", "p%40w", "a/b+c==", "/@w"])
def test_no_part_of_a_password_is_shown(password: str) -> None:
    assert redact_uri(f"postgresql://me:{password}@db:5432/mlflow") == "postgresql://me:***@db:5432/mlflow"


def test_uris_without_a_password_are_shown_whole(tmp_path: Path) -> None:
    for uri in ("http://localhost:5000", "postgresql://me@db/mlflow", f"sqlite:///{tmp_path}/a@b:c.db"):
        assert redact_uri(uri) == uri


def test_the_composition_in_a_folder_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SECRET)
    composition = make_plan(["conf=digits"], [], "back", "").composition
    assert Composition.from_json(composition.as_json()).config.tracking.uri == redact_uri(SECRET)
