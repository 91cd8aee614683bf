"""Imports of the training library in registered models, whose copy in another model, or whose installed release, may
have been imported before."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import sweeps_train
from sweeps import registry


@pytest.mark.parametrize("name", ["load_model", "read_training_config"])
def test_loaders_of_0_2_find_what_they_import(name: str) -> None:
    assert getattr(import_module("sweeps_train.checkpoint"), name) is getattr(sweeps_train, name)


@pytest.mark.parametrize("name", ["adapter_on_base", "row_predictor"])
def test_loaders_import_names_that_each_release_has(name: str) -> None:
    text = Path(registry.__path__[0], f"{name}.py").read_text(encoding="utf-8")
    found = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom)]
    own = [each for each in found if str(each.module).startswith("sweeps")]
    assert [each.module for each in own] == ["sweeps_train"]
    assert {each.name for each in own[0].names} <= set(sweeps_train.__all__)


@pytest.mark.filterwarnings("ignore:.*type hint is inferred")
def test_a_text_is_completed_where_it_ends_though_its_tokenizer_adds_an_end() -> None:
    import torch

    from sweeps.registry.adapter_on_base import AdapterOnBase
    from sweeps_train.config import CausalLM
    from sweeps_train.models.causal_lm import build_causal_lm, build_tokenizer

    config = CausalLM(kind="causal_lm", path="builtin:tiny_llama")
    registered = AdapterOnBase()
    registered.model, registered.tokenizer = model, tokenizer = build_causal_lm(config), build_tokenizer(config)
    open_ended = torch.tensor([tokenizer("def ", add_special_tokens=False).input_ids])
    whole = model.generate(input_ids=open_ended, max_new_tokens=12)[0]  # type: ignore[operator] # transformers' own
    (completed,) = registered.predict(None, ["def "], {"max_new_tokens": 12})  # type: ignore[arg-type] # no context
    assert completed == tokenizer.decode(whole, skip_special_tokens=True)
