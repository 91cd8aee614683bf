"""The campaign of faults in its short form (`make faults` is the long one), and its check, which notices mistakes."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import campaign
import pytest
from checker import Verdict, check
from processes import run_python
from running import NO_PREFLIGHT
from stores import RecordedStore
from victim import Record, Victim

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_twice_or_wrong_after_some_faults_of_every_search(tmp_path: Path) -> None:
    seed = os.environ.get("SWEEPS_TEST_SEED", "0")
    short = ("--faults=32", "--minutes=8", f"--seed={seed}")
    done = run_python(str(CAMPAIGN), *short, folder=tmp_path)
    assert ": 0 lost, 0 twice, 0 wrong, 0 stuck." in done.stdout


# --- the check ------------------------------------------------------------------------------------------------------

SWEEP = (
    *("conf=digits", "train.max_steps=20", "train.eval_every=10", "search=random", "search.num_trials=2"),
    *("space=none", "train.lr=tag(log, interval(1e-3, 1e-1))", "scaling.num_workers=1", NO_PREFLIGHT),
)
IN_TRIAL_0 = "run_uuid = (SELECT run_uuid FROM tags WHERE key = 'sweeps.trial' AND value = '0000')"
METRIC = f"{IN_TRIAL_0} AND key = 'eval/accuracy' AND step = 10"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    def record(uri: str) -> None:
        more = ("tracking.report=false", f"tracking.uri={uri}", "--name=own")
        subprocess.run([sys.executable, "-m", "sweeps", "run", *SWEEP, *more], check=True)

    return RecordedStore(tmp_path_factory.mktemp("campaign"), record)


@pytest.fixture
def sweep(recorded: RecordedStore) -> RecordedStore:
    recorded.restore()
    return recorded


def checked(sweep: RecordedStore) -> Verdict:
    return check(sweep.folder, "own", sweep.uri, sweep.uri, trials=2, steps=[10, 20])


def sql(statement: str) -> Callable[[Path], None]:
    """Change MLflow's database."""

    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "mlflow.db", isolation_level=None)) as database:
            assert database.execute(statement).rowcount > 0

    return change


def in_study(key: str, value: object) -> Callable[[Path], None]:
    """Change a value in the study."""

    def change(folder: Path) -> None:
        file = folder / "outputs" / "own" / "optuna.log"
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        next(line for line in lines if line.get(key))[key] = value
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    return change


DAMAGE = {
    "a value": ("lost", sql(f"DELETE FROM metrics WHERE {METRIC}")),
    "a trial's run": ("lost", sql(f"UPDATE runs SET lifecycle_stage = 'deleted' WHERE {IN_TRIAL_0}")),
    "a trial": ("lost", sql(f"UPDATE tags SET value = 'failed' WHERE key = 'sweeps.state' AND {IN_TRIAL_0}")),
    "a value again": (
        "twice",
        sql(
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) "
            f"SELECT key, value, timestamp + 1, run_uuid, step, is_nan FROM metrics WHERE {METRIC}"
        ),
    ),
    "a trial again": ("twice", sql("UPDATE tags SET value = '0000' WHERE key = 'sweeps.trial' AND value = '0001'")),
    "a value changed": ("wrong", sql(f"UPDATE metrics SET value = value + 0.125 WHERE {METRIC}")),
    "a value of the study": ("wrong", in_study("intermediate_value", 0.125)),
    "a result of the study": ("wrong", in_study("values", [0.125])),
    "a parameter": ("wrong", sql(f"UPDATE params SET value = '0.125' WHERE key = 'train.lr' AND {IN_TRIAL_0}")),
    "a state": ("wrong", sql(f"UPDATE tags SET value = 'pruned' WHERE key = 'sweeps.state' AND {IN_TRIAL_0}")),
    "a status": ("wrong", sql(f"UPDATE runs SET status = 'RUNNING' WHERE {IN_TRIAL_0}")),
}


@pytest.mark.slow
def test_the_check_finds_nothing_in_a_sweep_without_faults(sweep: RecordedStore) -> None:
    assert not list(checked(sweep).lines())


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_the_check_notices_what_is_lost_twice_or_wrong(sweep: RecordedStore, damage: str) -> None:
    kind, change = DAMAGE[damage]
    change(sweep.folder)
    assert getattr(checked(sweep), kind)


class Hanging(Victim):
    """A sweep whose driver does nothing."""

    does = "import time; time.sleep(600)"

    def run(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", self.does], start_new_session=True)

    resume = run
    last_said = ""  # type: ignore[assignment]

    def wait_for_trials(self, within_s: float) -> bool:
        return False


class Failing(Hanging):
    """A sweep that can't be resumed."""

    does = "raise SystemExit(3)"

    def wait_for_trials(self, within_s: float) -> bool:
        return self.wait(within_s) is None


@pytest.mark.parametrize(
    ("kind", "within_s", "said"),
    [
        (Hanging, 1, ["no trial begins to train", "the sweep did not end within 1 s"]),
        (Failing, 60, ["resume ends with status 3"]),
    ],
)
def test_the_campaign_notices_a_sweep_that_cannot_go_on(
    kind: type[Hanging], within_s: float, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "WHOLE_WITHIN_S", within_s)
    victim = kind(tmp_path, "asha", Record.in_file(tmp_path / "mlflow.db"), None)
    try:
        outcome = campaign.Round(victim, ["broker killed"], random.Random(0), float("inf")).play()
    finally:
        victim.kill()
    assert outcome.verdict == Verdict(stuck=said)
