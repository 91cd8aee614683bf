"""Estimates, before anything starts, whether trials fit into memory: selects the configs to compute, and judges the
results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from typing import Any

from sweeps.compose.dotted import MISSING, find
from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps.plan.plan import Plan
from sweeps.runtime.gpu_memory import local_gpu_memory
from sweeps.runtime.reservation import memory_share, reserved_per_worker
from sweeps.runtime.trials_at_once import Fit
from sweeps.space.distributions import boundary_values
from sweeps.texts.wording import value_text
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.config_checks import lookup_in
from sweeps.validate.model_checks import model_facts
from sweeps_train.config import CausalLM, CustomModel, Model, TrainingConfig
from sweeps_train.memory.machine_memory import machine_memory

GIB = 2**30
MAX_QUESTIONS = 8
"""Maximum number of configs whose memory is computed, which takes seconds for a large model."""
OUTSIDE_TENSORS = {True: GIB // 2, False: 7 * GIB // 10}
"""Bytes of a worker in addition to its tensors: with a GPU, CUDA's context there; otherwise Python and its
libraries."""
SIZES = ("model.", "strategy.", "data.sequence_length", "scaling.num_workers")
"""Prefixes of the paths on which memory depends."""
SIZES_OF_TRAIN = ("global_batch_size", "micro_batch_size", "precision", "optimizer")
FEWER_NEED_MORE = (
    "scaling.num_workers",
    "strategy.size",
    "strategy.shard_size",
    "strategy.tensor_size",
    "strategy.stages",
)
"""Paths for which a smaller value needs more memory in a worker."""
ADVICE = "docs/gpu_sizing.md lists what needs less memory"


@dataclass(frozen=True)
class MemoryQuestion:
    """A config whose memory is to be computed."""

    values: dict[str, Any]
    """Searched values on which the config's memory depends; empty for the config's own trial."""
    config: SweepConfig

    @property
    def obstacle(self) -> str | None:
        """Reason why the memory cannot be computed; None if nothing is known to prevent it."""
        model = self.config.model
        if not isinstance(model, CausalLM) or model_facts(model):
            return None
        return (
            f"the config of model.path={model.path} is not on this machine (`hf download {model.path} config.json` "
            "puts it into the hub's cache)"
        )


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer:
    """Memory of one worker in bytes."""

    values: dict[str, Any]
    parts: dict[str, int]
    """``weights, gradients, optimizer, activations``, ``logits`` (a part of activations) and ``in_machine``."""
    total: int
    of_one: int
    """``total`` with micro batches of one sample."""


@dataclass(frozen=True, kw_only=True)
class MemoryReport:
    """Known memory of a sweep's trials, and whether it fits."""

    answers: list[MemoryAnswer]
    """Memory of each config, that of the config's own trial first."""
    room: float | None
    """Bytes that a worker has for tensors; None if unknown."""
    failure: str | None = None
    """Reason why the memory is unknown."""

    @property
    def summary(self) -> str:
        """One line: memory of the config's own trial by cause, the maximum of any trial, and the memory available to a
        worker."""
        if not self.answers:
            return f"could not be computed: {self.failure}"
        own, most = self.answers[0], max(self.answers, key=lambda each: each.total)
        text = f"{_gib(own.total)} GiB a worker ({_itemized(own.parts)})"
        if most.total > own.total:
            text += f", up to {_gib(most.total)} with {_listed(most.values)}"
        has = "the memory of a worker is unknown (set cluster.gpu_memory_gib)"
        return f"{text}; {has if self.room is None else f'a worker has {_gib(self.room)}'}"

    @property
    def notes(self) -> list[str]:
        """One line for each part of the space that does not fit."""
        if self.room is None:
            return []
        found: list[str] = []
        named: list[dict[str, Any]] = []
        for answer in sorted(self.answers, key=lambda each: len(each.values)):
            if answer.total <= self.room or any(each.items() <= answer.values.items() for each in named):
                continue
            named.append(answer.values)
            which = f"with {_listed(answer.values)} " if answer.values else ""
            if answer.of_one > self.room:
                found.append(
                    f"memory: {which}a worker needs about {_gib(answer.of_one)} GiB even with micro batches of one "
                    f"sample, and has {_gib(self.room)}: it cannot be trained; {ADVICE}"
                )
            else:
                found.append(
                    f"memory: {which}a worker needs about {_gib(answer.total)} GiB, and has {_gib(self.room)}; smaller "
                    "micro batches fit (train.micro_batch_size=auto)"
                )
        return found

    def as_json(self) -> dict[str, Any]:
        return {"room": self.room, "failure": self.failure, "trials": [asdict(each) for each in self.answers]}


def memory_questions(plan: Plan) -> list[MemoryQuestion]:
    """Return the configs whose memory is computed, each once, from the most important: the sweep's own, those that need
    the most memory, one for each combination of options, and those that differ from these in a single value that needs
    more. Empty for a user's own training."""
    found: dict[str, MemoryQuestion] = {}
    for point in islice(_points(plan), 64):
        try:
            plan.points.constraints.check(point)
            config = plan.composition.trial(point)
        except ConfigError:  # a combination that no trial has
            continue
        if not isinstance(config.training(), TrainingConfig):
            return []
        values = {path: value for path, value in point.items() if _matters(path)}
        found.setdefault(_key(config), MemoryQuestion(values if found else {}, config))
    return list(found.values())[:MAX_QUESTIONS]


