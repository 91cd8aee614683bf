"""One worker of one arm: ``python -m trained.arms ARM FOLDER``, in the environment that torchrun gives.

FOLDER has the ``training.json`` of our loop, which all arms follow. The loop by hand and ``Trainer`` get no more than
they need: both read the same tokens, or images, in batches of the same size, and record the mean loss every so many
steps.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler

from trained import gate

Item = dict[str, torch.Tensor]


def ours(folder: Path) -> None:
    """Train as ``torchrun -m sweeps_train`` does."""
    sys.argv = ["sweeps_train", str(folder / "training.json")]
    runpy.run_module("sweeps_train", run_name="__main__")


def plain(folder: Path) -> None:
    """Train with a loop written by hand for this model on these workers."""
    config = json.loads((folder / "training.json").read_text())
    train, world = config["train"], int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if world > 1:
        dist.init_process_group()
    torch.manual_seed(0)
    bare, data = _built(config)
    model: nn.Module = bare.to(device).train()
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=train["lr"], weight_decay=0.0, fused=True)
    steps = train["max_steps"]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    recent = torch.zeros((), device=device)
    for step, batch in enumerate(_endless(data, train["global_batch_size"] // world, world), start=1):
        on_device = {name: each.to(device, non_blocking=True) for name, each in batch.items()}
        optimizer.zero_grad(set_to_none=True)
        if "input_ids" in on_device:
            tokens = on_device["input_ids"]
            logits = model(input_ids=tokens, use_cache=False).logits
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        else:
            loss = functional.cross_entropy(model(on_device["inputs"]), on_device["labels"])
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        scheduler.step()
        recent += loss.detach()
        if step % train["log_every"] == 0:
            if world > 1:
                dist.all_reduce(recent)
            _print_loss(step, recent.item() / train["log_every"] / world)
            recent.zero_()


def huggingface(folder: Path) -> None:
    """Train with a ``transformers.Trainer`` with the same settings."""
    config = json.loads((folder / "training.json").read_text())
    train, world = config["train"], int(os.environ["WORLD_SIZE"])
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        os.environ["ACCELERATE_USE_CPU"] = "true"
    from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

    class PrintLoss(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                _print_loss(state.global_step, logs["loss"])

    torch.manual_seed(0)
    model, data = _built(config)
    settings = TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=train["max_steps"],
        per_device_train_batch_size=train["global_batch_size"] // world,
        learning_rate=train["lr"],
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        weight_decay=0.0,
        max_grad_norm=1.0,
        logging_steps=train["log_every"],
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        bf16=train.get("precision") == "bf16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and world > 1 else None,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
    )
    if config["task"]["kind"] != "causal_lm":
        model = _WithLoss(model)
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=data,
        data_collator=default_data_collator if config["task"]["kind"] == "causal_lm" else None,
        callbacks=[PrintLoss()],
    )
    assert trainer.args.world_size == world
    trainer.train()


ARMS: dict[str, Callable[[Path], None]] = {
    "ours": ours,
    "plain": plain,
    "huggingface": huggingface,
}


class _WithLoss(nn.Module):
    """A classifier in the form that ``Trainer`` expects."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.model(inputs)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class _Items(Dataset[Item]):
    def __init__(self, **columns: torch.Tensor):
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, index: int) -> Item:
        return {name: column[index] for name, column in self._columns.items()}


def _built(config: dict[str, Any]) -> tuple[nn.Module, Dataset[Item]]:
    """Model and training data of a config, built by the functions of our library."""
    from sweeps_train.config import TRAINING_CONFIG, CausalLM, TextData

    typed = TRAINING_CONFIG.validate_python(config)
    if isinstance(typed.model, CausalLM) and isinstance(typed.data, TextData):
        from sweeps_train.data.text import build_text_samples
        from sweeps_train.models.causal_lm import build_causal_lm, build_tokenizer
        from sweeps_train.steps.trained_types import hold_in_float32, short_types

        samples, _ = build_text_samples(typed.data, build_tokenizer(typed.model), None)
        tokens = samples.batch(range(len(samples) - 1))["input_ids"]  # the last one may be shorter
        model = build_causal_lm(typed.model)
        hold_in_float32(model, short_types(model))
        return model, _Items(input_ids=tokens, labels=tokens)
    from sweeps_train.tasks import build_task

    task = build_task(typed)
    return task.model, _Items(**task.train_samples.batch(range(len(task.train_samples))))


def _endless(data: Dataset[Item], batch_size: int, world: int) -> Iterator[Item]:
    sampler: Any = DistributedSampler(data) if world > 1 else RandomSampler(data)  # type: ignore[arg-type]
    loader = DataLoader(data, batch_size, sampler=sampler, drop_last=True, pin_memory=torch.cuda.is_available())
    epoch = 0
    while True:
        if world > 1:
            sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def _print_loss(step: int, loss: float) -> None:
    if os.environ["RANK"] == "0":
        print(json.dumps({"step": step, "train/loss": loss}), flush=True)


if __name__ == "__main__":
    gate.install()
    ARMS[sys.argv[1]](Path(sys.argv[2]))
