"""Mistakes in the search are found on the driver: one message with key, value and fix."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from composing import composed, mistakes, planned

from sweeps.errors import ConfigError
from sweeps.folders.conf_folders import conf_folder
from sweeps.plan.plan import make_plan
from sweeps.search.schedulers.mutable_params import mutated_paths
from sweeps.search.schedulers.trial_length import longest_trial, trial_length
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.config_checks import check_sweep, lookup_in
from sweeps.validate.search_checks import SYSTEM_METRICS
from sweeps.validate.search_notes import search_notes

NO_SPACE = ("space=none",)
MODELS = "model=choice(conv_net, vision_transformer)"
POPULATION = ("search=pbt", "space=none", "train.lr=interval(0.001, 0.1)")
TWO = ("search.metric=[eval/accuracy,eval/loss]", "search.mode=[max,min]", "search/scheduler=none")


def noted(*tokens: str, conf: str = "digits") -> list[str]:
    """Notes on the search of a sweep that has passed all checks."""
    composition = composed(conf, *tokens)
    return list(search_notes(composition, check_sweep(composition), lookup_in(composition)))


def of_a_plan(*tokens: str, about: str) -> list[str]:
    """Notes of a plan that begin with a key and its value, or contain some words."""
    return [note for note in planned(*tokens).notes if about in note]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("search/sampler=brute_force",), ["space.model.dropout", "needs a step", "space.model.dropout.step="]),
        (
            ("search=grid", "space.train.lr.when={train.optimizer: sgd}"),
            ["space.train.lr: a grid", "'space.train.lr.log=false' 'space.train.lr.step=0.024975'"],
        ),
        (
            ('search.constraints=["train.optimizer > 3 or train.lr < 0.01"]',),
            ["search.constraints.0=", "'>' not supported between instances of 'str' and 'int'", "correct the"],
        ),
        (('search.constraints=["1/0 > train.lr"]',), ["search.constraints.0=", "division by zero, with train.lr="]),
        (("search.confirm=1",), ["search.confirm=1", "compared", "set 2 or more"]),
        (("search.confirm=20",), ["search.confirm=20", "search.num_trials=16"]),
        ((*TWO, "search.confirm=2"), ["search.confirm=2", "one objective", "one search.metric"]),
        ((*POPULATION, "search.confirm=2"), ["search.confirm=2", "search.scheduler.kind=pbt", "search/scheduler=asha"]),
        (("seed=choice(1,2,3)", "search.confirm=2"), ["search.confirm=2", "remove space.seed"]),
        ((*POPULATION, "search.scheduler.mutate=[train.l]"), ["mutate.0=train.l", "no such path", "train.lr"]),
        (
            (*POPULATION, "train.max_steps=choice(50, 100)", "search.scheduler.mutate=[train.max_steps]"),
            ["mutate.0=train.max_steps", "cannot change", "train.lr"],
        ),
        (
            ("search=pbt", "search.scheduler.mutate=[train.momentum]"),
            ["mutate.0=train.momentum", "condition", "remove it"],
        ),
        (
            (*POPULATION, "space.train.lr={type: constant, value: 0.1}", "search.scheduler.mutate=[train.lr]"),
            ["mutate.0=train.lr", "constant"],
        ),
        (
            ("search=pbt", "search/scheduler=pb2", "train.lr=choice(0.1, 0.2)", "search.scheduler.mutate=[train.lr]"),
            ["mutate.0=train.lr", "categorical", "pb2"],
        ),
        (
            ("search=pbt", *NO_SPACE, "train.max_steps=choice(50, 100)"),
            ["search.scheduler.kind=pbt", "no parameter that can change", "train.lr"],
        ),
        ((*POPULATION, "search/sampler=tpe"), ["search.sampler.kind=tpe", "pbt", "search/sampler=random"]),
        ((*POPULATION, "search.num_trials=1"), ["search.num_trials=1", "population", "2 or more"]),
        ((*POPULATION, "search.scheduler.interval=10"), ["search.scheduler.interval=10", "9 evaluations", "lower it"]),
        (
            ("search/scheduler=hyperband", "search.scheduler.resource=seconds"),
            ["search.scheduler.longest", "seconds", "search.scheduler.longest=81"],
        ),
        (
            ("search/scheduler=hyperband", "train.max_steps=null", "train.epochs=3"),
            ["search.scheduler.longest", "evaluations"],
        ),
        (("search/scheduler=hyperband", "search.scheduler.longest=2"), ["search.scheduler.eta=3", "longest of 2"]),
        (("search.scheduler.grace=10",), ["search.scheduler.grace=10", "9 evaluations", "lower it"]),
        (
            (
                *("train.max_steps=null", "train.epochs=2", "search.scheduler.resource=epochs"),
                "search.scheduler.grace=3",
            ),
            ["search.scheduler.grace=3", "2 epochs"],
        ),
        (
            ("search.scheduler.resource=tokens",),
            ["search.scheduler.resource=tokens", "image_classification", "samples"],
        ),
        (("search.limits={eval/los: {max: 1}}",), ["search.limits.eval/los", "eval/loss"]),
        (
            ("search.limits={eval/loss: {min: 0.9, max: 0.1}}",),
            ["limits.eval/loss", "min=0.9 is above max=0.1", "swap"],
        ),
        ((*TWO, "search/sampler=cmaes"), ["search.sampler.kind=cmaes", "eval/accuracy and eval/loss", "nsga2"]),
        ((*TWO, "search.stop.target=0.9"), ["search.stop.target", "one objective", "remove it"]),
        ((*TWO, "search.stop.expected_improvement=0.9"), ["search.stop.expected_improvement", "one objective"]),
        (("search.stop.cost.limit=5",), ["search.stop.cost", "price", "per_gpu_hour"]),
        (("scaling.use_gpu=false", "search.stop.gpu_hours=5"), ["search.stop.gpu_hours=5", "no GPU", "wall_hours"]),
        (
            ("cluster.num_gpus=0", "search.stop.cost={limit: 5, per_gpu_hour: 2}"),
            ["search.stop.cost.per_gpu_hour=2", "no GPU", "per_cpu_hour"],
        ),
        (
            ('search.points=[{train.lr: "0.01"}]',),
            ["search.points.0.train.lr='0.01': is a text; without quotes it must be a number between 0.0001 and 0.1"],
        ),
        (("search.warm_start=[a b]",), ["search.warm_start.0='a b'", "sweeps list"]),
        (("space.train.lr.prior={value: 5}",), ["space.train.lr.prior.value=5", "between 0.0001 and 0.1"]),
        (
            (*NO_SPACE, "train.lr=choice(0.1, 0.2)", "search.points=[{train.lr: 0.1}, {train.lr: 0.1}]"),
            ["search.points.1", "same as search.points.0", "search.duplicates=true"],
        ),
        (
            (*NO_SPACE, "train.global_batch_size=interval(2, 64)", "search.points=[{train.global_batch_size: 3}]"),
            ["search.points.0: train.global_batch_size=3 cannot be split over 2 workers", "use 2 or 4"],
        ),
        (
            ("search.points=[{train.optimizer: adamw, train.momentum: 0.9}]",),
            ["search.points.0.train.momentum=0.9", "only while train.optimizer is 'sgd'"],
        ),
        (("search/sampler=choice(tpe, gp)",), ["space.search/sampler", "belongs to the sweep", "remove it"]),
        (("space.model={type: int, low: 0, high: 1}",), ["space.model.type=int", "ordinal"]),
    ],
)
def test_a_mistake_in_the_search_names_key_value_and_fix(tokens: tuple[str, ...], words: list[str]) -> None:
    found = mistakes(*tokens)
    assert any(all(word in line for word in words) for line in found), found


@pytest.mark.parametrize(
    ("tokens", "path", "others"),
    [
        (
            ("task=regression", "data.path=builtin:diabetes", "task.loss=choice(squared, huber)"),
            "task.loss",
            "eval/rmse",
        ),
        (("task.class_weight=choice(none, balanced)",), "task.class_weight", "eval/log_loss"),
    ],
)
def test_trials_that_compute_their_loss_in_different_ways_are_not_compared_by_it(
    tokens: tuple[str, ...], path: str, others: str
) -> None:
    (mistake,) = mistakes(*tokens, "search.metric=eval/loss", conf="tabular")
    assert mistake.startswith(f"search.metric=eval/loss: is computed with {path}, which is searched")
    assert others in mistake
    assert mistakes(*tokens, f"search.metric={others}", conf="tabular") == []


@pytest.mark.parametrize(
    "tokens",
    [
        ("vars.rate=choice(a, b)", "space.train.lr.when={vars.rate: b}"),
        ("vars.rate=choice(1, 2)", "search.constraints=['vars.rate < 2 or train.lr > 0']"),
        ("train.optimizer={_target_: torch.optim.RMSprop}",),
    ],
    ids=str,
)
def test_a_value_that_may_have_an_effect_is_searched(tokens: tuple[str, ...]) -> None:
    make_plan(["conf=digits", *tokens], [], None, "sweeps run")


@pytest.mark.parametrize(
    ("tokens", "mistake"),
    [
        (
            ("train.global_batch_size=interval(2, 64)", "search.points=[{train.global_batch_size: 3}]"),
            "search.points.0",
        ),
        (("seed=range(1, 200001)", "search/sampler=brute_force"), "space.seed: step=1 makes 200,000 values"),
        (("vars.sizes=choice([1, 2], '[1, 2]')",), "space.vars.sizes: choices has '.1, 2.' both as text and as a list"),
        (("seed=range(0, 2147483648)", "search/sampler=gp"), "space.seed: .*2,147,483,648 values .*search/sampler=tpe"),
        (
            (MODELS, "search.constraints=['model.width <= 8']", "search.points=[{model: vision_transformer}]"),
            "search.points.0: search.constraints.0.*does not hold, with model.width=32",
        ),
        (
            ("model=choice(vision_transformer)", "search.constraints=['model.width <= 8']"),
            "none of 1,000 random points satisfies it",
        ),
        (
            (
                MODELS,
                "search.constraints=['1 / (model.width - 32) < 1']",
                "search.points=[{model: vision_transformer}]",
            ),
            "search.points.0: search.constraints.0.*division by zero",
        ),
    ],
)
def test_what_is_refused_since_an_earlier_release_is_no_mistake_in_a_sweep_that_it_has_begun(
    tokens: tuple[str, ...], mistake: str
) -> None:
    composition = composed("digits", *NO_SPACE, *tokens)
    with pytest.raises(ConfigError, match=mistake):
        check_sweep(composition)
    check_sweep(composition, is_new=False)


@pytest.mark.parametrize("sampler", ["grid", "brute_force"])
def test_every_range_that_a_grid_cannot_have_is_named_at_once_with_a_fix_that_passes(sampler: str) -> None:
    tokens = [f"search/sampler={sampler}"]
    found = mistakes(*tokens)
    assert [line.partition(":")[0] for line in found] == [
        "space.model.dropout",
        "space.train.lr",
        "space.train.momentum",
    ]
    fixes = [fix for line in found for fix in re.findall(r"'([^' ]+=[^']+)'", line)]
    assert mistakes(*tokens, *fixes) == []


def test_a_constraint_that_only_sometimes_cannot_be_computed_is_told_with_those_that_exclude_the_rest() -> None:
    excluding, failing = mistakes('search.constraints=["1 / (train.global_batch_size - 32) < 0"]')
    assert "none of 1,000 random points satisfies it" in excluding
    assert "division by zero, with train.global_batch_size=32; correct the constraint" in failing


@pytest.mark.parametrize(
    "tokens",
    [
        POPULATION,
        (*POPULATION, "search/scheduler=pb2"),
        ("search=bohb",),
        ("search.scheduler.grace=9",),
        ("search/scheduler=hyperband", "search.scheduler.resource=seconds", "search.scheduler.longest=60"),
        ("search.limits={system/memory_mib: {max: 2000}, eval/loss: {max: 3}}",),
        (*TWO, "search/sampler=nsga2", "search.stop.wall_hours=1"),
        ("cluster.num_gpus=2", "search.stop.gpu_hours=5"),
        ("search.warm_start=[first, digits-20261120-000000]",),
        ("search.points=[{train.lr: 0.01}, {train.lr: 0.01}]",),  # the rest of them is sampled
        ("space.model={type: ordinal, choices: [conv_net, vision_transformer]}",),
    ],
)
def test_what_goes_together_passes(tokens: tuple[str, ...]) -> None:
    assert mistakes(*tokens) == []


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("search/sampler=nsga2",), ["population=50", "num_trials=16"]),
        (("search/sampler=bohb", "search/scheduler=none"), ["kind=bohb", "tpe"]),
        (("search/sampler=tpe", "search.num_trials=8"), ["startup_trials=8: with search.num_trials=8 all points are"]),
        (("search/sampler=predicted",), ["kind=predicted: curves is used instead"]),
        (("search/scheduler=median",), ["kind=median: asha with eta=2 is used instead"]),
        (
            ("search/scheduler=asha", "search.metric=[eval/accuracy, eval/loss]", "search.mode=[max, min]"),
            ["the scheduler asha judges trials only by eval/accuracy", "good in eval/loss", "search/scheduler=none"],
        ),
        (
            ("search.scheduler.longest=2", "search.scheduler.grace=3"),
            ["grace=3: a whole trial has 2 evaluations, so"],
        ),
        (("search.scheduler.grace=9",), ["grace=9: a whole trial has 9 evaluations, so none is paused or stopped"]),
        (("space.model.dropout.step=5",), ["space.model.dropout.step=5", "range from 0 to 0.3", "only 0 can occur"]),
        (("space.model.choices=[conv_net]",), ["model.depth is never searched"]),
        (
            ("space.train.lr.when={train.max_steps: 5}",),
            ["train.lr is never searched", "occur with train.max_steps=198"],
        ),
        (
            ("train.momentum=interval(0.5, 0.9)",),
            ["also replaces the when", "'space.train.momentum.when={train.optimizer: \"sgd\"}' after the range"],
        ),
        (("data.eval_fraction=choice(0.1, 0.2)",), ["space.data.eval_fraction: trials hold out different samples"]),
        (("search.metric=eval/accuracy", "search.mode=min"), ["mode=min", "lowest eval/accuracy", "search.mode=max"]),
    ],
)
def test_what_may_not_be_meant_is_noted(tokens: tuple[str, ...], words: list[str]) -> None:
    notes = noted(*tokens)
    assert any(all(word in note for word in words) for note in notes), notes


def test_a_condition_or_prior_that_cannot_be_added_to_a_new_range_is_not_recommended(tmp_path: Path) -> None:
    conf = tmp_path / "own.yaml"
    prior = "space: {train.lr: {prior: {value: 0.01}}}"
    conf.write_text(f"defaults: [digits, _self_]\n{prior}\n", encoding="utf-8")
    for optimizer in ("sgd", "adamw"):
        tokens = [f"train.optimizer={optimizer}", "train.momentum=interval(0.5, 0.9)", "train.lr=interval(0.02, 0.1)"]
        plan = make_plan([f"conf={conf}", *tokens], [], "own", "")
        assert {key for _, key, _ in plan.composition.dropped} == {"when", "prior"}
        notes = search_notes(plan.composition, plan.space, lookup_in(plan.composition))
        assert not any("also replaces" in note for note in notes)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            ("search/scheduler=asha", "search.scheduler.resource=epochs"),
            ["resource=epochs", "function does not count them"],
        ),
        (("search/scheduler=hyperband",), ["search.scheduler.longest", "does not follow", "longest=81"]),
        (("search=pbt",), ["search.scheduler.kind=pbt", "search.scheduler.mutate"]),
    ],
)
def test_a_users_own_function_tells_neither_its_length_nor_what_may_change(
    tokens: tuple[str, ...], words: list[str]
) -> None:
    found = mistakes(*tokens, conf="ray_train_function")
    assert any(all(word in line for word in words) for line in found), found


def test_the_note_about_new_processes_has_the_override_that_avoids_them() -> None:
    (note,) = noted(conf="ray_train_function")
    assert "scaling.isolation=warm reuses them" in note


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("model=qwen2.5_0.5b",), ["train.lr up to 0.03", "diverge", "train=lora_hub space=lora_hub"]),
        (("model=qwen2.5_0.5b", "model.lora=null", "space=none", "train.lr=1e-3"), ["up to 0.001", "space=full"]),
        (("model=qwen2.5_0.5b", "space=none", "train.lr=0.0257", "search.num_trials=1"), None),  # it is trained again
        (("model.path=mine",), None),
    ],
)
def test_learning_rates_of_the_small_model_are_noted_for_pretrained_models(
    tokens: tuple[str, ...], words: list[str] | None, working_folder: Path
) -> None:
    (working_folder / "mine").mkdir()
    (working_folder / "mine" / "model.safetensors").write_bytes(bytes(2000))
    notes = [note for note in noted(*tokens, conf="llm_lora") if "diverge" in note]
    assert notes == [] if words is None else all(word in notes[0] for word in words)


HUB_MODELS = ("qwen2.5_0.5b", "llama3.2_1b", "smollm2_1.7b", "qwen3_4b", "llama3.1_8b", "huggingface")


@pytest.mark.parametrize("model", HUB_MODELS)
def test_models_of_the_hub_are_searched_at_rates_at_which_they_learn_with_alpha_tied_to_the_rank(model: str) -> None:
    tokens = [f"model={model}", *(["model.path=a/b"] if model == "huggingface" else [])]
    composition = composed("llm_lora_hub", *tokens)
    rates = composition.config.space["train.lr"]
    assert (rates.type, rates.low, rates.high, rates.log) == ("float", 2e-5, 5e-4, True)
    for rank in (8, 64):
        lora = composition.trial({"model.lora.r": rank}).model.lora
        assert (lora.r, lora.alpha) == (rank, 2 * rank)
    whole = composed("llm_full", *tokens).config
    assert (whole.space["train.lr"].high, whole.train.lr, whole.model.lora) == (1e-4, 1e-5, None)


def test_every_model_of_the_hub_that_ships_is_looked_at() -> None:
    files = {each.stem: each.read_text(encoding="utf-8") for each in (conf_folder() / "model").glob("*.yaml")}
    of_the_hub = {name for name, text in files.items() if "kind: causal_lm" in text and "builtin:" not in text}
    assert of_the_hub == set(HUB_MODELS)


def test_a_sweep_that_ships_has_no_notes() -> None:
    for conf in ("digits", "llm_lora", "llm_lora_hub", "llm_full"):
        assert noted(conf=conf) == []


def test_the_length_of_a_trial_is_that_of_the_longest_that_can_be_sampled() -> None:
    tokens = ["space=none", "train.max_steps=range(50, 201, 50)", "train.eval_every=20"]
    composition = composed("digits", *tokens)
    space, lookup = check_sweep(composition), lookup_in(composition)
    assert longest_trial(composition, space, "steps", lookup) == 200
    assert longest_trial(composition, space, "evaluations", lookup) == 10
    assert longest_trial(composition, space, "samples", lookup) == 200 * 64
    assert longest_trial(composition, space, "tokens", lookup) is None
    assert longest_trial(composition, space, "epochs", lookup) is None
    assert trial_length(composition.trial({"train.max_steps": 50}), "evaluations") == 3


def test_a_population_mutates_what_can_change_and_is_not_conditional() -> None:
    composition = composed("digits", "search=pbt")
    space = check_sweep(composition)
    scheduler = composition.config.search.scheduler
    assert mutated_paths(scheduler, space) == ["model.dropout", "train.lr"]  # type: ignore[arg-type]


def test_the_workers_metrics_are_known_to_the_driver() -> None:
    import torch

    from sweeps_train.devices.system import system_metrics

    assert set(system_metrics(torch.device("cpu"))) <= set(SYSTEM_METRICS)


@pytest.mark.parametrize("metric", ["system/memory_mib", "system/gpu_memory_mib", "train/samples_per_second"])
def test_memory_and_speed_can_be_objectives_of_a_built_in_task(metric: str) -> None:
    tokens = (f"search.metric=[eval/accuracy, {metric}]", "search.mode=[max, min]", "search/scheduler=none")
    assert planned("conf=digits", *tokens).config.search.metrics[1] == metric


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["conf=ray_train_function"], ["for a function that leaves nothing behind in its process"]),
        (["conf=torchrun_script"], ["and the script still has a process of its own"]),
        (["conf=ray_train_function", "scaling.isolation=warm"], []),
        (["conf=ray_train_function", "search.num_trials=1"], []),
        (["conf=digits"], []),
    ],
    ids=str,
)
def test_a_plan_says_that_each_trial_of_own_code_starts_new_processes(tokens: list[str], words: list[str]) -> None:
    notes = of_a_plan(*tokens, about="scaling.isolation=auto: ")
    assert [note.rpartition("reuses them, ")[2] for note in notes] == words


def test_models_of_different_tokenizers_are_noted_as_not_to_be_compared_by_their_tokens() -> None:
    notes = noted("model=choice(llama3.2_1b, qwen3_4b)", conf="llm_lora_hub")
    assert any("cannot be compared between models whose tokenizers differ" in note for note in notes), notes


@pytest.mark.parametrize(
    ("tokens", "note"),
    [
        (("conf=torchrun_script",), "the script is not given the seed, so its repeats differ only if"),
        (("conf=huggingface_trainer",), "a Trainer seeds itself by the seed of its TrainingArguments, 42 by"),
        (("conf=huggingface_trainer", "task.arguments.seed=${seed}"), None),
        (("conf=ray_train_function",), None),
        (("conf=estimator",), None),
        (("conf=estimator", "+task.arguments.random_state=3"), "task.arguments.random_state=3 is the seed of all"),
    ],
    ids=str,
)
def test_repeats_of_code_that_does_not_get_their_seed_are_noted(tokens: tuple[str, ...], note: str | None) -> None:
    found = of_a_plan(*tokens, "search.confirm=2", about="search.confirm=2: ")
    assert found == [] if note is None else note in found[0]


def test_a_sampled_point_that_cannot_be_trained_is_refused_before_a_worker_starts() -> None:
    plan = make_plan(["conf=digits", *NO_SPACE, "train.global_batch_size=interval(2, 64)"], [], None, "sweeps run")
    plan.check_point({"train.global_batch_size": 4})
    with pytest.raises(ConfigError, match=r"train\.global_batch_size=3 cannot be split over 2 workers"):
        plan.check_point({"train.global_batch_size": 3})


def test_a_real_valued_range_of_a_key_that_takes_whole_numbers_is_a_mistake() -> None:
    (line,) = mistakes(*NO_SPACE, "space.train.global_batch_size={type: float, low: 16, high: 128, log: true}")
    for words in ("space.train.global_batch_size: between low=16 and high=128, ", "valid integer", "; use type: int"):
        assert words in line
    assert mistakes(*NO_SPACE, "space.train.global_batch_size={type: float, low: 16, high: 128, step: 16}") == []
    (line,) = mistakes(*NO_SPACE, "space.train.max_steps={type: float, low: 50, high: 200, step: 12.5}")
    assert "space.train.max_steps: between low=50 and high=200, train.max_steps=62.5: must be a valid integer" in line
    assert mistakes(*NO_SPACE, "space.train.global_batch_size={type: float, low: 2, high: 64, step: 1}") == []


@pytest.mark.parametrize(
    ("tokens", "note"),
    [
        (
            ("train.global_batch_size=range(8, 33)",),
            "size: with the config's other values, trials with 9, 11, 13, ... (12 of 25 values) would fail (train.",
        ),
        (("scaling.num_workers=range(1, 5)", "cluster.num_cpus=8"), "trials with 3 (1 of 4 values) would fail"),
        (("train.global_batch_size=range(8, 33, 2)",), None),
        (("train.global_batch_size=range(8, 33)", "search.constraints=['train.global_batch_size % 2 == 0']"), None),
    ],
    ids=str,
)
def test_a_range_of_whole_numbers_some_of_which_cannot_be_trained_is_noted(
    tokens: tuple[str, ...], note: str | None
) -> None:
    found = of_a_plan("conf=digits", *NO_SPACE, *tokens, about="would fail")
    assert found == [] if note is None else note in found[0]


def test_a_range_that_is_only_a_text_in_a_yaml_file_is_noted(tmp_path: Path) -> None:
    (tmp_path / "texts.yaml").write_text(
        "defaults: [command, _self_]\nspace: {task.arguments.lr: null}\n"
        "task: {arguments: {lr: \"choice('a b', c)\", files: 'glob(*)', sum: 'f(1, 2)'}}\n"
    )
    notes = planned("conf=texts", folders=(tmp_path,)).notes
    (note,) = [each for each in notes if "is a text" in each]
    typed = shlex.split(note.partition("; to search it, write ")[2])[0]
    assert planned("conf=texts", typed, folders=(tmp_path,)).space["task.arguments.lr"].choices == ["a b", "c"]


HEADS = ("model=vision_transformer", "space=none", "search.constraints=['model.width % model.heads == 0']")


@pytest.mark.parametrize("widths", ["30,32", "31,32"])
def test_a_value_that_the_constraints_exclude_beside_the_config_own_values_is_no_mistake(widths: str) -> None:
    assert mistakes(*HEADS, "model.heads=choice(3,4)", f"model.width=choice({widths})") == []


def test_a_value_that_no_allowed_combination_makes_valid_is_a_mistake_under_constraints() -> None:
    lines = mistakes(*HEADS, "model.heads=choice(3,4)", "model.width=choice(-30,32)")
    assert "model.width=-30: must be greater than 0" in lines


def test_the_configs_of_a_checked_space_are_those_of_allowed_points() -> None:
    tokens = (*HEADS, "model.heads=choice(3,4)", "model.width=choice(30,32)")
    composition = composed("digits", *tokens)
    lookup = lookup_in(composition)
    points = [point for point, _ in configs_of_trials(composition, check_sweep(composition), lookup)]
    assert {"model.heads": 3, "model.width": 30} in points
