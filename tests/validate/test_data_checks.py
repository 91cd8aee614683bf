"""Mistakes in the files that a config names are found before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from composing import composed

from sweeps.errors import ConfigError
from sweeps.validate.data_checks import check_data


def check(data: str, *tokens: str) -> None:
    check_data(composed("llm_lora", f"data={data}", *tokens).config)


@pytest.fixture
def file(working_folder: Path) -> Path:
    file = working_folder / "a.jsonl"
    file.write_text("\n".join(json.dumps({"body": f"text {n}", "prompt": "?", "answer": "!"}) for n in range(9)))
    (working_folder / "empty.jsonl").touch()
    (working_folder / "blank.jsonl").write_text("\n\n")
    (working_folder / "broken.jsonl").write_text("{")
    (working_folder / "a.txt").write_text("text")
    return file


@pytest.mark.parametrize(
    ("data", "tokens", "message"),
    [
        ("text", ["data.path=none.jsonl"], "data.path=none.jsonl: there are no such files; give a .jsonl"),
        ("text", ["data.path=none/*.parquet"], r"data.path=none/\*.parquet: there are no such files"),
        ("text", ["data.path=a.jsonl", "data.eval_path=./none"], "data.eval_path=./none: there are no such files"),
        ("text", ["data.path=a.jsonl", "data.eval_split=test"], "data.eval_split=test: is for hub data sets and fold"),
        ("text", ["data.path=empty.jsonl"], "data.path=empty.jsonl: is empty"),
        ("text", ["data.path=blank.jsonl"], r"data.path=blank.jsonl: .*blank.jsonl has no documents"),
        ("text", ["data.path=broken.jsonl"], r"data.path=broken.jsonl: .*broken.jsonl is not JSON, document 1"),
        ("text", ["data.path=a.jsonl"], r"data.text_field=text: .*a.jsonl has no such column.* it has \['answer'"),
        ("text", ["data.path=a.txt", "data.text_field=body"], r"data.text_field=body: .*a.txt has no such column"),
        ("chat", ["data.path=a.jsonl"], r"data.messages_field=messages: .* has no such column"),
        ("prompt_completion", ["data.path=a.jsonl"], r"data.completion_field=completion: .* has no such column"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_data_names_key_value_and_fix(data: str, tokens: list[str], message: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        check(data, *tokens)


def test_data_that_is_right_or_cannot_be_seen_from_here_passes(file: Path) -> None:
    check("text", "data.path=a.jsonl", "data.text_field=body")
    check("text", "data.path=a.txt", "data.eval_path=*.txt")
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "0.csv").write_text("text\n")  # as Spark writes an empty part
    (file.parent / "parts" / "1.csv").write_text("text\none\ntwo\n")
    check("text", "data.path=parts")
    check("text", "data.path=s3://bucket/none.jsonl")
    check("dolly")
    check("stdlib_docstrings")
