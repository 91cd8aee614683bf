"""The question whether a node sees the driver's files, as a node gets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sweeps
import sweeps_train
from sweeps.runtime.node_views import _fingerprint, _question
from sweeps.runtime.shared_folder import MARK, NotShared, SharedFolder

WITHOUT_SWEEPS = """
import pickle, sys
sys.modules["sweeps"] = None
answer = pickle.loads(sys.stdin.buffer.read())
print(*answer(None, "s3://bucket/first", sys.argv[1], "1.0"))
"""


def test_a_node_that_sees_everything_says_so_and_another_one_what_it_lacks(tmp_path: Path) -> None:
    shared = SharedFolder.marked(tmp_path)
    mark, own_code = (str(tmp_path / MARK), shared.ident), _fingerprint()()
    assert _question()(mark, None, str(tmp_path), own_code) == (True, True, "")
    assert _question()(None, f"file://{tmp_path}", str(tmp_path / "elsewhere"), "0") == (False, False, "")
    assert _question()(None, "s3a-b://nothing", None, own_code)[2] != ""


def test_a_node_without_sweeps_can_answer(tmp_path: Path) -> None:
    from ray import cloudpickle

    command = [sys.executable, "-c", WITHOUT_SWEEPS, str(tmp_path)]
    done = subprocess.run(command, input=cloudpickle.dumps(_question()), capture_output=True, check=False)
    assert done.stdout.split() == [b"False", b"True"], done.stderr


ASK = """
import pickle, sys
answer = pickle.loads(sys.stdin.buffer.read())
print(answer(None, None, None, sys.argv[1])[0])
"""


def test_a_node_with_another_checkout_of_the_same_release_does_not_have_the_drivers_code(tmp_path: Path) -> None:
    from ray import cloudpickle

    for package in (sweeps, sweeps_train):
        assert package.__file__ is not None
        ignored = shutil.ignore_patterns("__pycache__", "docs", "static")
        shutil.copytree(Path(package.__file__).parent, tmp_path / package.__name__, ignore=ignored)
    question = cloudpickle.dumps(_question())

    def has_code() -> str:
        command = [sys.executable, "-c", ASK, _fingerprint()()]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, input=question, capture_output=True, env=environment, check=False)
        return str(done.stdout, "utf-8").strip() or str(done.stderr, "utf-8")

    assert has_code() == "True"
    with (tmp_path / "sweeps_train" / "loop.py").open("a") as file:
        file.write("# another checkout\n")
    assert has_code() == "False"


def test_a_worker_on_a_node_with_another_folder_of_the_same_path_is_refused(tmp_path: Path) -> None:
    shared = SharedFolder.marked(tmp_path)
    shared.check()
    (tmp_path / MARK).write_text("of another machine")
    with pytest.raises(NotShared, match=f"does not see the sweep's folder {tmp_path}"):
        shared.check()
    (tmp_path / MARK).unlink()
    with pytest.raises(NotShared, match="does not see"):
        replace(shared, node="of-the-driver").check()


def test_a_folder_that_was_removed_under_its_sweep_is_not_said_to_be_elsewhere(tmp_path: Path) -> None:
    shared = SharedFolder.marked(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(NotShared, match=f"{tmp_path} was removed while the sweep ran"):
        shared.check()
