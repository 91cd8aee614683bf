"""Overrides from Python: a list as on the command line, or a mapping of values by key; everywhere the same."""

from __future__ import annotations

import datetime
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recording import record_small_sweep

import sweeps
from sweeps.compose.overrides import override_tokens, parse_overrides, parse_values
from sweeps.errors import ConfigError, UserError


def test_a_mapping_composes_what_the_list_does() -> None:
    listed = [
        "train.lr=0.01",
        "model=vision_transformer",
        "model.dropout=interval(0, 0.2)",
        "space.train.max_steps={type: int, low: 8, high: 16}",
        "search.metric=[eval/accuracy, eval/loss]",
        "search.mode=[max, min]",
        "search/scheduler=none",
        "search.stop.wall_hours=null",
        "~space.train.optimizer",
    ]
    mapped: dict[str, Any] = {
        "train.lr": 0.01,
        "model": "vision_transformer",
        "model.dropout": "interval(0, 0.2)",
        "space.train.max_steps": {"type": "int", "low": 8, "high": 16},
        "search.metric": ["eval/accuracy", "eval/loss"],
        "search.mode": ["max", "min"],
        "search/scheduler": "none",
        "search.stop.wall_hours": None,
        "~space.train.optimizer": None,
    }
    first, second = sweeps.dry_run("digits", listed), sweeps.dry_run("digits", mapped)
    assert first.config == second.config
    assert second.command.startswith("sweeps.run('digits', ['train.lr=0.01'")


@pytest.mark.parametrize("text", ["a, b", "${nothing}", 'x"y', "[a]", "a=b", "null", "1e-3", "choice", "ünï"])
def test_a_text_of_a_mapping_is_that_text(text: str) -> None:
    overrides = {"task": "function", "task._target_": "sweeps_train.examples.function.train", "name": "x"}
    (token,) = override_tokens({"task.arguments.text": text})
    value = parse_values([token])["task.arguments.text"]
    assert value == text.replace("${", "\\${")  # which OmegaConf takes for the text
    assert override_tokens(overrides)[0] == 'task="function"'


@pytest.mark.parametrize("name", ["a:b", "recall@[5]", "f(x, y)", "a = {b}", " a ", "a\\b", "a\\", "a b"])
def test_a_key_of_a_mapping_is_that_key(name: str) -> None:
    (token,) = override_tokens({"task.arguments": {name: {name: 1}}})
    assert parse_values([token]) == {"task.arguments": {name: {name: 1}}}


@pytest.mark.parametrize("text", ["a \\\n", "\\${x}", 'b\\\\${x}"', "${x}\\"])
def test_a_text_with_backslashes_is_that_text_when_it_is_resolved(text: str) -> None:
    from omegaconf import OmegaConf

    composed = OmegaConf.create(parse_values(override_tokens({"text": text})))
    assert OmegaConf.to_container(composed, resolve=True) == {"text": text}


def test_an_option_of_a_program_is_set_by_its_name_with_dashes(working_folder: Path) -> None:
    conf = [
        "task.options.--lr=0.1",
        "+task.options.--bf16=true",
        "task.options.--name='a {seed}'",
        "task.options.--tags=a\\,b",
        "task.options.-q=null",
        "task.options.--steps==90",  # --steps=90 in the program's command line
        "task.options.model.lr==0.1",
        "task.options.+momentum==0.9",  # of a Hydra application
    ]
    plan = sweeps.dry_run("command", [*conf, "task.options.--name=b"])
    own = {"--resume": "{checkpoint}"}
    joined = {"--steps=": 90, "model.lr=": 0.1, "+momentum=": 0.9}
    own_options = {"--lr": 0.1, "--bf16": True, "--name": "b", "--tags": "a,b", "-q": None}
    assert plan.config.task.options == {**own, **own_options, **joined}  # type: ignore[union-attr]
    mapped = sweeps.dry_run("command", {"task.options.--name": "a {seed}", "task.options.--steps=": 3})
    assert mapped.config.task.options == {**own, "--name": "a {seed}", "--steps=": 3}  # type: ignore[union-attr]


def test_all_overrides_that_cannot_be_read_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        sweeps.dry_run("digits", ["data.path=a b (2).csv", "train.lr==0.1", "train.epochs=1", "data.target=Käufer"])
    first, second, third = str(caught.value).splitlines()
    assert """'data.path="a b (2).csv"'""" in first
    assert second.endswith("write one =: train.lr=0.1")
    assert third.endswith("""'data.target="Käufer"'""")


@pytest.mark.parametrize("overrides", ["search.num_trials=4", [3], [["a=b"]], 3.5])
def test_anything_else_is_refused_before_anything_starts(overrides: Any) -> None:
    with pytest.raises(UserError, match=r"must be a list.*or a mapping"):
        sweeps.dry_run("digits", overrides)


@pytest.mark.parametrize("value", [b"x", 1j, {1, 2}, print, datetime.date(2026, 1, 1), {"a": [object]}], ids=repr)
def test_a_value_that_a_config_cannot_hold_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"task.arguments.x=.*: a config cannot hold a \w+; give a number, a text, a"):
        override_tokens({"task.arguments.x": value})


