"""A team's MLflow: a server on PostgreSQL with artifacts in S3, a password and TLS, all of them real."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from postgres import PASSWORD, Postgres
from processes import outputs
from recording import CONFIG, POINT, Server, held, history, one_trial, open_recorder, record_with_checkpoints
from running import SHORT, start
from small_http import make_certificate

from sweeps.cleaning.cleaning import clean, plan_cleaning
from sweeps.cleaning.policy import Policy
from sweeps.tracking.reader import load_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BUCKET = "bucket"


@pytest.fixture(scope="module", autouse=True)
def _needs() -> None:
    missing = [name for name in ("boto3", "moto", "flask_wtf") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Variables by which clients reach an S3 server with an empty bucket."""
    from s3_server import s3_server

    with s3_server(PASSWORD) as environment:
        yield {**environment, "MLFLOW_S3_ENDPOINT_URL": environment["AWS_ENDPOINT_URL"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def team(
    postgres: Postgres, s3: dict[str, str], certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("team")
    (folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = EDIT\nadmin_username = admin\n"
        f"database_uri = sqlite:///{folder}/auth.db\ngrant_default_workspace_access = false\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        "auth_cache_ttl_seconds = 60\n"
    )
    server = Server(
        folder,
        *("--app-name", "basic-auth"),
        store=postgres.uri,
        artifacts=f"s3://{BUCKET}/team",
        certificate=certificate,
        environment={
            **s3,
            "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
            "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "k",
        },
    )
    yield server
    server.kill()


@pytest.fixture
def signed_in(team: Server, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with what MLflow's own variables say of it in the environment."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(certificate[0]))
    return team


def test_a_sweep_on_a_teams_server_is_whole_and_tells_nobody_the_password(signed_in: Server, tmp_path: Path) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    from sweeps_train import load_model

    process = start(tmp_path, "run", "conf=digits", *SHORT, "search.num_trials=2", "--name", "team", "--json")
    command_lines = set()
    while process.poll() is None:
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            try:
                command_lines.add(" ".join(each.cmdline()))
            except psutil.Error:
                continue
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    out, err = process.communicate()
    assert process.returncode == 0, err
    document = json.loads(out)
    assert len(document["trials"]) == 2

    client = MlflowClient(signed_in.uri)
    run = client.get_run(document["best"]["run_id"])
    assert run.info.artifact_uri.startswith("mlflow-artifacts:")
    assert [step for step, _ in history(signed_in.uri, run.info.run_id, "eval/accuracy")][:1] == [10]
    assert load_model(download_artifacts(document["best"]["checkpoint"], tracking_uri=signed_in.uri))

    written = [path.read_bytes() for path in (tmp_path / "outputs" / "team").rglob("*") if path.is_file()]
    recorded = [json.dumps(dict(each.data.tags)) for each in client.search_runs([run.info.experiment_id])]
    assert not [text for text in written if PASSWORD.encode() in text]
    assert not [text for text in [out, err, *recorded, *command_lines] if PASSWORD in text]


def test_wrong_credentials_and_an_unknown_certificate_are_named_before_anything_starts(
    signed_in: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value, words in (
        ("MLFLOW_TRACKING_PASSWORD", "wrong", ["401", "MLFLOW_TRACKING_USERNAME"]),
        ("MLFLOW_TRACKING_SERVER_CERT_PATH", None, ["certificate", "MLFLOW_TRACKING_SERVER_CERT_PATH"]),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(variable, value) if value else changed.delenv(variable)
            process = start(tmp_path, "run", "conf=digits", "--name", "no")
            _, err = outputs(process, 120)
            assert process.returncode == 2, err
            assert all(word in err for word in words), err
            assert not (tmp_path / "outputs" / "no").exists()


def test_without_checking_the_certificate_it_is_reached_too(signed_in: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_SERVER_CERT_PATH")
    monkeypatch.setenv("MLFLOW_TRACKING_INSECURE_TLS", "true")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # urllib3 warns of each request, as it should
        recorder = open_recorder(signed_in.uri, "insecure")
        recorder.trials.start("0", POINT, CONFIG, 1)
        recorder.trials.log("0", 1, {"eval/loss": 1.0})
        assert not recorder.close("finished")
        assert load_sweep(signed_in.uri, "insecure").trials[0].value == 1.0


def test_the_driver_writes_to_postgresql_and_s3_itself(
    postgres: Postgres, s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(postgres.uri)
    client.create_experiment("digits-direct", f"s3://{BUCKET}/direct")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin").write_text("weights")
    with one_trial(postgres.uri, "direct", experiment="digits-direct", command="x" * 9000) as recorder:
        for step in range(1500):
            recorder.trials.log("0", step, {"eval/loss": 1.0 / (step + 1)})
        recorder.trials.record_checkpoint("0", str(tmp_path / "model"), "best")
        recorder.trials.end("0", "finished", 1500, 1)
    trial = load_sweep(postgres.uri, "direct").trials[0]
    assert len(history(postgres.uri, trial.run_id, "eval/loss")) == 1500
    folder = download_artifacts(trial.checkpoint, tracking_uri=postgres.uri)
    assert (Path(folder) / "weights.bin").read_text() == "weights"


@pytest.mark.parametrize("through", ["server", "postgresql"])
def test_clean_removes_checkpoints_from_s3_and_never_those_of_the_best(
    through: str,
    signed_in: Server,
    postgres: Postgres,
    s3: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    working_folder: Path,
) -> None:
    from mlflow import MlflowClient

    uri, experiment, old, new = signed_in.uri, "cleaned-by-the-server", "old-1", "new-1"
    if through == "postgresql":
        for name, value in s3.items():
            monkeypatch.setenv(name, value)
        uri, experiment, old, new = postgres.uri, "cleaned-by-us", "old-2", "new-2"
        MlflowClient(uri).create_experiment(experiment, f"s3://{BUCKET}/cleaned")
    record_with_checkpoints(uri, old, new, experiment=experiment)
    planned = plan_cleaning(uri, [old], Policy())
    assert planned.freed == 3 * 2000  # in the sweep's folder and in S3
    assert {each.trial.trial for each in clean(uri, planned)} == {"0000", "0001", "0003"}
    gone, whole = (False, False, False), (True, True, True)
    assert held(uri, old) == {"0000": gone, "0001": gone, "0002": whole, "0003": gone}
    assert held(uri, new) == dict.fromkeys(("0000", "0001", "0002", "0003"), whole)
