"""The question whether a node sees the driver's files, as a node gets it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sweeps.runtime.node_views import _question
from sweeps.runtime.shared_folder import MARK, NotShared, SharedFolder

WITHOUT_SWEEPS = """
import pickle, sys
sys.modules["sweeps"] = None
answer = pickle.loads(sys.stdin.buffer.read())
print(*answer(None, "s3://bucket/first", sys.argv[1], "1.0"))
"""


def test_a_node_that_sees_everything_says_so_and_another_one_what_it_lacks(tmp_path: Path) -> None:
    shared = SharedFolder.marked(tmp_path)
    mark, release = (str(tmp_path / MARK), shared.ident), version("ray-sweeps")
    assert _question()(mark, None, str(tmp_path), release) == (True, True, "")
    assert _question()(None, f"file://{tmp_path}", str(tmp_path / "elsewhere"), "0") == (False, False, "")
    assert _question()(None, "s3a-b://nothing", None, release)[2] != ""


def test_a_node_without_sweeps_can_answer(tmp_path: Path) -> None:
    from ray import cloudpickle

    command = [sys.executable, "-c", WITHOUT_SWEEPS, str(tmp_path)]
    done = subprocess.run(command, input=cloudpickle.dumps(_question()), capture_output=True, check=False)
    assert done.stdout.split() == [b"False", b"True"], done.stderr


def test_a_worker_on_a_node_with_another_folder_of_the_same_path_is_refused(tmp_path: Path) -> None:
    shared = SharedFolder.marked(tmp_path)
    shared.check()
    (tmp_path / MARK).write_text("of another machine")
    with pytest.raises(NotShared, match=f"does not see the sweep's folder {tmp_path}"):
        shared.check()
