"""Sweeps of the documents, run in earnest with one trial each, and the Python code that uses their models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from documents import CHECKOUT, DOCUMENTS, OTHER_FILES, blocks_of, documented_sweeps, words, write_files
from optuna.trial import FrozenTrial
from processes import run_python
from ray_nodes import RayNodes
from running import NO_PREFLIGHT
from s3_server import s3_server
from stores import make_store

from sweeps.constants import NUMBER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EARLIER = "first"
"""Name of the sweep that documents suppose."""
BASE_MODEL = CHECKOUT / "src" / "sweeps_train" / "models" / "tiny_llama"
OF_LOOP = ("train.max_steps=4", "train.eval_every=2", "train.log_every=2")
"""Overrides that make a training of the built-in loop short."""
OF_SEVERAL_TRIALS = ("search.num_trials=", "search.confirm=")
"""Overrides that one trial cannot have; ``tests/driver/test_confirmed_sweep.py`` confirms winners."""
WITH_LOOP = ("digits", "llm_lora", "tabular", "shapes", "winner.yaml", "trial7.yaml")
"""Confs of the built-in loop."""


RUNS = documented_sweeps()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment variables by which a Ray cluster and the bucket of an object store are reached."""
    nodes = RayNodes(tmp_path_factory.mktemp("ray"))
    with s3_server() as store:
        try:
            nodes.start(num_cpus=4, environment=store)
            yield {**nodes.environment, **store, "RAY_ADDRESS": nodes.address}
        finally:
            nodes.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the files that the documents suppose."""
    for name, text in OTHER_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    make_store(tmp_path / "mlflow.db")
    return tmp_path


def python(folder: Path, cluster: dict[str, str], *arguments: str) -> str:
    return run_python(*arguments, folder=folder, environment={**cluster, "SWEEPS_CACHE": str(folder / "cache")}).stdout


def sweep(folder: Path, cluster: dict[str, str], *tokens: str) -> int:
    """Run a sweep with one short trial, and return how many have a value."""
    conf = next(token.removeprefix("conf=") for token in tokens if token.startswith("conf="))
    kept = [str(BASE_MODEL) if token == "PATH" else token for token in tokens]
    kept = [token.replace("=PATH", f"={BASE_MODEL}") for token in kept if not token.startswith(OF_SEVERAL_TRIALS)]
    kept = [re.sub(r"\b(num_trials|keep): \d+", r"\1: 1", token) for token in kept]  # of a stage
    short = OF_LOOP if conf in WITH_LOOP else ()
    address = () if any(token.startswith("cluster=") for token in kept) else ("cluster.address=auto",)
    more = (*address, "search.num_trials=1", "tracking.report=false", NO_PREFLIGHT, "--json")
    document = json.loads(python(folder, cluster, "-m", "sweeps", "run", *kept, *short, *more))
    return sum(trial["value"] is not None for trial in document["trials"])


def code_of(document: str) -> list[str]:
    return [block.text for block in blocks_of(CHECKOUT / "docs" / document) if block.language == "python"]


@pytest.mark.parametrize("tokens", RUNS, ids=lambda tokens: " ".join(tokens)[:80])
def test_a_documented_sweep_trains(tokens: tuple[str, ...], folder: Path, cluster: dict[str, str]) -> None:
    write_files(RUNS[tokens].document, folder)
    if f"warm_start=[{EARLIER}]" in " ".join(tokens):
        assert sweep(folder, cluster, "conf=digits", "--name", EARLIER) == 1
    assert sweep(folder, cluster, *tokens) == 1


def test_the_documented_models_of_tables_predict(folder: Path, cluster: dict[str, str]) -> None:
    data = ("data.path=customers.csv", "data.target=member")
    assert sweep(folder, cluster, "conf=estimator", *data, "--name=members") == 1
    python(folder, cluster, "-m", "sweeps", "retrain", "members", "--register", "members")
    for code in code_of("tables.md")[:2]:
        assert "[" in python(folder, cluster, "-c", code)


def test_the_documented_language_model_completes_texts(folder: Path, cluster: dict[str, str]) -> None:
    assert sweep(folder, cluster, "conf=llm_lora", "--name=texts") == 1
    python(folder, cluster, "-m", "sweeps", "best", "texts", "--register", "docstrings")
    (code,) = (each for each in code_of("life.md") if "docstrings" in each)
    assert "str" in python(folder, cluster, "-c", f"{code}\nprint(type(model.predict(['a'])[0]))")


def test_searches_of_other_tools_train_after_their_conversion(folder: Path, cluster: dict[str, str]) -> None:
    (migrate,) = (path for path in DOCUMENTS if path.name == "migrate.md")
    write_files(migrate.name, folder)
    ran = 0
    for block in blocks_of(migrate):
        for command in block.commands:
            match words(command):
                case ["python", "-m", "sweeps", "convert", *rest]:
                    python(folder, cluster, "-m", "sweeps", "convert", *rest)
                case ["python", "-m", "sweeps", "run", *rest] if "my_conf" in rest and "--dry-run" in rest:
                    assert sweep(folder, cluster, *(each for each in rest if each != "--dry-run")) == 1
                    ran += 1
    assert ran >= 2


def test_the_documented_searcher_serves_a_tuner_of_ray_and_its_trials_are_read(
    folder: Path, cluster: dict[str, str]
) -> None:
    (read,) = code_of("prior_knowledge.md")
    (tune,) = code_of("searcher.md")
    assert "8 trials were started" in python(folder, cluster, "-c", tune)
    study = optuna.load_study(study_name="example", storage=f"sqlite:///{folder}/study.db")
    trials = [trial for trial in study.trials if NUMBER in trial.user_attrs]
    assert sorted(trial.user_attrs[NUMBER] for trial in trials) == list(range(8))
    ended: dict[str, list[FrozenTrial]] = {"COMPLETE": [], "PRUNED": []}
    for trial in trials:
        ended[trial.state.name].append(trial)
    assert ended["COMPLETE"]
    assert ended["PRUNED"]
    assert all(max(trial.intermediate_values) == 9 for trial in ended["COMPLETE"])
    assert all(trial.value == min(trial.intermediate_values.values()) for trial in ended["COMPLETE"])
    assert all(0 < max(trial.intermediate_values) < 9 for trial in ended["PRUNED"])
    assert all(("momentum" in trial.params) == (trial.params["optimizer"] == "sgd") for trial in study.trials)
    shown = python(folder, cluster, "-c", f"{read}\nprint(len(earlier[0].points), 'trials', earlier[0].points[0])")
    best = min(study.trials, key=lambda trial: min(trial.intermediate_values.values(), default=float("inf")))
    assert f"ignored: optimizer, momentum\n8 trials {{'lr': {best.params['lr']}}}\n" in shown
