"""The cache of tokenized data: made once a node, mapped by all, and made again when a dependency has changed."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import ByT5Tokenizer

from sweeps_train.config import TextData
from sweeps_train.data import text
from sweeps_train.data.array_cache import Arrays, cached_arrays
from sweeps_train.data.packing import PackedSamples, TextSamples
from sweeps_train.data.text import build_text_samples

LARGE_MIB = 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SWEEPS_CACHE", str(folder))
    return folder


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """List that grows by one for every split that is tokenized."""
    times: list[int] = []
    to_arrays = text.to_arrays

    def counting(*arguments: Any, **options: Any) -> Arrays:
        times.append(1)
        return to_arrays(*arguments, **options)

    monkeypatch.setattr(text, "to_arrays", counting)
    return times


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    rows = ({"text": f"number {n} " * (n % 7 + 1)} for n in range(50))
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


def build(file: Path, tokenizer: Any = None, **options: Any) -> TextSamples:
    config = TextData(kind="text", path=str(file), **{"sequence_length": 16, **options})
    return build_text_samples(config, tokenizer or ByT5Tokenizer(), None)[0]


def stored(cache: Path) -> list[Path]:
    return sorted(file.parent for file in cache.rglob("key.json"))


def content(samples: TextSamples | PackedSamples) -> list[torch.Tensor]:
    whole = samples.batch(range(len(samples)))
    counts = [torch.tensor([samples.units([index]), samples.size([index])]) for index in range(len(samples))]
    return [*whole.values(), *counts]


def assert_same(one: TextSamples | PackedSamples, other: TextSamples | PackedSamples) -> None:
    assert len(one) == len(other) > 0
    for left, right in zip(content(one), content(other), strict=True):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)


def test_data_is_tokenized_once(file: Path, tokenized: list[int]) -> None:
    first = build(file)
    assert len(tokenized) == 2  # training and held-out
    assert_same(build(file), first)
    assert len(tokenized) == 2


@pytest.mark.parametrize("packing", [True, False])
def test_samples_from_the_cache_equal_those_that_were_made(
    packing: bool, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cached = build(file, packing=packing)
    monkeypatch.setenv("SWEEPS_CACHE", str(file / "not a folder"))
    assert_same(build(file, packing=packing), cached)
    assert "set SWEEPS_CACHE to a folder that can be written" in caplog.text


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_data_that_cannot_be_read_are_read_once_and_blame_no_cache(
    error: type[Exception], file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    class Unreadable(ByT5Tokenizer):
        def __call__(self, texts: Any, **options: Any) -> Any:
            if isinstance(texts, str):
                return super().__call__(texts, **options)
            tries.append(1)
            raise error("of the tokenizer")

    with pytest.raises(error, match="of the tokenizer"):
        build(file, Unreadable())
    assert (len(tries), caplog.text) == (1, "")


def test_a_changed_dependency_makes_the_data_again(file: Path, tokenized: list[int]) -> None:
    build(file, packing=False)
    build(file, packing=False, sequence_length=8)
    assert len(tokenized) == 4
    build(file, ByT5Tokenizer(extra_ids=3))
    assert len(tokenized) == 6
    with file.open("a") as opened:
        opened.write('\n{"text": "one more"}')
    build(file, eval_path=str(file))
    before = build(file)
    assert len(tokenized) == 10
    file.write_text(file.read_text().replace("one more", "one less"))  # of the same size
    assert [len(tokenized), len(before)] == [10, len(build(file))]
    assert len(tokenized) == 12


def test_how_packed_tokens_are_cut_does_not_make_them_anew(file: Path, tokenized: list[int]) -> None:
    build(file)
    assert len(build(file, sequence_length=8, isolate_documents=True)) > len(build(file))
    assert len(tokenized) == 2


@pytest.mark.parametrize("name", ["train.tokens.npy", "key.json"])
@pytest.mark.parametrize(
    ("damage", "streaming"), [("flipped", False), ("cut", False), ("emptied", False), ("cut", True), ("emptied", True)]
)
def test_a_damaged_file_is_made_anew(
    *,
    damage: str,
    streaming: bool,
    name: str,
    file: Path,
    cache: Path,
    tokenized: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = content(build(file, streaming=streaming))
    (entry,) = stored(cache)
    bytes_ = bytearray((entry / name).read_bytes())
    bytes_[-1] ^= 1
    (entry / name).unlink()  # as a new file: this process still has the old one mapped
    (entry / name).write_bytes({"flipped": bytes_, "cut": bytes_[:-9], "emptied": b""}[damage])
    healed = content(build(file, streaming=streaming))
    assert len(tokenized) == 4
    assert all(torch.equal(left, right) for left, right in zip(healed, whole, strict=True))
    assert f"{entry} is damaged" in caplog.text
    build(file, streaming=streaming)
    assert len(tokenized) == 4


def test_files_that_another_process_removes_while_they_are_counted_do_no_harm(
    file: Path, cache: Path, tokenized: list[int]
) -> None:
    for kind, entry in (("text", "gone"), ("corpus", "half gone.unfinished/piece-000000.npz")):
        (cache / kind / entry).parent.mkdir(parents=True, exist_ok=True)
        (cache / kind / entry).symlink_to("nowhere")  # is listed, and cannot be read
    for streaming in (False, True):
        build(file, streaming=streaming)
        build(file, streaming=streaming)
    assert len(tokenized) == 4


def test_unfinished_files_of_a_killed_process_do_no_harm(file: Path, cache: Path) -> None:
    whole = build(file)
    (entry,) = stored(cache)
    entry.rename(entry.with_name(entry.name + ".unfinished"))
    assert_same(build(file), whole)
    assert not list(cache.rglob("*.unfinished"))


def test_the_files_used_longest_ago_make_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE_GIB", str(2.5 / 1024))

    def mib(key: int) -> int:
        def write(folder: Path) -> None:
            made.append(key)
            np.save(folder / "values", np.full(2**20, key, dtype=np.uint8))

        return int(cached_arrays("some", key, write, has_checksums=True)["values"][-1])

    made: list[int] = []
    assert [mib(key) for key in (1, 2, 1, 3, 1)] == [1, 2, 1, 3, 1]
    assert made == [1, 2, 3]
    assert len(stored(cache)) == 2


def test_files_that_another_process_is_making_make_no_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE_GIB", str(0.5 / 1024))

    def one_mib(folder: Path) -> None:
        np.save(folder / "values", np.ones(2**20, dtype=np.uint8))

    def slowly(folder: Path) -> None:
        one_mib(folder)
        cached_arrays("some", "other", one_mib, has_checksums=True)

    left = cache / "some" / "of a killed process.unfinished"
    left.mkdir(parents=True)
    one_mib(left)
    assert [*cached_arrays("some", "slow", slowly, has_checksums=True)] == ["values"]
    assert not left.exists()


def test_a_size_that_is_no_number_is_named_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE_GIB", "50GB")
    with pytest.raises(ValueError, match="SWEEPS_CACHE_GIB=50GB: must be a number of GiB, such as 50"):
        cached_arrays("some", "key", pytest.fail, has_checksums=True)


def test_an_error_in_the_making_is_passed_on_and_leaves_nothing(cache: Path) -> None:
    def fails(folder: Path) -> None:
        raise ValueError("no such column")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such column"):
            cached_arrays("some", "key", fails, has_checksums=True)
    assert stored(cache) == []


def write_slowly(folder: Path, cached: Path) -> None:
    with (folder / "makers").open("a") as file:
        file.write(f"{os.getpid()}\n")
    np.save(cached / "tokens", np.random.default_rng(0).integers(0, 2**15, LARGE_MIB * 2**19, dtype=np.uint16))


def use(folder: Path, barrier: Any, results: Any) -> None:
    """Read all pages, as an epoch does; return the memory of this process alone, and its part of the shared memory."""
    process = psutil.Process()
    barrier.wait()
    before = process.memory_full_info()
    tokens = cached_arrays("text", "key", functools.partial(write_slowly, folder), has_checksums=True)["tokens"]
    total = int(tokens.sum(dtype=np.int64))
    barrier.wait()
    after = process.memory_full_info()
    results.put((total, tokens.flags.writeable, (after.uss - before.uss) / 2**20, (after.pss - before.pss) / 2**20))
    barrier.wait()  # nobody goes while another still measures


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say which pages are shared")
def test_processes_that_ask_at_once_make_it_once_and_share_its_memory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for expected_makers in (1, 1):  # the second round finds it made
        barrier, results = context.Barrier(3), context.Queue()
        processes = [context.Process(target=use, args=(tmp_path, barrier, results)) for _ in range(3)]
        for process in processes:
            process.start()
        found = [results.get(timeout=60) for _ in processes]
        for process in processes:
            process.join()
        assert len((tmp_path / "makers").read_text().split()) == expected_makers
        assert {writeable for _, writeable, *_ in found} == {False}
        assert len({total for total, *_ in found}) == 1
    # Once for all three of them; what is left are the libraries' own allocations.
    assert sum(pss for *_, pss in found) < 1.5 * LARGE_MIB
    assert max(uss for *_, uss, _ in found) < LARGE_MIB / 4
