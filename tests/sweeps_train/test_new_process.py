"""A training in a process of its own: the libraries that it does without, and the memory that its steps free."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from processes import run_python

PROGRAM = """
import json, os, resource, sys, threading
import psutil, torch
from sweeps_train.config import TRAINING_CONFIG
from sweeps_train.loop import train
from sweeps_train.memory.allocator import keep_freed_memory
from sweeps_train.workers.process_state import process_state_restored

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        activations = [torch.ones(size * 2**18) for size in (1, 3, 9, 20)]  # MiB
        del activations
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def main():
    outside = faults()
    with keep_freed_memory():
        faults()
        inside, held = faults(), psutil.Process().memory_info().rss
    print(json.dumps([outside, inside, (held - psutil.Process().memory_info().rss) / 2**20]))

def in_another_thread():
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()

for run in (main, in_another_thread):  # each in a process as it is when all has been imported
    if os.fork() == 0:
        run()
        sys.stdout.flush()
        os._exit(0)
    os.wait()

with process_state_restored():  # as around a user's function
    train(
        TRAINING_CONFIG.validate_python({
            "task": {"kind": "image_classification"},
            "model": {"kind": "conv_net"},
            "data": {"kind": "digits"},
            "train": {"max_steps": 2, "eval_every": 1},
            "strategy": {"kind": "ddp"},
            "checkpoint": {},
        }),
        reporter=None,
        checkpoint_folder=sys.argv[1],
    )
slow = ["torch._dynamo", "torch.distributed.tensor", "sympy", "sklearn", "scipy", "pandas"]
slow += ["transformers", "peft", "datasets", "ray"]
print(json.dumps([name for name in slow if name in sys.modules]))
print(json.dumps([thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    """Lines that the program has printed, and the folder of its checkpoints."""
    folder = tmp_path_factory.mktemp("new-process")
    done = run_python("-c", PROGRAM, str(folder), within_s=200)
    return [json.loads(line) for line in done.stdout.splitlines()], folder


def test_a_whole_training_with_evaluations_and_checkpoints_imports_neither_compiler_nor_scikit_learn(
    printed: tuple[list[Any], Path],
) -> None:
    (*_, slow, _), folder = printed
    assert slow == []
    assert (folder / "step-00000002").is_dir()


def test_no_thread_outlives_a_training_and_aborts_its_process_at_the_end(printed: tuple[list[Any], Path]) -> None:
    (*_, threads), _ = printed
    assert threads == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_a_step_takes_the_memory_that_the_one_before_has_freed_in_any_thread(printed: tuple[list[Any], Path]) -> None:
    (in_main, in_another, *_), _ = printed
    for outside, inside, given_back_mib in (in_main, in_another):
        assert outside > 1000
        assert inside < 50
        assert given_back_mib > 20
