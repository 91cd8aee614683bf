"""Elastic trials of users' own code: they change their number of workers at a checkpoint, and repeat no step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from running import NO_PREFLIGHT, Done, points, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

GLOBAL_BATCH, SAVES_EVERY, LR = 8, 5, 0.05
OURS = f"""
import tempfile
import time
from pathlib import Path

import ray.train
import torch
import torch.distributed


def data():
    x = torch.linspace(-1, 1, 2 * {GLOBAL_BATCH}).view({GLOBAL_BATCH}, 2) ** 2
    return x, x @ torch.tensor([1.0, -2.0])


def train(config):
    '''Gradient descent over all samples, of which each worker has a part.'''
    rank, size = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    first, weight = 1, torch.zeros(2)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt")
        first, weight = saved["step"] + 1, saved["weight"]
    x, y = (each[rank::size] for each in data())
    for step in range(first, config["steps"] + 1):
        time.sleep(config["seconds"])
        error = x @ weight - y
        loss, gradient = (error**2).sum(), x.T @ error
        torch.distributed.all_reduce(loss)
        torch.distributed.all_reduce(gradient)
        weight -= {LR} * gradient
        metrics = {{"loss": loss.item(), "workers": size, "step": step}}
        with tempfile.TemporaryDirectory() as folder:
            saves = rank == 0 and config["saves"] and step % {SAVES_EVERY} == 0
            if saves:
                torch.save({{"step": step, "weight": weight}}, Path(folder) / "state.pt")
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint(folder) if saves else None)
"""
TRAINER = """
import time
import torch
from sweeps_train.examples.huggingface_trainer import trainer as example
from transformers import TrainerCallback


class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        time.sleep(1.0)


def trainer(config):
    torch.set_num_threads(1)
    workers = torch.distributed.get_world_size()
    made = example({**config, "batch_size": 8 // workers})
    made.args.logging_steps = 1
    made.add_callback(Slow())
    return made
"""
ELASTIC = ("scaling.num_workers={min: 1, max: 2}", "cluster.num_cpus=2", "search=optuna", NO_PREFLIGHT)


def history(done: Done, trial: str, name: str) -> dict[int, float]:
    """Values of a metric by step; each step was recorded once."""
    found = done.history(done.trial(trial).info.run_id, name)
    assert len(dict(found)) == len(found)
    return dict(found)


def expected_losses(steps: int) -> list[float]:
    """Losses of the function's training with one worker from the begin to the end."""
    x = torch.linspace(-1, 1, 2 * GLOBAL_BATCH).view(GLOBAL_BATCH, 2) ** 2
    y, weight, losses = x @ torch.tensor([1.0, -2.0]), torch.zeros(2), []
    for _ in range(steps):
        error = x @ weight - y
        losses.append((error**2).sum().item())
        weight = weight - LR * (x.T @ error)
    return losses


@pytest.mark.parametrize("saves", [True, False])
def test_a_function_grows_at_its_checkpoint_when_the_other_trial_has_ended(tmp_path: Path, *, saves: bool) -> None:
    (tmp_path / "ours.py").write_text(OURS, encoding="utf-8")
    short, long = {"task.arguments.steps": 5}, {"task.arguments.steps": 93}
    done = run(
        tmp_path,
        *("conf=ray_train_function", "task._target_=ours.train", "task.metrics=[loss]", *ELASTIC),
        f"task.arguments={{steps: 5, seconds: 0.5, saves: {saves}}}",
        *("~space", "task.arguments.steps=choice(5, 93)", points(short, long), "search.num_trials=2"),
        *("search.default_first=false", "search.metric=loss", "search.mode=min"),
        within_s=1000,
    )
    print(done.err)
    assert done.document["counts"]["finished"] == 2
    assert [trial["attempts"] for trial in done.document["trials"]] == [1, 1], "a resize is no failure"
    grown = next(trial["trial"] for trial in done.document["trials"] if trial["params"] == long)
    losses, workers = history(done, grown, "loss"), history(done, grown, "workers")
    assert [*losses] == [*range(1, 94)]
    assert [*losses.values()] == pytest.approx(expected_losses(93), rel=1e-3, abs=1e-6)
    if not saves:
        assert set(workers.values()) == {1}, "without a checkpoint it would begin again"
        return
    assert set(workers.values()) == {1, 2}
    first = next(step for step, number in workers.items() if number == 2)
    assert (first - 1) % SAVES_EVERY == 0
    assert [workers[step] for step in range(first, 94)] == [2] * (94 - first)
    assert f"trial {grown} continues with 2 workers instead of 1" in done.err


def test_a_hugging_face_trainer_grows_at_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(TRAINER, encoding="utf-8")
    arguments = "{lr: 1e-3, weight_decay: 0.0, max_steps: 5}"
    configured = ("conf=huggingface_trainer", "task._target_=ours.trainer", f"task.arguments={arguments}", "~space")
    short, long = {"task.arguments.max_steps": 5}, {"task.arguments.max_steps": 60}
    done = run(
        tmp_path,
        *(*configured, "task.arguments.max_steps=choice(5, 60)", points(short, long), *ELASTIC),
        *("search.num_trials=2", "search.default_first=false"),
        within_s=1000,
    )
    print(done.err)
    assert [trial["attempts"] for trial in done.document["trials"]] == [1, 1]
    grown = next(trial["trial"] for trial in done.document["trials"] if trial["params"] == long)
    assert f"trial {grown} continues with 2 workers instead of 1" in done.err
    losses, learning_rates = history(done, grown, "loss"), history(done, grown, "learning_rate")
    assert [*losses] == [*range(1, 61)], "no step is left out or repeated"
    assert learning_rates[31] == pytest.approx(1e-3 * (60 - 30) / 60)
    assert [*history(done, grown, "eval_loss")] == [*range(5, 61, 5)]
