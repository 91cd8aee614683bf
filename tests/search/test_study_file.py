"""File of a study with one writer: Optuna's own format, and on the disk before others depend on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from sweeps.search.study_file import StudyFile, open_study_storage


def searched(path: Path, trials: int) -> optuna.Study:
    study = optuna.create_study(
        storage=JournalStorage(StudyFile(path)),
        study_name="s",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    for _ in range(trials):
        trial = study.ask()
        value = trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("kind", ["a", "b"])
        trial.set_user_attr("number", trial.number)
        trial.report(value, step=1)
        study.tell(trial, value)
    return study


def described(study: optuna.Study) -> list[object]:
    return [
        (trial.number, trial.state, trial.params, trial.value, trial.user_attrs, trial.intermediate_values)
        for trial in study.get_trials()
    ]


def test_a_study_is_continued_from_its_file_and_optuna_reads_it_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    first = described(searched(path, 3))
    study = searched(path, 2)
    assert described(study)[:3] == first
    reader = optuna.load_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="s")
    assert described(reader) == described(study)
    assert len(described(study)) == 5


def test_the_disk_is_waited_for_when_a_trial_is_told_and_not_for_each_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = searched(tmp_path / "study.log", 1)
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), fsync(file)))
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    trial.suggest_categorical("kind", ["a", "b"])
    assert not synced
    trial.set_user_attr("number", 1)
    trial.report(0.5, step=1)
    study.tell(trial, 0.5)
    assert len(synced) == 3


def test_a_line_that_did_not_fit_on_the_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    study = searched(path, 1)
    before, write = path.read_bytes(), os.write
    left = [7]

    def fills_up(file: int, text: bytes) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return write(file, text[: left.pop()])

    monkeypatch.setattr(os, "write", fills_up)
    with pytest.raises(OSError, match="No space"):
        study.ask()
    monkeypatch.undo()
    assert path.read_bytes() == before


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_change_that_failed_and_could_not_be_cut_off_is_cut_off_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "study.log"
    study = searched(path, 1)
    trial, write, broken = study.ask(), os.write, Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))
    room = [20]
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", broken)
        if fails == "write":
            patched.setattr(os, "write", lambda *what: write(what[0], what[1][: room.pop()]) if room else broken())
        else:
            patched.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            trial.report(0.5, step=1)
    trial.report(0.25, step=2)
    study.tell(trial, 0.25)
    storage, damage = open_study_storage(path)
    assert damage is None
    assert described(optuna.load_study(storage=storage, study_name="s")) == described(study)
    assert study.trials[-1].intermediate_values == {2: 0.25}
