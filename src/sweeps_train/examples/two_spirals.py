"""A standalone program without any dependency on Sweeps: a small neural network in plain Python learns to tell two
spirals apart.

    python -m sweeps_train.examples.two_spirals --config config.toml --output out [--resume out/epoch-10.json]

The config file has ``lr``, ``momentum``, ``hidden``, ``epochs``, ``batch_size`` and ``seed``. After each epoch it
prints loss and accuracy as text, and it saves a checkpoint every five epochs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tomllib
from pathlib import Path

POINTS = 194
SAVE_EVERY = 5

Point = tuple[tuple[float, float], float]
State = dict[str, list[list[float]]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    config = tomllib.loads(options.config.read_text(encoding="utf-8"))
    training, held_out = split(spirals(), config["seed"])
    state, epoch = initial(config["hidden"], config["seed"]), 0
    if options.resume is not None:
        saved = json.loads(options.resume.read_text(encoding="utf-8"))
        state, epoch = saved["state"], saved["epoch"]
    options.output.mkdir(parents=True, exist_ok=True)
    for now in range(epoch + 1, config["epochs"] + 1):
        random.Random(config["seed"] + now).shuffle(training)
        for start in range(0, len(training), config["batch_size"]):
            step(state, training[start : start + config["batch_size"]], config["lr"], config["momentum"])
        loss, accuracy = evaluate(state, held_out)
        print(f"[epoch {now}] loss={loss:.4f} accuracy={accuracy:.3f}", flush=True)  # noqa: T201 - a program
        if now % SAVE_EVERY == 0:
            checkpoint = options.output / f"epoch-{now}.json"
            checkpoint.write_text(json.dumps({"state": state, "epoch": now}), encoding="utf-8")


def spirals() -> list[Point]:
    """Return points of two spirals, with the spiral that each belongs to: 0 or 1."""
    points = []
    for index in range(POINTS):
        turn, side = index / POINTS * 2.5 * math.pi, index % 2
        radius = 0.1 + index / POINTS
        sign = 1 if side else -1
        points.append(((sign * radius * math.cos(turn), sign * radius * math.sin(turn)), float(side)))
    return points


def split(points: list[Point], seed: int) -> tuple[list[Point], list[Point]]:
    """Return three quarters of the points to train on, and the others to evaluate with."""
    random.Random(seed).shuffle(points)
    return points[len(points) // 4 :], points[: len(points) // 4]


def initial(hidden: int, seed: int) -> State:
    """Return random weights of a network with one hidden layer, and velocities of zero."""
    draw = random.Random(seed)
    first = [[draw.gauss(0, 2) for _ in range(3)] for _ in range(hidden)]
    last = [[draw.gauss(0, 1) / math.sqrt(hidden) for _ in range(hidden + 1)]]
    return {"first": first, "last": last, "dfirst": [[0.0] * 3 for _ in first], "dlast": [[0.0] * (hidden + 1)]}


def forward(state: State, point: tuple[float, float]) -> tuple[list[float], float]:
    """Return the hidden units and the probability of the second spiral."""
    hidden = [math.tanh(a * point[0] + b * point[1] + c) for a, b, c in state["first"]]
    total = sum(weight * unit for weight, unit in zip(state["last"][0], [*hidden, 1.0], strict=True))
    return hidden, 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def step(state: State, batch: list[Point], lr: float, momentum: float) -> None:
    """Take a step of gradient descent with momentum."""
    first = [[0.0] * 3 for _ in state["first"]]
    last = [0.0] * len(state["last"][0])
    for point, side in batch:
        hidden, probability = forward(state, point)
        error = (probability - side) / len(batch)
        for index, unit in enumerate([*hidden, 1.0]):
            last[index] += error * unit
        for index, unit in enumerate(hidden):
            slope = error * state["last"][0][index] * (1 - unit * unit)
            for position, value in enumerate((*point, 1.0)):
                first[index][position] += slope * value
    for name, gradients in (("first", first), ("last", [last])):
        for weights, velocities, slopes in zip(state[name], state[f"d{name}"], gradients, strict=True):
            for index, slope in enumerate(slopes):
                velocities[index] = momentum * velocities[index] - lr * slope
                weights[index] += velocities[index]


def evaluate(state: State, points: list[Point]) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy."""
    loss, right = 0.0, 0
    for point, side in points:
        _, probability = forward(state, point)
        likely = probability if side else 1 - probability
        loss -= math.log(max(likely, 1e-12))
        right += likely > 0.5
    return loss / len(points), right / len(points)


if __name__ == "__main__":
    main()
