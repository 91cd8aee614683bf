"""Notes for the dry run and the start of a sweep on settings of the search that are valid but may be unintended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.compose.dotted import find, leaves
from sweeps.compose.overrides import is_range, written_override
from sweeps.config import SweepConfig
from sweeps.config.samplers import GPSampler, NSGASampler, PredictedSampler, TPESampler
from sweeps.config.schedulers import AshaScheduler, MedianScheduler
from sweeps.config.search import Search
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.constants import SEED
from sweeps.files.file_sizes import size_of
from sweeps.search.schedulers.trial_length import longest_trial
from sweeps.space.distributions import boundary_values, contains, satisfies
from sweeps.space.space import Lookup, Space
from sweeps.texts.wording import amount
from sweeps.validate.search_checks import LOSS, OF_RUNGS
from sweeps.validate.stage_checks import stage_notes
from sweeps_train.command.placeholders import config_values
from sweeps_train.config import CausalLM, CommandTask, EstimatorTask, FunctionTask
from sweeps_train.tables.metrics import POSITIVE_METRICS

HIGHEST_LORA_LR, HIGHEST_FULL_LR = 2e-3, 2e-4
"""Learning rates above which pretrained language models usually diverge: of adapters (ten times the 2e-4 of the QLoRA
paper, Dettmers et al., 2023, https://arxiv.org/abs/2305.14314), and of all weights."""
MAX_BYTES_OF_TINY = 50 * 2**20
"""Maximum size of the files of a language model that is too small to be one of the usual pretrained ones."""
BEST = {
    **dict.fromkeys(("eval/accuracy", "eval/f1", "eval/roc_auc", "eval/r2", *POSITIVE_METRICS), "max"),
    **dict.fromkeys(("eval/loss", "eval/log_loss", "eval/mae", "eval/rmse", "train/loss"), "min"),
}
"""Modes of search for metrics that the built-in tasks compute."""
CHOOSES_HELD_OUT = (
    *("data.eval_fraction", "data.split_seed", "data.eval_path", "data.eval_split", "data.max_eval_documents"),
    *("data.group", "data.time", "data.target"),
)
"""Paths of values by which the held-out samples are chosen."""
OWN_METRICS = ("causal_lm", "image_classification", "classification", "regression", "estimator")
"""Tasks that compute their own metrics; the meaning of metrics in a user's code is up to the user."""


def search_notes(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield notes for the dry run on settings of the search that are valid but may be unintended."""
    config, search = composition.config, composition.config.search
    scheduler = search.scheduler
    yield from _sampler_notes(search)
    if isinstance(scheduler, MedianScheduler):
        yield "search.scheduler.kind=median: asha with eta=2 is used instead, which finds better values"
    if isinstance(scheduler, OF_RUNGS):
        longest = None if isinstance(scheduler, AshaScheduler) else scheduler.longest
        length = longest or longest_trial(composition, space, scheduler.resource, lookup)
        if length is not None and scheduler.grace >= length:
            yield (
                f"search.scheduler.grace={scheduler.grace:g}: a whole trial has {amount(length, scheduler.resource)}, "
                "so none is paused or stopped early"
            )
    if scheduler.kind not in ("none", "auto", "freeze_thaw") and len(search.metrics) > 1:
        yield (
            f"the scheduler {scheduler.kind} judges trials only by {search.metrics[0]}, and ends some that "
            f"are good in {' or '.join(search.metrics[1:])}; use search/scheduler=none or freeze_thaw for the whole "
            "Pareto front"
        )
    if search.confirm and (fix := _way_to_give_seed(composition)):
        yield f"search.confirm={search.confirm}: {fix}"
    yield from stage_notes(search)
    yield from _texts_of_ranges(config, space)
    yield from _dropped(composition, space)
    yield from _new_processes(config)
    yield from _wrong_direction(composition.config)
    yield from _compared_on_other_samples(composition, space)
    yield from _high_learning_rate(composition.config)
    for path in space:
        distribution = space[path]
        if space.context(path, lookup) is None:
            fixed = {other: lookup(other) for other in distribution.when if other not in space.distributions}
            given = [
                f"{each}={value!r}" for each, value in fixed.items() if not satisfies(value, distribution.when[each])
            ]
            whose = f" with {', '.join(given)}" if given else ""
            yield f"{path} is never searched, since the values in its `when` cannot occur{whose}"
        elif isinstance(distribution, FloatDistribution | IntDistribution) and distribution.low < distribution.high:
            yield from _single_value(path, distribution)


def _texts_of_ranges(config: SweepConfig, space: Space) -> Iterator[str]:
    """Yield a note on each value of a user's own, such as an argument, that is the text of a range: on the command line
    the same text is a search."""
    values = config.as_values()
    for path in leaves(values):
        if path not in space and is_range(text := find(values, path)):
            yield (
                f"{path}={text!r}: is a text, and not searched; to search it, write {shlex.quote(f'{path}={text}')} on "
                "the command line, or a distribution below space"
            )


def _dropped(composition: Composition, space: Space) -> Iterator[str]:
    for path, key, value in composition.dropped:
        # A prior outside of the range is refused, and with a condition that never changes there is nothing to keep.
        if any(each in space for each in value) if key == "when" else contains(space[path], value.get("value")):
            add = f"to keep it, put {written_override(f'space.{path}.{key}', value)!r} after the range"
            yield f"{path}: its new range also replaces the {key} of the config; {add}"


def _sampler_notes(search: Search) -> Iterator[str]:
    sampler = search.sampler
    if isinstance(sampler, NSGASampler) and sampler.population > search.num_trials:
        yield (
            f"search.sampler.population={sampler.population} is more than search.num_trials={search.num_trials}: the "
            "first generation never ends, and all points are random; search/sampler=tpe also works for a few trials"
        )
    startup = sampler.startup_trials if isinstance(sampler, TPESampler | GPSampler) and not search.warm_start else 0
    if 1 < search.num_trials <= startup:
        yield (
            f"search.sampler.startup_trials={startup}: with search.num_trials={search.num_trials} all points are "
            "random; lower it, or search more trials"
        )
    if sampler.kind == "bohb" and search.scheduler.kind == "none":
        yield "search.sampler.kind=bohb learns from rungs; with search.scheduler.kind=none it acts as tpe"
    if isinstance(sampler, PredictedSampler):
        yield "search.sampler.kind=predicted: curves is used instead; write search/sampler=curves"


def _new_processes(config: SweepConfig) -> Iterator[str]:
    if isinstance(config.task, FunctionTask) and config.scaling.isolation == "auto" and config.search.num_trials > 1:
        if config.task.framework == "script":
            yield (
                "scaling.isolation=auto: each trial starts new workers, which import Ray and torch again; "
                "scaling.isolation=warm reuses them, and the script still has a process of its own"
            )
            return
        yield (
            "scaling.isolation=auto: each trial of a function starts new processes, which import its libraries again; "
            "scaling.isolation=warm reuses them, for a function that leaves nothing behind in its process"
        )


def _single_value(path: str, distribution: FloatDistribution | IntDistribution) -> Iterator[str]:
    """Yield a note about a range in which only the first value can occur, since the next step is beyond its end."""
    values = boundary_values(distribution)
    if len(values) == 1:
        low, high = distribution.low, distribution.high
        yield (
            f"space.{path}.step={distribution.step}: is more than the range from {low:g} to {high:g}, so that only "
            f"{values[0]:g} can occur; use a smaller step"
        )


def _way_to_give_seed(composition: Composition) -> str | None:
    """Describe how a user's code that does not receive the seed can get it; None if it does, or is seeded by the
    worker."""
    config, is_given = composition.config, composition.refers_to(SEED)
    give, found = "give it task.arguments.seed=${seed}", None
    match config.task:
        case CommandTask() as task:
            if SEED not in config_values(task, config.as_values())[0]:
                found = (
                    "the program is not given {seed}, so its repeats differ only if it draws its seed itself; use "
                    "{seed} in task.command"
                )
        case EstimatorTask(arguments={"random_state": int(own)}) if not is_given:
            found = f"task.arguments.random_state={own} is the seed of all repeats, which do not differ; remove it"
        case FunctionTask(framework="script") if not is_given:
            found = f"the script is not given the seed, so its repeats differ only if it draws its seed itself; {give}"
        case FunctionTask(framework="huggingface") if not is_given:
            found = (
                "a Trainer seeds itself by the seed of its TrainingArguments, 42 by default, so the order of its "
                f"samples and its dropout do not differ; {give}, and TrainingArguments(seed=config['seed'])"
            )
    return found


def _wrong_direction(config: SweepConfig) -> Iterator[str]:
    """Yield a note about a built-in metric that is searched in the wrong direction, such as the lowest accuracy."""
    for metric, mode in zip(config.search.metrics, config.search.modes, strict=True):
        best = BEST.get(metric)
        if config.task.kind in OWN_METRICS and best is not None and best != mode:
            which = "lowest" if mode == "min" else "highest"
            yield f"search.mode={mode} looks for the {which} {metric}, its worst value; use search.mode={best}"


def _compared_on_other_samples(composition: Composition, space: Space) -> Iterator[str]:
    """Yield notes about searched values that change the samples on which trials are evaluated, or the unit of these."""
    objectives = ", ".join(composition.config.search.metrics)
    for path in CHOOSES_HELD_OUT:
        if path in space:
            yield f"space.{path}: trials hold out different samples, so that their {objectives} cannot be compared"
    models = [composition.trial(dict(options)).model for options in composition.variants]
    tokenizers = {each.tokenizer or each.path for each in models if isinstance(each, CausalLM)}
    of_tokens = {LOSS, "eval/perplexity", "train/loss"} & {*composition.config.search.metrics}
    if of_tokens and (len(tokenizers) > 1 or "model.tokenizer" in space):
        yield (
            f"space.model: {', '.join(of_tokens)} is a mean over tokens, which cannot be compared between models whose "
            "tokenizers differ; search such models in sweeps of their own"
        )


def _high_learning_rate(config: SweepConfig) -> Iterator[str]:
    """Yield a note about learning rates that suit the small model that ships with Sweeps, but would make a model of the
    hub diverge."""
    model, distribution = config.model, config.space.get("train.lr")
    if config.train is None or not isinstance(model, CausalLM) or _is_tiny(model.path):
        return
    if distribution is None and config.search.num_trials == 1:
        return  # a known value, such as that of a trial that is trained again
    highest = distribution.high if isinstance(distribution, FloatDistribution) else config.train.lr
    limit, options = (HIGHEST_LORA_LR, "lora_hub") if model.lora is not None else (HIGHEST_FULL_LR, "full")
    if highest > limit:
        yield (
            f"train.lr up to {highest:g} makes most pretrained models diverge; use train={options} space={options}, or "
            f"values up to {limit:g}"
        )


def _is_tiny(path: str) -> bool:
    """Whether a language model ships with Sweeps, or is a user's folder with files as small."""
    return path.startswith("builtin:") or 0 < (size_of(path) or 0) <= MAX_BYTES_OF_TINY
