"""Models and data sets of the hub that the user may not read are found before a trial starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from composing import composed
from small_http import Handler, serving_http

from sweeps.cli import run_command
from sweeps.errors import ConfigError
from sweeps.validate import hub_checks as hub
from sweeps.validate.hub_checks import HubName, check_hub, hub_names

OPEN, GATED, MISSING = "ours/open", "theirs/gated", "theirs/missing"


class Hub(Handler):
    """Answers as the hub does, with its status codes and headers."""

    def answer(self) -> None:
        name = "/".join(self.path.split("/")[3:5])
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == "expired-token":
            self.send(401, headers={"X-Error-Message": "Invalid credentials in Authorization header"})
        elif name == OPEN or (name == GATED and token == "granted-token"):
            self.send(200)
        elif name == GATED:
            self.send(403 if token else 401, headers={"X-Error-Code": "GatedRepo"})
        else:
            self.send(404 if token else 401, headers={"X-Error-Code": "RepoNotFound"})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving_http(Hub) as address:
        yield address


@pytest.fixture
def endpoint(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants
    from huggingface_hub.hf_api import api

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # as all other tests are
    monkeypatch.setattr(api, "endpoint", address)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        (OPEN, None, None),
        (GATED, "granted-token", None),
        (GATED, None, "model.path=theirs/gated: this model is gated, and there is no token; .* set HF_TOKEN"),
        (GATED, "another-token", "this model is gated, and the account of your token has no access; ask for it at"),
        (MISSING, None, "the hub has no such model, or it is private; correct the name, or set HF_TOKEN"),
        (MISSING, "granted-token", "no such model, or your token may not read it; correct the name"),
        (GATED, "expired-token", "the hub does not accept your token; make a new one"),
    ],
)
def test_what_the_hub_refuses_is_told_with_the_fix(
    name: str, token: str | None, message: str | None, endpoint: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    if message is None:
        check_hub([HubName("model.path", name, "model")])
        return
    with pytest.raises(ConfigError, match=message):
        check_hub([HubName("model.path", name, "model"), HubName("data.path", OPEN, "dataset")])


def test_a_hub_that_does_not_answer_delays_a_sweep_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "ANSWER_WITHIN_S", 0.2)
    monkeypatch.setattr(hub, "_refusal", lambda name: time.sleep(60))
    began = time.monotonic()
    check_hub([HubName("model.path", OPEN, "model")] * 3)
    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("endpoint")
def test_the_hub_is_not_asked_where_the_user_wants_to_stay_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_refusal", lambda name: f"{name.name} was asked for")
    check_hub([HubName("model.path", GATED, "model")])


def test_names_on_the_hub_are_those_that_are_no_files(working_folder: Path) -> None:
    (working_folder / "here").mkdir()

    def names(*tokens: str) -> list[tuple[str, str]]:
        config = composed("llm_lora", *tokens).config
        return [(each.key, each.name) for each in hub_names([config, config])]

    assert names() == []
    assert names("model=huggingface", "model.path=here", "data=text", "data.path=texts.jsonl") == []
    found = names("model=huggingface", "model.path=a/b", "model.tokenizer=c/d", "data=text", "data.path=wikitext")
    assert found == [("model.path", "a/b"), ("model.tokenizer", "c/d"), ("data.path", "wikitext")]


@pytest.mark.usefixtures("endpoint")
def test_a_gated_model_without_a_token_is_one_message_before_anything_starts(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run_command(["run", "conf=llm_lora", "model=huggingface", f"model.path={GATED}"])
    printed, message = capsys.readouterr()
    assert (status, printed, message.count("\n")) == (2, "", 1), message
    assert "model.path=theirs/gated: this model is gated, and there is no token; accept its terms" in message
    assert not (working_folder / "outputs").exists()
