"""A Hugging Face ``Trainer`` as a Ray Train function, which reports evaluations and resumes from its checkpoints."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray.train
import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy, SaveStrategy

from sweeps_train.frameworks.optimizer_values import Values, apply_changes, configured_values
from sweeps_train.frameworks.step_log import log_step, note, searched_metrics
from sweeps_train.steps.random_state import random_state, set_random_state
from sweeps_train.workers.distributed import Workers

SAVED_BEFORE = "saved"
"""Beginning of the names of folders with checkpoints that no evaluation has followed yet."""


def train_function(target: str, make: Callable[[dict[str, Any]], Trainer]) -> Callable[[dict[str, Any]], None]:
    """Return a Ray Train function that trains the ``Trainer`` that a user's function makes from ``task.arguments``.
    Messages name that function by its import path.

    Raises:
        ValueError: From the returned function: the ``Trainer`` is set up in a way that cannot work in a trial.
    """

    def train(config: dict[str, Any]) -> None:
        workers = Workers.current()
        if workers.device.type == "cpu":
            # Otherwise every worker would train alone on its CPU, without an error.
            os.environ["ACCELERATE_USE_CPU"] = "true"
        trainer = make(config)
        if not isinstance(trainer, Trainer):
            raise ValueError(  # noqa: TRY004 - a mistake in the config
                f"task._target_={target} returned a {type(trainer).__name__}; "
                "task.framework=huggingface needs an untrained transformers.Trainer"
            )
        if trainer.state.global_step > 0:
            raise ValueError(
                f"task._target_={target} returned a Trainer that it has trained; Sweeps calls `train`: remove that call"
            )
        if trainer.args.world_size != workers.size:
            raise ValueError(
                f"task._target_={target}: its Trainer sees {trainer.args.world_size} of {workers.size} workers; "
                "make its TrainingArguments within the function, and leave devices and process groups to the Trainer"
            )
        keep_checkpoints_by_the_trial(trainer)
        # A folder for each worker: all trials would share the one in the user's code.
        with tempfile.TemporaryDirectory() as folder:
            trainer.args.output_dir = folder
            trainer.add_callback(EpochOrder())
            trainer.add_callback(ReportCallback(trainer))
            trainer.add_callback(ChangedValues(trainer))
            checkpoint = ray.train.get_checkpoint()
            if checkpoint is None:
                trainer.train()
            else:
                with checkpoint.as_directory() as saved:
                    resume(trainer, saved)

    return train


def keep_checkpoints_by_the_trial(trainer: Trainer) -> None:
    """Let the trial, instead of the ``Trainer``, keep the best checkpoint and continue from one: each reported
    checkpoint is moved out of the ``Trainer``'s folder. A checkpoint must have all state: without the optimizer, the
    learning rate would start again with its warm-up.

    The trial keeps the checkpoint of its best report (``checkpoint.keep=[best, last]``), and the model that the
    ``Trainer`` loads at its end would not be used. With ``save_strategy=best`` a checkpoint would come only after its
    evaluation has been reported, so every evaluation saves one; all but the best and the last are removed.
    """
    args = trainer.args
    args.load_best_model_at_end = False
    if args.save_strategy == SaveStrategy.BEST:
        args.save_strategy, args.save_steps = SaveStrategy(args.eval_strategy), args.eval_steps or args.save_steps
    if not getattr(trainer, "is_distributed_loading_by_transformers", False):  # else it could not be saved
        args.save_only_model = False


def resume(trainer: Trainer, saved: str) -> None:
    """Continue a training from a checkpoint, without evaluating again; do nothing if all steps are done, or a callback
    has ended it early."""
    before = TrainerState.load_from_json(str(Path(saved) / TRAINER_STATE_NAME))
    control: Any = before.stateful_callbacks or {}
    # A Trainer would forget it. At the last step it is always set, and there may be more steps now.
    ended = control.get("TrainerControl", {}).get("args", {}).get("should_training_stop", False)
    if ended and before.global_step < before.max_steps:
        return
    trainer.args.eval_on_start = False
    trainer.args.restore_callback_states_from_checkpoint = False  # ``Resumption`` restores them
    callbacks = trainer.callback_handler.callbacks
    for each in callbacks:
        if isinstance(each, EpochOrder):
            each.load(trainer.args, Path(saved))
    callbacks.insert(0, Resumption(callbacks))
    with contextlib.suppress(AlreadyTrained):
        trainer.train(resume_from_checkpoint=saved)


def _saved_before(args: TrainingArguments, state: TrainerState) -> Path:
    """Return the folder of this step's checkpoint if it was saved before the evaluation."""
    return Path(str(args.output_dir)) / f"{SAVED_BEFORE}-{state.global_step}"


