"""Examples in the docstrings of the public modules, run as they stand; all of them share one small recorded sweep.

Its trials are trained in this process, and in a slow test by Ray, which ``tests/driver/test_sweep.py`` does at once.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pickle
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from processes import run_python
from stores import make_store
from training_runs import run as train

import sweeps
from sweeps.driver.finish import close_record, finish
from sweeps.driver.folder_access import held, make_folder
from sweeps.driver.startup import open_recorder
from sweeps.folders.trial_files import log_name, logs_folder
from sweeps.plan.saved_sweep import save
from sweeps_train.config import TrainingConfig
from sweeps_train.targets import import_target

PUBLIC_MODULES = ("sweeps", "sweeps.search", "sweeps_train")
WRITTEN_OUT = ("Args", "Returns", "Raises", "Example")

WITHOUT_EXAMPLE = {"sweeps_train.run_function"}  # needs the worker group of Ray Train


def public_members() -> Iterator[tuple[str, object]]:
    for module in map(importlib.import_module, PUBLIC_MODULES):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__)


pytestmark = pytest.mark.timeout(480)  # the first test waits for a sweep, which takes minutes on a busy machine

MEMBERS = dict(public_members())
FUNCTIONS = {name: value for name, value in MEMBERS.items() if isinstance(value, FunctionType)}


def run_example(name: str, value: object) -> None:
    """Run the examples of a docstring, for which ``sweeps`` is imported."""
    module = inspect.getmodule(value)
    assert isinstance(module, ModuleType)
    finder = doctest.DocTestFinder(recurse=False)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for test in finder.find(value, name, module, globs={**vars(module), "sweeps": sweeps}):
        result = doctest.DocTestRunner(optionflags=options).run(test)
        assert result.failed == 0, f"the example of {name} failed; its output is above"


@pytest.fixture(scope="module", params=["trained here", pytest.param("trained by Ray", marks=pytest.mark.slow)])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the example of ``sweeps.run`` was run, with the sweep ``first``."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if request.param == "trained here":
            make_store(folder / "mlflow.db")
            patch.setattr("sweeps.driver.run.run", run_here)
        run_example("sweeps.run", sweeps.run)
    return folder


def run_here(plan: sweeps.Plan, view: sweeps.View) -> sweeps.SweepRecord:
    """Plan, folder, trainings and record of a sweep of two trials, without Ray and without a search."""
    make_folder(plan)
    with held(plan) as copy:
        save(plan)
        recorder = open_recorder(plan, copy)
        best = []
        for number in range(plan.config.search.num_trials):
            trial, point = f"{number:04}", plan.space.default_point(plan.points.lookup)
            assert point is not None
            point["train.lr"] /= 100**number  # the first is the best
            config = plan.composition.trial(point).training()
            assert isinstance(config, TrainingConfig)
            recorder.trials.start(trial, point, plan.composition.as_yaml(point), 1)
            logs = logs_folder(plan.folder, trial)
            logs.mkdir(parents=True)
            (logs / log_name(0)).write_text("trains\n", encoding="utf-8")
            reported = train(config, plan.folder / "trials" / trial).reports
            for step, metrics, _, _ in reported:
                value = recorder.trials.log(trial, step, metrics)
            step, _, checkpoint, _ = reported[-1]
            assert checkpoint is not None
            assert value is not None
            recorder.trials.record_checkpoint(trial, checkpoint, "best", "last")
            recorder.trials.end(trial, "finished", step, 1)
            best.append((trial, value, point))
        recorder.update({"finished": len(best)}, [max(best, key=lambda each: each[1])], {"wall_s": 1.0})
        close_record(plan, recorder, "finished")
    return finish(plan)


@pytest.fixture
def finished_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps after the first are planned in earnest, and end without training."""

    def end(plan: sweeps.Plan, view: sweeps.View) -> sweeps.SweepRecord:
        plan.folder.mkdir(parents=True, exist_ok=True)
        return replace(sweeps.load("first"), sweep=plan.name)

    def load(name: str, *, tracking_uri: str | None = None) -> sweeps.SweepRecord:
        return replace(sweeps.load("first"), sweep=name)

    monkeypatch.setattr("sweeps.api.read.load", load)  # for compare, which takes more than one
    monkeypatch.setattr("sweeps.driver.run.run", end)
    monkeypatch.setattr("sweeps.driver.run.resume", end)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_of_a_public_function_has_all_sections(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    signature = inspect.signature(FUNCTIONS[name])
    unneeded = {
        "Example" if name in WITHOUT_EXAMPLE else "",
        "" if signature.parameters else "Args",
        "Returns" if signature.return_annotation == "None" else "",
    }
    assert [section for section in WRITTEN_OUT if f"{section}:" not in text and section not in unneeded] == []
    arguments = [each for each in signature.parameters if f"{each}:" not in text]
    assert arguments == [], "describe them under Args"


@pytest.mark.filterwarnings("ignore")  # MLflow warns when a model is registered, importance of too few trials
@pytest.mark.parametrize("name", [name for name, value in MEMBERS.items() if ">>>" in (value.__doc__ or "")])
def test_an_example_gives_what_it_shows(
    name: str, recorded: Path, finished_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded)
    if name != "sweeps.run":  # has made the sweep
        run_example(name, MEMBERS[name])


def test_a_loaded_sweep_has_its_curves_and_figures_after_a_change_of_the_working_folder(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded)
    loaded = sweeps.load("first")
    curves, pickled = loaded.curves(), pickle.dumps(loaded)
    monkeypatch.chdir(tmp_path)
    for sweep in (loaded, pickle.loads(pickled)):
        assert "learning_curves" in sweep.figures
        assert sweep.figure("learning_curves").data
        assert sweep.curves().equals(curves)
    assert not Path("mlflow.db").exists(), "another store"


def test_a_loaded_sweep_is_a_dictionary_warns_of_an_unknown_metric_takes_numbers_of_trials_and_no_changes(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recorded)
    loaded = sweeps.load("first")
    assert [trial["trial"] for trial in asdict(loaded)["trials"]] == ["0000", "0001"]
    assert sweeps.logs("first", 1) == sweeps.logs("first", "0001")
    assert sweeps.extend("first", {}).status == "finished"
    assert "Nothing is left to resume" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="first: no trial has reported eval/los; did you mean eval/loss"):
        assert loaded.curves("eval/los").empty


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("load(loaded)", "sweep=<first: .*: must be the name of one sweep"),
        ("resume(loaded)", "must be the name of one sweep"),
        ("reproduce(loaded)", "must be the name of one sweep"),
        (
            "compare(['first', 'second'])",
            r"sweep=\['first', 'second'\]: must be .*functions of several sweeps take each name as an argument",
        ),
        ("stop(None)", "sweep=None: must be the name of one sweep"),
        ("clean(loaded, dry_run=True)", "there is no sweep <first: .*; use first"),
        ("clean(older_than=30)", "--older-than=30: must be a number followed by m, h, d or w"),
        ("clean(max_size=50)", "--max-size=50: must be a number followed by B, MB, .*, such as 50GiB"),
        ("list_sweeps(tracking_uri=Path('nowhere'))", "nowhere"),
        ("dry_run('digits', config_dirs='nowhere')", "--config-dir=nowhere: there is no such folder"),
    ],
)
def test_an_argument_of_another_type_is_answered_with_the_fix(
    call: str, message: str, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded)
    with pytest.raises(sweeps.UserError, match=message):
        eval(f"sweeps.{call}", {"sweeps": sweeps, "loaded": sweeps.load("first"), "Path": Path})


