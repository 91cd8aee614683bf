"""A script for torchrun as a task: its output is reported, and it resumes from its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Done, points, run

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError
from sweeps.validate.target_checks import check_targets
from sweeps_train.config import FunctionTask
from sweeps_train.frameworks.script import _report, command

USERS = """
import os, sys
from pathlib import Path
import torch
from sweeps_train.examples import torchrun_digits

def dying(step):
    steps = []
    def dies(optimizer):
        steps.append(1)
        if len(steps) == 60:  # in the third epoch of 23 steps
            os._exit(3)
        return step(optimizer)
    return dies

if __name__ == "__main__":
    starts = Path(sys.argv.pop().partition("=")[2])
    with starts.open("a") as file:
        file.write(f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}: {'SWEEPS_CHECKPOINT' in os.environ}\\n")
    if len(starts.read_text().splitlines()) <= 2 and os.environ["RANK"] == "1":
        torch.optim.Adam.step = dying(torch.optim.Adam.step)
    sys.stdout.buffer.write(b"\\xff is no text\\n")
    torchrun_digits.main()
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("script")
    (folder / "users.py").write_text(USERS, encoding="utf-8")
    return run(
        folder,
        "conf=torchrun_script",
        "task._target_=users.py",
        f"task.arguments={{lr: 1e-2, hidden: 32, epochs: 4, starts: {folder / 'starts'}}}",
        points({"task.arguments.lr": 1e-2, "task.arguments.hidden": 32}),
        "search.num_trials=1",
        "search.default_first=false",
        "cluster.num_cpus=2",
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_script_that_fails_is_started_again_and_resumes_from_its_checkpoint(sweep: Done) -> None:
    (trial,) = sweep.document["trials"]
    assert (trial["state"], trial["steps"], trial["attempts"]) == ("finished", 4, 2)
    starts = sorted((sweep.folder / "starts").read_text().splitlines())
    assert starts == ["0 of 2: False", "0 of 2: True", "1 of 2: False", "1 of 2: True"]
    assert trial["value"] > 0.9
    history = sweep.client.get_metric_history(trial["run_id"], "accuracy")
    assert sorted({each.step for each in history}) == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_script_that_dies_on_another_worker_than_the_first_fails_the_trial_at_once(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import os, torch.distributed as dist\n"
        "assert os.environ['RANK'] == '0', 'of no use'\n"
        "dist.init_process_group('gloo')\n"  # waits for the other one
    )
    search = ("search.num_trials=1", "search.max_retries=0")
    done = run(tmp_path, "conf=torchrun_script", "task._target_=dies.py", *search, "cluster.num_cpus=2")
    (trial,) = done.document["trials"]
    assert trial["state"] == "failed"
    assert "task._target_=dies.py ended with status 1 on worker 1" in done.err


OVERWRITES = """
import json, os, time
for step in range(1, 21):
    folder = f"{os.environ['SWEEPS_OUTPUT']}/FOLDER"
    os.makedirs(folder, exist_ok=True)
    if IS_BETTER:
        open(f"{folder}/weights", "w").write(str(step))
    print(json.dumps({"loss": step, "checkpoint": folder}), flush=True)
    time.sleep(0.01)  # of training, which is faster than the copies
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("folder", "is_better", "is_noted"),
    [("newest", "True", True), ("{step}", "True", False), ("best", "step == 1", False)],
)
def test_a_checkpoint_that_a_script_has_overwritten_before_it_was_copied_is_noted(
    folder: str, is_better: str, *, is_noted: bool, tmp_path: Path
) -> None:
    text = OVERWRITES.replace("FOLDER", folder).replace("IS_BETTER", is_better)
    (tmp_path / "overwrites.py").write_text(text)
    own = ("task._target_=overwrites.py", "~task.arguments", "~space", "task.metrics=[loss]")
    search = ("search.metric=loss", "search.mode=min", "search.num_trials=1", "search/scheduler=none")
    done = run(tmp_path, "conf=torchrun_script", *own, *search, "scaling=single_worker", "cluster.num_cpus=1")
    (trial,) = done.document["trials"]
    assert (trial["state"], trial["steps"]) == ("finished", 20)
    assert ("save each in a folder of its own" in done.err) is is_noted


def test_arguments_are_given_as_on_a_command_line() -> None:
    arguments = {"lr": 1e-3, "name": "some text", "flag": True, "sizes": [1, 2], "none": None}
    task = FunctionTask(kind="function", framework="script", _target_="train.py", arguments=arguments)
    assert command(task)[2:] == [
        "train.py", "--lr=0.001", "--name=some text", "--flag=true", "--sizes=[1, 2]", "--none=null"
    ]  # fmt: skip
    assert command(FunctionTask(kind="function", framework="script", _target_="a.b"))[2:] == ["-m", "a.b"]
    of_home = FunctionTask(kind="function", framework="script", _target_="~/train.py")
    assert command(of_home)[2:] == [str(Path.home() / "train.py")]


def test_a_line_of_json_with_the_metric_is_a_report() -> None:
    assert _report('{"loss": 1.5, "step": 3}\n', "loss") == {"loss": 1.5, "step": 3}
    beyond_limits = f'{{"loss": 1, "n": {"1" * 5000}}}', '{"loss":' * 2000 + "1" + "}" * 2000
    for line in ('{"los": 1.5}', "loss 1.5", "[1, 2]", "{1}", "", *beyond_limits):
        assert _report(line, "loss") is None


def test_a_module_that_is_not_python_is_named_with_its_line(working_folder: Path) -> None:
    (working_folder / "mistaken.py").write_text("import os\n\ndef train(config)\n    pass\n")
    composition = compose_sweep("ray_train_function", ["task._target_=mistaken.train"], ConfSearchPath())
    with pytest.raises(ConfigError, match=r"task._target_=mistaken.train: .*mistaken.py, line 3: expected ':'; fix it"):
        check_targets(composition.config)


@pytest.mark.parametrize("target", ["none.py", "no.such.module", "no_such_module"])
def test_a_script_that_is_not_there_is_named(target: str, working_folder: Path) -> None:
    composition = compose_sweep("torchrun_script", [f"task._target_={target}"], ConfSearchPath())
    with pytest.raises(ConfigError, match=f"task._target_={target}: there is no such"):
        check_targets(composition.config)
