"""Choice of a recorded trial by its id, and the name of a sweep that repeats it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from records import trial_record

from sweeps.config.sweep_name import is_sweep_name
from sweeps.errors import UnknownName
from sweeps.plan.export import choose
from sweeps.plan.new_sweep_name import default_name, repeat_name
from sweeps.service.nights.repeats import repeats_name
from sweeps.tracking.record import SweepRecord, TrialRecord


def trials(*names: str, **common: Any) -> list[TrialRecord]:
    return [trial_record(name, 0.5, best_step=1, **common) for name in names]


def record(*of_all: TrialRecord) -> SweepRecord:
    return cast("SweepRecord", SimpleNamespace(sweep="digits-1", all_trials=list(of_all), best=None))


SEARCH = trials("0000", "0001", "0002")
STAGED = [*trials("s1-0000", "s1-0001", stage=1), *trials("s2-0000", stage=2)]
REPEATS = [*trials("0001r1", "0002r1", repeat_of="0001")]


@pytest.mark.parametrize(
    ("of_all", "known"),
    [
        ([*STAGED, *SEARCH, *REPEATS], "s1-0000 to s1-0001, s2-0000, 0000 to 0002, 0001r1 to 0002r1"),
        (STAGED[:2], "s1-0000 to s1-0001"),
        (SEARCH, "0000 to 0002"),
        ([], "no trials yet"),
    ],
    ids=["all kinds", "a first stage that runs", "a search", "nothing"],
)
def test_an_unknown_trial_is_answered_with_the_ids_of_every_kind(of_all: list[TrialRecord], known: str) -> None:
    with pytest.raises(UnknownName, match=f"--trial=s9-0000: digits-1 has no such trial; it has {known}$"):
        choose(record(*of_all), "s9-0000")


def test_a_trial_is_chosen_by_its_id_or_number() -> None:
    everything = record(*STAGED, *SEARCH, *REPEATS)
    assert choose(everything, "2") is SEARCH[2]
    assert choose(everything, "s2-0000") is STAGED[2]
    assert choose(everything, "0001r1") is REPEATS[0]


@pytest.mark.parametrize("name", ["x" * 120, "模" * 66, "größe-" * 20])
def test_a_name_made_of_a_long_one_is_a_name(name: str) -> None:
    sweep = cast("SweepRecord", SimpleNamespace(sweep=name))
    for made in (default_name(name), repeat_name(sweep, SEARCH[0], "retrain"), repeats_name(name)):
        assert is_sweep_name(made)


def test_the_tasks_of_a_slurm_array_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They start in the same second, with folders on their own nodes."""
    for task in ("0", "11"):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
        assert default_name("digits").endswith(f"-{task}")
        assert is_sweep_name(repeat_name(record(*SEARCH), SEARCH[0], "retrain"))
