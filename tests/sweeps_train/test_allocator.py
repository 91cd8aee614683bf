"""Memory that a step frees is reused by the next one, without going back to the system."""

from __future__ import annotations

import json
import platform

import pytest
from processes import run_python

STEPS = """
import json, os, resource, sys, threading
import psutil, torch
from sweeps_train.memory.allocator import keep_freed_memory

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
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_a_step_takes_the_memory_that_the_one_before_has_freed_in_any_thread() -> None:
    printed = run_python("-c", STEPS).stdout
    in_main, in_another = map(json.loads, printed.splitlines())
    for outside, inside, given_back_mib in (in_main, in_another):
        assert outside > 1000
        assert inside < 50
        assert given_back_mib > 20
