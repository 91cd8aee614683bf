"""Text larger than memory: tokenized in pieces and mapped, with the same samples as in memory."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import psutil
import pyarrow
import pyarrow.parquet
import pytest
import torch
from s3_server import BUCKET, s3_server
from test_array_cache import assert_same
from test_text_data import BYTES, byte_tokenizer_in_rust
from transformers import ByT5Tokenizer

from sweeps_train.config import TextData
from sweeps_train.data import data_files as files
from sweeps_train.data import text
from sweeps_train.data.data_files import file_at, find_files, pieces_of, read_piece
from sweeps_train.data.documents import read_documents
from sweeps_train.data.packing import PackedSamples, TextSamples
from sweeps_train.data.sample_order import SampleOrder
from sweeps_train.data.text import build_text_samples

DOCUMENTS = [{"text": f"document {n}: " + "word " * (n % 9), "answer": str(n)} for n in range(200)]
HELD_OUT = [{"text": f"held out {n}", "answer": "yes"} for n in range(5)]
Samples = TextSamples | PackedSamples


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 700)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the same documents in every type of file."""
    folder = tmp_path / "data"
    for name in ("jsonl", "parquet", "csv", "txt"):
        (folder / name).mkdir(parents=True)
    for part in range(4):
        some = DOCUMENTS[part * 50 : part * 50 + 50]
        (folder / "jsonl" / f"{part}.jsonl").write_text("\n".join(map(json.dumps, some)))
        table = pyarrow.Table.from_pylist(some)
        pyarrow.parquet.write_table(table, folder / "parquet" / f"{part}.parquet", row_group_size=7)
        with (folder / "csv" / f"{part}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "answer"])
            writer.writeheader()
            writer.writerows(some)
        (folder / "txt" / f"{part}.txt").write_text("\r\n".join(document["text"] for document in some))
    (folder / "held_out.jsonl").write_text("\n".join(map(json.dumps, HELD_OUT)))
    return folder


def build(path: Any, tokenizer: Any = BYTES, **options: Any) -> tuple[Samples, Samples]:
    config = TextData(kind="text", path=str(path), **{"sequence_length": 32, "streaming": True, **options})
    return build_text_samples(config, tokenizer, None)


def pieces(path: Path) -> int:
    found = find_files("data.path", str(path))
    assert found is not None
    return sum(len(pieces_of(file, lines=True)) for file in found)


# --- the same as in memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jsonl", "parquet", "csv", "txt"])
def test_streamed_samples_equal_those_made_in_memory(name: str, folder: Path) -> None:
    options = {"eval_path": str(folder / "held_out.jsonl"), "lines_are_documents": True}
    streamed, in_memory = (build(folder / name, streaming=streaming, **options) for streaming in (True, False))
    for one, other in zip(streamed, in_memory, strict=True):
        assert_same(one, other)
    assert name == "csv" or pieces(folder / name) > 8


def test_streamed_documents_that_are_not_packed_equal_those_made_in_memory(folder: Path) -> None:
    options = {"eval_path": str(folder / "held_out.jsonl"), "packing": False, "text_field": None}
    options |= {"prompt_field": "text", "completion_field": "answer"}
    streamed, in_memory = (build(folder / "jsonl", streaming=streaming, **options) for streaming in (True, False))
    for one, other in zip(streamed, in_memory, strict=True):
        assert isinstance(one, TextSamples)
        assert isinstance(other, TextSamples)
        assert one.num_left_out == other.num_left_out
        assert_same(one, other)


def test_every_line_is_read_once_wherever_the_cuts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl"
    rows = [{"text": "x" * (n * 7 % 23)} for n in range(30)]
    for end in ("", "\n", "\n\n"):
        file.write_text("\n".join(map(json.dumps, rows)) + end)
        for size in range(1, 90):
            monkeypatch.setattr(files, "PIECE_BYTES", size)
            found = find_files("data.path", str(file))
            assert found is not None
            assert [document for piece in pieces_of(found[0]) for document in read_piece(piece)] == rows, (end, size)


def test_a_line_far_longer_than_its_piece_is_read_in_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time grows with the square of the line's length: an array of all rows on one line took hours."""
    file = tmp_path / "a.jsonl"
    rows = [{"text": "x" * 2**22}, {"text": "y"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    lengths: list[int] = []

    class Counting(io.BytesIO):
        def size(self) -> int:
            return len(self.getbuffer())

        def read_at(self, length: int, start: int) -> bytes:
            lengths.append(length)
            self.seek(start)
            return self.read(length)

    monkeypatch.setattr(files, "open_file", lambda location: Counting(Path(location).read_bytes()))
    (first, *_) = pieces_of(file_at(file))
    assert list(read_piece(first)) == rows[:1]
    assert len(lengths) < 10
    assert sum(lengths) < 2.1 * file.stat().st_size


def test_a_data_set_of_the_hub_is_streamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows = {"train": DOCUMENTS, "test": HELD_OUT}
    loaded: list[str] = []

    def load_dataset(_: str, __: None, split: str, revision: None) -> datasets.Dataset:
        loaded.append(split)
        return datasets.Dataset.from_list(rows[split])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(text, "_ROWS_A_PIECE", 13)
    from_hub = build("some/data", eval_split="test")
    assert Counter(loaded) == {"train": 3, "test": 3}, "not for each piece"
    for one, other in zip(from_hub, build(folder / "jsonl", eval_path=str(folder / "held_out.jsonl")), strict=True):
        assert_same(one, other)


def test_versions_of_a_data_set_of_the_hub_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    versions = iter([DOCUMENTS, DOCUMENTS, DOCUMENTS[::-1]])  # another one when the first piece is read
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(next(versions)))
    with pytest.raises(ValueError, match=r"data.path=some/data: is another version than at the start; run"):
        build("some/data")


@pytest.fixture
def bucket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Query of the paths of the folder's files in an S3 server."""
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3")
        for file in (*folder.glob("parquet/*"), *folder.glob("jsonl/*"), folder / "held_out.jsonl"):
            client.upload_file(str(file), BUCKET, str(file.relative_to(folder)))
        address = environment["AWS_ENDPOINT_URL"].removeprefix("http://")
        yield f"?endpoint_override={address}&scheme=http&region=us-east-1"


def test_data_in_s3_is_read_by_its_uri(bucket: str, folder: Path) -> None:
    options = {"eval_path": f"s3://{BUCKET}/held_out.jsonl{bucket}"}
    expected = build(folder / "parquet", streaming=False, eval_path=str(folder / "held_out.jsonl"))[0]
    for path in ("parquet", "jsonl/[0-9].jsonl"):
        assert_same(build(f"s3://{BUCKET}/{path}{bucket}", **options)[0], expected)
    assert_same(build(f"s3://{BUCKET}/parquet{bucket}", streaming=False, **options)[0], expected)
    for streaming in (True, False):
        message = rf"data.path=s3://{BUCKET}/none/.* there are no such files|cannot be read"
        with pytest.raises(ValueError, match=message):
            build(f"s3://{BUCKET}/none/*.jsonl{bucket}", streaming=streaming, **options)


# --- splits --------------------------------------------------------------------------------------------------


def texts_in(samples: Samples) -> str:
    rows = (samples.batch([index])["input_ids"][0, : samples.size([index])] for index in range(len(samples)))
    return "".join(map(BYTES.decode, rows))


def test_held_out_documents_are_chosen_by_their_contents(folder: Path) -> None:
    train, held_out = build(folder / "jsonl", packing=False, sequence_length=256, eval_fraction=0.2)
    assert len(train) + len(held_out) == 200
    assert 20 < len(held_out) < 60
    doubled = folder / "doubled.jsonl"
    copies = [{**each, "answer": str(number)} for number, each in enumerate(DOCUMENTS * 2)]
    doubled.write_text("\n".join(map(json.dumps, reversed(copies))))
    twice, held_out_twice = build(doubled, packing=False, sequence_length=256, eval_fraction=0.2)
    assert (len(twice), len(held_out_twice)) == (2 * len(train), 2 * len(held_out))
    assert Counter(texts_in(held_out_twice).split("</s>")[:-1]) == Counter(texts_in(held_out).split("</s>")[:-1] * 2)


def test_of_the_first_documents_no_more_pieces_are_tokenized(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    read = text.read_piece
    monkeypatch.setattr(text, "read_piece", lambda piece, **options: made.append(piece) or read(piece, **options))
    path = folder / "jsonl"
    few, held_out = build(path, packing=False, sequence_length=256, max_train_documents=20, max_eval_documents=2)
    assert (len(few), len(held_out), len(made) < 8) == (20, 2, True)
    whole, _ = build(path, packing=False, sequence_length=256)
    assert texts_in(whole).startswith(texts_in(few))
    packed, _ = build(path, max_train_documents=20)
    assert texts_in(packed) == texts_in(few)


def test_missing_data_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"0.jsonl.*data.text_field=body: document 1 has no such column; it has"):
        build(folder / "jsonl", text_field="body")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match=r"empty.jsonl: no documents to train on"):
        build(tmp_path / "empty.jsonl")
    monkeypatch.setenv("SWEEPS_CACHE", str(folder / "held_out.jsonl"))
    with pytest.raises(ValueError, match=r"cannot be written .* set SWEEPS_CACHE to a folder with space"):
        build(folder / "jsonl")


# --- made once -----------------------------------------------------------------------------------------------


def test_a_killed_process_has_not_tokenized_in_vain(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, made = text.read_piece, []

    def dies(piece: Any, **options: Any) -> Any:
        made.append(piece)
        if len(made) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(piece, **options)

    monkeypatch.setattr(text, "read_piece", dies)
    process = multiprocessing.get_context("fork").Process(target=build, args=(folder / "jsonl",))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    monkeypatch.setattr(text, "read_piece", lambda piece, **options: made.append(piece) or read(piece, **options))
    samples, _ = build(folder / "jsonl")
    assert len(made) == pieces(folder / "jsonl") - 5
    build(folder / "jsonl", sequence_length=16)
    assert len(made) == pieces(folder / "jsonl") - 5
    (entry,) = (path for path in (cache / "corpus").iterdir() if path.is_dir())
    arrays = {f"{split}.{name}.npy" for split in ("train", "eval") for name in ("tokens", "ends", "largest")}
    assert {file.name for file in entry.iterdir()} == {"key.json", *arrays}
    assert len(samples) > 0


def anonymous(process: psutil.Process) -> int:
    """Bytes of memory without a file behind them, which the system cannot reclaim."""
    return sum(each.private_dirty for each in process.memory_maps(grouped=False) if not each.path.startswith("/"))


def stream(path: Path, results: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    files.PIECE_BYTES = 2**17
    process, tokenizer = psutil.Process(), byte_tokenizer_in_rust()
    build(path.with_name("small.jsonl"), tokenizer)
    before = anonymous(process)
    samples, _ = build(path, tokenizer, sequence_length=1024)
    order = SampleOrder(len(samples), 0)
    units = sum(samples.batch([index])["input_ids"].shape[1] for index in order.take(0, len(samples)))
    results.put((units, (anonymous(process) - before) / 2**20))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    with file.open("w") as opened:
        for n in range(2_000):
            opened.write(json.dumps({"text": f"{n} " * 400}) + "\n")
    (tmp_path / "small.jsonl").write_text("\n".join(file.read_text().splitlines()[:200]))
    context = multiprocessing.get_context("spawn")  # a fork's memory grows by the tests' pages that it changes
    results = context.Queue()
    process = context.Process(target=stream, args=(file, results))
    process.start()
    units, mib = results.get(timeout=200)
    process.join()
    assert units > 3 * 2**20  # tokens, of two bytes each in the file, and of 16 and more as lists of Python
    assert mib < 16


@pytest.mark.slow
def test_all_processes_of_a_cluster_tokenize_though_none_of_its_cpus_is_free(folder: Path) -> None:
    import ray

    expected = build(folder / "jsonl")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        held = ray.util.placement_group([{"CPU": 2}])
        assert held.wait(30)
        with_ray = build(folder / "jsonl", ByT5Tokenizer(extra_ids=3))
        for one, other in zip(with_ray, expected, strict=True):
            assert_same(one, other)
        with pytest.raises(ValueError, match=r"data.text_field=body: document 1 has no such column"):
            build(folder / "jsonl", text_field="body")
    finally:
        ray.shutdown()


# --- packed documents ----------------------------------------------------------------------------------------


def test_isolated_documents_have_the_logits_of_separate_ones(tmp_path: Path) -> None:
    from sweeps_train.config import CausalLM
    from sweeps_train.data.packing import IGNORED
    from sweeps_train.models.causal_lm import build_causal_lm, build_tokenizer

    config = CausalLM(kind="causal_lm", path="builtin:tiny_llama")
    model, tokenizer = build_causal_lm(config).eval(), build_tokenizer(config)
    file = tmp_path / "a.jsonl"
    documents = ["One document.", "Another, longer one of them.", "b", "The last."]
    file.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    data = {"eval_path": str(file), "streaming": False}
    packed, _ = build(file, tokenizer, sequence_length=200, isolate_documents=True, **data)
    alone, _ = build(file, tokenizer, sequence_length=200, packing=False, **data)
    assert (len(packed), len(alone)) == (1, 4)
    with torch.no_grad():
        batch = packed.batch([0, 0])  # of more rows than one
        targets = batch.pop("targets")
        together = model(**batch, use_cache=False).logits[1]
        at = 0
        for index in range(4):
            single = alone.batch([index])
            size = single["input_ids"].shape[1]
            expected = model(input_ids=single["input_ids"], use_cache=False).logits[0]
            torch.testing.assert_close(together[at : at + size], expected, rtol=1e-4, atol=1e-4)
            assert targets[0, at : at + size].tolist() == single["targets"][0].tolist()
            at += size
    assert packed.units([0]) == (targets[0] != IGNORED).sum() == sum(alone.units([index]) for index in range(4))


def test_isolated_documents_count_right_wherever_sequences_are_cut(folder: Path) -> None:
    for length in (2, 5, 17, 64):
        samples, _ = build(folder / "jsonl" / "0.jsonl", sequence_length=length, isolate_documents=True)
        for index in range(len(samples)):
            batch = samples.batch([index])
            assert samples.units([index]) == (batch["targets"] != -100).sum()
            begins = (batch["position_ids"][0] == 0).nonzero().flatten().tolist()
            ids = batch["input_ids"][0, : samples.size([index])].tolist()  # without the padding of the last one
            assert begins == [0, *(at + 1 for at, token in enumerate(ids[:-1]) if token == BYTES.eos_token_id)]


# --- order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_samples", [63, 64, 65, 100, 128, 131, 200])
def test_an_epoch_in_windows_has_every_sample_once_and_resumes_anywhere(num_samples: int) -> None:
    windows = {"window": 32, "block": 8}
    order = SampleOrder(num_samples, seed=3, **windows)
    epochs = [order.take(epoch * num_samples, num_samples) for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(num_samples))
    assert epochs[0] != epochs[1]
    whole = epochs[0] + epochs[1]
    for position in range(0, 2 * num_samples - 13, 7):
        assert SampleOrder(num_samples, seed=3, **windows).take(position, 13) == whole[position : position + 13]


def test_a_window_mixes_blocks_from_all_over_the_data() -> None:
    order = SampleOrder(2**16, seed=0, window=2**10, block=2**4)
    window = np.array(order.take(0, 2**10))
    assert len(set(window // 2**4)) == 2**6  # so a disk is read in that many places
    assert window.max() - window.min() > 0.9 * 2**16
    assert len(set(np.abs(np.diff(window[:100])) // 2**4)) > 50


def test_the_same_documents_are_read_by_lines_and_whole(folder: Path) -> None:
    by_lines = TextData(kind="text", path=str(folder / "txt"), lines_are_documents=True)
    assert sum(map(len, read_documents(by_lines))) == 200
    whole = TextData(kind="text", path=str(folder / "txt"))
    assert sum(map(len, read_documents(whole))) == 4
