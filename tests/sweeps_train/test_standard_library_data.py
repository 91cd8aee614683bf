"""Text of the standard library, and the base model that was pretrained on it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import torch
from processes import run_python

from sweeps_train.config import TextData
from sweeps_train.data import standard_library
from sweeps_train.data.documents import read_documents
from sweeps_train.data.standard_library import docstrings, source_files, split_of
from sweeps_train.models.causal_lm import BUILTIN_MODELS

FOLDER = BUILTIN_MODELS["builtin:tiny_llama"]


def _modules(split: str) -> set[str]:
    root = standard_library._library()
    return {path.relative_to(root).parts[0] for path in source_files() if split_of(path) == split}


def test_no_module_is_in_both_splits_and_a_tenth_is_held_out() -> None:
    train, held_out = _modules("train"), _modules("eval")
    assert not train & held_out
    assert 0.03 < len(held_out) / len(train | held_out) < 0.2


@pytest.mark.slow
def test_no_docstring_is_in_both_splits_or_twice_in_one() -> None:
    texts = docstrings("train") + docstrings("eval")
    assert len(texts) == len(set(texts))


def test_every_example_gives_what_it_shows() -> None:
    result = doctest.testmod(standard_library)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_docstrings_have_their_own_split() -> None:
    train, held_out = read_documents(TextData(kind="text", path="builtin:stdlib_docstrings", max_eval_documents=3))
    assert [document["text"] for document in train] == docstrings("train")
    assert [document["text"] for document in held_out] == docstrings("eval")[:3]


def test_there_is_enough_text_to_learn_from() -> None:
    assert sum(map(len, docstrings("train"))) > 500_000
    assert sum(map(len, docstrings("eval"))) > 50_000
    assert len(docstrings("eval")) > 100


def test_docstrings_are_english_of_some_length_without_indentation() -> None:
    for text in docstrings("eval"):
        assert len(text) >= standard_library.MIN_DOCSTRING_CHARACTERS
        assert text == text.strip()
        assert sum(character.isascii() for character in text) >= standard_library.MIN_ASCII_FRACTION * len(text)


def test_tests_and_installed_packages_are_no_sources() -> None:
    root = standard_library._library()
    parts = {part for path in source_files() for part in path.relative_to(root).parts}
    assert not parts & {"test", "tests", "idle_test", "site-packages", "__pycache__"}
    assert {"argparse.py", "asyncio", "json"} <= parts


@pytest.mark.slow
def test_the_text_is_the_same_in_another_process_with_another_hash_seed() -> None:
    program = (
        "from sweeps_train.data.standard_library import docstrings; import hashlib;"
        "print(hashlib.sha256('\\0'.join(docstrings('train') + docstrings('eval')).encode()).hexdigest())"
    )
    package_folder = str(Path(standard_library.__file__).parents[2])
    digests = {
        run_python("-c", program, environment={"PYTHONHASHSEED": seed, "PYTHONPATH": package_folder}).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_changing_the_returned_list_does_not_change_the_next_one() -> None:
    docstrings("eval").clear()
    assert docstrings("eval")


def test_a_python_without_library_sources_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_library, "_library", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match=r"data\.path"):
        source_files()


def test_the_shipped_model_loads_offline_and_its_loss_is_what_its_card_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    sample = docstrings("eval")[:64]
    assert tokenizer(sample[0]).input_ids == [*(byte + 3 for byte in sample[0].encode()), tokenizer.eos_token_id]
    assert tokenizer.decode(tokenizer(sample[0]).input_ids, skip_special_tokens=True) == sample[0]

    row = re.search(r"\| docstrings \| ([\d.]+)", (FOLDER / "README.md").read_text())
    assert row is not None
    tokens = torch.tensor([token for text in sample for token in tokenizer(text).input_ids])
    sequences = tokens[: len(tokens) // 256 * 256].view(-1, 256)
    # 64 documents are a small part of all, and another Python has other docstrings.
    with torch.no_grad():
        assert model(input_ids=sequences, labels=sequences).loss.item() == pytest.approx(float(row[1]), abs=0.2)


def test_the_shipped_model_is_small_enough_for_a_wheel() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000
