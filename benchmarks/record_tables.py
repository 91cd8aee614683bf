"""Records tables of real learning curves: small networks on scikit-learn's data and on the standard library's texts.

    python benchmarks/record_tables.py --to /tmp/tables    # six tables of 1,000 configurations; 15 minutes on one core
    python benchmarks/search_quality.py --table /tmp/tables/digits.parquet

Networks of the same shape train together, as batches of matrix products; each has its own values, its own order of the
data and its own initialisation. A table has a row for each configuration and evaluation: ``config_id``, a column for
each searched path (empty where the condition of a parameter does not hold), ``step``, ``elapsed_s`` (the group's CPU
seconds so far, divided by its number of networks), ``eval/loss`` and ``eval/accuracy``. The space is in the file's
metadata.

``eval/loss`` is at most three times that of a constant prediction, also where a training has diverged: a larger loss
says nothing more, and would decide every average.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import math
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from curve_files import TUNING, write_curves

from sweeps.config.space import Distribution
from sweeps.space.space import Space
from sweeps.space.suggester import RandomDraws

EVALUATIONS = 27
"""Three halvings by three between the first evaluation and the end."""
CAP = 3.0
"""Largest loss, in losses of a constant prediction."""
WIDTHS, BATCHES = [8, 32, 96], [8, 32, 96]
SPACE: dict[str, dict[str, Any]] = {
    "train.optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
    "train.lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "train.momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"train.optimizer": "sgd"}},
    "train.weight_decay": {"type": "float", "low": 1e-5, "high": 0.3, "log": True},
    "train.schedule": {"type": "categorical", "choices": ["constant", "cosine"]},
    "train.warmup": {"type": "float", "low": 0.0, "high": 0.5},
    "train.global_batch_size": {"type": "ordinal", "choices": BATCHES},
    "model.width": {"type": "ordinal", "choices": WIDTHS},
    "model.dropout": {"type": "float", "low": 0.0, "high": 0.8},
    "model.init_scale": {"type": "float", "low": 0.1, "high": 3.0, "log": True},
}


@dataclass(frozen=True)
class Data:
    """A data set; inputs are standardised or one-hot."""

    inputs: torch.Tensor
    targets: torch.Tensor
    """Classes, or standardised numbers."""
    eval_inputs: torch.Tensor
    eval_targets: torch.Tensor
    classes: int
    """0: regression."""

    @property
    def constant_loss(self) -> float:
        """Loss of the best constant prediction."""
        if not self.classes:
            return float(((self.eval_targets - self.targets.mean()) ** 2).mean())
        shares = torch.bincount(self.targets, minlength=self.classes).double() / len(self.targets)
        return float(-shares.clamp_min(1e-6).log()[self.eval_targets].mean())


# --- data ------------------------------------------------------------------------------------------------------


def split(inputs: np.ndarray, targets: np.ndarray, classes: int, noise: float = 0.0) -> Data:
    """A data set with two thirds for training; ``noise`` is the share of the training classes that are drawn anew."""
    random = np.random.default_rng(0)
    order = random.permutation(len(inputs))
    train, rest = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
    mean, spread = inputs[train].mean(axis=0), inputs[train].std(axis=0) + 1e-6
    scaled = torch.tensor((inputs - mean) / spread, dtype=torch.float32)
    if not classes:
        targets = (targets - targets[train].mean()) / targets[train].std()
    known = torch.tensor(targets, dtype=torch.long if classes else torch.float32)
    of_training = known[train].clone()
    changed = torch.tensor(random.random(len(train)) < noise)
    of_training[changed] = torch.tensor(random.integers(0, max(classes, 1), int(changed.sum()))).to(known.dtype)
    return Data(scaled[train], of_training, scaled[rest], known[rest], classes)


def bundled(name: str, classes: int, noise: float = 0.0) -> Callable[[], Data]:
    """One of scikit-learn's own data sets."""

    def load() -> Data:
        from sklearn import datasets

        inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
        return split(inputs, targets, classes, noise)

    return load


MODULES = ["argparse", "ast", "asyncio.tasks", "csv", "datetime", "decimal", "doctest", "email.message", "http.client",
           "inspect", "json.decoder", "logging", "pathlib", "random", "statistics", "tarfile", "threading", "typing",
           "unittest.case", "zipfile"]  # fmt: skip


