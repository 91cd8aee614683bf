"""The files of `deploy/`: their commands are ours, their services are hardened, and the tools that read them agree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from sweeps.compose.service_config import compose_service

MOST_EXPOSED = 2.5
"""By `systemd-analyze security`, of 10; a unit without settings has 9.6."""


@pytest.fixture(scope="module")
def deploy(checkout: Path) -> Path:
    return checkout / "deploy"


@pytest.fixture(scope="module")
def services(deploy: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    return found


@pytest.mark.parametrize("name", ["sweeps", "postgres", "mlflow", "minio", "bucket", "disk"])
def test_every_container_is_read_only_without_rights_and_without_secrets_in_the_file(
    services: dict[str, Any], deploy: Path, name: str
) -> None:
    service = services[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    ours = service.get("build", {}).get("dockerfile") == "deploy/Dockerfile"
    assert ours or service["user"] not in ("root", "0", 0)
    assert ours or re.search(r":[\w.-]*\d[\w.-]*$", service["image"]), "no tag of a release"
    assert ours or "healthcheck" in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for variable, value in service.get("environment", {}).items():
        if "PASSWORD" in variable or "SECRET" in variable or ("://" in str(value) and "@" in str(value)):
            assert re.search(r"\$\{\w+:\?\}", value), f"{variable} does not come from the environment"


def test_containers_start_after_those_that_they_need(services: dict[str, Any]) -> None:
    needs = {name: set(service.get("depends_on", ())) for name, service in services.items()}
    assert needs["sweeps"] == {"postgres", "mlflow"}
    assert needs["mlflow"] == {"postgres", "bucket"}
    assert needs["minio"] == {"disk"}, "whose image has the folder of the new volume, and its owner"
    assert services["disk"]["volumes"] == ["minio:/srv/objects"]
    volumes = [each.split(":")[0] for service in services.values() for each in service.get("volumes", ())]
    assert {"sweeps", "postgres", "minio"} <= set(volumes)


def test_the_config_in_the_container_is_one_that_the_service_takes(
    services: dict[str, Any], deploy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in services["sweeps"]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?\}", "secret", value))
    verb, *tokens, folder = services["sweeps"]["command"]
    assert (verb, folder) == ("serve", "--config-dir=/etc/sweeps")
    assert "./service:/etc/sweeps/service:ro" in services["sweeps"]["volumes"]
    config = compose_service(tokens, [deploy])
    assert (config.host, config.port) == ("0.0.0.0", 8642)
    assert config.database == "postgresql+psycopg://sweeps:secret@postgres:5432/sweeps"
    assert config.output_dir.startswith("/srv/sweeps/")


def test_the_image_runs_as_nobody_in_particular_and_says_whether_it_is_well(deploy: Path) -> None:
    text = (deploy / "Dockerfile").read_text().replace("\\\n", "")
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER \d+$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/api/v1/health", last, re.MULTILINE)
    assert "--no-install-recommends" in last
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert all((deploy.parent / name).exists() for names in copied for name in names.split())


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/api/v1/health") else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_container_is_asked_how_it_is_without_the_proxy_that_docker_hands_to_all(
    services: dict[str, Any], deploy: Path
) -> None:
    text = (deploy / "Dockerfile").read_text().replace("\\\n", "")
    said = re.search(r"^HEALTHCHECK .*CMD (\[.+\])$", text, re.MULTILINE)
    assert said is not None
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for _, *python in (["CMD", *json.loads(said[1])], services["mlflow"]["healthcheck"]["test"]):
            command = re.sub(r"(?:localhost|127\.0\.0\.1):\d+", f"127.0.0.1:{server.server_port}", python[-1])
            for proxy, asked, status in (("http_proxy", command, 0), ("a", command.replace("health", "none"), 1)):
                done = subprocess.run([sys.executable, "-c", asked], env={proxy: "http://127.0.0.1:9"}, check=False)
                assert done.returncode == status
        server.shutdown()


def test_a_container_that_replaces_another_is_the_same_machine(services: dict[str, Any]) -> None:
    """By default its host name is random: sweeps of the one before would wait until it counts as lost."""
    assert services["sweeps"]["hostname"] == "sweeps"


def test_the_unit_is_one_that_systemd_takes_and_calls_well_protected(deploy: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze: apt-get install -y systemd")
    unit = str(deploy / "sweeps.service")
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    said = [line for line in verified.stderr.splitlines() if "sweeps.service" in line]
    assert [line for line in said if "/srv/sweeps/.venv/bin/python is not executable" not in line] == []
    command = [
        "systemd-analyze",
        "security",
        "--offline=true",
        f"--threshold={10 * MOST_EXPOSED:.0f}",
        "--no-pager",
        unit,
    ]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout[-300:]


def test_sweeps_outlive_the_service_with_their_temporary_files_and_shared_memory(deploy: Path) -> None:
    lines = (deploy / "sweeps.service").read_text().splitlines()
    assert "KillMode=process" in lines
    assert not {"PrivateTmp=true", "RemoveIPC=true"} & set(lines), "systemd removes them whenever the service ends"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_image_can_be_built_and_answers(deploy: Path) -> None:
    """Where there is a container tool, and the network that it needs."""
    tool = next((each for each in ("docker", "podman") if shutil.which(each)), None)
    if tool is None or subprocess.run([tool, "info"], capture_output=True, check=False).returncode:
        pytest.skip("needs a container tool that runs: docker or podman")
    build = [tool, "build", "--file", str(deploy / "Dockerfile"), "--tag", "sweeps-test", str(deploy.parent)]
    subprocess.run(build, check=True)
    run = [tool, "run", "--rm", "--read-only", "--tmpfs=/tmp", "--tmpfs=/srv/sweeps", "--cap-drop=ALL", "sweeps-test"]
    done = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sweeps ")