class ReportCallback(TrainerCallback):
    """Reports each evaluation, with the checkpoint of the same step if there is one.

    Ray's own callback (``ray.train.huggingface.transformers``) reports only with checkpoints, so that a scheduler would
    judge a trial with more frequent evaluations too late. The evaluations of several datasets are one report.
    """

    def __init__(self, trainer: Trainer) -> None:
        evaluated = trainer.eval_dataset
        self._num_datasets = len(evaluated) if isinstance(evaluated, dict) else 1
        self._num_evaluated = 0
        self._evaluated: dict[str, float] | None = None
        self._has_noted = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if args.eval_strategy == IntervalStrategy.NO:  # refused only at the end, since a callback may evaluate
            note("eval_strategy=no: without an evaluation the trial fails at its end; set eval_strategy=steps or epoch")

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        if not any(name.startswith("eval_") or name in searched_metrics() for name in metrics or {}):
            return  # of the user's own call of `evaluate`; it is logged, as any other metrics
        now = [entry for entry in state.log_history[-3:] if entry.get("step") == state.global_step]
        logged = {name: value for entry in now for name, value in entry.items()}
        self._evaluated = {**(self._evaluated or {}), **logged, **(metrics or {}), "step": state.global_step}
        self._num_evaluated += 1
        if not control.should_save and self._num_evaluated >= self._num_datasets:
            self._report(_saved_before(args, state))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        # At their own step, which evaluations need not share. Evaluations are also logged, but they are reported.
        if logs is not None and not any(name.startswith("eval_") for name in logs):
            log_step(state.global_step, logs)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # Each worker has written its part of the checkpoint into its own folder.
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        self._drop_unevaluated(args, state)
        if self._evaluated is not None:
            self._report(folder)
        elif folder.is_dir():
            # The evaluation of this step may follow, at the end of the epoch. The Trainer shall not find the folder.
            folder.rename(_saved_before(args, state))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._drop_unevaluated(args, state)

    def _drop_unevaluated(self, args: TrainingArguments, state: TrainerState) -> None:
        """Remove checkpoints that no evaluation has followed, and say so once."""
        for folder in Path(str(args.output_dir)).glob(f"{SAVED_BEFORE}-*"):
            shutil.rmtree(folder, ignore_errors=True)
            if self._has_noted:
                continue
            self._has_noted = True
            step = folder.name.removeprefix(f"{SAVED_BEFORE}-")
            evaluates, saves = IntervalStrategy(args.eval_strategy).value, SaveStrategy(args.save_strategy).value
            note(
                f"the checkpoint of step {step} is not kept, since no evaluation of this step has followed it: "
                f"eval_strategy={evaluates} eval_steps={state.eval_steps} and save_strategy={saves} "
                f"save_steps={state.save_steps}; set both strategies to the same, and save_steps to a multiple of "
                "eval_steps"
            )

    def _report(self, folder: Path) -> None:
        metrics, self._evaluated, self._num_evaluated = self._evaluated, None, 0
        ray.train.report(metrics or {}, checkpoint=ray.train.Checkpoint(str(folder)) if folder.is_dir() else None)
        shutil.rmtree(folder, ignore_errors=True)