def source(module: str) -> str:
    """Source text of a module of the standard library."""
    name = {"datetime": "_pydatetime", "decimal": "_pydecimal"}.get(module, module)
    folder = Path(sysconfig.get_path("stdlib"))
    for each in (name, module):
        path = folder / Path(*each.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text(encoding="utf-8")
    raise SystemExit(f"the standard library has no source of {module}")


def characters() -> Data:
    """The next character of the modules' docstrings, from the six before it."""
    texts = [
        ast.get_docstring(node) or ""
        for module in MODULES
        for node in ast.walk(ast.parse(source(module)))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    text, alphabet, window = "\n".join(texts).lower(), " abcdefghijklmnopqrstuvwxyz.,'()_\n", 6
    codes = np.array([alphabet.find(character) + 1 for character in text])
    random = np.random.default_rng(0)
    starts = random.choice(len(codes) - window - 1, 9000, replace=False)
    windows = codes[starts[:, None] + np.arange(window)]
    inputs = np.eye(len(alphabet) + 1, dtype=np.float32)[windows].reshape(len(starts), -1)
    data = split(inputs, codes[starts + window], len(alphabet) + 1)
    return Data(data.inputs, data.targets, data.eval_inputs[:1000], data.eval_targets[:1000], data.classes)


def modules() -> Data:
    """The module that a line of source comes from, by its hashed groups of three characters."""
    import zlib

    inputs, targets, size = [], [], 192
    for target, module in enumerate(MODULES):
        for line in [each.strip() for each in source(module).splitlines() if len(each.strip()) > 20][:350]:
            vector = np.zeros(size, dtype=np.float32)
            for start in range(len(line) - 2):
                vector[zlib.crc32(line[start : start + 3].encode()) % size] += 1
            inputs.append(np.sqrt(vector))
            targets.append(target)
    data = split(np.array(inputs), np.array(targets), len(MODULES))
    return Data(data.inputs, data.targets, data.eval_inputs[:1000], data.eval_targets[:1000], data.classes)


@dataclass(frozen=True)
class Task:
    """A training to record."""

    data: Callable[[], Data]
    steps: int
    """Optimizer steps of a whole training."""


TASKS = {
    "digits": Task(bundled("digits", 10), 324),
    "characters": Task(characters, 540),
    "noisy_digits": Task(bundled("digits", 10, noise=0.3), 1080),
    "breast_cancer": Task(bundled("breast_cancer", 2, noise=0.1), 324),
    "diabetes": Task(bundled("diabetes", 0), 540),
    "modules": Task(modules, 540),
}
assert TASKS.keys() >= TUNING


# --- training --------------------------------------------------------------------------------------------------


def column(points: list[dict[str, Any]], path: str, default: float = 0.0) -> torch.Tensor:
    """A value of each network, for parameters of three dimensions."""
    return torch.tensor([point.get(path, default) for point in points], dtype=torch.float32)[:, None, None]


class Networks:
    """Networks with two hidden layers of one width, each with its own optimizer."""

    def __init__(self, data: Data, points: list[dict[str, Any]], steps: int, seed: int):
        self.points, self.steps, self._data = points, steps, data
        width, count = int(points[0]["model.width"]), len(points)
        self.batch = min(int(points[0]["train.global_batch_size"]), len(data.inputs))
        self._random = torch.Generator().manual_seed(seed)
        scale = column(points, "model.init_scale")
        sizes = [data.inputs.shape[1], width, width, max(data.classes, 1)]
        self.parameters: list[torch.Tensor] = []
        for before, after in itertools.pairwise(sizes):
            weights = torch.randn(count, before, after, generator=self._random) * scale / math.sqrt(before)
            self.parameters += [weights.requires_grad_(), torch.zeros(count, 1, after, requires_grad=True)]
        self._moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in self.parameters]
        self._dropout = column(points, "model.dropout")
        self._lr, self._momentum = column(points, "train.lr"), column(points, "train.momentum")
        self._decay, self._warmup = column(points, "train.weight_decay"), column(points, "train.warmup")
        self._is_sgd = torch.tensor([point["train.optimizer"] == "sgd" for point in points])[:, None, None]
        self._is_cosine = torch.tensor([point["train.schedule"] == "cosine" for point in points])[:, None, None]

    def _outputs(self, inputs: torch.Tensor, *, training: bool) -> torch.Tensor:
        values = inputs
        for index in range(0, len(self.parameters), 2):
            values = values @ self.parameters[index] + self.parameters[index + 1]
            if index + 2 < len(self.parameters):
                values = values.relu()
                if training:
                    kept = torch.rand(values.shape, generator=self._random) >= self._dropout
                    values = values * kept / (1 - self._dropout)
        return values

    def _losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of each network."""
        if not self._data.classes:
            return ((outputs[..., 0] - targets) ** 2).mean(dim=1)
        logits = outputs.log_softmax(dim=2)
        return -logits.gather(2, targets[..., None])[..., 0].mean(dim=1)

    def step(self, index: int) -> None:
        """One optimizer step of each network."""
        chosen = torch.randint(len(self._data.inputs), (len(self.points), self.batch), generator=self._random)
        outputs = self._outputs(self._data.inputs[chosen], training=True)
        gradients = torch.autograd.grad(self._losses(outputs, self._data.targets[chosen]).sum(), self.parameters)
        lr = self._lr * self._schedule(index / self.steps)
        with torch.no_grad():
            for parameter, gradient, moments in zip(self.parameters, gradients, self._moments, strict=True):
                self._update(parameter, gradient, *moments, lr, index)

    def _schedule(self, progress: float) -> torch.Tensor:
        """Factor of the learning rate."""
        after = ((progress - self._warmup) / (1 - self._warmup)).clamp(0, 1)
        falling = torch.where(self._is_cosine, 0.5 * (1 + torch.cos(math.pi * after)), torch.ones_like(after))
        return torch.where(self._warmup > progress, (progress + 1e-3) / (self._warmup + 1e-3), falling)

    def _update(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
        lr: torch.Tensor,
        index: int,
    ) -> None:
        """SGD with momentum and AdamW, each where it was chosen; weight decay is decoupled in both."""
        keep = torch.where(self._is_sgd, self._momentum, torch.full_like(lr, 0.9))
        first.mul_(keep).add_(torch.where(self._is_sgd, gradient, 0.1 * gradient))
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        adam = first / (1 - 0.9 ** (index + 1)) / ((second / (1 - 0.999 ** (index + 1))).sqrt() + 1e-8)
        parameter.mul_(1 - lr * self._decay).sub_(lr * torch.where(self._is_sgd, first, adam))

    @torch.no_grad()
    def evaluate(self) -> tuple[np.ndarray, np.ndarray]:
        """Loss and accuracy of each network (a regression has the share of explained variance)."""
        count, constant = len(self.points), self._data.constant_loss
        outputs = self._outputs(self._data.eval_inputs.expand(count, -1, -1), training=False)
        targets = self._data.eval_targets.expand(count, -1)
        losses = self._losses(outputs, targets)
        right = (
            (outputs.argmax(dim=2) == targets).float().mean(dim=1)
            if self._data.classes
            else 1 - losses / self._data.eval_targets.var()
        )
        bounded = torch.nan_to_num(losses, nan=CAP * constant, posinf=CAP * constant).clamp(max=CAP * constant)
        return bounded.numpy(), torch.nan_to_num(right, nan=-1.0).clamp(min=-1.0).numpy()


def sample(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Random points."""
    draws = RandomDraws(seed)
    return [space.sample(draws, lambda path: None) for _ in range(count)]


def record(task: Task, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a table."""
    torch.set_num_threads(1)  # on small matrices more threads only wait for each other
    data, rows = task.data(), []
    points = list(enumerate(sample(Space(distributions()), count, seed)))
    for width in WIDTHS:
        for batch in BATCHES:
            group = [
                (number, point)
                for number, point in points
                if (point["model.width"], point["train.global_batch_size"]) == (width, batch)
            ]
            if group:
                rows += record_group(data, task.steps, group, seed * 100 + width + batch)
    return rows


def record_group(data: Data, steps: int, group: list[tuple[int, dict[str, Any]]], seed: int) -> list[dict[str, Any]]:
    """Rows of networks of one shape, which train together."""
    networks, rows, elapsed = Networks(data, [point for _, point in group], steps, seed), [], 0.0
    for index in range(steps):
        began = time.process_time()
        networks.step(index)
        elapsed += (time.process_time() - began) / len(group)
        if (index + 1) % (steps // EVALUATIONS) == 0:
            losses, accuracies = networks.evaluate()
            rows += [
                {
                    "config_id": number,
                    **dict.fromkeys(SPACE),
                    **point,
                    "step": index + 1,
                    "elapsed_s": float(f"{elapsed:.4g}"),
                    "eval/loss": float(f"{loss:.4g}"),
                    "eval/accuracy": float(f"{accuracy:.4g}"),
                }
                for (number, point), loss, accuracy in zip(group, losses, accuracies, strict=True)
            ]
    return rows


def distributions() -> dict[str, Distribution]:
    """The searched parameters."""
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, Distribution]).validate_python(SPACE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--configurations", type=int, default=1000)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        began = time.monotonic()
        path = options.to / f"{name}.parquet"
        write_curves(path, record(TASKS[name], options.configurations), SPACE)
        purpose = "tuning" if name in TUNING else "reporting"
        print(f"{path} ({purpose}): {path.stat().st_size / 1024:.0f} KiB, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
