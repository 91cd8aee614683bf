"""A driver that is killed or ends before its search begins leaves a name that can be used again, or a sweep that goes
on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import NO_PREFLIGHT, SHORT, Done
from stores import make_store
from test_errors_of_the_driver import run

from sweeps.driver.folder_access import make_folder
from sweeps.errors import UserError
from sweeps.folders.driver_lock import DRIVER_FILE, only_driver
from sweeps.plan.plan import make_plan
from sweeps.tracking.journal import Journal

SWEEP = ("conf=digits", *SHORT, "search/scheduler=none", "search.num_trials=1", NO_PREFLIGHT, "tracking.report=false")
RAISING = (sys.executable, str(Path(__file__).with_name("raising.py")))
DIES_EARLY = """
import os, signal
from sweeps.driver.folder_access import make_folder
from sweeps.folders.driver_lock import only_driver
from sweeps.folders.sweep_folder import GROUPS_FOLDER, MEASURED_FOLDER, RAY_TRAIN_FOLDER
from sweeps.plan.plan import make_plan
from sweeps.plan.saved_sweep import save
from sweeps.tracking.journal import Journal

plan = make_plan(["conf=digits"], [], "early", "run")
make_folder(plan)
with only_driver(plan.folder, plan.name):
    for folder in (GROUPS_FOLDER, MEASURED_FOLDER, RAY_TRAIN_FOLDER):  # of workers that were measured
        (plan.folder / folder).mkdir()
    save(plan)
    Journal(plan.folder)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left(uri: str, tmp_path: Path) -> Path:
    """Folder of a sweep whose driver was killed just before its run was made in MLflow."""
    died = subprocess.run([sys.executable, "-c", DIES_EARLY], cwd=tmp_path, check=False)
    assert died.returncode == -signal.SIGKILL
    folder = tmp_path / "outputs" / "early"
    assert {"driver.json", "tracking.jsonl", "sweep.json"} <= {path.name for path in folder.iterdir()}
    return folder


def test_the_name_is_free_only_if_no_driver_mlflow_and_study_has_the_sweep(left: Path, uri: str) -> None:
    from mlflow import MlflowClient

    client, driver = MlflowClient(uri), left / DRIVER_FILE
    killed = driver.read_bytes()
    with only_driver(left, "early"), pytest.raises(UserError, match="already exists"):
        make_plan(["conf=digits"], [], "early", "run")
    driver.write_bytes(killed)
    run_id = client.create_run("0", tags={"sweeps.sweep": "early", "sweeps.kind": "sweep"}).info.run_id
    plan = make_plan(["conf=digits"], [], "early", "run")
    with pytest.raises(UserError, match="a sweep named 'early' already exists"):
        make_folder(plan)
    assert Journal.is_in(left)
    client.delete_run(run_id)
    (left / "optuna.log").touch()
    with pytest.raises(UserError, match="already exists"):
        make_plan(["conf=digits"], [], "early", "run")
    (left / "optuna.log").unlink()
    make_folder(make_plan(["conf=digits"], [], "early", "run"))
    assert list(left.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "verb"),
    [
        ("sweeps.driver.run:joined_cluster", ("run", *SWEEP, "--name=killed")),
        ("sweeps.driver.run:save", ("run", *SWEEP, "--name=killed", "--resume")),
        ("sweeps.tracking.recorder:create_parent_run", ("run", *SWEEP, "--name=killed")),
        ("sweeps.tracking.recorder:create_parent_run", ("run", *SWEEP, "--name=killed", "--resume")),
        ("sweeps.tracking.recorder:Recorder.record_config", ("resume", "killed")),
        ("sweeps.driver.run:_open_session", ("resume", "killed")),
    ],
)
def test_a_sweep_that_was_killed_while_it_started_can_be_run(tmp_path: Path, place: str, verb: tuple[str, ...]) -> None:
    make_store(tmp_path / "mlflow.db")
    status, err = run([*RAISING, place, "1", "--kill", "run", *SWEEP, "--name=killed"], tmp_path)
    assert status == -signal.SIGKILL, err
    status, err = run([sys.executable, "-m", "sweeps", *verb], tmp_path)
    assert status == 0, err
    assert Done.of(tmp_path, "killed").document["counts"]["finished"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "way", "status", "shown", "says", "verb"),
    [
        (
            *("sweeps.driver.run:record_provenance", "--ctrl-c", 130, "interrupted"),
            *("`python -m sweeps resume ended`", ("resume", "ended")),
        ),
        (
            *(
                "sweeps.tracking.recorder:Recorder.record_config",
                "--silent-server",
                2,
                "running",
            ),  # MLflow hears nothing
            *("`resume ended` continues it; if there is none, try again", ("resume", "ended")),
        ),
    ],
)
def test_a_sweep_that_ends_before_its_search_can_be_continued(
    tmp_path: Path, place: str, way: str, status: int, shown: str, says: str, verb: tuple[str, ...]
) -> None:
    make_store(tmp_path / "mlflow.db")
    ended, err = run([*RAISING, place, "1", way, "run", *SWEEP, "--name=ended"], tmp_path)
    assert ended == status, err
    assert says in err
    assert Done.of(tmp_path, "ended").document["status"] == shown
    again, err = run([sys.executable, "-m", "sweeps", *verb], tmp_path)
    assert again == 0, err
    assert Done.of(tmp_path, "ended").document["counts"]["finished"] == 1
