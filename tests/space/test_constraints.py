"""Expressions, constraints between parameters, and derived values."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeps.compose import Composition
from sweeps.compose.expressions import Absent, Expression
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError, ConstraintViolated
from sweeps.folders.conf_folders import conf_folder
from sweeps.plan.plan import make_plan
from sweeps.report.expected_cost import workload_of
from sweeps.report.plan_summary import plan_text
from sweeps.space.constraints import Constraints
from sweeps.space.initial_points import InitialPoints
from sweeps.space.suggester import RandomDraws
from sweeps.texts.wording import counted
from sweeps.validate.config_checks import check_sweep, lookup_in

VALUES = {"a": 3, "b.c": 0.5, "name": "sgd", "none": None, "flag": True, "modules": ["q", "v"]}


def value_at(path: str) -> Any:
    if path not in VALUES:
        raise Absent(path)
    return VALUES[path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a * 2 + b.c", 6.5),
        ("-a ** 2 // 2 % 5", -(3**2) // 2 % 5),
        ("a / 2 > 1 and not flag", False),
        ("1 < a <= 3 or missing.path", True),
        ("name in ['sgd', 'nag'] and name != 'adam'", True),
        ("'q' in modules and 'k' not in modules", True),
        ("none is None and none == null and flag == true", True),
        ("max(a, 7) - min(a, 7) + abs(-1) + round(2.4)", 7),
        ("log2(8) + sqrt(16)", 7.0),
        ("a if flag else missing.path", 3),
        ("  a == 3 ", True),
        ("2 ** 4000 > 1", True),
        ("10 ** 300 * 10 ** 300 > 1.0", True),
        ("2 ** -10", 2**-10),
        ("(-1) ** 10 ** 9", 1),
        ("2.5 ** 100", 2.5**100),
        ("'q' * 10000 == 'q'", False),
        ("[a] * 3 + [1]", [3, 3, 3, 1]),
        ("[a] * -3", []),
        ("round(2.345, 2)", 2.35),
        ("'a' + 'b'", "ab"),
    ],
)
def test_an_expression_has_the_value_that_python_gives_it(text: str, expected: Any) -> None:
    assert Expression(text).evaluate(value_at) == expected


def test_an_expression_knows_the_paths_that_it_names() -> None:
    expression = Expression("max(train.lr, a) < 2 and (model == 'conv_net' or a.b.c > true)")
    assert expression.paths == ["train.lr", "a", "model", "a.b.c"]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "a.real()",
        "().__class__",
        "a[0]",
        "[x for x in modules]",
        "lambda: 1",
        "f'{a}'",
        "{1: 2}",
        "max(*modules)",
        "round(a, ndigits=2)",
        "(a := 3)",
        "a = 3",
        "a; a",
        "import os",
        "a & 3",
        "a @ a",
        "~a",
        "1 +",
        "",
        "a\0",
        "(" * 300 + ")" * 300,
    ],
)
def test_nothing_beyond_arithmetic_and_comparison_is_an_expression(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an expression|has |calls "):
        Expression(text)


@pytest.mark.parametrize("text", ["a / 0", "none < 3", "sqrt(-1)", "name * name", "9 ** 9 ** 9", "a(3) if a else 1"])
def test_what_cannot_be_computed_is_an_error_that_names_the_values(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Expression(text).evaluate(value_at)


@pytest.mark.parametrize(
    "text",
    [
        "1000**4000000 > 1",
        "(-3)**(10**9)",
        "(10**1000)*(10**1000)",
        "'a' * 10**9",
        "10**9 * 'a'",
        "[] * 10**9",
        "[[1] * 900] * 900",
        "max([1] * 10**9)",
        "[modules, modules] * 300",
        "('a' * 9000) + ('b' * 9000)",
        "'%1000000000d' % 5",
        "round(5, -10**9)",
        "-2**4000 * -2**4000",
    ],
)
def test_an_expression_makes_nothing_that_is_large(text: str) -> None:
    expression = Expression(text)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"more than|at most|needs numbers"):
        expression.evaluate(value_at)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200_000


@pytest.mark.parametrize(
    "text",
    [
        "-" * 1500 + "1",
        "not " * 400 + "a",
        " + ".join(["a"] * 400),
        "a" + ".b" * 500,
        " < ".join(["a"] * 500),
        "a" * 3000,
    ],
)
def test_an_expression_is_neither_long_nor_deep(text: str) -> None:
    with pytest.raises(ValueError, match=r"has more than 300 parts|at most 2,000"):
        Expression(text)


def constrained(*texts: str, tokens: tuple[str, ...] = (), conf: str = "digits") -> InitialPoints:
    composition = compose_sweep(conf, [f"search.constraints={json.dumps(texts)}", *tokens], ConfSearchPath())
    return InitialPoints(composition, check_sweep(composition), Constraints(composition), lookup_in(composition))


def test_the_grid_leaves_out_exactly_the_forbidden_points() -> None:
    points = constrained(
        "train.global_batch_size * train.max_steps <= 4000",
        "train.optimizer != 'sgd' or train.lr < 0.1",
        tokens=(
            *("search=grid", "space=none", "train.global_batch_size=choice(16, 32, 64)"),
            *("train.max_steps=range(50, 251, 50)", "train.optimizer=choice(sgd, adamw)"),
            *("train.lr=choice(0.01, 0.1)", "train.eval_every=10"),
        ),
    )
    wanted = [
        (batch, steps, optimizer, lr)
        for batch, steps, optimizer, lr in itertools.product(
            [16, 32, 64], range(50, 251, 50), ["sgd", "adamw"], [0.01, 0.1]
        )
        if batch * steps <= 4000 and (optimizer != "sgd" or lr < 0.1)
    ]
    names = ("train.global_batch_size", "train.max_steps", "train.optimizer", "train.lr")
    found = [tuple(point[name] for name in names) for point in points.grid()]
    assert sorted(found) == sorted(wanted)


def test_a_point_that_leaves_values_out_is_no_further_point_of_a_grid() -> None:
    tokens = ("space=none", "model.blocks=choice(1, 2)", "train.momentum=choice(0.8, 0.9)")
    points = constrained(tokens=(*tokens, "search.points=[{model.blocks: 2}]"))
    assert points.num_points == len(points.grid()) == 4


def test_the_allowed_share_is_that_of_the_trials_whose_config_satisfies() -> None:
    """The quick lookup of values agrees with composing each trial."""
    points = constrained("train.lr * train.global_batch_size < 0.5 or model.dropout > 0.2", "train.momentum > 0.85")
    draws = RandomDraws(0)
    for _ in range(100):
        point = points.space.sample(draws, points.lookup)
        trial = points.composition.trial(point)
        train = trial.train
        holds = train.lr * train.global_batch_size < 0.5 or trial.model.dropout > 0.2  # type: ignore[union-attr]
        assert points.constraints.allows(point) == (holds and train.momentum > 0.85)
    assert 0 < points.share_allowed() < 1


def test_a_constraint_on_what_another_model_has_does_not_apply() -> None:
    points = constrained("model.channels <= 8", "model == 'conv_net' or model.depth < 3")
    assert not points.constraints.allows({"model": "conv_net", "model.channels": 16})
    assert points.constraints.allows({"model": "conv_net", "model.channels": 8})
    assert points.constraints.allows({"model": "vision_transformer", "model.depth": 2})
    assert not points.constraints.allows({"model": "vision_transformer", "model.depth": 3})


def test_a_constraint_on_a_value_that_is_not_searched_has_that_of_the_chosen_model() -> None:
    models = "model=choice(conv_net, vision_transformer)"
    points = constrained("model.width <= 8", tokens=("space=none", models))
    assert points.constraints.allows({"model": "conv_net"})
    assert not points.constraints.allows({"model": "vision_transformer"})


def test_a_constraint_sees_derived_values() -> None:
    points = constrained(
        "model.lora.alpha <= 32",
        tokens=("model.lora.alpha=${calc:'4 * model.lora.r'}", "space.model.lora.r={type: int, low: 1, high: 64}"),
        conf="llm_lora",
    )
    assert points.constraints.allows({"model.lora.r": 8})
    assert not points.constraints.allows({"model.lora.r": 9})


def test_the_message_names_the_constraint_and_the_values() -> None:
    points = constrained("train.lr < 0.05")
    with pytest.raises(
        ConstraintViolated, match=r"search\.constraints\.0='train\.lr < 0\.05' does not hold, with train\.lr=0\.1"
    ):
        points.constraints.check({"train.lr": 0.1})


def test_a_default_that_the_constraints_forbid_is_not_tried_and_the_plan_says_so() -> None:
    points = constrained("train.lr >= 0.01")
    assert points.first() == []
    assert any("not tried first" in note and "train.lr=0.001" in note for note in points.notes())
    assert constrained("train.lr < 0.01").first()[0]["train.lr"] == 0.001


def test_a_searched_value_that_the_config_lacks_is_not_called_none() -> None:
    points = constrained(tokens=("space.task.arguments.momentum={type: float, low: 0, high: 1}",), conf="estimator")
    assert any("the config has no task.arguments.momentum" in note for note in points.notes())


def test_the_last_part_of_a_path_suggests_the_path() -> None:
    with pytest.raises(ConfigError, match=r"the config has no 'heads'; did you mean model\.heads\?"):
        constrained("heads % 2 == 0", tokens=("model=vision_transformer", "space=none"))


def test_what_a_given_point_leaves_out_is_not_judged_before_it_is_sampled() -> None:
    constraint = "train.lr * train.global_batch_size < 1"
    constrained(constraint, tokens=("search.points=[{train.lr: 0.1}]",))
    with pytest.raises(ConfigError, match=r"search\.points\.0: search\.constraints\.0=.* does not hold"):
        constrained(constraint, tokens=("search.points=[{train.lr: 0.1, train.global_batch_size: 64}]",))
    # sgd's momentum is sampled; of adamw it is the config's own
    constrained("train.momentum > 0.95", tokens=("search.points=[{train.optimizer: sgd}]",))
    with pytest.raises(ConfigError, match=r"search\.points\.0"):
        constrained("train.momentum > 0.95", tokens=("search.points=[{train.optimizer: adamw}]",))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["train.lr <"], ["search.constraints.0='train.lr <'", "not an expression"]),
        (["train.lr < 1", "train.lrr < 1"], ["search.constraints.1='train.lrr < 1'", "'train.lrr'", "train.lr"]),
        (["model.chanels > 3"], ["model.chanels", "model.channels"]),
        (["train.lr * 2"], ["search.constraints.0='train.lr * 2'", "neither true nor false", "compare"]),
        (["train.lr > 1"], ["search.constraints.0='train.lr > 1'", "none of 1,000", "loosen"]),
        (["print(train.lr) == 1"], ["calls 'print'", "functions are min"]),
        (["train.lr < 1", "train.lr > 1"], ["search.constraints.0", "search.constraints.1", "them"]),
        (["train.micro_batch_size < 3"], ["train.micro_batch_size=None", "not supported", "correct the constraint"]),
    ],
)
def test_a_mistake_in_a_constraint_is_found_on_the_driver(texts: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        constrained(*texts)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("constraint", "tokens", "words"),
    [
        ("task.arguments.lrr < 0.5", (), "the config has no 'task.arguments.lrr'; did you mean task.arguments.lr"),
        ("vars.rat < 1", ("vars.rate=2",), "the config has no 'vars.rat'; did you mean vars.rate?"),
        ("task.arguments.lr < 0.5 and vars.rate > 1", ("vars.rate=2",), None),
        ("vars.a.b < 9 or vars.none.b < 1", ("vars={a: {c: 1}, none: null}", "vars.a=choice({b: 1}, {b: 2})"), None),
        ("vars.other < 1 and task.arguments.dropout < 1", (), None),  # of other programs that share the constraints
        ("task.arguments.late < 1", ("search.stages=[{num_trials: 2, overrides: ['task.arguments.late=0']}]",), None),
    ],
)
def test_a_name_that_may_be_misspelt_below_a_mapping_with_any_names_is_noted(
    constraint: str, tokens: tuple[str, ...], words: str | None
) -> None:
    texts = json.dumps([constraint])
    composition = compose_sweep("ray_train_function", [f"search.constraints={texts}", *tokens], ConfSearchPath())
    check_sweep(composition)
    found = "\n".join(Constraints(composition).perhaps_misspelt())
    assert (found == "") if words is None else (words in found)


# --- derived values -----------------------------------------------------------------------------------------


def derived(folder: Path, changes: dict[str, Any]) -> Composition:
    document = yaml.safe_load((conf_folder() / "llm_lora.yaml").read_text(encoding="utf-8"))
    (folder / "derived.yaml").write_text(yaml.safe_dump({**document, **changes}), encoding="utf-8")
    composition = compose_sweep("derived", [], ConfSearchPath((folder,)))
    check_sweep(composition)
    return composition


@pytest.mark.parametrize(
    "text",
    [
        "${calc:'2 * model.lora.r'}",
        "${calc:'2 * ${model.lora.r}'}",
        "${calc:\"2 * model.lora.r if train.optimizer == 'adamw' else 0\"}",
        "${calc:'max(2, 2 * model.lora.r)'}",
    ],
)
def test_a_calculated_value_follows_the_sampled_one(tmp_path: Path, text: str) -> None:
    composition = derived(tmp_path, {"model": {"lora": {"r": 4, "alpha": text}}, "space": {"model.lora.alpha": None}})
    for rank in (2, 16):
        assert composition.trial({"model.lora.r": rank}).model.lora.alpha == 2 * rank  # type: ignore[union-attr]
    assert composition.config.model.lora.alpha == 8  # type: ignore[union-attr]


def test_a_searched_value_is_set_where_the_yaml_derives_it(tmp_path: Path) -> None:
    composition = derived(tmp_path, {"model": {"lora": {"alpha": "${calc:'2 * model.lora.r'}"}}})
    model = composition.trial({"model.lora.r": 2, "model.lora.alpha": 64}).model
    assert (model.lora.r, model.lora.alpha) == (2, 64)  # type: ignore[union-attr]


def test_a_value_set_inside_a_derived_section_keeps_the_sections_others() -> None:
    composition = compose_sweep("llm_lora", (), ConfSearchPath())
    variant = next(iter(composition.variants.values()))
    variant["model"]["lora"] = "${shared}"
    variant["shared"] = {"r": 3, "dropout": 0.25}
    container = composition.container({"model.lora.r": 5})
    assert container["model"]["lora"] == {"r": 5, "dropout": 0.25}
    assert container["shared"] == {"r": 3, "dropout": 0.25}


def test_a_sampled_mapping_takes_the_place_of_the_configs() -> None:
    composition = compose_sweep("llm_lora", (), ConfSearchPath())
    assert composition.container({"model.lora": {"r": 3}})["model"]["lora"] == {"r": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "${calc:'2 * model.lora.rank'}",
            ["model.lora.alpha=", "names model.lora.rank, which the YAML does not"],
        ),
        ("${calc:'2 *'}", ["model.lora.alpha=", "not an expression"]),
        ("${calc:'1 / (model.lora.r - 4)'}", ["model.lora.alpha=", "division by zero", "model.lora.r=4"]),
        ("${calc:'model.lora.alpha + 1'}", ["model.lora.alpha", "itself"]),
        ("${calc:'open(model.path)'}", ["calls 'open'"]),
        ("${clac:'1'}", ["model.lora.alpha", "clac"]),
    ],
)
def test_a_mistake_in_a_derived_value_names_the_key(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        derived(tmp_path, {"model": {"lora": {"r": 4, "alpha": text}}})
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("tokens", "number"),
    [
        (("search=grid", "space=none", "train.lr=choice(0.1, 0.2, 0.3)"), 3),
        (("search=grid", "space=none", "train.lr=choice(0.1, 0.2, 0.3)", "search.num_trials=2"), 2),
        (("search=grid", "space=none", "train.lr=choice(0.1, 0.2)", "search.constraints=['train.lr < 0.15']"), 1),
        (("search=random", "space=none", "train.lr=choice(0.1, 0.2, 0.3)"), 3),
        (("search=random", "space=none", "train.lr=choice(0.1, 0.2)", "search.duplicates=true"), 16),
        (("search=random", "space=none", "train.lr=interval(0.1, 0.2)"), 16),
    ],
    ids=str,
)
def test_a_plan_has_as_many_trials_as_its_space_has_points(tokens: tuple[str, ...], number: int) -> None:
    plan = make_plan(["conf=digits", *tokens], [], None, "")
    assert plan.num_trials == number
    assert f": {counted(number, 'trial')}, max of eval/accuracy" in plan_text(plan)
    assert f"</b> {counted(number, 'trial')}, " in plan._repr_html_()
    assert workload_of(plan).trials == number