def test_every_public_name_can_be_imported_and_the_old_name_of_list_sweeps_works() -> None:
    for module in map(importlib.import_module, PUBLIC_MODULES):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert sweeps.list is sweeps.list_sweeps


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_an_interpreter_completes_every_public_name_of_a_module_that_was_just_imported(module: str) -> None:
    shown = run_python("-c", f"import importlib\nprint(*dir(importlib.import_module({module!r})))").stdout.split()
    assert [name for name in importlib.import_module(module).__all__ if name not in shown] == []
    assert len(shown) == len(set(shown))


UNGUARDED = """
import torch
import sweeps

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.head(x.flatten(1))

sweeps.run("digits", ["space=none", "model=custom", "model._target_=net.Net", "scaling=single_worker"], name="first")
"""


def test_a_file_that_starts_a_sweep_when_a_sweep_imports_it_starts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in ("run('digits')", "resume('first')", "extend('first', {})", "retrain('first')", "reproduce('first')"):
        name = f"starts_{call.partition('(')[0]}"
        (tmp_path / f"{name}.py").write_text(f"import sweeps\nsweeps.{call}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(sweeps.UserError, match=f'{name}.py: .* below `if __name__ == "__main__":`'):
            import_target("model", f"{name}.Net")


@pytest.mark.slow
def test_a_script_that_starts_a_sweep_of_its_own_model_without_a_guard_is_told_before_a_trial_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "net.py").write_text(UNGUARDED, encoding="utf-8")
    ended = run_python("net.py", folder=tmp_path, status=1, within_s=400)
    assert f"{tmp_path / 'net.py'}: starts a sweep within a sweep that imports or calls it" in ended.stderr
    assert "trial 0000 started" not in ended.stderr
    assert list(tmp_path.glob("outputs/*")) == []
