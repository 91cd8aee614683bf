"""Kinds of projects that ``init`` can write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweeps.errors import UnknownName
from sweeps.texts.suggestions import did_you_mean


@dataclass(frozen=True)
class Kind:
    """One kind of project: its templates, and advice for the user."""

    name: str
    """Value of ``--kind``, and name of its folder in ``templates/``."""
    title: str
    """One line for the prompt and the help."""
    module: str = "train.py"
    """The file for the user to edit."""
    short: Mapping[str, object] = field(default_factory=dict)
    """Overrides with which the project's own test trains one trial in seconds."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("function", "your own Ray Train function", short={"task.arguments.epochs": 1}),
        Kind("huggingface", "a Hugging Face Trainer", short={"task.arguments.max_steps": 10}),
        Kind("lightning", "a Lightning module", short={"task.arguments.epochs": 1}),
        Kind("script", "a script with options", short={"task.arguments.epochs": 1}),
        Kind(
            "image",
            "a torch model on images, signals or other tensors",
            short={"train.max_steps": 20, "train.eval_every": 10},
        ),
        Kind(
            "table",
            "a table: an estimator such as XGBoost's, or a torch model",
            module="make_table.py",
            short={"task.arguments.n_estimators": 20},
        ),
        Kind("text", "a torch model on texts", short={"train.max_steps": 20, "train.eval_every": 10}),
        Kind(
            "lora",
            "LoRA of a language model",
            module="make_examples.py",
            short={"train.max_steps": 4, "train.eval_every": 2},
        ),
        Kind("command", "any program, in any language", module="train.awk", short={"task.arguments.epochs": 3}),
    )
}


def find_kind(name: str) -> Kind:
    """Return a kind of project by its name.

    Raises:
        UnknownName: No kind of project has this name.
    """
    if name not in KINDS:
        raise UnknownName(f"--kind={name}: there is no such kind of project{did_you_mean(name, KINDS)}")
    return KINDS[name]
