"""Whole sweeps whose tracking server, or disk, fails: training goes on, and in the end all is there exactly once."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from full_disk import fill
from processes import outputs
from recording import Server, history
from running import start
from stores import make_store
from waiting import wait_until

from sweeps.runtime.checkpoint_layout import checkpoint_folders
from sweeps.runtime.report_log import read_report_log
from sweeps.tracking.mlflow_characters import to_name
from sweeps.tracking.reader import load_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRIALS = 3
SWEEP = (
    *("run", "conf=digits", "search/scheduler=none", "space=none", "train.lr=interval(0.001, 0.1)"),
    *("train.max_steps=300", "train.eval_every=50", "train.log_every=10", f"search.num_trials={TRIALS}"),
    *("cluster.num_cpus=2", "scaling.num_workers=2", "--name", "sweep", "--json"),
)


def begin(folder: Path, uri: str, *more: str) -> subprocess.Popen[str]:
    return start(folder, *SWEEP, f"tracking.uri={uri}", *more)


def end(process: subprocess.Popen[str], status: int = 0) -> tuple[dict[str, Any], str]:
    out, err = outputs(process, 850)
    assert process.returncode == status, err
    return json.loads(out or "{}"), err


def steps_spooled(folder: Path, trial: str) -> int:
    """How far a trial's workers have come, told by what they have written down themselves."""
    events = read_report_log(str(folder / "outputs" / "sweep" / "trials" / trial))
    return max((event.step for event in events), default=0)


def check_all_is_there_once(folder: Path, uri: str) -> None:
    """Check that MLflow has exactly the reports of each trial's workers."""
    from mlflow import MlflowClient

    client, sweep = MlflowClient(uri), load_sweep(uri, "sweep")
    assert sweep.status == "finished"
    assert [(trial.trial, trial.state, trial.steps) for trial in sweep.trials] == [
        (f"{number:04}", "finished", 300) for number in range(TRIALS)
    ]
    for trial in sweep.trials:
        measured: dict[str, dict[int, float]] = defaultdict(dict)
        for place in checkpoint_folders(folder / "outputs" / "sweep" / "trials", trial.trial):
            for event in read_report_log(str(place)):
                for name, value in event.metrics.items():
                    measured[to_name(name)].setdefault(event.step, value)
        run = client.get_run(trial.run_id)
        recorded = {name: history(uri, trial.run_id, name) for name in run.data.metrics}
        # The driver adds the best values, and makes shares of the workers' seconds.
        assert {name: points for name, points in recorded.items() if not name.startswith(("best/", "time/"))} == {
            name: sorted(points.items()) for name, points in measured.items() if not name.startswith("time/")
        }
        assert set(run.data.params) == {"train.lr"}
        kept = {item.path for item in client.list_artifacts(trial.run_id, "checkpoints")}
        assert kept == {"checkpoints/best", "checkpoints/last"}
        for kind in ("best", "last"):
            assert run.data.tags[f"sweeps.checkpoint.{kind}"] == f"runs:/{trial.run_id}/checkpoints/{kind}"
        assert run.info.status == "FINISHED"


@pytest.fixture(scope="module")
def undisturbed_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of training, where nothing fails."""
    folder = tmp_path_factory.mktemp("undisturbed")
    document, _ = end(begin(folder, f"sqlite:///{folder}/mlflow.db"))
    check_all_is_there_once(folder, f"sqlite:///{folder}/mlflow.db")
    return float(document["time"]["train_s"])


def test_a_server_killed_and_started_again_during_a_sweep(server: Server, tmp_path: Path, undisturbed_s: float) -> None:
    process = begin(tmp_path, server.uri)
    wait_until(lambda: steps_spooled(tmp_path, "0000") > 50, 120)
    server.kill()
    wait_until(lambda: steps_spooled(tmp_path, "0001") > 50, 120)  # the next trial trains meanwhile
    server.start()
    document, err = end(process)
    assert "training continues" in err
    assert "works again" in err
    assert document["time"]["train_s"] < 2 * undisturbed_s + 2
    check_all_is_there_once(tmp_path, server.uri)


def test_the_servers_disk_is_full_for_a_while(small_disk: Callable[[int], Path], tmp_path: Path) -> None:
    folder = small_disk(8 << 10)
    make_store(folder / "mlflow.db")
    server = Server(folder, artifacts=str(tmp_path / "artifacts"))
    try:
        process = begin(tmp_path, server.uri)
        wait_until(lambda: steps_spooled(tmp_path, "0000") > 50, 120)
        fill(folder)
        wait_until(lambda: steps_spooled(tmp_path, "0001") > 50, 120)
        (folder / "filler").unlink()
        _, err = end(process)
        assert "training continues" in err, err
        assert "works again" in err
        check_all_is_there_once(tmp_path, server.uri)
    finally:
        server.kill()


def test_what_an_outage_kept_beyond_the_sweeps_end_is_delivered_by_resume(server: Server, tmp_path: Path) -> None:
    process = begin(tmp_path, server.uri, "tracking.patience_s=3")
    wait_until(lambda: steps_spooled(tmp_path, "0000") > 50, 120)
    server.kill()
    _, err = end(process, status=1)
    assert "has not received all of its record" in err
    assert "python -m sweeps resume sweep" in err
    server.start()
    document, err = end(start(tmp_path, "resume", "sweep", "--tracking-uri", server.uri, "--json"))
    assert document["counts"]["finished"] == TRIALS
    assert [trial["attempts"] for trial in document["trials"]] == [1] * TRIALS
    check_all_is_there_once(tmp_path, server.uri)


def test_a_full_disk_of_the_sweep_ends_it_and_with_room_it_goes_on(
    small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    disk = small_disk(64 << 10)
    (tmp_path / "outputs").symlink_to(disk)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    process = begin(tmp_path, uri)
    wait_until(lambda: steps_spooled(tmp_path, "0001") > 50, 120)
    fill(disk)
    _, err = end(process, status=1)
    assert " is full, or your quota there is used up; free some space" in err
    assert "resume sweep" in err
    assert "Traceback" not in err
    (disk / "filler").unlink()
    document, err = end(start(tmp_path, "resume", "sweep", "--tracking-uri", uri, "--json"))
    assert document["counts"] == {"finished": TRIALS, "pruned": 0, "failed": 0, "running": 0, "stopped": 0}
    check_all_is_there_once(tmp_path, uri)


@pytest.mark.parametrize("left", ["nothing", "an empty store"])
def test_a_sweep_whose_store_is_removed_while_it_runs_is_recorded_again_by_resume(tmp_path: Path, left: str) -> None:
    file = tmp_path / "mlflow.db"
    uri = f"sqlite:///{file}"
    process = begin(tmp_path, uri, "tracking.patience_s=3")
    wait_until(lambda: steps_spooled(tmp_path, "0001") > 50, 240)
    file.unlink()
    if left == "an empty store":
        make_store(file)
    _, err = end(process, status=1)
    assert "python -m sweeps resume sweep" in err
    document, err = end(start(tmp_path, "resume", "sweep", "--json"))
    assert "MLflow has lost sweep, which is recorded again from its folder" in err
    assert document["counts"]["finished"] == TRIALS
    assert [trial["attempts"] for trial in document["trials"]] == [1] * TRIALS
    check_all_is_there_once(tmp_path, uri)
