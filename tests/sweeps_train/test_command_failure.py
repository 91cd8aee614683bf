"""The error of a program that has failed, by its last lines of output."""

from __future__ import annotations

import pytest

from sweeps_train.command.failure import SHOWN_LINES, find_cause

TORCHRUN = """\
W1122 16:39:48.462000 11916 torch/distributed/run.py:874] *****************************************
{'loss': 1}
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "bad.py", line 4, in <module>
[rank1]:     if get_rank() == 1: raise ValueError("lr must be positive: -1")
[rank0]:   File "bad.py", line 5, in <module>
[rank1]:                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
[rank1]: ValueError: lr must be positive: -1
[rank0]:     all_reduce(zeros(1))
[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:21702.
W1122 16:40:00.823000 11916 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 12087 closing signal
E1122 16:40:01.010000 11916 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1
"""
SUMMARY = """\
Traceback (most recent call last):
  File "bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
bad.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-22_16:40:01
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 12087)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 12087
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_16:40:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 12088)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
OF_ONE = """\
step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise KeyError("lr")

    KeyError: quoted
KeyError: 'lr'
"""
BETWEEN = """\
Traceback (most recent call last):
  File "train.py", line 42, in <module>
Loading data: 3 files
Loading cora dataset...
    load()
FileNotFoundError: no rows
"""
"""Output of which a part was printed to stdout."""
COMPILER = """\
step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    subprocess.run(["nvcc", "kernel.cu"], check=True)
  File "lib/python3.11/subprocess.py", line 571, in run
    raise CalledProcessError(retcode, process.args,
subprocess.CalledProcessError: Command '['nvcc', 'kernel.cu']' returned non-zero exit status 1.
"""
ACCELERATE = """\
Traceback (most recent call last):
  File "bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "accelerate/commands/launch.py", line 889, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 2.
"""
IGNORED = """\
Exception ignored in: <function Pool.__del__ at 0x7f>
Traceback (most recent call last):
  File "lib/python3.11/multiprocessing/pool.py", line 271, in __del__
BrokenPipeError: [Errno 32] Broken pipe
"""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (TORCHRUN + SUMMARY, "ValueError: lr must be positive: -1"),
        (OF_ONE, "KeyError: 'lr'"),
        (OF_ONE + SUMMARY, "KeyError: 'lr'"),
        (BETWEEN, "FileNotFoundError: no rows"),
        (OF_ONE.replace("KeyError: 'lr'", "__main__.f.<locals>.Bad") + "end", "__main__.f.<locals>.Bad"),
        (OF_ONE + "wandb: a run was synced\n", "KeyError: 'lr'"),
        (OF_ONE + "\nDuring handling of it, another exception occurred:\n\n" + OF_ONE.replace("Key", "Type"),
         "TypeError: 'lr'"),
        (OF_ONE + "later\n" * SHOWN_LINES, "later"),
        ("out of disk\n-----\n=====\n", "out of disk"),
        ("no such option\nE1 torch/distributed/elastic/x.py:1] failed (exitcode: 2)\n" + SUMMARY, "no such option"),
        (SUMMARY.replace("To enable traceback see", "Signal 11 (SIGSEGV) received by"), "Signal 11 (SIGSEGV)"),
        (OF_ONE.rpartition("KeyError")[0] + "Traceback (most recent call last):\n", "Traceback (most recent call"),
        (COMPILER, "subprocess.CalledProcessError: Command '['nvcc', 'kernel.cu']'"),
        (COMPILER + SUMMARY, "subprocess.CalledProcessError: Command '['nvcc', 'kernel.cu']'"),
        ("train.py: error: no such option\n" + ACCELERATE, "train.py: error: no such option"),
        (OF_ONE + ACCELERATE, "KeyError: 'lr'"),
        (OF_ONE + IGNORED, "KeyError: 'lr'"),
        ("out of disk\n" + IGNORED, "out of disk"),
        (IGNORED, "BrokenPipeError"),
        ("=====\n", "====="),
        ("", "it printed nothing"),
    ],
)  # fmt: skip
def test_the_cause_is_the_programs_last_exception_or_message_and_not_the_launchers(output: str, cause: str) -> None:
    found, _ = find_cause(output.splitlines())
    assert found.startswith(cause)


def test_the_lines_that_are_shown_are_the_last_ones_of_the_program_itself() -> None:
    _, lines = find_cause((TORCHRUN + SUMMARY).splitlines())
    assert lines == TORCHRUN.splitlines()
    _, lines = find_cause(["before"] * 99 + TORCHRUN.splitlines())
    assert len(lines) == SHOWN_LINES


def test_a_mistake_that_a_hydra_application_has_found_is_its_message_with_the_advice() -> None:
    output = (
        "loading\n\nCould not override 'model.lrr'.\nTo append to your config use +model.lrr=1\n"
        "Key 'lrr' is not in struct\n"
        "    full_key: model.lrr\n    object_type=dict\n\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    cause, _ = find_cause(output.splitlines())
    assert cause == "Could not override 'model.lrr'. To append to your config use +model.lrr=1"
    failed = (
        "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n\nSet HYDRA_FULL_ERROR=1 for more\n"
    )
    assert find_cause(failed.splitlines())[0] == "KeyError: 'x'"