class AlreadyTrained(Exception):
    """Raised before a training that was already complete would take a further step."""


class Resumption(TrainerCallback):
    """Callback that restores the states of the user's callbacks before any of them is called.

    A ``Trainer`` would make new callbacks from the states, without other arguments of the user's function, and would
    restore the oldest states if there are several callbacks of a class.
    """

    def __init__(self, callbacks: list[TrainerCallback]) -> None:
        self._callbacks = callbacks

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step >= state.max_steps:
            raise AlreadyTrained
        saved: Any = state.stateful_callbacks
        with_state = [each for each in self._callbacks if isinstance(each, ExportableState)]
        for name in {type(each).__name__ for each in with_state}:
            alike = [each for each in with_state if type(each).__name__ == name]
            states = saved.setdefault(name, [])  # the Trainer expects an entry for each when it saves
            # At each checkpoint, the Trainer appends the states of all callbacks of a class to one list.
            newest = states[-len(alike) :] if isinstance(states, list) else [states]
            for callback, its_state in zip(alike, newest, strict=False):
                for attribute, value in its_state.get("attributes", {}).items():
                    setattr(callback, attribute, value)


class EpochOrder(TrainerCallback):
    """Callback that lets a resumed ``Trainer`` read the rest of an epoch in the order in which the epoch had begun.

    A ``Trainer`` leaves out as many batches as the epoch has had. But samplers whose order does not follow from the
    number of the epoch, such as those by length, draw another order, so that some rows would come twice and others
    never.
    """

    def __init__(self) -> None:
        self._begin: dict[str, Any] | None = None
        """Random state at the beginning of the current epoch."""
        self._is_saved = False
        """Whether it was saved by an earlier run, for the epoch that comes next."""

    def load(self, args: TrainingArguments, saved: Path) -> None:
        """Load the state from a checkpoint of as many workers; those of earlier releases do not have it."""
        if (file := saved / self._name(args)).exists():
            self._begin, self._is_saved = torch.load(file, weights_only=True), True

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._is_saved and self._begin is not None:
            # After the batches that it leaves out, or at the beginning of an epoch, the Trainer restores its own.
            set_random_state(self._begin, args.device)
        self._begin, self._is_saved = random_state(args.device), False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if folder.is_dir():
            is_at_end = float(state.epoch or 0).is_integer()  # the next epoch begins here
            torch.save(random_state(args.device) if is_at_end else self._begin, folder / self._name(args))

    @staticmethod
    def _name(args: TrainingArguments) -> str:
        return f"rng_state_of_epoch_{args.process_index}_{args.world_size}.pth"


class ChangedValues(TrainerCallback, ExportableState):
    """Callback that gives a resumed ``Trainer``'s optimizer the values of this run, where they differ from those with
    which the checkpoint's optimizer was created. All others stay as they were trained: the rate that
    ``ReduceLROnPlateau`` has lowered, or the counts that a schedule-free optimizer keeps beside it."""

    def __init__(self, trainer: Trainer) -> None:
        self.before: Values | None = None
        """Values of the run that has saved the checkpoint, which ``Resumption`` sets."""
        self._now: Values | None = None
        create = trainer.create_scheduler

        def create_noting_values(*args: Any, **options: Any) -> Any:
            schedule = create(*args, **options)
            if trainer.optimizer is not None:
                self._now = configured_values(trainer.optimizer)  # not restored yet
            return schedule

        trainer.create_scheduler = create_noting_values  # type: ignore[method-assign] # no callback is called there

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"before": self._now}}

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        if state.global_step == 0 or self._now is None:
            return  # nothing was restored
        before = self.before or configured_values(optimizer)  # a checkpoint of an earlier release does not have them
        # Tuples have become lists in JSON.
        before = [{name: tuple(v) if isinstance(v, list) else v for name, v in group.items()} for group in before]
        schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)  # accelerate's wrapper has the one that it wraps
        apply_changes(optimizer, [schedule], before, self._now)