def _points(plan: Plan) -> Iterator[dict[str, Any]]:
    lookup = lookup_in(plan.composition)
    variants = [dict(point) for point, _ in configs_of_trials(plan.composition, plan.space, lookup, ())]
    yield variants[0]
    ends = [_ends(plan, variant) for variant in variants]
    for variant, (largest, choices) in zip(variants, ends, strict=True):
        for chosen in product(*choices.values()):
            yield {**variant, **largest, **dict(zip(choices, chosen, strict=True))}
    yield from variants[1:]
    for variant, (largest, choices) in zip(variants, ends, strict=True):
        singles = {**{path: [value] for path, value in largest.items()}, **choices}
        yield from ({**variant, path: value} for path, values in singles.items() for value in values)


def _ends(plan: Plan, variant: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return the values that need the most memory for the paths of a variant: the larger end of each range, and every
    other choice."""
    largest: dict[str, Any] = {}
    choices: dict[str, list[Any]] = {}
    values = plan.composition.container(variant)
    for path, distribution in plan.space.distributions.items():
        if not _matters(path) or path in plan.composition.searched_groups or find(values, path) is MISSING:
            continue
        possible = boundary_values(distribution)
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in possible):
            largest[path] = min(possible) if path in FEWER_NEED_MORE else max(possible)
        else:
            choices[path] = possible
    return largest, choices


def _matters(path: str) -> bool:
    section, _, name = path.partition(".")
    return (
        section in ("model", "strategy", "scaling")
        if not name
        else path.startswith(SIZES) or (section == "train" and name.split(".")[0] in SIZES_OF_TRAIN)
    )


def _key(config: SweepConfig) -> str:
    """Return a key of everything that memory depends on."""
    document = config.as_document()
    train = {name: document["train"][name] for name in SIZES_OF_TRAIN} if document["train"] else None
    sections = [document["model"], document["data"], document["strategy"], train, config.scaling.min_workers]
    return json.dumps(sections, sort_keys=True, default=str)


def questions_worth_asking(plan: Plan) -> list[MemoryQuestion]:
    """Return ``memory_questions``, or none if all models are known to be small: those that ship with Sweeps, and users'
    own on CPUs."""
    variants = configs_of_trials(plan.composition, plan.space, lookup_in(plan.composition), ())
    return memory_questions(plan) if any(_may_be_large(plan, config.model) for _, config in variants) else []


def _may_be_large(plan: Plan, model: Model | None) -> bool:
    if isinstance(model, CausalLM):
        return not model.path.startswith("builtin:")
    return isinstance(model, CustomModel) and uses_gpu(plan)


def uses_gpu(plan: Plan) -> bool:
    """Whether trials will have GPUs, judged before the cluster is known."""
    fit = plan.local_fit
    return fit.use_gpu if fit is not None else plan.config.scaling.use_gpu is not False


def local_room(plan: Plan) -> float | None:
    """Return the bytes that a worker will have for tensors, judged before the cluster is known; None if this machine
    does not tell."""
    fit = plan.local_fit
    if uses_gpu(plan):
        return gpu_room(plan, local_gpu_memory() if fit is not None else None)
    return None if fit is None else machine_memory() / fit.workers_per_node - OUTSIDE_TENSORS[False]


def gpu_room(plan: Plan, found: float | None) -> float | None:
    """Return the bytes of GPU memory that a worker has for tensors, from ``cluster.gpu_memory_gib`` or else from those
    that were found for the cluster's smallest GPU."""
    stated, scaling = plan.config.cluster.gpu_memory_gib, plan.config.scaling
    total = stated * GIB if stated is not None else found
    share = memory_share(reserved_per_worker(scaling, use_gpu=True), 1, use_gpu=True)
    return None if total is None else total * share - OUTSIDE_TENSORS[True]


def machine_room(trials: Fit, node_memory: float) -> float:
    """Return the bytes that a worker without a GPU has for tensors on a node with this much memory."""
    return node_memory / trials.workers_per_node - OUTSIDE_TENSORS[False]


def memory_report(
    questions: Sequence[MemoryQuestion], answers: Sequence[Mapping[str, Any]], room: float | None
) -> MemoryReport:
    """Combine questions and answers, in the same order, into a report. The preflight's process writes fewer answers if
    it runs out of time."""
    obstacles = [each.obstacle for each in questions if each.obstacle]
    questions = [each for each in questions if not each.obstacle]
    errors = [answer["error"] for answer in answers if "error" in answer] + obstacles
    known = [
        MemoryAnswer(values=question.values, parts=answer["parts"], total=answer["total"], of_one=answer["of_one"])
        for question, answer in zip(questions, answers, strict=False)
        if "error" not in answer
    ]
    failure = errors[0] if errors else "there was not enough time (preflight.timeout_s)"
    return MemoryReport(answers=known, room=room, failure=None if known else failure)


def _itemized(parts: Mapping[str, int]) -> str:
    named = [f"{name} {_gib(parts[name])}" for name in ("weights", "gradients", "optimizer")]
    kept = f"; {_gib(parts['in_machine'])} in the machine's memory" if parts["in_machine"] else ""
    logits = f", of which logits {_gib(parts['logits'])}" if parts["logits"] else ""
    activations = f"activations {_gib(parts['activations'])}{logits}"
    return ", ".join([*named, activations]) + kept


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value_text(value)}" for path, value in values.items())


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}" if size < 10 * GIB else f"{size / GIB:.0f}"
