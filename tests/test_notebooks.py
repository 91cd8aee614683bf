"""The notebooks, from their first cell to their last: real sweeps in an empty folder."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode

import sweeps
from sweeps.tracking.journal import is_delivered

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def kernel(notebook: NotebookNode, folder: Path) -> NotebookClient:
    """A client that executes a notebook in a folder, with a kernel of its own."""
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=400, kernel_name="python3", resources=resources, store_widget_state=False)


def execute(name: str, folder: Path) -> NotebookNode:
    """Execute a notebook; an error in a cell is an error here."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    kernel(notebook, folder).execute()
    return notebook


def outputs(notebook: NotebookNode, source: str) -> list[NotebookNode]:
    """Outputs of the only cell with a source that begins so."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(source)]
    return list(cell.outputs)


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment of the kernels."""
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("caches")
@pytest.mark.filterwarnings("ignore")  # of nbclient's event loop and nbconvert's libraries
def test_the_notebooks_run_as_they_are(tmp_path: Path) -> None:
    first = execute("first_sweep.ipynb", tmp_path)
    record = sweeps.load("first", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert len(record.trials) == 6
    assert record.best is not None
    assert record.best.value is not None
    (correct,) = re.findall(r"correct: ([\d.]+)%", str(outputs(first, "import torch")))
    assert float(correct) / 100 > record.best.value - 0.1  # with the inputs of the training
    assert "<th>searched</th>" in outputs(first, "SHORT")[-1].data["text/html"]
    (shown,) = [each for each in outputs(first, "sweep = sweeps.run") if each.output_type == "display_data"]
    assert "first: " in shown.data["text/html"]  # the last state of the live output
    assert "data:image/svg+xml" in shown.data["text/html"]
    figure = outputs(first, 'sweep.figure("learning_curves")')[-1].data
    assert figure["application/vnd.plotly.v1+json"]["layout"]["title"]["text"] == "Learning curves"
    page, _ = HTMLExporter().from_notebook_node(first)
    assert figure["image/png"][:100].replace("\n", "") in page.replace("\n", "")

    short = ["train.max_steps=40", "train.eval_every=10", "cluster.num_cpus=2", "space=none", "search=random"]
    second = ["-m", "sweeps", "run", "conf=digits", *short, "train.lr=interval(1e-3,1e-1)", "search.num_trials=8"]
    subprocess.run(
        [sys.executable, *second, "--name=second"], cwd=tmp_path, check=True, capture_output=True, timeout=300
    )
    both = execute("compare_sweeps.ipynb", tmp_path)
    assert "eval/accuracy" in str(both)
    assert outputs(both, 'records["second"].figure("best_so_far")')[-1].data["image/png"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("caches")
@pytest.mark.filterwarnings("ignore")
def test_the_stop_button_ends_a_sweep_cleanly_and_resume_continues_it(tmp_path: Path) -> None:
    long = "['train.max_steps=100000', 'train.eval_every=10', 'cluster.num_cpus=2', 'search.num_trials=2']"
    cells = ["import sweeps", f"sweep = sweeps.run('digits', {long}, name='long')", "print(sweep.status)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = kernel(notebook, tmp_path)
    store = f"sqlite:///{tmp_path}/mlflow.db"

    def interrupt_when_it_trains() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with contextlib.suppress(sweeps.UserError):
                if any(trial.steps for trial in sweeps.load("long", tracking_uri=store).trials):
                    asyncio.run(client.km.interrupt_kernel())  # as the button does
                    return
            time.sleep(0.5)

    thread = threading.Thread(target=interrupt_when_it_trains)
    thread.start()
    client.execute()
    thread.join()
    assert notebook.cells[2].outputs[0].text == "interrupted\n"
    record = sweeps.load("long", tracking_uri=store)
    assert [trial.state for trial in record.trials] == ["stopped"]
    assert record.trials[0].checkpoint is not None
    assert is_delivered(tmp_path / "outputs" / "long")


@pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS.glob("*.ipynb")])
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    for cell in json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")


def test_from_python_there_is_a_function_for_every_verb_that_concerns_a_sweep(checkout: Path) -> None:
    from sweeps.cli import app

    named_otherwise = {"show": "load", "report": "write_report", "conf": "confs", "list": "list_sweeps"}
    for_a_shell = {"init", "convert", "completion", "doctor", "submit", "replay"}
    of_the_service = {"ui", "serve", "schedule", "token", "backup", "restore"}
    verbs = {named_otherwise.get(verb, verb) for verb in app.commands if verb not in of_the_service | for_a_shell}
    missing = verbs - set(sweeps.__all__)
    assert missing == set()
    written = (checkout / "docs" / "python.md").read_text(encoding="utf-8")
    functions = [name for name in sweeps.__all__ if inspect.isfunction(getattr(sweeps, name))]
    assert len(functions) >= len(verbs)
    assert [name for name in functions if f"`{name}(" not in written] == []
    assert [name for name in sweeps.__all__ if not re.search(rf"`(sweeps\.)?{name}\b", written)] == []
