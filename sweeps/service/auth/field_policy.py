"""What each place of a config could reach beyond itself: code, files, addresses, other people's sweeps.

Every field of the schema that is not a number or one of a few words has its rule in ``RULES``; for one without, no
config passes (a test finds it first).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError


class Rule(Enum):
    """How a value is judged."""

    PLAIN = auto()
    """It reaches nothing."""
    TARGET = auto()
    """An import path: it runs."""
    FALSE = auto()
    """A switch that would let foreign code run."""
    SOURCE = auto()
    """A file, a folder, a glob, an address, or a name on the hub: it is read."""
    WORD = auto()
    """A word that a library knows; with a slash it would be fetched from the hub, and run."""
    ARGUMENTS = auto()
    """Anything, for a target: all that could be a path or an address in it is judged."""
    STORE = auto()
    """The tracking server."""
    CLUSTER = auto()
    """The Ray cluster."""
    FOLDER = auto()
    """Where sweeps are written."""
    CONSTRAINTS = auto()
    """Expressions over the config."""
    SWEEPS = auto()
    """Names of other sweeps."""
    POINTS = auto()
    """Values by dotted path."""
    SPACE = auto()
    """Distributions by dotted path."""


RULES: dict[str, Rule] = {
    "SweepConfig.name": Rule.PLAIN,
    "SweepConfig.space": Rule.SPACE,
    "SweepConfig.output_dir": Rule.FOLDER,
    "CausalLMTask.metrics": Rule.PLAIN,
    "ImageClassificationTask.metrics": Rule.PLAIN,
    "FunctionTask.target": Rule.TARGET,
    "FunctionTask.arguments": Rule.ARGUMENTS,
    "FunctionTask.metrics": Rule.PLAIN,
    "Lora.target_modules": Rule.PLAIN,
    "CausalLM.path": Rule.SOURCE,
    "CausalLM.revision": Rule.PLAIN,
    "CausalLM.tokenizer": Rule.SOURCE,
    "CausalLM.attention": Rule.WORD,
    "CausalLM.gradient_checkpointing": Rule.PLAIN,
    "CausalLM.trust_remote_code": Rule.FALSE,
    "CustomModel.target": Rule.TARGET,
    "CustomModel.arguments": Rule.ARGUMENTS,
    "TextData.path": Rule.SOURCE,
    "TextData.subset": Rule.PLAIN,
    "TextData.train_split": Rule.PLAIN,
    "TextData.eval_path": Rule.SOURCE,
    "TextData.eval_split": Rule.PLAIN,
    "TextData.text_field": Rule.PLAIN,
    "TextData.prompt_field": Rule.PLAIN,
    "TextData.completion_field": Rule.PLAIN,
    "TextData.messages_field": Rule.PLAIN,
    "TextData.packing": Rule.PLAIN,
    "TextData.isolate_documents": Rule.PLAIN,
    "TextData.lines_are_documents": Rule.PLAIN,
    "TextData.streaming": Rule.PLAIN,
    "CustomData.target": Rule.TARGET,
    "CustomData.arguments": Rule.ARGUMENTS,
    "Loader.pin_memory": Rule.PLAIN,
    "Train.compile": Rule.PLAIN,
    "FSDP.activation_checkpointing": Rule.PLAIN,
    "FSDP.cpu_offload": Rule.PLAIN,
    "FSDP.reshard_after_forward": Rule.PLAIN,
    "TensorParallel.activation_checkpointing": Rule.PLAIN,
    "TensorParallel.sequence_parallel": Rule.PLAIN,
    "FSDPTensorParallel.activation_checkpointing": Rule.PLAIN,
    "FSDPTensorParallel.cpu_offload": Rule.PLAIN,
    "FSDPTensorParallel.reshard_after_forward": Rule.PLAIN,
    "FSDPTensorParallel.sequence_parallel": Rule.PLAIN,
    "ContextParallel.activation_checkpointing": Rule.PLAIN,
    "ContextParallel.cpu_offload": Rule.PLAIN,
    "ContextParallel.reshard_after_forward": Rule.PLAIN,
    "Pipeline.activation_checkpointing": Rule.PLAIN,
    "Scaling.use_gpu": Rule.PLAIN,
    "Scaling.resources_per_worker": Rule.PLAIN,
    "Scaling.accelerator_type": Rule.PLAIN,
    "Scaling.labels": Rule.PLAIN,
    "Tracking.uri": Rule.STORE,
    "Tracking.experiment": Rule.PLAIN,
    "Tracking.report": Rule.PLAIN,
    "Cluster.address": Rule.CLUSTER,
    "CustomSampler.target": Rule.TARGET,
    "CustomSampler.arguments": Rule.ARGUMENTS,
    "PBTScheduler.mutate": Rule.PLAIN,
    "PB2Scheduler.mutate": Rule.PLAIN,
    "Search.metric": Rule.PLAIN,
    "Search.default_first": Rule.PLAIN,
    "Search.points": Rule.POINTS,
    "Search.warm_start": Rule.SWEEPS,
    "Search.duplicates": Rule.PLAIN,
    "Search.constraints": Rule.CONSTRAINTS,
    "Search.limits": Rule.PLAIN,
    "Search.avoid_failures": Rule.PLAIN,
}
"""By class and field of the schema."""


@dataclass(frozen=True)
class Place:
    """One value of a config, and what it could reach."""

    path: str
    rule: Rule
    value: Any


def places(config: Mapping[str, Any]) -> Iterator[Place]:
    """Every value of a config for which there is a rule. The config may be a part of one, and need not be valid: where
    the schema leaves a choice (which kind of model), a value is judged as it would be in each.

    Args:
        config: As nested mappings, with the keys of the YAML.
    """
    return _within(SweepConfig, config, "")


def at_path(path: str, value: Any) -> dict[str, Any]:
    """A config with nothing in it but a value at a dotted path."""
    first, _, rest = path.partition(".")
    return {first: at_path(rest, value) if rest else value}


def open_fields(annotation: Any = SweepConfig) -> set[str]:
    """Fields that need a rule, of a class of the schema and all that it is made of, as ``Class.field``."""
    found: set[str] = set()
    for section in _sections(annotation):
        for name, field in section.__pydantic_fields__.items():
            if _is_open(field.annotation):
                found.add(f"{section.__name__}.{name}")
            found |= open_fields(field.annotation)
    return found


def _within(annotation: Any, value: Any, path: str) -> Iterator[Place]:
    if not isinstance(value, Mapping):
        return  # the name of a group's option
    for section in _sections(annotation):
        for name, field in section.__pydantic_fields__.items():
            key = field.alias or name
            if key not in value:
                continue
            where = f"{path}.{key}" if path else key
            rule = RULES.get(f"{section.__name__}.{name}")
            if rule is not None:
                yield Place(where, rule, value[key])
            elif _is_open(field.annotation):
                raise ConfigError(
                    f"{where}: the service has no rule for {section.__name__}.{name}; this is our mistake"
                )
            else:
                yield from _within(field.annotation, value[key], where)


def _sections(annotation: Any) -> Iterator[Any]:
    """The classes of the schema that a type is, or is a union of."""
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _sections(member)


def _is_open(annotation: Any) -> bool:
    """Whether its values are more than numbers, a few words and sections of their own."""
    if annotation in (int, float, type(None)) or hasattr(annotation, "__pydantic_fields__"):
        return False
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return False
    if origin is typing.Annotated:
        return _is_open(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType, list):
        return any(_is_open(member) for member in typing.get_args(annotation))
    return True
