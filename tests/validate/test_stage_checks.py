"""Mistakes in the stages of a search are found on the driver: one message with key, value and fix."""

from __future__ import annotations

import pytest
from composing import checked, composed, refusal

from sweeps.compose.composition import Composition
from sweeps.plan.stage import planned_stages
from sweeps.validate.config_checks import check_sweep, lookup_in
from sweeps.validate.search_notes import search_notes

SPACE = ("space=none", "train.lr=interval(0.001, 0.1)")


def stages(*overrides: str, num_trials: int = 6) -> str:
    listed = ", ".join(f"'{each}'" for each in overrides)
    return f"search.stages=[{{overrides: [{listed}], num_trials: {num_trials}, keep: 3}}]"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            (stages("train.max_stepz=20"),),
            ["search.stages.0.overrides", "train.max_stepz", "mean train.max_steps"],
        ),
        ((stages("model=conv_nett"),), ["search.stages.0.overrides", "model=conv_nett", "conv_net"]),
        ((stages("20 steps"),), ["search.stages.0.overrides.0=20 steps", "is not an override"]),
        ((stages("train.max_steps=many"),), ["search.stages.0.overrides", "train.max_steps"]),
        ((stages("train.max_steps=choice(10, 20)"),), ["train.max_steps=choice(10, 20)", "one value"]),
        ((stages("~train.lr"),), ["search.stages.0.overrides.0=~train.lr", "one value"]),
        ((stages("train.lr=0.01"),), ["search.stages.0.overrides.0=train.lr=0.01", "is searched", "~space.train.lr"]),
        ((stages("space.train.lr.low=0.01"),), ["space.train.lr.low", "holds for the whole sweep", "train"]),
        ((stages("search.metric=eval/loss"),), ["search.metric=eval/loss", "holds for the whole sweep"]),
        ((stages("scaling.num_workers=1"),), ["scaling.num_workers=1", "holds for the whole sweep"]),
        ((stages("seed=1"),), ["search.stages.0.overrides.0=seed=1", "holds for the whole sweep"]),
        ((stages("train.max_steps=\\${train.eval_every}"),), ["interpolation", "the value itself"]),
        ((stages("train.max_steps=300"), "train.max_steps=300"), ["search.stages.0", "change nothing", "differ"]),
        ((stages("train.max_steps=20", num_trials=2),), ["search.stages.0.keep=3", "num_trials=2", "at most"]),
        (
            (stages("train.max_steps=20"), "search.num_trials=2"),
            ["search.stages.0.keep=3", "search.num_trials=2", "at most"],
        ),
        ((stages(),), ["search.stages.0.overrides", "at least 1"]),
        (
            (
                stages("train.max_steps=20"),
                "search.metric=[eval/accuracy,eval/loss]",
                "search.mode=[max,min]",
                "search/scheduler=none",
            ),
            ["search.stages", "one objective", "one search.metric"],
        ),
        (
            ("search=pbt", stages("train.max_steps=20")),
            ["search.stages", "search.scheduler.kind=pbt", "search/scheduler=asha"],
        ),
        (
            (stages("train.max_steps=20"), "train.eval_every=10", "search.scheduler.grace=4", "train.max_steps=80"),
            ["search.stages.0: search.scheduler.grace=4", "a trial has 2 evaluations"],
        ),
        ((stages("task.kind=classification"),), ["search.stages.0"]),
    ],
)
def test_a_mistake_in_a_stage_is_named_with_its_fix(tokens: tuple[str, ...], words: list[str]) -> None:
    message = refusal("digits", *SPACE, *tokens)
    for word in words:
        assert word in message, message


def test_a_stage_that_keeps_more_than_the_next_one_trains_is_refused() -> None:
    text = (
        "search.stages=[{overrides: ['train.max_steps=20'], num_trials: 8, keep: 4}, "
        "{overrides: ['train.max_steps=30'], num_trials: 3, keep: 2}]"
    )
    assert "search.stages.0.keep=4: is more than search.stages.1.num_trials=3" in refusal("digits", *SPACE, text)


