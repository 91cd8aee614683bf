"""Contract with the private names of Python that Sweeps uses: a failure here says which has moved."""

from __future__ import annotations

from processes import run_python

LEAVES = """
import atexit, os, time
from concurrent.futures import ThreadPoolExecutor
from sweeps.compat.python_exit import run_exit_handlers

def works():
    time.sleep(0.2)
    print("work is done", flush=True)

atexit.register(print, "the handler ran", flush=True)
ThreadPoolExecutor().submit(works)
run_exit_handlers()
print("the process goes on", flush=True)
os._exit(0)
"""


def test_a_process_ends_its_threads_runs_its_exit_handlers_and_goes_on() -> None:
    done = run_python("-c", LEAVES)
    assert done.stdout.splitlines() == ["work is done", "the handler ran", "the process goes on"], done.stderr


ENDS = """
import atexit, ctypes, time
from concurrent.futures import ThreadPoolExecutor
from sweeps.compat.python_exit import end_process

def works():
    time.sleep(0.2)
    print("work is done")

atexit.register(print, "the handler ran")
library = ctypes.CDLL(None)
library.__cxa_atexit(library.abort, None, None)
ThreadPoolExecutor().submit(works)
end_process(3)
"""


def test_a_process_ends_with_its_status_whatever_the_exit_handlers_of_its_libraries_do() -> None:
    done = run_python("-c", ENDS, status=3)
    assert done.stdout.splitlines() == ["work is done", "the handler ran"], done.stderr


INTERRUPTED = """
import atexit, os, signal, threading, time
from sweeps.compat.python_exit import end_process

atexit.register(print, "the handler ran")
threading.Thread(target=time.sleep, args=[600]).start()
threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
end_process(3)
"""


def test_ctrl_c_while_a_process_waits_for_its_threads_ends_it_after_its_exit_handlers() -> None:
    done = run_python("-c", INTERRUPTED, status=3, within_s=60)
    assert (done.stdout, done.stderr) == ("the handler ran\n", "")
