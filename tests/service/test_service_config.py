"""Config of `serve`, and mistakes in it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sweeps.compose.service_config import compose_service
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.service.app_context import is_loopback
from sweeps.service.serve import listen


def test_the_shipped_service_listens_on_this_machine_alone() -> None:
    config = compose_service([], [])
    assert is_loopback(config.host)
    assert config.tracking_uri == "sqlite:///mlflow.db"


def test_what_is_typed_and_a_users_own_file_take_effect(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "team.yaml").write_text("port: 9000\nqueue: {running: 4}\n")
    config = compose_service(["service=team", "queue.per_user=2"], [tmp_path])
    assert (config.port, config.queue.running, config.queue.per_user) == (9000, 4, 2)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (["prt=1"], ConfigError, "^prt=1: there is no such key; did you mean port?"),
        (["queue.running=0"], ConfigError, "queue.running=0: must be greater than 0"),
        (["queue.runing=1"], ConfigError, r"queue.runing=1: there is no such key; did you mean queue.running"),
        (["service=team"], UnknownName, "service=team: there is no such option"),
        (["port=choice(1,2)"], ConfigError, "must be key=value, with one value"),
        (["database=outputs/service.db"], ConfigError, "^database=outputs/service.db: must be a URL, as in sqlite:///"),
        (["database=postgresql://me:secret@db:port/x"], ConfigError, r"^database=postgresql://me:\*\*\*@db:port/x: "),
    ],
)
def test_a_mistake_is_named_with_its_key_and_value(tokens: list[str], error: type[UserError], message: str) -> None:
    with pytest.raises(error, match=message):
        compose_service(tokens, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: [local]\nport: 9000\n", "team.yaml: defaults: a service's file cannot extend another; write all"),
        ("prt: 9000\n", "team.yaml: prt=9000: there is no such key; did you mean port?"),
        ("database: ${oc.env:NO_SUCH_VARIABLE_7}\n", "team.yaml: database=.*NO_SUCH_VARIABLE_7"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "team.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        compose_service(["service=team"], [tmp_path])


def test_a_port_in_use_is_one_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"port={port}: cannot listen .*choose another port="):
            listen(compose_service([f"port={port}"], []))


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("192.0.2.1", False)],
)
def test_who_can_reach_an_address(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
