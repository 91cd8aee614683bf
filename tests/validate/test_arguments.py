"""Arguments that a user's code does not take are refused before anything starts, without importing it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from composing import planned

from sweeps.errors import ConfigError
from sweeps.plan.plan import make_plan
from sweeps.validate.script_checks import script_options
from sweeps.validate.source_checks import keys_read, source_signature

NETS = """
raise RuntimeError("this module must not be imported")

import functools
from torch import nn
from own_layers import Block as Part
from .nowhere import Other


class Net(nn.Module):
    def __init__(self, width, depth=2, *, dropout=0.0):
        super().__init__()


class Wider(Net):
    pass


class Open(nn.Module):
    def __init__(self, width=3, **others):
        pass


@functools.cache
def decorated(a):
    return a


def data(path, /, size=3):
    return path


half = functools.partial(data, size=2)


def train(config):
    report(config["lr"], config.get("wd", 0.0), build(config))


def build(settings):
    return [settings["hidden"]] if "hidden" in settings else []


def reads_any(config):
    return dict(config)


def two(config, other):
    pass


def by_name(model, lr=0.1, epochs=3):
    pass


def with_defaults(config, lr=0.1):
    return config.get("lr", lr)


def none():
    pass
"""
SCRIPT = """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch-size", "-b", type=int)
    print(parser.parse_args())
"""
FLAGS = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--amp", type=bool, default=False)
parser.add_argument("--fast", action="store_true")
args = parser.parse_args()
"""
FUNCTION = """
defaults: [ray_train_function, _self_]
task: {_target_: own_nets.train}
"""


@pytest.fixture(autouse=True)
def _modules(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / "own_nets.py").write_text(NETS)
    (working_folder / "own_layers.py").write_text("class Block:\n    def __init__(self, size):\n        pass\n")
    (working_folder / "own_script.py").write_text(SCRIPT)
    (working_folder / "own_flags.py").write_text(FLAGS)
    (working_folder / "mine.yaml").write_text(FUNCTION)
    (working_folder / "groups" / "model").mkdir(parents=True)
    (working_folder / "groups" / "model" / "own.yaml").write_text("kind: custom\n_target_: own_nets.Net\n")
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])
    sys.path_importer_cache.pop(str(working_folder), None)


def mistakes(*tokens: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        make_plan(tokens, [Path("groups")], None, "")
    return str(raised.value).splitlines()


MODEL = ("conf=digits", "space=none", "model=custom", "model._target_=own_nets.Net")
FLAGGED = (
    *("conf=torchrun_script", "~space", "~task.arguments", "task._target_=own_flags.py"),
    "task.arguments.lr=interval(0, 1)",
)


@pytest.mark.parametrize(
    ("target", "signature"),
    [
        ("own_nets.Net", "(width, depth=Ellipsis, *, dropout=Ellipsis)"),
        ("own_nets.Wider", "(width, depth=Ellipsis, *, dropout=Ellipsis)"),
        ("own_nets.Open", "(width=Ellipsis, **others)"),
        ("own_nets.Part", "(size)"),
        ("own_nets.data", "(path, /, size=Ellipsis)"),
        ("own_nets.decorated", None),
        ("own_nets.half", None),
        ("own_nets.Other", None),
        ("own_nets.nothing", None),
        ("math.sqrt", None),
    ],
)
def test_a_signature_is_read_from_the_source_or_not_known(target: str, signature: str | None) -> None:
    found = source_signature(target)
    assert (None if found is None else str(found)) == signature


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        ("own_nets.train", {"lr", "wd", "hidden"}),
        ("own_nets.reads_any", None),
        ("own_nets.none", set()),
        ("sweeps_train.examples.ray_train_digits.train", {"lr", "hidden", "batch_size", "epochs"}),
        ("sweeps_train.examples.lightning_digits.training", {"lr", "hidden", "batch_size", "epochs"}),
        ("sweeps_train.examples.huggingface_trainer.trainer", {"lr", "weight_decay", "batch_size", "max_steps"}),
    ],
)
def test_the_keys_that_a_function_reads_are_known_or_any(target: str, keys: set[str] | None) -> None:
    assert keys_read(target) == keys


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("", {"lr", "batch-size"}),
        ("import sys; print(sys.argv)", None),
        ("add_more(parser)", None),
        ("args, _ = parser.parse_known_args()", None),
        ("parser.add_argument(*names)", None),
        ("parser.add_argument('rest', nargs=argparse.REMAINDER)", None),
    ],
)
def test_the_options_of_a_script_are_known_or_any(change: str, options: set[str] | None) -> None:
    Path("own_script.py").write_text(SCRIPT + change)
    found = script_options("own_script.py")
    assert found == script_options("own_script")
    assert (None if found is None else {*found}) == options


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (
            (*MODEL, "model.arguments={width: 3, widht: 4}"),
            ["model.arguments.widht=4: model._target_=own_nets.Net takes no argument 'widht'; did you mean width?"],
        ),
        ((*MODEL, "model.arguments.widht=3"), ["model.arguments.widht=3: .* did you mean width"]),
        (MODEL, ["model.arguments.width: model._target_=own_nets.Net needs it; give it a value"]),
        (
            (*MODEL, "model.arguments.width=3", "model.arguments.depht=choice(1, 2)"),
            ["space.model.arguments.depht: .* takes no argument 'depht'; did you mean depth"],
        ),
        (
            ("conf=digits", "space=none", "data=custom", "data._target_=own_nets.data", "data.arguments.sise=3"),
            ["data.arguments.sise=3: data._target_=own_nets.data takes no argument 'sise'; did you mean size"],
        ),
        (
            ("conf=digits", "search/sampler=custom", "search.sampler._target_=own_layers.Block"),
            ["search.sampler.arguments.size: search.sampler._target_=own_layers.Block needs it"],
        ),
        (
            ("conf=digits", "space=none", "model=choice(conv_net, own)"),
            ["model.arguments.width: model._target_=own_nets.Net needs it"],
        ),
        (
            ("conf=ray_train_function", "task._target_=own_nets.two"),
            ["task._target_=own_nets.two: takes config, other, but is called with one mapping"],
        ),
        (
            (
                *("conf=huggingface_trainer", "~space", "task._target_=own_nets.by_name", "~task.arguments"),
                *("task.arguments.lr=interval(0, 1)", "+task.arguments.epochs=2"),
            ),
            ["task._target_=own_nets.by_name: takes lr, epochs, but is called with one mapping; write `def train"],
        ),
        (
            ("conf=torchrun_script", "task._target_=own_script.py"),
            [
                "space.task.arguments.hidden: .*own_script.py has no option --hidden; use one of batch-size, lr",
                "task.arguments.epochs=6: task._target_=own_script.py has no option --epochs",
            ],
        ),
        (
            (*FLAGGED, "task.arguments.wd=interval(0, 1)"),
            ["space.task.arguments.wd: task._target_=own_flags.py has no option --wd; use one of"],
        ),
        (
            (*FLAGGED, "task.arguments.amp=choice(true, false)"),
            ["space.task.arguments.amp: .* reads --amp with type=bool, which takes any text for true, also false"],
        ),
        (
            (*FLAGGED, "task.arguments.fast=choice(true, false)"),
            [
                f"space.task.arguments.fast: .* takes --fast without a value, and a script gets --fast={value}; use"
                for value in ("true", "false")
            ],
        ),
    ],
)
def test_an_argument_that_is_not_taken_is_refused_by_name(tokens: tuple[str, ...], expected: list[str]) -> None:
    found = mistakes(*tokens)
    assert len(found) == len(expected)
    for line, pattern in zip(found, expected, strict=True):
        assert re.match(pattern, line), line


