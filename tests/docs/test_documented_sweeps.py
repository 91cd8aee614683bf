"""Sweeps of the documents, run in earnest with one trial each, and the Python code that uses their models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import CHECKOUT, DOCUMENTS, OTHER_FILES, Block, blocks, blocks_of, words, write_files
from ray_nodes import RayNodes
from stores import make_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ELSEWHERE = {"service.md": "its sweeps wait in a queue, as in tests/service"}
EARLIER = "digits-20261120-021500"
"""Name of a sweep that a document supposes."""
BASE_MODEL = CHECKOUT / "src" / "sweeps_train" / "models" / "tiny_llama"
OF_LOOP = ("train.max_steps=4", "train.eval_every=2", "train.log_every=2")
"""Overrides that make a training of the built-in loop short."""
WITH_LOOP = ("digits", "llm_lora", "tabular", "shapes", "winner.yaml", "trial7.yaml")
"""Confs of the built-in loop."""


def _runs() -> dict[tuple[str, ...], Block]:
    """Return each command that trains, and where it stands first."""
    found: dict[tuple[str, ...], Block] = {}
    for block in blocks():
        for command in block.commands if block.reason is None and block.document not in ELSEWHERE else []:
            typed = tuple(words(command))
            if typed[:4] == ("python", "-m", "sweeps", "run") and "--dry-run" not in typed:
                found.setdefault(typed[4:], block)
    return found


RUNS = _runs()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """A Ray cluster that all of them use."""
    nodes = RayNodes(tmp_path_factory.mktemp("ray"))
    nodes.start(num_cpus=4)
    yield nodes
    nodes.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the files that the documents suppose."""
    for name, text in OTHER_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    make_store(tmp_path / "mlflow.db")
    return tmp_path


def python(folder: Path, nodes: RayNodes, *arguments: str) -> str:
    environment = {**os.environ, **nodes.environment, "SWEEPS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def sweep(folder: Path, nodes: RayNodes, *tokens: str) -> int:
    """Run a sweep with one short trial, and return how many have a value."""
    conf = next(token.removeprefix("conf=") for token in tokens if token.startswith("conf="))
    kept = [str(BASE_MODEL) if token == "PATH" else token for token in tokens]
    kept = [token.replace("=PATH", f"={BASE_MODEL}") for token in kept if not token.startswith("search.num_trials=")]
    short = OF_LOOP if conf in WITH_LOOP else ()
    more = (f"cluster.address={nodes.address}", "search.num_trials=1", "tracking.report=false", "--json")
    document = json.loads(python(folder, nodes, "-m", "sweeps", "run", *kept, *short, *more))
    return sum(trial["value"] is not None for trial in document["trials"])


def code_of(document: str) -> list[str]:
    return [block.text for block in blocks_of(CHECKOUT / "docs" / document) if block.language == "python"]


@pytest.mark.parametrize("tokens", RUNS, ids=lambda tokens: " ".join(tokens)[:80])
def test_a_documented_sweep_trains(tokens: tuple[str, ...], folder: Path, nodes: RayNodes) -> None:
    write_files(RUNS[tokens].document, folder)
    if EARLIER in " ".join(tokens):
        assert sweep(folder, nodes, "conf=digits", "--name", EARLIER) == 1
    assert sweep(folder, nodes, *tokens) == 1


def test_the_documented_models_of_tables_predict(folder: Path, nodes: RayNodes) -> None:
    data = ("data.path=customers.csv", "data.target=member")
    assert sweep(folder, nodes, "conf=estimator", *data, "--name=members") == 1
    python(folder, nodes, "-m", "sweeps", "retrain", "members", "--register", "members")
    for code in code_of("tables.md")[:2]:
        assert "[" in python(folder, nodes, "-c", code)


def test_the_documented_language_model_completes_texts(folder: Path, nodes: RayNodes) -> None:
    assert sweep(folder, nodes, "conf=llm_lora", "--name=texts") == 1
    python(folder, nodes, "-m", "sweeps", "best", "texts", "--register", "docstrings")
    (code,) = (each for each in code_of("life.md") if "docstrings" in each)
    assert "str" in python(folder, nodes, "-c", f"import mlflow\n{code}\nprint(type(model.predict(['a'])[0]))")


def test_searches_of_other_tools_train_after_their_conversion(folder: Path, nodes: RayNodes) -> None:
    (migrate,) = (path for path in DOCUMENTS if path.name == "migrate.md")
    write_files(migrate.name, folder)
    ran = 0
    for block in blocks_of(migrate):
        for command in block.commands:
            match words(command):
                case ["python", "-m", "sweeps", "convert", *rest]:
                    python(folder, nodes, "-m", "sweeps", "convert", *rest)
                case ["python", "-m", "sweeps", "run", *rest] if "my_conf" in rest and "--dry-run" in rest:
                    assert sweep(folder, nodes, *(each for each in rest if each != "--dry-run")) == 1
                    ran += 1
    assert ran >= 2
