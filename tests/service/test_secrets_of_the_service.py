"""Secrets are planted wherever a service has any; a sweep is run through it; then all that it has written, shown, sent
to MLflow and given to processes is searched for them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests
from fastapi.routing import APIRoute, iter_route_contexts
from recording import Server
from serving import API, Api
from test_serve import Service

PASSWORD = "planted-password-of-the-store-4711"
ADDRESS = "planted-word-of-the-notifier-4711"
HUB = "hf_PlantedPlantedPlantedPlanted4711"
OVERRIDE = "sk-PlantedPlantedPlantedPlanted4711"
SERVICE = """
port: 0
tracking_uri: ${oc.env:PLANTED_STORE}
notifications:
  - {name: hook, url_env: PLANTED_HOOK}
access: {requests_per_minute: 100000}
"""
SMALL = ["train.max_steps=4", "train.eval_every=2", "search.num_trials=1", "cluster.num_cpus=2", "tracking.report=true"]


class Planted:
    """A service with secrets, the sweep that it has run, and all that was seen of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Server(folder)
        self.secrets = {"password": PASSWORD, "notifier": ADDRESS, "hub": HUB, "override": OVERRIDE}
        self.seen: dict[str, str] = {}
        (folder / "configs" / "service").mkdir(parents=True)
        (folder / "configs" / "service" / "planted.yaml").write_text(SERVICE)
        self._token = self._create_token()
        self.secrets["token"] = self._token
        try:
            with Service(folder, "service=planted", "--config-dir", "configs", **self._environment()) as self.service:
                self._run()
        finally:
            with contextlib.suppress(ProcessLookupError):  # it is dead already, where all went well
                self.store.kill()
        self._read_files()

    def ask(self, path: str, body: object = None, token: str | None = None) -> str:
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": "application/json"}
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        answer = requests.request(method, self.service.url + path, data=data, headers=headers, timeout=120)
        text = answer.content.decode(errors="replace")
        self.seen[f"{len(self.seen)} {path}"] = text
        return text

    def _create_token(self) -> str:
        command = ["token", "create", "service=planted", "--user", "ada", "--role", "admin", "--config-dir", "configs"]
        made = subprocess.run(
            [sys.executable, "-m", "sweeps", *command],
            cwd=self.folder, env=os.environ | self._environment(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        return made.stdout.strip()

    def _environment(self) -> dict[str, str]:
        address = self.store.uri.replace("://", f"://ada:{PASSWORD}@")
        hook = f"json://127.0.0.1:9/{ADDRESS}"  # where nobody listens: the failure is told, too
        return {"PLANTED_STORE": address, "PLANTED_HOOK": hook, "HF_TOKEN": HUB}

    def _run(self) -> None:
        overrides = [*SMALL, f"tracking.experiment={OVERRIDE}"]
        self.ask(f"{API}/plans", {"conf": "digits", "overrides": overrides})
        made = self.ask(f"{API}/sweeps", {"conf": "digits", "name": "planted", "overrides": SMALL})
        job = json.loads(made)
        assert "id" in job, made
        self.ask(f"{API}/sweeps", {"conf": "digits", "overrides": ["tracking.uri=http://x:y@z"]})
        self.ask(f"{API}/sweeps", {"conf": "digits", "overrides": [f"train.lr={OVERRIDE}"]})
        state = ""
        for _ in range(1200):
            self._look_at_processes()
            state = json.loads(self.ask(f"{API}/jobs/{job['id']}"))["state"]
            if state not in ("queued", "running"):
                break
            time.sleep(0.25)
        assert state == "finished", self.ask(f"{API}/jobs/{job['id']}/log")
        for path in self._pages():
            self.ask(path)
        self.ask("/", token="sweeps_" + "A" * 43)
        time.sleep(3)  # the notifier tries
        self.store.kill()
        for path in (f"{API}/sweeps", f"{API}/sweeps/planted", "/", "/sweeps/planted"):
            self.ask(path)
        self.ask(f"{API}/sweeps/planted/resume", {})

    def _look_at_processes(self) -> None:
        """Read the command lines of processes, as everybody on the machine can."""
        for process in psutil.process_iter(["cmdline"]):
            self.seen[f"process {process.pid}"] = " ".join(process.info["cmdline"] or ())

    def _pages(self) -> Iterator[str]:
        app = Api(f"sqlite:///{self.folder}/other.db", f"database=sqlite:///{self.folder}/other-service.db").app
        for context in iter_route_contexts(app.routes):
            if isinstance(context.original_route, APIRoute) and "GET" in (context.methods or ()):
                path = re.sub(
                    r"\{[^}]*\}", "model", str(context.path).replace("{name}", "planted").replace("{number}", "1")
                )
                yield f"{path}?sweep=planted&sweep=planted" if path.endswith("/compare") else path

    def _read_files(self) -> None:
        for file in self.folder.rglob("*"):
            if file.is_file() and not file.is_symlink():
                self.seen[str(file.relative_to(self.folder))] = file.read_bytes().decode(errors="replace")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.slow
@pytest.mark.parametrize("secret", ["token", "password", "notifier", "hub"])
def test_a_secret_stands_in_no_page_log_record_or_process(planted: Planted, secret: str) -> None:
    found = {where for where, text in planted.seen.items() if planted.secrets[secret] in text}
    assert not found


@pytest.mark.slow
def test_what_looks_like_a_secret_in_an_override_is_told_to_who_typed_it_alone(planted: Planted) -> None:
    shown = {where.partition(" ")[2] for where, text in planted.seen.items() if OVERRIDE in text}
    assert shown <= {f"{API}/plans", f"{API}/sweeps"}


@pytest.mark.slow
def test_all_of_it_was_looked_at(planted: Planted) -> None:
    """So that an empty search means something."""
    everything = "\n".join(planted.seen)
    for part in ("process", "service.log", "outputs/planted", "mlflow.db", "artifacts/", "service.db", f"{API}/jobs"):
        assert part in everything
    assert '"status": "finished"' in "\n".join(planted.seen.values()) or '"finished"' in "\n".join(
        planted.seen.values()
    )