def test_a_function_may_have_defaults_for_what_it_reads_from_its_mapping() -> None:
    tokens = ("conf=ray_train_function", "~space", "~task.arguments", "task._target_=own_nets.with_defaults")
    plan = planned(*tokens, "task.arguments.lr=interval(0, 1)", folders=[Path("groups")])
    assert [*plan.space] == ["task.arguments.lr"]


def test_the_parameters_of_an_inherited_example_that_a_function_does_not_read_are_refused() -> None:
    (line,) = mistakes("conf=mine.yaml")
    assert line == (
        "space.task.arguments.batch_size: task._target_=own_nets.train does not read 'batch_size', so it has no "
        "effect; remove it (~space.task.arguments.batch_size, or "
        "`task.arguments.batch_size: null` below space in YAML); it reads hidden, lr, wd"
    )


def test_a_misspelt_argument_of_a_function_is_refused_and_an_inherited_one_is_borne() -> None:
    tokens = ("conf=mine.yaml", "~space.task.arguments.batch_size")
    assert planned(*tokens).config.space.keys() == {"task.arguments.lr", "task.arguments.hidden"}
    assert mistakes(*tokens, "task.arguments.wdd=0.1") == [
        "task.arguments.wdd=0.1: task._target_=own_nets.train does not read 'wdd'; did you mean wd?"
    ]


def test_a_misspelt_argument_is_refused_also_where_the_right_one_has_a_value() -> None:
    (line,) = mistakes("conf=ray_train_function", "task.arguments.epoch=3")
    assert line.startswith("task.arguments.epoch=3: ")
    assert line.endswith("does not read 'epoch'; did you mean epochs?")


def test_an_argument_that_only_the_space_gives_a_value_is_not_missing() -> None:
    assert planned(*MODEL, "model.arguments.width=choice(2, 4)").config.space.keys()
    when = "space.model.arguments.width={type: int, low: 1, high: 2, when: {model: own}}"
    planned("conf=digits", "space=none", "model=choice(conv_net, own)", when, folders=[Path("groups")])


def test_a_searched_section_that_a_function_ignores_is_refused_by_name() -> None:
    assert mistakes("conf=ray_train_function", "train.lr=interval(0.1, 1)") == [
        "space.train.lr: task.kind=function ignores train; search task.arguments.NAME, or remove it (~space.train.lr)"
    ]
