"""Workers end as Python programs do: exit handlers run, files are written, and a user's own MLflow runs end."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from running import NO_PREFLIGHT, Done, own_function, points, run

USERS = """
import atexit, os, time
from pathlib import Path
import mlflow
import ray.train

HANDLERS, FILES = set(), []

def train(config):
    what, notes = config["what"], Path(config["notes"])
    mlflow.set_tracking_uri(f"sqlite:///{notes}/own.db")  # a store of the user's own: others are read as the trial's
    mlflow.start_run()
    mlflow.log_param("what", what)
    if os.getpid() not in HANDLERS:
        HANDLERS.add(os.getpid())
        atexit.register(leaves, notes, what)
    FILES.append(open(notes / f"{what}.txt", "w"))
    FILES[-1].write("buffered")
    if what == "fails":
        raise ValueError("of no use")
    for _ in range(3):
        ray.train.report({"loss": 0.1})

def leaves(notes, what):
    time.sleep(0.5)
    (notes / f"{what}.left").touch()
"""


@pytest.fixture(scope="module", params=["process", "warm"])
def sweep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A sweep of four trials, and the folder of what their function has left there."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    notes = folder / "notes"
    notes.mkdir()
    trials = ["good", "fails", "last"]
    done = run(
        folder,
        *own_function(folder, USERS, f"{{what: good, notes: {notes}}}"),
        f"task.arguments.what=choice({', '.join(trials)})",
        points(*({"task.arguments.what": what} for what in trials)),
        *("search.num_trials=3", "cluster.num_cpus=1", "scaling.num_workers=1", f"scaling.isolation={request.param}"),
        *("search/scheduler=none", "search.max_retries=0", "--name=exits", NO_PREFLIGHT),
        within_s=500,
    )
    return done, notes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exit_handlers_run_and_files_are_written_when_workers_end(sweep: tuple[Done, Path]) -> None:
    done, notes = sweep
    trials = {trial["params"]["task.arguments.what"]: trial["state"] for trial in done.document["trials"]}
    assert trials == {"good": "finished", "fails": "failed", "last": "finished"}, done.err
    written = {path.name: path.read_text(encoding="utf-8") for path in notes.glob("*.txt")}
    left = {path.stem for path in notes.glob("*.left")}
    assert written == {f"{what}.txt": "buffered" for what in trials}
    assert left == (set(trials) if "process" in str(notes) else {"good", "last"})  # the failure ends the first process


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_users_own_runs_are_named_after_their_trial_and_end_with_it(sweep: tuple[Done, Path]) -> None:
    _, notes = sweep
    found = MlflowClient(f"sqlite:///{notes}/own.db").search_runs(["0"])
    assert {(run.data.params["what"], run.info.run_name, run.info.status) for run in found} == {
        ("good", "exits-0000", "FINISHED"),
        ("fails", "exits-0001", "FAILED"),
        ("last", "exits-0002", "FINISHED"),
    }
