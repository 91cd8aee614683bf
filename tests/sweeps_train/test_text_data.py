"""Text: read from files, split, cut into sequences, with a mask of the tokens that the loss counts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
import torch
from small_http import serving_http
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from training_runs import TEXT, configured
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from sweeps_train.config import TextData
from sweeps_train.data.data_files import Piece, find_files, read_piece
from sweeps_train.data.documents import read_documents
from sweeps_train.data.global_batches import GlobalBatches
from sweeps_train.data.packing import IGNORED, PackedSamples, TextSamples, to_arrays
from sweeps_train.data.text import build_text_samples
from sweeps_train.tasks.cross_entropy import full_cross_entropy
from sweeps_train.workers.distributed import Workers

BYTES = ByT5Tokenizer()
END = BYTES.eos_token_id
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
    "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
)


def byte_tokenizer_in_rust() -> PreTrainedTokenizerFast:
    letters = {letter: place + 2 for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={"<pad>": 0, "<end>": 1, **letters}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def write(file: Path, *documents: dict[str, Any]) -> str:
    file.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    return str(file)


def samples_of(path: str, tokenizer: Any = BYTES, **options: Any) -> TextSamples:
    """Build samples of all documents; the same file is the held-out data."""
    return build_text_samples(TextData(kind="text", path=path, eval_path=path, **options), tokenizer, None)[0]


def rows(samples: TextSamples, tokenizer: Any = BYTES) -> list[tuple[str, str]]:
    """Text of each sequence, and the part of it that is predicted."""
    found = []
    for index in range(len(samples)):
        batch = samples.batch([index])
        targets = [token for token in batch["targets"][0].tolist() if token != IGNORED]
        assert samples.units([index]) == len(targets)
        size = samples.size([index])
        assert set(batch["targets"][0, size - 1 :].tolist()) == {IGNORED}
        found.append((tokenizer.decode(batch["input_ids"][0, :size]), tokenizer.decode(targets)))
    return found


def test_a_tokenizer_that_reads_no_text_is_refused(tmp_path: Path) -> None:
    deaf = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab={"<end>": 0}, merges=[])), eos_token="<end>"
    )
    path = write(tmp_path / "a.jsonl", {"text": "abc"})
    with pytest.raises(ValueError, match=r"returns no tokens for a letter.*model\.tokenizer"):
        samples_of(path, deaf)


# --- sequences -----------------------------------------------------------------------------------------------


def test_packed_text_loses_no_token_and_has_an_end_after_each_document(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "abcdef"}, {"text": "gh"}, {"text": "ijklm"})
    assert rows(samples_of(path, sequence_length=6)) == [
        ("abcdef", "bcdef"),
        ("</s>gh</s>ij", "gh</s>ij"),
        ("klm</s>", "lm</s>"),
    ]


def test_text_that_is_not_packed_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "abcdef"}, {"text": "gh"})
    assert rows(samples_of(path, sequence_length=4, packing=False)) == [("abcd", "bcd"), ("gh</s>", "h</s>")]


def test_the_loss_counts_the_completion_and_its_end_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"q": "1+1=", "a": "2"}, {"q": "hello ", "a": "world"})
    options = {"prompt_field": "q", "completion_field": "a", "packing": False}
    assert rows(samples_of(path, **options)) == [("1+1=2</s>", "2</s>"), ("hello world</s>", "world</s>")]


def test_a_prompt_that_leaves_no_room_for_its_completion_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "a.jsonl", {"q": "long prompt", "a": "2"}, {"q": "1=", "a": "1"})
    options = {"prompt_field": "q", "completion_field": "a", "packing": False, "sequence_length": 6}
    assert rows(samples_of(path, **options)) == [("1=1</s>", "1</s>")]
    assert "1 of 2 sequences have no token that the loss counts" in caplog.text


def test_the_loss_counts_the_assistants_turns_where_the_template_marks_them(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}] * 2
    path = write(tmp_path / "a.jsonl", {"messages": chat})
    tokenizer = byte_tokenizer_in_rust()
    tokenizer.chat_template = CHAT_TEMPLATE
    options = {"text_field": None, "messages_field": "messages", "packing": False}
    assert rows(samples_of(path, tokenizer, **options), tokenizer) == [("u:hi;a:yo!u:hi;a:yo!", "yo!yo!")]


def test_answers_of_another_role_are_told_once_however_many_chats_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sweeps_train.data.encoder._DOCUMENTS_AT_ONCE", 2)
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "gpt", "content": "yo"}]
    tokenizer = byte_tokenizer_in_rust()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>{% endfor %}"
    options = {"text_field": None, "messages_field": "messages", "packing": False}
    samples_of(write(tmp_path / "a.jsonl", *[{"messages": chat}] * 8), tokenizer, **options)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("given", [{"bos_token": "<begin>"}, {"additional_special_tokens": ["<mask>", "<begin>"]}])
def test_tokens_at_the_beginning_come_once_and_before_the_prompt(given: dict[str, Any], tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer_in_rust()
    tokenizer.add_special_tokens(given)
    begin = given.get("additional_special_tokens", ["<begin>"])
    special = [(each, tokenizer.convert_tokens_to_ids(each)) for each in begin]
    tokenizer._tokenizer.post_processor = TemplateProcessing(single=f"{' '.join(begin)} $A", special_tokens=special)
    with_both = {"q": f"{''.join(begin)}1=", "a": "1<end>"}  # as a chat that was rendered before has them
    path = write(tmp_path / "a.jsonl", {"q": "1=", "a": "1"}, with_both)
    options = {"prompt_field": "q", "completion_field": "a", "packing": False}
    assert rows(samples_of(path, tokenizer, **options), tokenizer) == [(f"{''.join(begin)}1=1<end>", "1<end>")] * 2
    plain = write(tmp_path / "plain.jsonl", {"text": "1"}, {"text": f"{''.join(begin)}1<end>"})
    of_plain = rows(samples_of(plain, tokenizer, packing=False), tokenizer)
    assert of_plain[0] == of_plain[1]


def test_a_token_at_the_beginning_also_comes_from_a_tokenizer_without_letters(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    digits = Tokenizer(models.BPE(vocab={"<begin>": 0, "<end>": 1, "1": 2, "2": 3}, merges=[]))
    digits.post_processor = TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=digits, bos_token="<begin>", eos_token="<end>")
    path = write(tmp_path / "a.jsonl", {"text": "12"})
    assert samples_of(path, tokenizer, packing=False).batch([0])["input_ids"].tolist() == [[0, 2, 3, 1]]


def test_padding_is_behind_the_text_and_not_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "abcd"}, {"text": "e"})
    samples = samples_of(path, packing=False)
    batch = samples.batch([0, 1])
    assert batch.keys() == {"input_ids", "targets"}  # a causal model needs no mask
    assert batch["input_ids"][1].tolist() == [ord("e") + 3, END, 0, 0, 0]
    assert batch["targets"][1].tolist() == [END, IGNORED, IGNORED, IGNORED, IGNORED]
    assert samples.units([0, 1]) == (batch["targets"] != IGNORED).sum() == 5


# --- files ---------------------------------------------------------------------------------------------------


def texts(path: str | Path, **options: Any) -> list[str]:
    config = TextData(kind="text", path=str(path), eval_path=str(path), **options)
    return [document["text"] for document in read_documents(config)[0]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"packing": False, "text_field": None, "prompt_field": "answer", "completion_field": "text"},
        {"packing": False, "text_field": None, "messages_field": "chat"},
        {"streaming": True},
    ],
    ids=["text", "completion", "chat", "streaming"],
)
def test_half_of_a_surrogate_pair_is_named_with_its_document(options: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = byte_tokenizer_in_rust()
    tokenizer.chat_template = CHAT_TEMPLATE
    texts = ("whole \U0001f600", "cut \ud83d off")
    chats = ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}] for text in texts)
    rows = [{"text": text, "answer": "yes", "chat": chat} for text, chat in zip(texts, chats, strict=True)]
    with pytest.raises(
        ValueError, match=r"document 2: its text has half of a surrogate pair, '\\ud83d'.*surrogatepass"
    ):
        samples_of(write(tmp_path / "a.jsonl", *rows), tokenizer, **options)


def test_every_type_of_file_is_read(tmp_path: Path) -> None:
    documents = [{"text": "a\u2028b", "n": 1}, {"text": "c", "n": 2}]  # \u2028 ends a line, but not one of JSON
    write(tmp_path / "1.jsonl", *documents)
    (tmp_path / "2.json").write_text(json.dumps(documents))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(documents), tmp_path / "3.parquet")
    with (tmp_path / "4.csv").open("w", newline="") as file:
        csv.DictWriter(file, ["text", "n"]).writerows([{"text": "\ufefftext", "n": "n"}, *documents])  # as Excel does
    (tmp_path / "5.txt").write_text("a\nb")
    for name in ("1.jsonl", "2.json", "3.parquet", "4.csv"):
        assert texts(tmp_path / name) == ["a\u2028b", "c"], name
    assert texts(tmp_path / "5.txt") == ["a\nb"]
    assert texts(tmp_path) == ["a\u2028b", "c"] * 4 + ["a\nb"]
    assert texts(tmp_path / "*.json*") == ["a\u2028b", "c"] * 2
    (tmp_path / "6.json").write_text(json.dumps(documents[0], indent=1))
    assert texts(tmp_path / "6.json") == ["a\u2028b"]


def test_links_to_files_and_folders_are_read_like_these(tmp_path: Path) -> None:
    for name in ("blobs", "data", "elsewhere"):
        (tmp_path / name).mkdir()
    write(tmp_path / "blobs" / "3f2a", {"text": "a"}, {"text": "b"})  # as the hub's cache and DVC name them
    (tmp_path / "data" / "1.jsonl").symlink_to(tmp_path / "blobs" / "3f2a")
    write(tmp_path / "elsewhere" / "2.jsonl", {"text": "c"})
    (tmp_path / "data" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "2026").mkdir()
    write(tmp_path / "data" / "2026" / "3.jsonl", {"text": "d"})
    (tmp_path / "data" / "latest").symlink_to(tmp_path / "data" / "2026")  # its rows are there already
    assert texts(tmp_path / "data") == ["a", "b", "d", "c"]
    assert texts(tmp_path / "data" / "1.jsonl") == ["a", "b"]


def test_a_glob_takes_no_more_than_a_folder_does(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"text": "a"})
    write(tmp_path / "b.JSONL", {"text": "b"})
    write(tmp_path / "a.jsonl.bak", {"text": "c"})
    (tmp_path / "README.md").write_text("d")
    assert texts(tmp_path / "*") == texts(tmp_path) == ["a", "b"]


def test_a_glob_of_a_uri_takes_no_more_than_one_of_files_does(tmp_path: Path) -> None:
    for name in ("a.jsonl", "old/b.jsonl", "old/older/c.jsonl", ".hidden/d.jsonl", "old/.e.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, {"text": Path(name).stem})
    for end, found in (("", "abc"), ("/*", "a"), ("/*/*.jsonl", "b"), ("/**/*.jsonl", "abc"), ("/o*/**", "bc")):
        files = [find_files("data.path", f"{start}{tmp_path}{end}") for start in ("", "file://")]
        assert [sorted(Path(each.location).stem for each in some or ()) for some in files] == [[*found]] * 2, end
    assert texts(f"{tmp_path}/.hidden") == ["d"]


def test_names_in_the_folder_of_a_uri_may_have_any_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("a b", "c%41", "f#g", "year=2026"):
        write(folder / f"{name}.jsonl", {"text": name})
    fsspec.filesystem("memory").put(f"{folder}/", "/a folder/", recursive=True)
    # The last is for fsspec, which decodes nothing.
    for path in (folder.as_uri(), f"file://{folder}", "memory://a folder"):
        found = find_files("data.path", path) or []
        read = [document for each in found for document in read_piece(Piece(each.location))]
        assert sorted(each["text"] for each in read) == ["a b", "c%41", "f#g", "year=2026"]
        assert f"{path}/year=2026.jsonl" in [each.location for each in found], "not encoded without need"


def test_files_of_a_web_server_are_read_by_their_address(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"text": "a"})
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with serving_http(handler) as uri:
        found = find_files("data.path", f"{uri}/a.jsonl")
        assert found is not None
        assert [document for each in found for document in read_piece(Piece(each.location))] == [{"text": "a"}]


def test_a_cell_of_a_table_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n" + "a" * 200_000 + "\n")
    assert [len(text) for text in texts(tmp_path / "a.csv")] == [200_000]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            'text\n"a ""quoted"" word"\n"not closed\nb\nc\n',
            "the row after line 2: unexpected end of data; a quoted",
        ),
        ('text,n\n"he said "no" twice",1\n', "the row after line 1: .*a quote within it is written twice"),
        ("text,text\na,b\n", "it has two columns 'text'; rename one"),
    ],
)
def test_a_table_whose_cells_cannot_be_told_apart_is_refused(content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=f"a.csv cannot be read: {fault}"):
        texts(tmp_path / "a.csv")


def test_held_out_documents_are_a_fixed_part_and_not_trained_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"text": f"document {n}"} for n in range(40)))
    config = TextData(kind="text", path=path, eval_fraction=0.1)
    train, held_out = read_documents(config)
    assert (len(train), len(held_out)) == (36, 4)
    assert not {document["text"] for document in train} & {document["text"] for document in held_out}
    assert read_documents(config) == (train, held_out)
    few = TextData(kind="text", path=path, eval_fraction=0.1, max_train_documents=5, max_eval_documents=2)
    assert read_documents(few) == (train[:5], held_out[:2])


def test_a_held_out_split_of_a_folder_is_not_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", *({"text": f"train {n}"} for n in range(4)))
    write(tmp_path / "validation.jsonl", {"text": "held out"})
    config = TextData(kind="text", path=str(tmp_path), train_split="train[:2]", eval_split="validation")
    train, held_out = read_documents(config)
    assert [document["text"] for document in train] == ["train 0", "train 1"]
    assert held_out == [{"text": "held out"}]


def test_a_text_file_of_a_folder_with_splits_is_one_document_or_its_lines_are_those(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("one\n\ntwo\n")
    whole = TextData(kind="text", path=str(tmp_path), eval_split="test")
    assert read_documents(whole) == ([{"text": "one\n\ntwo\n"}],) * 2
    assert read_documents(replace(whole, lines_are_documents=True)) == ([{"text": "one"}, {"text": "two"}],) * 2


def test_a_data_set_of_the_hub_is_read_through_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load_dataset(path: str, subset: str | None, split: str, revision: str | None) -> datasets.Dataset:
        return datasets.Dataset.from_list([{"text": f"{path} {subset} {split} {revision}"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = TextData(
        kind="text", path="some/data", subset="en", revision="v2", train_split="train[:9]", eval_split="test"
    )
    train, held_out = read_documents(config)
    assert (train[0]["text"], held_out[0]["text"]) == ("some/data en train[:9] v2", "some/data en test v2")


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_field": "body"}, r"data.text_field=body: document 1 has no such column; it has \['n', 'text'\]"),
        ({"text_field": "n"}, "data.text_field: document 1 holds a int there; it must be text"),
        ({"path": "none.jsonl"}, "data.path=none.jsonl: there are no such files; give a .jsonl"),
        ({"path": "builtin:other"}, "data.path=builtin:other: there are no such files"),
        ({"eval_path": "none*"}, r"data.eval_path=none\*: there are no such files"),
        ({"path": "empty.jsonl", "eval_path": "a.jsonl"}, "data.path=empty.jsonl: no documents to train on"),
        ({"path": "one.txt"}, "data.path=one.txt: no documents to train on; .*data.lines_are_documents=true"),
        ({"path": "broken.jsonl"}, "data.path: .*/broken.jsonl is not JSON, document 2"),
        ({"path": "notes.md"}, r"data.path=notes.md: the name must end in the type of the file: .jsonl, .json"),
        ({"path": "cells.csv"}, r"data.path: .*/cells.csv cannot be read: line 3 has more cells than the header"),
        ({"path": "latin.txt"}, r"latin.txt is not UTF-8 .*iconv -f ISO-8859-1 -t UTF-8 latin.txt -o utf8-latin.txt"),
        ({"path": "utf16.txt"}, r"utf16.txt is not UTF-8 .*iconv -f UTF-16 -t UTF-8 utf16.txt -o utf8-utf16.txt"),
        ({"path": "whole.json", "eval_path": "a.jsonl"}, r"document 1 has no such column; it has \['data', 'ver"),
        ({"path": "broken.parquet"}, r"data.path: .*/broken.parquet cannot be read: "),
        ({"path": f"/{'x' * 300}/a.csv"}, r"data.path=/x+/a.csv cannot be read: .*File name too long"),
        ({"path": "semicolons.csv"}, r"its first line is 'text;n', whose cells are separated by ';'; write it with"),
        ({"path": "owner/name"}, r"data.path: the data set owner/name \(split train\) cannot be loaded: "),
        ({"sequence_length": 101}, "data.sequence_length=101 is longer than the 100 positions of the model; use at"),
        ({"sequence_length": 1}, "nothing to learn from within data.sequence_length=1; raise it"),
        ({"eval_path": "blank.jsonl", "isolate_documents": True}, "data.eval_path=blank.jsonl: nothing to learn from"),
        ({"text_field": None, "messages_field": "text", "packing": False}, "set model.tokenizer to one of a chat"),
        ({"prompt_field": "text", "completion_field": "text"}, "packing=true is for plain text only"),
    ],
)  # fmt: skip
def test_a_mistake_names_key_value_and_fix(options: dict[str, Any], message: str, working_folder: Path) -> None:
    write(working_folder / "a.jsonl", {"text": "abc", "n": 1}, {"text": "def", "n": 2})
    write(working_folder / "broken.jsonl", {"text": "abc"})
    with (working_folder / "broken.jsonl").open("a") as file:
        file.write("\n{")
    (working_folder / "empty.jsonl").touch()
    write(working_folder / "blank.jsonl", {"text": ""}, {"text": ""})
    (working_folder / "notes.md").write_text("abc")
    (working_folder / "one.txt").write_text("abc")
    (working_folder / "cells.csv").write_text("text,n\nabc,1\ndef,2,3\n")
    (working_folder / "latin.txt").write_text("größer", encoding="latin-1")
    (working_folder / "utf16.txt").write_text("größer", encoding="utf-16")
    (working_folder / "whole.json").write_text(json.dumps({"version": 1, "data": [{"text": "abc"}]}, indent=1))
    (working_folder / "broken.parquet").write_text("abc")
    (working_folder / "semicolons.csv").write_text("text;n\nabc;1\n")
    with pytest.raises(ValueError, match=message):
        build_text_samples(
            TextData(**{"kind": "text", "path": "a.jsonl", "sequence_length": 8, **options}), BYTES, max_positions=100
        )


def test_a_question_mark_in_the_name_of_a_folder_ends_no_file_name(working_folder: Path) -> None:
    folder = working_folder / "a?b=c #d"
    folder.mkdir()
    write(folder / "a.jsonl", *({"text": f"text {number}"} for number in range(30)))
    assert build_text_samples(TextData(kind="text", path=str(folder / "a.jsonl"), sequence_length=8), BYTES, 100)
    (folder / "latin.txt").write_text("größer", encoding="latin-1")
    with pytest.raises(ValueError, match=r"iconv -f ISO-8859-1 -t UTF-8 latin\.txt -o utf8-latin\.txt"):
        build_text_samples(TextData(kind="text", path=str(folder / "latin.txt"), sequence_length=8), BYTES, 100)


def test_a_global_batch_of_isolated_documents_without_a_token_to_predict_has_no_loss() -> None:
    arrays = to_arrays([([END], [True])] * 4, len(BYTES), packed=True)  # empty texts
    samples = PackedSamples(arrays, length=2, pad_token=0, isolated=True)
    loss = full_cross_entropy(torch.zeros(2, len(BYTES)), samples.batch([0])["targets"].flatten())
    assert loss == 0
    workers = Workers.current()
    batches = GlobalBatches(samples, configured(TEXT), workers, workers)
    batches.begin(0, 1, 2, 2)
    assert batches.next(0).units == 1  # by which the loss is divided
