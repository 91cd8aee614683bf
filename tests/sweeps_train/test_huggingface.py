"""A Hugging Face Trainer as a task: reports, stopping, and resuming from its own checkpoints."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Done, points, run
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

from sweeps_train.config import FunctionTask
from sweeps_train.frameworks.bound_function import bind_function

pytestmark = pytest.mark.timeout(400)

USERS = """
import os
from pathlib import Path
import torch
from sweeps_train.examples.huggingface_trainer import trainer as example
import mlflow
from transformers import TrainerCallback
from transformers.integrations import MLflowCallback

class Dies(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        file = Path(os.environ["NOTES"])
        with file.open("a") as opened:
            opened.write(f"{os.environ['RANK']} {state.global_step}\\n")
        mlflow.log_metric("own", state.global_step / 2, step=state.global_step)
        if state.global_step == 7 and file.read_text().count("0 7") == 1 and os.environ["RANK"] == "0":
            os.kill(os.getpid(), 9)

def trainer(config):
    torch.set_num_threads(1)
    made = example(config)
    made.args.logging_steps = 3
    made.add_callback(MLflowCallback())  # as report_to=mlflow does
    if config["weight_decay"] == 0.0:  # of the first trial
        os.environ["NOTES"] = config["notes"]
        made.add_callback(Dies())
    return made
"""


ROWS: Any = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 8


class Line(nn.Module):
    """A model of two weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.layer(x), labels)}


def line_arguments(folder: Path, **options: Any) -> TrainingArguments:
    quiet: Any = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    return TrainingArguments(output_dir=str(folder), save_steps=options.pop("save_steps", 1), **quiet, **options)


