"""Checks that this user may read the models and data sets of the Hugging Face hub, before a trial starts."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from sweeps.config import SweepConfig
from sweeps.errors import raise_mistakes
from sweeps_train.config import CausalLM, TextData
from sweeps_train.data.data_files import FILE_TYPES

ANSWER_WITHIN_S = 5.0
"""Maximum seconds to wait for the hub's answers; without an answer the sweep starts."""
_GIVE_TOKEN = "set HF_TOKEN (and name it in cluster.env for a running cluster), or run `hf auth login`"  # noqa: S105
_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


@dataclass(frozen=True)
class HubName:
    """Name on the hub, and the config key that contains it."""

    key: str
    name: str
    kind: Literal["model", "dataset"]

    @property
    def page(self) -> str:
        """Address of the page of the model or data set."""
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def hub_names(configs: Iterable[SweepConfig]) -> list[HubName]:
    """Return the names that trials with these configs load from the hub, except models in its local cache."""
    return list(dict.fromkeys(each for config in configs for each in _names(config)))


def check_hub(names: Sequence[HubName]) -> None:
    """Ask the hub for each name whether the user's token may read it.

    Raises:
        ConfigError: The token may not read a name, or there is no such name; one line for each. Without an answer, as
            without a network, there is no error.
    """
    raise_mistakes(hub_mistakes(names))


def hub_mistakes(names: Sequence[HubName]) -> list[str]:
    """Return one line for each name that the hub refuses; see ``check_hub``."""
    if not names:
        return []
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return []
    answers: dict[HubName, str | None] = {}

    def ask(name: HubName) -> None:
        answers[name] = _refusal(name)

    # Threads that do not keep the process alive: the hub's client has no timeout.
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + ANSWER_WITHIN_S
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return [answer for name in names if (answer := answers.get(name)) is not None]


def _refusal(hub: HubName) -> str | None:
    from huggingface_hub import auth_check, get_token
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    kind = hub.kind if hub.kind == "model" else "data set"
    has_token = get_token() is not None
    try:
        auth_check(hub.name, repo_type=hub.kind)
    except GatedRepoError:
        refusal = (
            f"this {kind} is gated, and the account of your token has no access; ask for it at {hub.page}"
            if has_token
            else f"this {kind} is gated, and there is no token; accept its terms at {hub.page}, then {_GIVE_TOKEN}"
        )
    except RepositoryNotFoundError:
        refusal = (
            f"the hub has no such {kind}, or your token may not read it; correct the name"
            if has_token
            else f"the hub has no such {kind}, or it is private; correct the name, or {_GIVE_TOKEN}"
        )
    except HfHubHTTPError as error:
        if error.response.status_code != HTTPStatus.UNAUTHORIZED:
            return None
        refusal = f"the hub does not accept your token; make a new one, then {_GIVE_TOKEN}"
    except Exception:  # noqa: BLE001 - whatever the network raises, the workers may still have access or a copy
        return None
    else:
        return None
    return f"{hub.key}={hub.name}: {refusal}"


def _names(config: SweepConfig) -> Iterator[HubName]:
    model, data = config.model, config.data
    if config.loop is None:  # a user's own training may load anything
        return
    if isinstance(model, CausalLM):
        named = [("model.path", model.path, model.revision), ("model.tokenizer", model.tokenizer, None)]
        for key, path, revision in named:
            if path is not None and _is_on_hub(path) and not _is_cached(path, revision):
                yield HubName(key, path, "model")
    if isinstance(data, TextData):
        for key, path in (("data.path", data.path), ("data.eval_path", data.eval_path)):
            if path is not None and _is_on_hub(path):
                yield HubName(key, path, "dataset")


def _is_on_hub(path: str) -> bool:
    is_name = _NAME.fullmatch(path) is not None and not path.startswith(".") and not path.lower().endswith(FILE_TYPES)
    return is_name and not Path(path).exists()


def _is_cached(name: str, revision: str | None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "tokenizer_config.json")
    return any(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in files)