def test_a_grid_of_ray_tune_is_no_value() -> None:
    with pytest.raises(ConfigError, match=r"task.arguments.x=.* notation of another tool; write the text 'choice"):
        override_tokens({"task.arguments.x": {"grid_search": [1, 2]}})


def test_the_text_of_a_range_inside_of_a_mapping_is_refused_and_other_texts_are_texts() -> None:
    with pytest.raises(ConfigError, match=r"search task.arguments.a.lr itself, as in {'task.arguments.a.lr'"):
        override_tokens({"task.arguments": {"a": {"lr": "interval(0.1, 1)"}}})
    texts = {"files": "glob(*.csv)", "column": "int(age)", "open": "range(3", "of": ["choice(1, 2)"]}
    assert parse_values(override_tokens({"task.arguments": texts})) == {"task.arguments": texts}


def test_numbers_of_numpy_and_paths_are_taken() -> None:
    import numpy as np

    mapped = {"train.lr": np.float64(0.1), "train.max_steps": np.int64(7), "output_dir": Path("below")}
    more = {"search.default_first": np.bool_(False), "search.metric": np.array(["eval/loss"])}
    config = sweeps.dry_run("digits", mapped | more | {"search.mode": "min"}).config
    assert (config.search.default_first, config.search.metrics) == (False, ("eval/loss",))
    assert config.train is not None
    assert (config.train.lr, config.train.max_steps, config.output_dir) == (0.1, 7, "below")


def test_importance_that_cannot_be_told_says_why(uri: str) -> None:
    record_small_sweep(uri)
    with pytest.warns(UserWarning, match="digits-1: the importance of parameters cannot be computed: .* 8 are needed"):
        assert sweeps.importance("digits-1", tracking_uri=uri).empty
    with pytest.raises(UserError, match="objective=1: must be less than 1, the number of objectives of digits-1"):
        sweeps.importance("digits-1", objective=1, tracking_uri=uri)


@pytest.mark.parametrize(
    "path",
    ["größe.csv", "a#b", "a=b", "~/x", "it's", "f(1).csv", "run (2)/x.csv", "a[1].csv", "a&b", "https://a/b?c=1"],
)
def test_a_path_that_hydra_does_not_read_as_text_is_answered_with_its_written_form(path: str) -> None:
    token = f"data.path={path}"
    with pytest.raises(ConfigError) as raised:
        parse_overrides([token])
    (written,) = [each for each in shlex.split(str(raised.value).rpartition(": ")[2]) if each.startswith("data.path=")]
    assert parse_values([written]) == {"data.path": path}


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["data.path=choice(ü.csv, b.csv)"], """'data.path=choice("ü.csv", b.csv)'"""),
        (["data.path=My", "Data/a.csv"], "'data.path=My Data/a.csv' for a value with a blank"),
        (["task.arguments.größe=choice(1, 2)"], "write this one in a YAML file"),
        (["task.arguments.2x=1"], "begins with no digit; write this one in a YAML file"),
        (["x.y=choice(null, [1, 2], [3])"], "'space.x.y={type: categorical, choices: [null, [1, 2], [3]]}'"),
        (["x.y=hp.choice('y', [1, 2])"], "'x.y=choice(1, 2)'"),
        (["task.arguments.names=[ü, b]"], """'task.arguments.names=["ü", b]'"""),
        (["train.lr=interval(1e-5,"], "close each bracket"),
        (["train.lr = 0.1"], "write it without blanks around =: train.lr=0.1"),
        (["data.path=f(1)"], """Unknown function 'f'); the functions are choice, interval"""),
        (["data.path=f(1)"], """quote a text with such characters: 'data.path="f(1)"'"""),
        (["seed=${oc.decode:${oc.env:SEED,3}}"], """'seed="${oc.decode:${oc.env:SEED,3}}"'"""),
        (["data.path=ü/${name}.csv"], """'data.path="ü/${name}.csv"'"""),
        (["train.lr=FloatDistribution(high=2.0, log=False, low=1.0, step=None)"], "'train.lr=interval(1.0, 2.0)'"),
        (["train.lr=loguniform(1, 2)"], "is the notation of another tool; write 'train.lr=tag(log, interval(1, 2))'"),
    ],
)
def test_a_token_that_is_no_override_is_answered_with_how_to_write_it(tokens: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_overrides(tokens)
    assert words in str(raised.value)


def test_ranges_that_hydra_cannot_read_without_assertions_are_refused_with_the_reason_and_values_are_read() -> None:
    code = "from sweeps.compose.overrides import parse_overrides; parse_overrides(['seed=3']); "
    code += "print('read'); parse_overrides(['seed=range(1, 3)'])"
    done = subprocess.run([sys.executable, "-O", "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout == "read\n"
    assert "ConfigError: 'seed=range(1, 3)': Hydra cannot read functions" in done.stderr
    assert "unset it" in done.stderr


def test_a_file_with_a_comma_in_its_name_is_not_searched_as_two(working_folder: Path) -> None:
    (working_folder / "a,b.csv").touch()
    with pytest.raises(ConfigError) as raised:
        parse_overrides(["data.path=a,b.csv"])
    assert """'data.path="a,b.csv"' for the file""" in str(raised.value)
    assert "'data.path=choice(a,b.csv)' for the search" in str(raised.value)
    parse_overrides(["data.path=a,c.csv", 'data.path="a,b.csv"', "data.path=choice(a,b.csv)"])