@pytest.mark.parametrize(
    ("override", "rule", "words"),
    [
        ("model.channels=8", "train.lrr: 0.5", ["rescale.train.lrr=0.5", "is not searched", "mean train.lr"]),
        ("model.channels=8", "train.optimizer: 2", ["rescale.train.optimizer=2", "has choices"]),
        ("model.channels=8", "train.lr: 0", ["search.stages.0.rescale.train.lr", "greater than 0"]),
        ("model.channels=8", "train.lr: {model.channels: -1000}", ["search.stages.0.rescale.train.lr", "-4"]),
        (
            "model.channels=8",
            "train.lr: {model.width: -1}",
            ["model.width=-1: the config has no model.width; use one of model.blocks, model.channels", "a factor"],
        ),
        ("model.channels=8", "train.lr: {model.channel: -1}", ["has no model.channel; did you mean model.channels"]),
        ("model=vision_transformer", "train.lr: {model.width: -1}", ["model.width is 32 in", "missing after it"]),
        ("model.channels=8", "train.lr: 1e300", ["train.lr=1e+300", "out of the range 0.001 to 0.1", "0.01 and 100"]),
        ("model.channels=8", "train.lr: {model.kind: -1}", ["model.kind=-1", "conv_net", "positive number"]),
        ("model.channels=8", "train.lr: {train.momentum: 1}", ["train.momentum=1", "is searched"]),
        ("train.max_steps=20", "train.lr: {model.channels: -1}", ["is 16 in the stage and after it", "overrides"]),
    ],
)
def test_a_value_that_cannot_be_rescaled_is_named(override: str, rule: str, words: list[str]) -> None:
    more = ("train.optimizer=choice(sgd, adamw)", "train.momentum=interval(0.5, 0.9)")
    stage = f"search.stages=[{{overrides: ['{override}'], num_trials: 6, rescale: {{{rule}}}}}]"
    message = refusal("digits", *SPACE, *more, stage)
    for word in words:
        assert word in message, message


def test_by_default_a_stage_keeps_at_most_as_many_points_as_there_are_trials() -> None:
    few = "search.stages=[{overrides: ['train.max_steps=40'], num_trials: 4}]"
    for tokens, kept in (((few,), 4), ((few, "search.num_trials=3"), 3), ((few.replace("4}", "9}"),), 5)):
        composition = checked("digits", *SPACE, *tokens)
        assert [stage.keep for stage in planned_stages(composition)] == [kept]


def test_mistakes_in_keep_and_in_rescale_are_told_at_once() -> None:
    text = "search.stages=[{overrides: ['train.max_steps=40'], num_trials: 4, keep: 9, rescale: {train.lrr: 0.5}}]"
    first, second = refusal("digits", *SPACE, text).split("\n")
    assert first.startswith("search.stages.0.keep=9")
    assert second.startswith("search.stages.0.rescale.train.lrr=0.5")


def test_a_stage_has_the_sweeps_space_and_its_own_values() -> None:
    composition = checked("digits", *SPACE, stages("train.max_steps=20", "model.channels=8", num_trials=5))
    staged = composition.in_stage(1)
    assert staged.config.space == composition.config.space
    assert (staged.config.search.num_trials, staged.config.search.stages) == (5, [])
    assert (staged.config.loop.max_steps, staged.trial({}).model.channels) == (20, 8)  # type: ignore[union-attr]
    assert composition.stages == [{"train.max_steps": 20, "model.channels": 8}]
    # With these values the sweep's own composition makes the stage's trials.
    point = {"train.lr": 0.05}
    assert composition.trial({**composition.stages[0], **point}).training() == staged.trial(point).training()


def test_a_stage_may_have_another_option_of_a_group() -> None:
    composition = checked("digits", *SPACE, stages("model=vision_transformer"))
    assert composition.config.model != composition.in_stage(1).config.model
    assert composition.in_stage(1).config.model.kind == "vision_transformer"  # type: ignore[union-attr]
    assert composition.in_stage(1).trial({"train.lr": 0.05}).train.lr == 0.05  # type: ignore[union-attr]


def test_values_that_follow_from_a_stages_values_are_computed_anew() -> None:
    derived = ("train.eval_every=${train.max_steps}", "train.max_steps=40")
    composition = composed("digits", *SPACE, *derived, "search/scheduler=none", stages("train.max_steps=20"))
    assert composition.in_stage(1).config.loop.eval_every == 20  # type: ignore[union-attr]


def test_the_composition_is_the_same_after_it_was_saved() -> None:
    composition = composed("digits", *SPACE, stages("train.max_steps=20"))
    assert Composition.from_json(composition.as_json()) == composition


def test_a_sampler_that_does_not_learn_from_stages_is_noted() -> None:
    composition = composed("digits", *SPACE, "search=random", stages("train.max_steps=20"))
    space = check_sweep(composition)
    notes = [*search_notes(composition, space, lookup_in(composition))]
    assert any("search.sampler.kind=random does not learn from search.stages" in note for note in notes)
