"""Checks that the trials of a sweep can share their workers, if ``scaling.trials_per_group`` is set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from sweeps.compose import Composition
from sweeps.compose.dotted import MISSING, find
from sweeps.config import SWEEP_CONFIG, SweepConfig
from sweeps.errors import ConfigError
from sweeps.space.space import Lookup, Space
from sweeps.storage.location import is_remote
from sweeps.texts.wording import value_text
from sweeps.validate.argument_checks import configs_of_trials
from sweeps_train.config import TrainingConfig
from sweeps_train.config.sharing import forbids_sharing

FIXES = {
    "task.kind": "only task=causal_lm can",
    "model.lora": "train adapters with model.lora.r",
    "model.lora.use_dora": "use false",
    "model.lora.modules_to_save": "remove it",
    "model.quantization": "use none",
    "model.trust_remote_code": "use false",
    "model.gradient_checkpointing": "use false, or model.lora.dropout=0",
    "strategy.kind": "use strategy=ddp or strategy=fsdp",
    "strategy.compression": "use none",
    "strategy.activation_checkpointing": "use false, or model.lora.dropout=0",
    "strategy.cpu_offload": "use false",
    "train.precision": "use bf16, fp32 or auto",
    "train.compile": "use false",
    "train.corruption_check_every": "remove it",
    "train.max_communication_share": "remove it",
}
"""Fixes, by the key whose value forbids even a single training to share its workers."""


def check_lanes(config: SweepConfig) -> None:
    """Check that trials of this config can share their workers, if they should.

    Raises:
        ConfigError: They cannot.
    """
    number = config.scaling.trials_per_group
    if number != 1 and (reason := why_alone(config)) is not None:
        raise ConfigError(f"scaling.trials_per_group={number}: {reason}, or use scaling.trials_per_group=1")


def why_alone(config: SweepConfig) -> str | None:
    """Return the reason why trials of this config cannot share their workers, with a fix; None if they can."""
    scheduler = f"search.scheduler.kind={config.search.scheduler.kind}"
    excluded = {
        "workers outlive trials; use scaling.isolation=warm": not config.warm,
        "the number of workers cannot change; give scaling.num_workers one number": config.scaling.is_elastic,
        "it cannot be combined with scaling.pools; remove the pools": bool(config.scaling.pools),
        f"{scheduler} copies trials that train on, and others would wait; use another": config.search.copies_trials,
        f"output_dir={config.output_dir} must be a folder that all nodes share": is_remote(config.output_dir),
    }
    if (reason := next((text for text, holds in excluded.items() if holds), None)) is not None:
        return reason
    training = config.training()
    key = forbids_sharing([training]) if isinstance(training, TrainingConfig) else "task.kind"
    if key is None:
        return None
    value = find(SWEEP_CONFIG.dump_python(config, mode="json", by_alias=True), key)
    shown = "" if value is MISSING or isinstance(value, dict) else f"={value_text(value)}"
    return f"{key}{shown} keeps trials from sharing their workers; {FIXES.get(key, 'use another value')}"


def lane_mistakes(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield one line for each reason why the trials of a space cannot share their workers, if they should."""
    number = composition.config.scaling.trials_per_group
    if number != 1:
        for reason in differences(composition, space, lookup):
            yield (
                f"{reason}, as they should with scaling.trials_per_group={number}; remove it from the space, or use "
                "scaling.trials_per_group=1"
            )


def differences(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield the searched values whose differences keep trials from sharing their workers."""
    cannot = "trials with different values cannot share their workers"
    for path in space:
        if path.partition(".")[0] == "scaling":
            yield f"space.{path}: {cannot}"
    own = composition.config.training()
    for point, config in configs_of_trials(composition, space, lookup, ("model", "data", "task", "strategy", "train")):
        training = config.training()
        if not (isinstance(own, TrainingConfig) and isinstance(training, TrainingConfig)):
            return  # which `check_lanes` says
        if (key := forbids_sharing([own, training])) is not None and forbids_sharing([own]) is None:
            yield f"space.{max(point, key=lambda each: _common(each, key))}: {cannot}"
            return


def _common(path: str, key: str) -> int:
    """Number of leading parts that a path and a key have in common."""
    both = zip(path.replace("/", ".").split("."), key.split("."), strict=False)
    return len([*takewhile(lambda parts: parts[0] == parts[1], both)])
