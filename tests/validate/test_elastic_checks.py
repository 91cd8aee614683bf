"""A range of numbers of workers that cannot work is refused with its fix, before anything starts."""

from __future__ import annotations

import pytest
from composing import checked, composed

from sweeps.errors import DoesNotFit, UserError
from sweeps.runtime.trials_at_once import fit

TWO_TO_EIGHT = "scaling.num_workers={min: 2, max: 8}"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["scaling.num_workers={min: 4, max: 2}"], r"scaling.num_workers: min=4 must be less than max=2"),
        (["scaling.num_workers={min: 0, max: 2}"], r"scaling.num_workers.min=0: must be greater than 0"),
        (["scaling.num_workers={min: 2}"], r"scaling.num_workers.max: is required"),
        (["scaling.num_workers={min: 2, max: 4, step: 2}"], r"scaling.num_workers.step=2: there is no such key"),
        (["scaling.num_workers=two"], r"scaling.num_workers='two': must be a valid integer"),
        ([TWO_TO_EIGHT, "+scaling.placement=STRICT_PACK"], r"placement=STRICT_PACK: .* use PACK, or one number"),
        (
            [TWO_TO_EIGHT, "+scaling.pools={a: {labels: {x: y}}}"],
            r"num_workers: a range cannot be combined with pools; give one number, or remove pools",
        ),
        (
            ["scaling.num_workers={min: 2, max: 3}", "~space", "train.global_batch_size=64"],
            r"no number from 3 to 3 divides train.global_batch_size=64 .* use a multiple of 4",
        ),
        (
            [TWO_TO_EIGHT, "strategy=tensor_parallel", "model=vision_transformer"],
            r"strategy.size: strategy.kind=tensor_parallel divides the model over all workers.*set strategy.size",
        ),
        ([TWO_TO_EIGHT, "strategy=pipeline"], r"strategy.stages: strategy.kind=pipeline divides the model"),
        ([TWO_TO_EIGHT, "+strategy.compression=powersgd"], r"strategy.compression=powersgd: .* use fp16, bf16 or none"),
        (
            [TWO_TO_EIGHT, "+space.scaling={type: categorical, choices: [single_worker, two_workers]}"],
            r"space.scaling: with .* the sweep decides on the workers",
        ),
    ],
)
def test_each_mistake_is_named_with_its_fix(tokens: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        checked("digits", *tokens)


def test_a_users_program_is_refused() -> None:
    with pytest.raises(UserError, match=r"only with built-in tasks and functions, not with task\.kind=command"):
        checked("command", TWO_TO_EIGHT)


@pytest.mark.parametrize(
    "conf", ["ray_train_function", "ray_data", "huggingface_trainer", "lightning_module", "torchrun_script"]
)
def test_a_users_function_may_have_any_number_of_workers_in_the_range(conf: str) -> None:
    composition = checked(conf, TWO_TO_EIGHT)
    assert composition.config.worker_numbers() == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("tokens", "numbers"),
    [
        (["train.global_batch_size=64"], [2, 4, 8]),
        (["train.global_batch_size=24"], [2, 3, 4, 6, 8]),
        (["train.global_batch_size=24", "+train.micro_batch_size=4"], [2, 3, 6]),
        (["strategy=pipeline", "+strategy.stages=2", "train.global_batch_size=64"], [2, 4, 8]),
    ],
)
def test_a_trial_has_numbers_of_workers_over_which_everything_divides(tokens: list[str], numbers: list[int]) -> None:
    composition = checked("digits", "~space", TWO_TO_EIGHT, *tokens)
    assert composition.config.worker_numbers() == numbers


def test_as_many_trials_run_at_once_as_the_smallest_number_of_workers_allows() -> None:
    elastic = composed("digits", TWO_TO_EIGHT, "search.num_trials=9").config
    trials = fit(elastic, [elastic.scaling], [{"CPU": 6.0}, {"CPU": 5.0}])
    assert (trials.concurrent, trials.places, trials.num_workers) == (5, 11, 2)
    assert trials.describe() == "at least 2 workers of 1 CPU; 5 at once share 11 workers"


def test_a_maximum_that_a_local_cluster_can_never_reach_is_refused() -> None:
    elastic = composed("digits", TWO_TO_EIGHT).config
    with pytest.raises(DoesNotFit, match=r"scaling.num_workers.max=8: the cluster can place 4 .* lower it to 4"):
        fit(elastic, [elastic.scaling], [{"CPU": 4.0}])
    joined = composed("digits", TWO_TO_EIGHT, "cluster=ray", "cluster.address=auto").config
    assert fit(joined, [joined.scaling], [{"CPU": 4.0}]).places == 4, "nodes may join it"
    with pytest.raises(DoesNotFit, match=r"scaling.num_workers.min=2: the cluster can place 1 workers"):
        fit(elastic, [elastic.scaling], [{"CPU": 1.0}])
