"""The notebooks, from their first cell to their last: real sweeps in an empty folder."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sweeps

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def code(name: str) -> str:
    """The code cells, of which an expression at the end is shown."""
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for source in sources:
        compile(source, name, "exec")
    return "import ast\n" + "".join(f"show({source!r})\n" for source in sources)


SHOW = """
import ast
def show(source):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), globals())
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), globals())
        print(value if value is not None and not source.rstrip().endswith(";") else "")
"""


def execute(name: str, folder: Path) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg", "SWEEPS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SHOW + code(name)],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebooks_run_as_they_are(tmp_path: Path) -> None:
    first = execute("first_sweep.ipynb", tmp_path)
    assert "best.yaml" not in first.splitlines()[-1]
    assert len(sweeps.load("first", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db").trials) == 6
    short = ["train.max_steps=40", "train.eval_every=10", "cluster.num_cpus=2", "space=none", "search=random"]
    second = ["-m", "sweeps", "run", "conf=digits", *short, "train.lr=interval(1e-3,1e-1)", "search.num_trials=8"]
    subprocess.run(
        [sys.executable, *second, "--name=second"], cwd=tmp_path, check=True, capture_output=True, timeout=200
    )
    both = execute("compare_sweeps.ipynb", tmp_path)
    assert "eval/accuracy" in both
    assert "second" in both


@pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS.glob("*.ipynb")])
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    for cell in json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")


def test_from_python_there_is_a_function_for_every_verb_that_concerns_a_sweep(checkout: Path) -> None:
    from sweeps.cli import app

    named_otherwise = {"show": "load", "report": "write_report", "conf": "confs", "list": "list_sweeps"}
    for_a_shell = {"init", "convert", "completion"}
    of_the_service = {"ui", "serve", "schedule", "token"}
    verbs = {named_otherwise.get(verb, verb) for verb in app.commands if verb not in of_the_service | for_a_shell}
    missing = verbs - set(sweeps.__all__)
    assert missing == set()
    written = (checkout / "docs" / "python.md").read_text(encoding="utf-8")
    functions = [name for name in sweeps.__all__ if inspect.isfunction(getattr(sweeps, name))]
    assert len(functions) >= len(verbs)
    assert [name for name in functions if f"`{name}(" not in written] == []
    assert [name for name in sweeps.__all__ if not re.search(rf"`(sweeps\.)?{name}\b", written)] == []
