"""Values, names and addresses, as they are recorded and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from records import trial_record

from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking import confirmation_record
from sweeps.tracking.confirmation_record import Confirmation, Contender
from sweeps.tracking.forecast_record import Forecast
from sweeps.tracking.logged_steps import StepSet
from sweeps.tracking.mlflow_characters import LONGEST_TAG, fit_parameters, from_name, to_name, whole_parameters
from sweeps.tracking.mlflow_texts import run_name
from sweeps.tracking.stage_results import StageResult
from sweeps.tracking.uris import sqlite_path
from sweeps.tracking.values import first_as_json, from_text, latest_as_json, read_list, read_tag, to_text


@pytest.mark.parametrize(
    "value", [0.1, 1e-05, 3, -2, True, False, None, "adamw", "", "1", "true", "null", "NaN", '"q"', [1, "a"], {"a": 1}]
)
def test_a_parameter_comes_back_with_its_type(value: Any) -> None:
    back = from_text(to_text(value))
    assert (back, type(back)) == (value, type(value))


def test_plain_strings_are_shown_plain_and_names_of_runs_tell_parameters_apart() -> None:
    assert [to_text(value) for value in ("adamw", 0.001, 16, True)] == ["adamw", "0.001", "16", "true"]
    point = {"model.lora.r": 16, "train.lr": 0.00213, "a.rate": 1, "b.rate": 2, "e.f": 5}
    assert run_name("3", point) == "003 r=16 lr=0.00213 a.rate=1 b.rate=2"


NAMES = [
    *("eval/loss", "pos_x_mean", "f1@5", "f1_5", "f1_x0040_5", "f1_x005F_x0040_5", "betas[0]", "a,b", "*", "%"),
    *("", "_", "__", "a//b", "a/b", "/a", "a/", "/", ".", "..", "...", "./a", "../a", "..a", "a/.", "a/../b"),
    *("é", "\u2028", "\ud800", "a\n", "a" * 250, "a" * 251, "a" * 260, "a" * 251 + "b", "@" * 100, "@" * 101),
]


def test_every_name_has_one_of_its_own_that_mlflow_takes() -> None:
    from mlflow.utils.validation import _validate_metric, _validate_param, _validate_tag

    names = [to_name(name) for name in NAMES]
    assert len(set(names)) == len(NAMES)
    for name in names:
        _validate_metric(name, 0.5, 0, 0)
        _validate_param(name, "x")
        _validate_tag(name, "x")


def test_names_are_read_back_and_plain_ones_stay_plain() -> None:
    short = [name for name in NAMES if len(name) < 100]
    assert [from_name(to_name(name)) for name in short] == short
    assert [to_name(name) for name in ("eval/loss", "pos_x_mean", "train.lr", "f1_5")] == [
        *("eval/loss", "pos_x_mean", "train.lr", "f1_5")
    ]
    assert all(to_name(from_name(to_name(name))) == to_name(name) for name in NAMES)


def test_parameters_that_do_not_fit_come_back_whole() -> None:
    params = {"betas[0]": "0.9", "long": "x" * 20_000, "p" * 300: "1", "p" * 301: "2", "train.lr": "0.1"}
    fitting, tags = fit_parameters(params)
    assert len(fitting) == len(params)
    assert max(map(len, fitting.values())) == 6000
    assert max(map(len, tags.values())) <= 8000
    assert whole_parameters(fitting, tags) == params
    assert fit_parameters({"train.lr": "0.1"}) == ({"train.lr": "0.1"}, {})


@pytest.mark.parametrize(("count", "failed"), [(5, "CUDA error: " + 3000 * "x"), (100, None)])
def test_a_confirmation_of_many_contenders_or_with_long_errors_fits_into_a_tag(count: int, failed: str | None) -> None:
    """MLflow would cut it, and the sweep could not be read any more."""
    contenders = [
        Contender(trial=f"{number:04}", runs=10, mean=0.1234567890123, low=-0.1234567890123, high=1 / 3, failed=failed)
        for number in range(count)
    ]
    text = confirmation_record.to_text(Confirmation(contenders=tuple(contenders), winner="0000"))
    assert len(text) <= LONGEST_TAG
    read = read_tag(text, Confirmation.from_json, None)
    assert read is not None
    assert (read.winner, len(read.contenders)) == ("0000", min(count, len(read.contenders)))
    assert len(read.contenders) >= 5


def test_a_front_of_thousands_of_trials_fits_into_a_tag() -> None:
    trials = [f"{number:04}" for number in range(3000)]
    text = first_as_json(trials)
    assert len(text) <= LONGEST_TAG
    assert from_text(text) == trials[: len(from_text(text))]
    assert len(from_text(text)) > 900
    assert from_text(first_as_json(trials[:3])) == trials[:3]


def test_of_a_long_history_only_the_part_that_fits_into_a_tag_is_written_as_json() -> None:
    class History(list[dict[str, int]]):
        written = 0

        def __reversed__(self) -> Iterator[dict[str, int]]:
            for each in super().__reversed__():
                self.written += 1
                yield each

        def __iter__(self) -> Iterator[dict[str, int]]:
            for each in super().__iter__():
                self.written += 1
                yield each

    history = History({"attempt": number} for number in range(2_000))
    text = latest_as_json(history)
    kept = from_text(text)
    assert kept == [{"attempt": number} for number in range(2_000 - len(kept), 2_000)]
    assert LONGEST_TAG - 20 < len(text) <= LONGEST_TAG
    assert history.written == len(kept) + 1


def test_a_tag_that_was_cut_or_edited_does_not_hide_the_sweep() -> None:
    for text in ('{"contenders": [{"tri', "[1]", "{}", "edited"):
        assert read_tag(text, Confirmation.from_json, None) is None
        assert read_list(text, StageResult.from_json) == ()
        assert read_tag(text, Forecast.from_json, None) is None


def test_a_step_is_new_once() -> None:
    steps = StepSet()
    assert [steps.add(step) for step in (0, 5, 0, 1023, 1024, 1023, 10**9, 10**9, -1, -1)] == [
        *(True, True, False, True, True, False, True, False, True, False)
    ]


def test_steps_are_new_again_after_one_and_until_one() -> None:
    after, until = StepSet(), StepSet()
    for step in (0, 5, 6, 1023, 1024, 3000):
        after.add(step)
        until.add(step)
    after.forget_after(5)
    assert [after.add(step) for step in (0, 5, 6, 1023, 1024, 3000)] == [False, False, True, True, True, True]
    until.forget_until(1023)
    assert [until.add(step) for step in (0, 5, 6, 1023, 1024, 3000)] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///mlflow.db", Path("mlflow.db")),
        ("sqlite:////srv/mlflow.db", Path("/srv/mlflow.db")),
        ("sqlite+pysqlite:///a%20b.db?timeout=5", Path("a b.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("http://localhost:5000", None),
        ("postgresql://me@db/mlflow", None),
    ],
)
def test_the_file_behind_a_uri(uri: str, path: Path | None) -> None:
    assert sqlite_path(uri) == path


def test_a_password_is_not_shown() -> None:
    assert redact_uri("postgresql://me:secret@db:5432/mlflow") == "postgresql://me:***@db:5432/mlflow"
    assert redact_uri("http://localhost:5000") == "http://localhost:5000"


def test_a_trial_is_shown_in_one_short_line() -> None:
    trial = trial_record(7, 0.56891, values=(0.56891, 15.0), params={"train.lr": 0.0021234})
    assert repr([trial]) == "[<trial 0007: finished, 0.569, 15, train.lr=0.00212>]"