class Stops(TrainerCallback):
    """Ends a training after some step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self._step


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("huggingface")
    (folder / "users.py").write_text(USERS, encoding="utf-8")
    return run(
        folder,
        "conf=huggingface_trainer",
        "task._target_=users.trainer",
        f"task.arguments={{lr: 1e-3, weight_decay: 0.0, batch_size: 4, max_steps: 10, notes: {folder / 'notes'}}}",
        points({"task.arguments.lr": 1e-3, "task.arguments.weight_decay": 0.0, "task.arguments.batch_size": 4}),
        "search.num_trials=1",
        "search.default_first=false",
        "cluster.num_cpus=2",
    )


@pytest.mark.slow
def test_a_killed_trainer_resumes_from_its_own_checkpoint(sweep: Done) -> None:
    (trial,) = sweep.document["trials"]
    assert (trial["state"], trial["steps"], trial["attempts"]) == ("finished", 10, 2)
    steps = [line.split() for line in (sweep.folder / "notes").read_text().splitlines()]
    assert [int(step) for rank, step in steps if rank == "0"] == [*range(1, 8), *range(6, 11)]
    history = sweep.client.get_metric_history(trial["run_id"], "eval_loss")
    assert sorted({each.step for each in history}) == [5, 10]
    logged = sweep.client.get_metric_history(trial["run_id"], "loss")
    assert sorted({each.step for each in logged}) == [3, 6, 9]  # as often as the Trainer logs, at its own steps
    assert trial["value"] < 2.5


@pytest.mark.slow
def test_what_a_trainer_and_its_function_log_to_mlflow_is_the_trials_and_no_run_of_its_own(sweep: Done) -> None:
    (trial,) = sweep.document["trials"]
    own = sweep.client.get_metric_history(trial["run_id"], "own")
    assert {(each.step, each.value) for each in own} == {(step, step / 2) for step in range(1, 11)}
    found = [
        run for each in sweep.client.search_experiments() for run in sweep.client.search_runs([each.experiment_id])
    ]
    assert {run.info.run_id for run in found} == {trial["run_id"], sweep.document["mlflow"]["run_id"]}


@pytest.mark.slow
def test_transformers_reads_a_trainers_checkpoint(sweep: Done) -> None:
    from transformers import AutoModelForCausalLM

    (kept,) = sweep.folder.glob("outputs/*/trials/*/step-00000010/files")
    AutoModelForCausalLM.from_pretrained(kept)
    assert {"optimizer.pt", "trainer_state.json", "rng_state_0.pth", "rng_state_1.pth"} <= {
        file.name for file in kept.iterdir()
    }


Report = tuple[float, set[str], bool]
"""Step of a report, its losses of evaluations, and whether it has a checkpoint."""


def trained(
    arguments: TrainingArguments,
    patch: pytest.MonkeyPatch,
    *callbacks: TrainerCallback,
    rows: Any = ROWS,
    held_out: Any = ROWS,
    keep: Path | None = None,
    resume: Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Report]:
    """Train the model of two weights as a trial does; returns its reports, and copies the second checkpoint to
    ``keep``."""
    from sweeps_train.frameworks import huggingface
    from sweeps_train.frameworks.huggingface import EpochOrder, ReportCallback

    reports: list[Report] = []

    def report(metrics: dict[str, float], checkpoint: Any) -> None:
        losses = {name for name in metrics if name.startswith("eval_") and name.endswith("loss")}
        is_saved = checkpoint is not None and (Path(checkpoint.path) / "optimizer.pt").exists()
        reports.append((metrics["step"], losses, is_saved))
        if keep is not None and len(reports) == 2:
            shutil.copytree(checkpoint.path, keep)

    patch.setattr("ray.train.report", report)
    patch.setattr("sweeps_train.frameworks.huggingface.log_step", lambda *_: None)
    patch.setattr("sweeps_train.frameworks.huggingface.searched_metrics", lambda: ("eval_loss",))
    patch.setattr("sweeps_train.frameworks.huggingface.note", note)
    trainer = Trainer(Line(), arguments, train_dataset=rows, eval_dataset=held_out)
    huggingface.keep_checkpoints_by_the_trial(trainer)
    for callback in (*callbacks, EpochOrder(), ReportCallback(trainer)):
        vars(callback)["trainer"] = trainer
        trainer.add_callback(callback)
    if resume is None:
        trainer.train()
    else:
        huggingface.resume(trainer, str(resume))
    return reports


@pytest.mark.parametrize("saves", [pytest.param(False, marks=pytest.mark.slow), True])
def test_evaluations_of_several_datasets_are_one_report(
    saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = "steps" if saves else "no"
    arguments = line_arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, save_strategy=strategy)
    held_out = dict.fromkeys(("seen", "unseen", "long", "short"), ROWS)
    losses = {f"eval_{name}_loss" for name in held_out}
    assert trained(arguments, monkeypatch, held_out=held_out) == [(1, losses, saves), (2, losses, saves)]


class Own(Trainer):
    """A Trainer whose optimizer does not have the learning rate of its arguments, and one rate as a tensor."""

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            trained: Any = self.model
            rate = 100 * self.args.learning_rate
            groups: list[dict[str, Any]] = [
                {"params": [trained.layer.weight]},
                {"params": [trained.layer.bias], "lr": torch.tensor(rate / self.args.num_train_epochs)},
            ]
            self.optimizer = torch.optim.AdamW(groups, lr=rate)
        assert self.optimizer is not None
        return self.optimizer


NEVER_BETTER: dict[str, Any] = {
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "lr_scheduler_kwargs": {"patience": 0, "threshold": 1.0},
    "eval_strategy": "steps",
    "eval_steps": 1,
}
"""Arguments with which each evaluation lowers the learning rate to a tenth."""


@pytest.mark.parametrize(
    ("of", "before", "now", "expected"),
    [
        pytest.param(
            Own,
            {"num_train_epochs": 1},
            {},
            {"lr": [0.0025] * 2, "weight_decay": [0.01] * 2},
            id="of its own, as before",
        ),
        pytest.param(
            Own, {"num_train_epochs": 4}, {"learning_rate": 2e-4}, {"lr": [0.005, 0.00125]}, id="several rates"
        ),
        pytest.param(
            Trainer,
            {"weight_decay": 0.0},
            {"learning_rate": 2e-4, "weight_decay": 0.1},
            {"lr": [5e-5] * 2, "weight_decay": [0.1, 0.0]},
            id="of the arguments, from zero",
        ),
        pytest.param(
            Trainer,
            {"lr_scheduler_type": "constant"},
            {"learning_rate": 2e-4},
            {"lr": [2e-4] * 2},
            marks=pytest.mark.slow,
            id="constant",
        ),
        pytest.param(Trainer, NEVER_BETTER, {"learning_rate": 2e-4}, {"lr": [2e-7] * 2}, id="lowered at each step"),
    ],
)
def test_a_trainer_that_continues_has_the_values_that_its_optimizer_is_created_with(
    of: type[Trainer], before: dict[str, Any], now: dict[str, Any], expected: dict[str, list[float]], tmp_path: Path
) -> None:
    from sweeps_train.frameworks import huggingface

    def groups(steps: int, saved: str | None = None, **values: Any) -> list[dict[str, Any]]:
        arguments = line_arguments(tmp_path, max_steps=steps, save_steps=2, **{"learning_rate": 1e-4, **values})
        trainer = of(Line(), arguments, train_dataset=ROWS, eval_dataset=ROWS)
        trainer.add_callback(huggingface.ChangedValues(trainer))
        trainer.add_callback(Stops(3))
        if saved is None:
            trainer.train()
        else:
            huggingface.resume(trainer, saved)
        assert trainer.optimizer is not None
        return trainer.optimizer.param_groups

    groups(2, **before)
    resumed = groups(4, str(tmp_path / "checkpoint-2"), **before | now)  # whose schedule has a quarter of its rate left
    assert {name: [float(group[name]) for group in resumed] for name in expected} == {
        name: pytest.approx(values) for name, values in expected.items()
    }


def no_trainer(config: dict[str, Any]) -> Path:
    return Path()


def trained_trainer(config: dict[str, Any]) -> Trainer:
    trainer = Trainer(Line(), line_arguments(Path("unused")), train_dataset=ROWS)
    trainer.state.global_step = 3
    return trainer


def takes_none() -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("no_trainer", r"returned a \w+Path; task.framework=huggingface needs an untrained transformers.Trainer"),
        ("trained_trainer", "returned a Trainer that it has trained; Sweeps calls `train`: remove"),
        ("takes_none", "takes no arguments; give it one, `config`"),
    ],
)
def test_an_object_that_is_no_trainer_is_refused(function: str, words: str) -> None:
    task = FunctionTask(kind="function", framework="huggingface", _target_=f"{__name__}.{function}")
    with pytest.raises(ValueError, match=words):
        bind_function(task)()


@pytest.mark.parametrize(
    ("options", "last"),
    [
        ({"save_strategy": "best"}, 3),
        # The learning rate is 0, so that no evaluation is better than the first one.
        ({"save_strategy": "steps", "load_best_model_at_end": True, "learning_rate": 0.0}, 2),
    ],
)
def test_the_trial_keeps_the_best_checkpoint_of_a_trainer_that_would_do_so_itself_and_may_stop_early(
    options: dict[str, Any], last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import EarlyStoppingCallback

    best = {"metric_for_best_model": "loss", **options}
    arguments = line_arguments(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1, **best)
    reports = trained(arguments, monkeypatch, EarlyStoppingCallback(1))
    assert reports == [(step, {"eval_loss"}, True) for step in range(1, last + 1)]


def test_a_resumed_trainer_has_the_optimizer_and_the_patience_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import EarlyStoppingCallback

    def reports(**options: Any) -> list[Report]:
        # The learning rate is 0, so that no evaluation is better than the first one.
        rare: dict[str, Any] = {"metric_for_best_model": "loss", "learning_rate": 0.0, "save_only_model": True}
        arguments = line_arguments(tmp_path, max_steps=9, eval_strategy="steps", eval_steps=1, **rare)
        return trained(arguments, monkeypatch, EarlyStoppingCallback(3), **options)

    whole = reports(keep=tmp_path / "second")
    assert whole == [(step, {"eval_loss"}, True) for step in (1, 2, 3, 4)]
    assert reports(resume=tmp_path / "second") == whole[2:]


class Counts(TrainerCallback, ExportableState):
    """Counts by some number, in its state, into a list that is not in its state."""

    def __init__(self, by: int, counted: list[int]) -> None:
        self.by, self.counted, self.count = by, counted, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.count += self.by
        self.counted.append(self.count)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"count": self.count}}


class Other(Counts):
    """Another such callback."""


def test_the_users_callbacks_continue_with_their_states_and_with_what_the_user_has_given_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*, is_first: bool) -> list[list[int]]:
        arguments = line_arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1)
        lists: list[list[int]] = [[], [], []]
        callbacks = [Counts(1, lists[0]), Counts(10, lists[1]), Other(100, lists[2])]
        if is_first:
            trained(arguments, monkeypatch, *callbacks[:2], keep=tmp_path / "second")
        else:
            trained(arguments, monkeypatch, *callbacks, resume=tmp_path / "second")
        return lists

    assert counted(is_first=True) == [[1, 2, 3, 4], [10, 20, 30, 40], []]
    assert counted(is_first=False) == [[3, 4], [30, 40], [100, 200]]


class Noted(list[Any]):
    """Rows that note which of them are read."""

    def __init__(self, notes: list[int]) -> None:
        super().__init__({**ROWS[0], "input_ids": [0] * (number % 3)} for number in range(8))
        self.notes = notes

    def __getitem__(self, number: Any) -> Any:
        self.notes.append(number)
        return super().__getitem__(number)


@pytest.mark.parametrize(
    "sampled",
    [
        {"train_sampling_strategy": "group_by_length"},
        {"accelerator_config": {"use_seedable_sampler": False}},
    ],
)
def test_a_resumed_trainer_reads_the_rows_that_the_epoch_has_not_had(
    sampled: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_rows(every: int, **options: Any) -> list[int]:
        notes: list[int] = []
        when: dict[str, Any] = {"max_steps": 8, "eval_strategy": "steps", "eval_steps": every, "save_steps": every}
        arguments = line_arguments(tmp_path, per_device_train_batch_size=2, **when, **sampled)
        trained(arguments, monkeypatch, rows=Noted(notes), held_out=Noted([]), **options)
        return notes[-4:]

    whole = last_rows(3, keep=tmp_path / "amid the second epoch")
    assert last_rows(3, resume=tmp_path / "amid the second epoch") == whole
    last_rows(2, keep=tmp_path / "at the end of the first")
    state = tmp_path / "at the end of the first" / "trainer_state.json"
    state.write_text(state.read_text().replace('_steps": 2', '_steps": 1'))  # to pause amid the second
    last_rows(1, resume=tmp_path / "at the end of the first", keep=tmp_path / "then amid the second")
    assert last_rows(3, resume=tmp_path / "then amid the second") == last_rows(2)


def test_a_resumed_trainer_is_not_evaluated_again_before_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reports(**options: Any) -> list[Report]:
        often: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}
        return trained(line_arguments(tmp_path, max_steps=3, **often), monkeypatch, **options)

    whole = reports(keep=tmp_path / "second")
    assert [step for step, *_ in whole] == [0, 1, 2, 3]
    assert reports(resume=tmp_path / "second") == whole[2:]


@pytest.mark.parametrize(
    ("length", "now", "further"),
    [
        ({"max_steps": 2}, {}, []),
        ({"num_train_epochs": 0.5}, {}, []),
        ({"max_steps": 9}, {}, []),  # of which it ends itself after two
        ({"max_steps": 2}, {"max_steps": 3}, [1]),  # as an extended sweep
    ],
)
def test_a_trainer_that_resumes_at_its_last_step_trains_no_further_unless_it_has_more_steps_now(
    length: dict[str, Any], now: dict[str, Any], further: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arguments(**now: Any) -> TrainingArguments:
        half: dict[str, Any] = {"per_device_train_batch_size": 2, **length, **now}  # of an epoch
        return line_arguments(tmp_path, eval_strategy="steps", eval_steps=1, **half)

    counted: list[int] = []
    trained(arguments(), monkeypatch, Stops(2), keep=tmp_path / "second")
    trained(arguments(**now), monkeypatch, Counts(1, counted), resume=tmp_path / "second")
    assert counted == further


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}, None),
        ({"save_strategy": "no"}, "eval_strategy=no: without an evaluation the trial fails .* set eval_strategy="),
        (
            {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "epoch"},
            "the checkpoint of step 2 is not kept, .*: eval_strategy=steps eval_steps=2 and save_strategy=epoch .*;",
        ),
        (
            {"eval_strategy": "epoch", "save_steps": 3},
            "the checkpoint of step 3 is not kept, .*: eval_strategy=epoch .* save_strategy=steps save_steps=3; set",
        ),
    ],
)
def test_a_checkpoint_without_an_evaluation_is_not_kept_which_is_told_once_as_is_a_training_without_one(
    options: dict[str, Any], told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    twice: dict[str, Any] = {"num_train_epochs": 2, "per_device_train_batch_size": 4}
    reports = trained(line_arguments(tmp_path, **twice, **options), monkeypatch, note=notes.append)
    assert [step for step, *_ in reports] == ([2, 4] if "eval_strategy" in options else [])
    assert [bool(re.match(told or "", each)) for each in notes] == ([] if told is None else [True])


def test_a_checkpoint_that_is_saved_just_before_its_evaluation_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Trainer saves the last step of an epoch as a step, before the evaluation at the end of this epoch."""
    epochs: dict[str, Any] = {"num_train_epochs": 3, "eval_strategy": "epoch", "per_device_train_batch_size": 4}
    reports = trained(line_arguments(tmp_path, save_steps=3, **epochs), monkeypatch)
    assert reports == [(step, {"eval_loss"}, step == 6) for step in (2, 4, 6)]


class EvaluatesOnTraining(TrainerCallback):
    """Evaluates a Trainer on its training data after each epoch."""

    trainer: Trainer

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        planned = copy.deepcopy(control)
        self.trainer.evaluate(ROWS, metric_key_prefix="train")
        return planned  # `evaluate` has changed the other


def test_an_evaluation_of_the_users_own_is_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs: dict[str, Any] = {"num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "no"}
    reports = trained(line_arguments(tmp_path, **epochs), monkeypatch, EvaluatesOnTraining())
    assert reports == [(1, {"eval_loss"}, False), (2, {"eval_loss"}, False)]
