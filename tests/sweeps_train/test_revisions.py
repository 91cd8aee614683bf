"""``model.revision`` and ``data.revision`` choose a commit of the hub, here of its cache on this disk."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_runs import TEXT, configured, run, write_prompts

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.validate.hub_checks import hub_names
from sweeps.validate.model_checks import model_facts
from sweeps_train import load_model
from sweeps_train.config import CausalLM
from sweeps_train.data.fingerprint import data_fingerprints
from sweeps_train.models.causal_lm import BUILTIN_MODELS

COMMITS = {"main": "a" * 40, "v2": "b" * 40}
POSITIONS = {"main": 512, "v2": 256}
EMBEDDINGS = "model.embed_tokens.weight"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache of the hub with two revisions of a model, whose weights and configs differ, and of a data set."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    source = BUILTIN_MODELS["builtin:tiny_llama"]
    for revision, commit in COMMITS.items():
        for repository in ("models--ours--tiny", "datasets--ours--texts"):
            reference = cache / repository / "refs" / revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(commit)
            (cache / repository / "snapshots" / commit).mkdir(parents=True)
        snapshot = cache / "models--ours--tiny" / "snapshots" / commit
        shutil.copytree(source, snapshot, dirs_exist_ok=True)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config["max_position_embeddings"] = POSITIONS[revision]
        (snapshot / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = snapshot / "model.safetensors"
    save_file({name: each * 0.5 for name, each in load_file(weights).items()}, weights, {"format": "pt"})
    return cache


def embeddings(hub_cache: Path, commit: str) -> torch.Tensor:
    return load_file(hub_cache / "models--ours--tiny" / "snapshots" / commit / "model.safetensors")[EMBEDDINGS]


@pytest.mark.parametrize(
    ("revision", "lora"),
    [
        ("v2", {"r": 4}),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in itertools.product((None, "v2", COMMITS["v2"]), (None, {"r": 4}))
            if each != ("v2", {"r": 4})
        ),
    ],
)
def test_weights_config_and_tokenizer_of_a_model_are_those_of_its_revision(
    revision: str | None, lora: dict[str, int] | None, hub_cache: Path, working_folder: Path
) -> None:
    write_prompts(working_folder)
    model = {"path": "ours/tiny", "revision": revision, "lora": lora}
    # A step without effect on the weights, so that those of the checkpoint are those that were loaded.
    train = {"max_steps": 1, "eval_every": 1, "lr": 1e-30}
    run(configured(TEXT, model=model, train=train), working_folder / "checkpoints")
    loaded = load_model(working_folder / "checkpoints" / "step-00000001")
    wanted = "main" if revision is None else "v2"
    assert loaded.config.max_position_embeddings == POSITIONS[wanted]  # type: ignore[union-attr]
    found = loaded.get_input_embeddings().weight  # type: ignore[operator]
    assert torch.equal(found, embeddings(hub_cache, COMMITS[wanted]))
    other = {"main": "v2", "v2": "main"}[wanted]
    assert not torch.equal(found, embeddings(hub_cache, COMMITS[other]))


@pytest.mark.usefixtures("hub_cache")
def test_a_revision_that_does_not_exist_is_refused_with_its_name(working_folder: Path) -> None:
    write_prompts(working_folder)
    with pytest.raises(ValueError, match=r"model.path=ours/tiny .*cannot be loaded"):
        run(configured(TEXT, model={"path": "ours/tiny", "revision": "v3"}), working_folder / "checkpoints")


@pytest.mark.usefixtures("hub_cache")
def test_checks_before_a_sweep_read_the_config_of_the_revision() -> None:
    for revision, positions in ((None, 512), ("v2", 256), (COMMITS["v2"], 256), ("v3", None)):
        facts = model_facts(CausalLM(kind="causal_lm", path="ours/tiny", revision=revision))
        assert facts.get("max_position_embeddings") == positions


@pytest.mark.usefixtures("hub_cache")
def test_the_hub_is_asked_for_a_revision_that_is_not_in_its_cache() -> None:
    def names(*tokens: str) -> list[str]:
        config = compose_sweep("llm_lora", ["model=huggingface", "model.path=ours/tiny", *tokens], ConfSearchPath())
        return [each.key for each in hub_names([config.config])]

    assert names() == names("model.revision=v2") == []
    assert names("model.revision=v3") == ["model.path"]


@pytest.mark.usefixtures("hub_cache")
def test_the_fingerprint_of_data_is_the_commit_of_its_revision() -> None:
    def fingerprint(revision: str | None) -> str | None:
        data = {"path": "ours/texts", "revision": revision}
        return data_fingerprints(configured(TEXT, data=data))["ours/texts"]

    assert fingerprint(None) == COMMITS["main"]
    assert fingerprint("v2") == fingerprint(COMMITS["v2"]) == COMMITS["v2"]
    assert fingerprint("v3") is None
