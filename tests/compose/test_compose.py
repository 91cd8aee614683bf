"""Composition of configs: groups, overrides, ranges, users' folders, trials' own configs."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from composing import checked, composed

from sweeps.cli.output import print_json
from sweeps.compose import Composition
from sweeps.compose.overrides import parse_values, written_override
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.folders.conf_folders import MAX_FOLDERS, conf_folder
from sweeps.space.distributions import grid_values

CONFS = sorted(path.stem for path in conf_folder().glob("*.yaml"))


OF_THE_SERVICE = {"schedule", "service"}


OPTIONS = sorted(
    path.relative_to(conf_folder())
    for path in conf_folder().rglob("*/*.yaml")
    if path.parent.name not in OF_THE_SERVICE
)


MUST_BE_GIVEN = {
    "task.command": "train",
    "task._target_": "collections.OrderedDict",
    "cluster.address": "127.0.0.1:6379",
    "cluster.kuberay.image": "some/image",
    "model.path": "some/model",
    "model._target_": "collections.OrderedDict",
    "data.path": "some/data",
    "data.target": "column",
    "data._target_": "collections.OrderedDict",
    "search.sampler._target_": "optuna.samplers.TPESampler",
}


@pytest.mark.parametrize("conf", CONFS)
def test_every_shipped_sweep_composes_and_passes_all_checks(conf: str) -> None:
    checked(conf)


@pytest.mark.parametrize("path", OPTIONS, ids=str)
def test_every_shipped_option_composes_and_passes_the_schema(path: Path) -> None:
    group, option = path.parent.as_posix(), path.stem
    text = (conf_folder() / path).read_text(encoding="utf-8")
    of_images = {"image_classification", "conv_net", "vision_transformer", "classifier", "digits", "custom"}
    functions = {"function", "huggingface_trainer", "lightning_module", "torchrun_script"}
    of_tables = {"classification", "regression", "mlp", "csv", "parquet", "tabular"}
    kinds = {"ray_train_function": functions, "command": {"command"}, "estimator": {"estimator"}}
    kinds |= {"digits": of_images, "tabular": of_tables}
    conf = next((conf for conf, options in kinds.items() if option in options), "llm_lora")
    given = [f"{key}={value}" for key, value in MUST_BE_GIVEN.items() if key.startswith(f"{group.replace('/', '.')}.")]
    names = {line.split(":")[0].strip() for line in text.splitlines() if "???" in line}
    given = [each for each in given if each.split("=")[0].rpartition(".")[2] in names]
    unsearched = [] if group == "space" else ["~space"]  # else the conf is composed for each option that it searches
    composed(conf, f"{group}={option}", *given, *unsearched)


@pytest.mark.parametrize("path", sorted(conf_folder().rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_yaml_begins_with_what_it_is(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith((".", ":", "path.", ")", "default."))
    if path.parent == conf_folder():
        header = path.read_text(encoding="utf-8")
        assert "# Run:" in header
        assert "# Hardware:" in header


def test_a_plain_value_overrides_and_a_group_option_is_chosen() -> None:
    config = checked("digits", "model=vision_transformer", "train.max_steps=7").config
    assert config.model.kind == "vision_transformer"
    assert config.train.max_steps == 7


def test_a_key_that_no_yaml_lists_can_be_set_with_and_without_plus() -> None:
    assert checked("digits", "search.max_retries=3").config.search.max_retries == 3
    assert checked("digits", "+search.max_retries=3").config.search.max_retries == 3


def test_a_plain_value_for_a_searched_path_takes_it_out_of_the_space() -> None:
    composition = checked("llm_lora", "train.lr=0.002")
    assert "train.lr" not in composition.config.space
    assert composition.fixed == ["train.lr"]
    assert composition.config.train.lr == 0.002


def test_of_a_range_and_a_plain_value_for_the_same_path_the_last_counts() -> None:
    given = "train.lr=interval(1e-4, 1e-2)", "model=choice(conv_net, vision_transformer)"
    fixed = checked("digits", *given, "train.lr=0.002", "model=conv_net", "~space.model.depth")
    assert not {"train.lr", "model"} & fixed.config.space.keys()
    assert fixed.fixed == ["train.lr", "model"]
    assert checked("digits", "train.lr=0.002", *given).config.space["train.lr"].high == 1e-2  # type: ignore[union-attr]
    changed = checked("digits", "space.train.lr.high=0.05", "train.lr=0.002")
    assert "train.lr" not in changed.config.space


def test_a_glob_searches_the_options_of_a_group() -> None:
    composition = checked("digits", "space=none", "model=glob([conv*, vision*])")
    assert composition.config.space["model"].choices == ["conv_net", "vision_transformer"]  # type: ignore[union-attr]


def test_a_distribution_can_be_changed_field_by_field_and_dropped() -> None:
    config = checked("digits", "space.train.lr.high=0.05", "~space.model.dropout").config
    assert config.space["train.lr"].high == 0.05  # type: ignore[union-attr]
    assert config.space["train.lr"].low == 1e-4  # type: ignore[union-attr]
    assert "model.dropout" not in config.space


def test_nested_and_dotted_spaces_mean_the_same(tmp_path: Path) -> None:
    text = (conf_folder() / "digits.yaml").read_text(encoding="utf-8").replace("- space: classifier", "- space: none")
    nested = "\nspace:\n  train:\n    lr: {type: float, low: 0.1, high: 0.2}\n"
    (tmp_path / "nested.yaml").write_text(text + nested, encoding="utf-8")
    config = checked("nested", folders=(tmp_path,)).config
    assert list(config.space) == ["train.lr"]


@pytest.mark.parametrize("written", ["train.lr: null", "train: {lr: null}"])
@pytest.mark.parametrize("searched", ["train.lr: {RANGE}", "train: {lr: {RANGE}}"])
def test_null_removes_a_path_from_the_space_of_an_extended_config_however_both_write_it(
    written: str, searched: str, tmp_path: Path
) -> None:
    space = searched.replace("RANGE", "type: float, low: 0.1, high: 0.2")
    (tmp_path / "base.yaml").write_text(f"defaults: [digits, {{override space: none}}, _self_]\nspace: {{{space}}}\n")
    (tmp_path / "child.yaml").write_text(f"defaults: [base, _self_]\nspace: {{{written}}}\n")
    assert list(composed("base", folders=(tmp_path,)).config.space) == ["train.lr"]
    assert not composed("child", folders=(tmp_path,)).config.space


@pytest.mark.parametrize(
    ("inherited", "written"),
    [
        ("{type: categorical, choices: [32, 64]}", "{type: int, low: 16, high: 64}"),
        ("{type: ordinal, choices: [32, 64]}", "{type: int, low: 16, high: 64, step: 8}"),
        ("{type: constant, value: 32}", "{type: int, low: 16, high: 64, log: true}"),
        ("{type: float, low: 16, high: 64, log: true}", "{type: int, low: 16, high: 64, log: false}"),
        ("{type: categorical, choices: [32, 64]}", "{type: constant, value: 32}"),
        ("{type: int, low: 16, high: 64, step: 8}", "{type: categorical, choices: [32, 64]}"),
        ("{type: int, low: 16, high: 64, step: 8}", "{type: int, low: 16, high: 64, step: null}"),
        ("{type: int, low: 16, high: 64, when: {train.optimizer: sgd}}", "{type: int, low: 16, high: 64, when: null}"),
    ],
)
def test_a_distribution_of_another_kind_replaces_that_of_an_extended_config(
    inherited: str, written: str, tmp_path: Path
) -> None:
    path = "train.global_batch_size"
    none = "override space: none"
    (tmp_path / "base.yaml").write_text(f"defaults: [digits, {{{none}}}, _self_]\nspace: {{{path}: {inherited}}}\n")
    (tmp_path / "child.yaml").write_text(f"defaults: [base, _self_]\nspace: {{{path}: {written}}}\n")
    (tmp_path / "alone.yaml").write_text(f"defaults: [digits, {{{none}}}, _self_]\nspace: {{{path}: {written}}}\n")
    child, alone = (composed(conf, folders=(tmp_path,)).config.space for conf in ("child", "alone"))
    assert child == alone


def test_a_users_folder_comes_before_ours_and_adds_to_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "conv_net.yaml").write_text("# Mine.\nkind: conv_net\nchannels: 3\n", encoding="utf-8")
    (tmp_path / "model" / "wide.yaml").write_text("# Wide.\nkind: conv_net\nchannels: 99\n", encoding="utf-8")
    assert checked("digits", "space=none", folders=(tmp_path,)).config.model.channels == 3  # type: ignore[union-attr]
    config = checked("digits", "space=none", "model=wide", folders=(tmp_path,)).config
    assert config.model.channels == 99  # type: ignore[union-attr]


def test_a_trial_is_composed_anew_where_a_group_is_sampled() -> None:
    composition = checked("digits")
    trial = composition.trial({"model": "vision_transformer", "model.depth": 3, "train.lr": 0.01})
    assert trial.model.kind == "vision_transformer"
    assert trial.model.depth == 3  # type: ignore[union-attr]
    assert trial.train.lr == 0.01
    assert composition.trial({}).model.kind == "conv_net"


def test_of_a_group_whose_own_option_is_not_searched_the_sweep_has_the_first_that_is() -> None:
    models = "model=choice(qwen2.5_0.5b, llama3.2_1b)"
    for more in ("data.sequence_length=4096", "strategy=choice(ddp, fsdp)"):  # the own tiny_llama has 1,024 positions
        composition = checked("llm_lora", models, more)
        assert composition.options["model"] == "qwen2.5_0.5b"
        assert "tiny_llama" not in str(composition.variants)
    narrow = checked("digits", "space=none", "model=choice(vision_transformer)", "model.width=interval(16, 32)")
    assert narrow.config.space["model.width"].type == "int"


def test_a_required_value_that_is_searched_is_missing_with_no_option_of_a_searched_group(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [digits]\ntrain:\n  momentum: ???\n", encoding="utf-8")
    tokens = ("space=none", "model=choice(conv_net, vision_transformer)", "train.momentum=interval(0.8, 0.9)")
    assert set(checked("mine", *tokens, folders=(tmp_path,)).config.space) == {"model", "train.momentum"}


def test_where_the_condition_of_a_group_does_not_hold_trials_have_the_own_option_of_the_conf(
    tmp_path: Path,
) -> None:
    when_sgd = "space.model={type: categorical, choices: [vision_transformer], when: {train.optimizer: sgd}}"
    composition = checked("digits", "space=none", "train.optimizer=choice(adamw, sgd)", when_sgd)
    assert composition.trial({"train.optimizer": "adamw"}).model.kind == "conv_net"
    deep = "space.strategy={type: categorical, choices: [fsdp], when: {model: vision_transformer}}"
    composition = checked("digits", "space=none", "model=choice(conv_net, vision_transformer)", deep)
    for point, kind in (({"model": "conv_net"}, "ddp"), ({"model": "vision_transformer", "strategy": "fsdp"}, "fsdp")):
        assert composition.trial(point).strategy.kind == kind
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "seven.yaml").write_text("# @package _global_\nseed: 7\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("defaults: [digits, {more: null}, _self_]\nseed: 3\n", encoding="utf-8")
    more = "space.more={type: categorical, choices: [seven], when: {model: vision_transformer}}"
    tokens = ("space=none", "model=choice(conv_net, vision_transformer)", more)
    composition = checked("mine", *tokens, folders=(tmp_path,))
    assert composition.trial({"model": "conv_net"}).seed == 3


def test_a_config_without_self_in_its_defaults_comes_last_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [digits]\ntrain: {max_steps: 66}\n", encoding="utf-8")
    assert checked("mine", folders=(tmp_path,)).config.train.max_steps == 66  # type: ignore[union-attr]


def test_an_option_of_hydra_in_the_defaults_of_a_config_is_refused_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [digits, {hydra/job_logging: disabled}]\n", encoding="utf-8")
    refused = pytest.raises(ConfigError, match="hydra/job_logging")
    with warnings.catch_warnings(record=True, action="always") as shown, refused:
        checked("mine", folders=(tmp_path,))
    assert not shown


def test_the_groups_of_a_folder_with_very_many_folders_are_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "wide.yaml").touch()
    far = tmp_path / "many" / "by" / "far"
    far.mkdir(parents=True)
    (far / "deep.yaml").touch()
    shipped = ConfSearchPath().groups()
    assert set(ConfSearchPath([tmp_path]).groups()) == {*shipped, "near", "many/by/far"}
    for number in range(MAX_FOLDERS):
        (tmp_path / "many" / str(number)).mkdir()
    assert set(ConfSearchPath([tmp_path]).groups()) == {*shipped, "near"}


def test_a_folder_of_configs_may_have_links_that_lead_back_to_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("# Wide.\nkind: conv_net\nchannels: 99\n", encoding="utf-8")
    (tmp_path / "model" / "back").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to(tmp_path / "model")
    assert set(ConfSearchPath([tmp_path]).groups()) == {*ConfSearchPath().groups(), "alias"}
    config = checked("digits", "space=none", "model=wide", folders=(tmp_path,)).config
    assert config.model.channels == 99  # type: ignore[union-attr]


def test_interpolations_follow_sampled_values(tmp_path: Path) -> None:
    text = (conf_folder() / "digits.yaml").read_text(encoding="utf-8")
    (tmp_path / "derived.yaml").write_text(text + "\ntrain:\n  weight_decay: ${train.lr}\n", encoding="utf-8")
    composition = checked("derived", folders=(tmp_path,))
    assert composition.trial({"train.lr": 0.007}).train.weight_decay == 0.007


@pytest.mark.parametrize("conf", ["digits", "llm_lora", "ray_train_function"])
def test_plain_values_come_out_as_omegaconf_has_them(conf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    composition = checked(conf)
    values = {"name": "other", "search.num_trials": 3, "search.stop": {"target": 0.5}, "search.points": [{"a": None}]}
    quick = composition.container(values)
    monkeypatch.setattr("sweeps.compose.composition._with_plain_values", lambda *_: None)
    slow = composition.container(values)
    assert quick == slow
    assert list(quick) == list(slow)


def test_a_composition_pickles_and_still_builds_trials() -> None:
    composition = pickle.loads(pickle.dumps(checked("digits")))
    assert composition.trial({"model": "vision_transformer"}).model.kind == "vision_transformer"


def test_the_composed_yaml_holds_every_value_and_can_be_read_back() -> None:
    composition = checked("llm_lora", "train.lr=0.002")
    document = yaml.safe_load(composition.as_yaml())
    assert document["train"]["lr"] == 0.002
    assert document["scaling"]["isolation"] == "auto"


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("range(0.7, 0.9, 0.1)", [0.7, 0.8]),  # as floats, 0.7 + 0.1 is less than 0.8
        ("range(1.3, 0, -0.5)", [0.3, 0.8, 1.3]),
        ("range(1e-4, 5e-4, 1e-4)", [0.0001, 0.0002, 0.0003, 0.0004]),
    ],
)
def test_a_range_has_every_step_before_its_end(written: str, values: list[float]) -> None:
    found = checked("digits", f"train.lr={written}").config.space["train.lr"]
    assert list(grid_values("train.lr", found)) == values


def test_options_that_would_multiply_to_millions_are_counted_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text("defaults: [digits, _self_]\n")
    groups = [f"group{number}" for number in range(9)]
    for group in groups:
        (tmp_path / group).mkdir()
        for option in range(10):
            (tmp_path / group / f"o{option}.yaml").write_text("{}\n")
    with pytest.raises(ConfigError, match="2,000,000,000 combinations"):
        composed("many", *(f"+{group}=glob(*)" for group in groups), folders=[tmp_path])


@pytest.mark.parametrize(
    "value", ["it's", 'say "hi"', "back\\", 'b\\"q', "x=1,[2]{", "", "null", None, True, 1e-05, -3]
)
def test_a_written_override_is_read_back_as_it_was(value: Any) -> None:
    document = [{"a.b": value, "c": [value]}]
    assert parse_values([written_override("search.points", document)]) == {"search.points": document}


def test_a_trials_config_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    composition = checked("digits")
    for uri in ("sqlite:///one.db", "sqlite:///two.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert composition.trial({"train.lr": 0.01}).tracking.uri == uri
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert composition.trial({"train.lr": 0.01}).tracking.uri == "sqlite:///mlflow.db"


NAMES_WITH_DOTS = """
defaults: [ray_train_function, _self_]
task:
  arguments: {model.lr: 0.1, model: small, depth: "${task.arguments.model}"}
space:
  task.arguments.model.lr: {type: float, low: 0.1, high: 1}
"""


def test_an_argument_whose_name_has_dots_is_set_and_searched_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "dots.yaml").write_text(NAMES_WITH_DOTS)
    found = checked("dots", folders=(tmp_path,))
    trial = found.trial({"task.arguments.model.lr": 0.5})
    assert {"model.lr": 0.5, "model": "small", "depth": "small"}.items() <= trial.task.arguments.items()  # type: ignore[union-attr]
    fixed = checked("dots", "task.arguments.model.lr=0.25", folders=(tmp_path,))
    assert "task.arguments.model.lr" not in fixed.config.space
    assert fixed.config.task.arguments["model.lr"] == 0.25  # type: ignore[union-attr]
    assert fixed.config.task.arguments["model"] == "small"  # type: ignore[union-attr]


def test_the_kind_of_a_distribution_can_be_changed_on_the_command_line() -> None:
    found = checked("digits", "space.train.lr.type=ordinal", "space.train.lr.choices=[0.1, 0.2]").config.space
    assert found["train.lr"].choices == [0.1, 0.2]  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"space\.train\.lr\.low"):
        checked("digits", "space.train.lr={type: ordinal, choices: [1, 2], low: 3}")


def test_the_space_of_an_option_is_searched_in_the_trials_that_have_the_option(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "deep.yaml").write_text(
        "# @package _global_\ndefaults: [vision_transformer@model, _self_]\n"
        "space:\n  model.depth: {type: int, low: 2, high: 4}\n"
    )
    tokens = ("space=none", "train.lr=interval(0.01, 0.1)", "model=choice(conv_net, deep)")
    found = checked("digits", *tokens, folders=(tmp_path,))
    assert found.config.space["model.depth"].when == {"model": ["deep"]}
    assert found.config.space["train.lr"].when == {}
    assert found.trial({"model": "deep", "model.depth": 3}).model.depth == 3  # type: ignore[union-attr]
    assert "model.depth" not in checked("digits", *tokens, "~space.model.depth", folders=(tmp_path,)).config.space
    changed = checked("digits", *tokens, "space.model.depth.high=5", folders=(tmp_path,))
    assert changed.config.space["model.depth"].high == 5  # type: ignore[union-attr]
    alone = checked("digits", "space=none", "model=deep", folders=(tmp_path,)).config.space["model.depth"]
    assert alone.when == {}


def test_sections_and_resolvers_and_stored_configs_of_ones_own_can_be_used(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / "my_hydra_parts.py").write_text(
        "from hydra.core.config_store import ConfigStore\nfrom omegaconf import OmegaConf\n"
        "OmegaConf.register_new_resolver('my_double', lambda number: 2 * number, replace=True)\n"
        "ConfigStore.instance().store(group='model', name='stored', node={'kind': 'conv_net', 'channels': 24})\n"
    )
    (working_folder / "mine.yaml").write_text(
        "defaults: [digits, override model: stored, override space: none, _self_]\n"
        "vars: {rate: 0.01}\ntrain: {lr: '${my_double:${vars.rate}}'}\n"
        "space:\n  vars.rate: {type: float, low: 0.01, high: 0.1}\n"
    )
    monkeypatch.setenv("SWEEPS_CONFIG_MODULES", "my_hydra_parts")
    found = checked("mine", folders=(working_folder,))
    assert found.config.train is not None
    assert (found.config.train.lr, found.config.model.channels) == (0.02, 24)  # type: ignore[union-attr]
    assert found.trial({"vars.rate": 0.05}).train.lr == 0.1  # type: ignore[union-attr]
    monkeypatch.setenv("SWEEPS_CONFIG_MODULES", "not_there")
    with pytest.raises(UserError, match="SWEEPS_CONFIG_MODULES=not_there: cannot be imported"):
        checked("mine", folders=(working_folder,))


def test_a_number_in_the_environment_is_text_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "20")
    tokens = ["train.max_steps=${oc.env:STEPS}", "scaling.use_gpu=false"]
    config = composed("digits", *tokens).config
    assert (config.train and config.train.max_steps, config.scaling.use_gpu) == (20, False)


def test_a_program_of_hydra_that_composes_a_sweep_goes_on_with_its_own_configs(tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir

    (tmp_path / "own.yaml").write_text("depth: 3\n")
    with initialize_config_dir(str(tmp_path), version_base=None):
        composed("digits")
        with pytest.raises(UnknownName):
            composed("digitz")
        assert compose("own") == {"depth": 3}


def test_an_infinite_argument_is_saved_as_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["task.arguments.clip=choice(1.0, inf)", "task.arguments.limit=-inf"]
    composition = composed("ray_train_function", *tokens)
    saved = Composition.from_json(json.loads(json.dumps(composition.as_json())))
    assert saved.config == composition.config
    written = yaml.safe_load(composition.as_yaml({"task.arguments.clip": math.inf}))
    assert written["task"]["arguments"]["clip"] == math.inf
    assert written["task"]["arguments"]["limit"] == -math.inf
    print_json({"params": {"clip": [math.inf]}, "value": math.nan})
    assert json.loads(capsys.readouterr().out) == {"params": {"clip": [None]}, "value": None}


@pytest.mark.parametrize("text", ["echo ${HOME} {lr}", "echo \\${HOME} {lr}"])
def test_a_text_that_only_looks_like_an_interpolation_stays_one_when_the_sweep_is_changed(text: str) -> None:
    written = text.replace("\\", "\\\\").replace("${", "\\${")
    composition = composed("command", f"task.command='{written}'")
    assert composition.config.task.command == text  # type: ignore[union-attr]
    changed = composition.changed({"search.num_trials": 99}).config
    assert (changed.task.command, changed.search.num_trials) == (text, 99)  # type: ignore[union-attr]


def test_what_is_derived_from_a_changed_value_follows_it_in_the_sweep_as_in_its_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///first.db")
    every = """train.eval_every='${calc:"train.max_steps // 10"}'"""
    composition = composed("digits", "train.max_steps=100", every, "tracking.experiment='${name}'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///second.db")
    changed = composition.changed({"train.max_steps": 200})
    assert (changed.config.train.eval_every, changed.trial({}).train.eval_every) == (20, 20)  # type: ignore[union-attr]
    assert changed.config.tracking == composition.config.tracking


def test_a_changed_sweep_keeps_what_its_config_took_from_the_environment_and_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else extend would look for the sweep's folder at today's time, and record into another experiment."""
    monkeypatch.delenv("EXPERIMENT", raising=False)
    taken = ["tracking.experiment='${oc.env:EXPERIMENT,one}'", "output_dir='outputs/${now:%H|%M|%S.%f} ${name}'"]
    composition = composed("digits", "search.num_trials=9", *taken)
    monkeypatch.setenv("EXPERIMENT", "two")
    changed = composition.changed({"search.num_trials": 99}).config
    assert changed.tracking.experiment == "one"
    assert changed.output_dir == composition.config.output_dir
    assert composition.changed({"search.num_trials": 9}).config == composition.config


@pytest.mark.parametrize("lower_first", [False, True])
def test_a_value_that_is_searched_below_a_searched_section_is_trained_as_it_was_suggested(lower_first: bool) -> None:
    ranges = ["task.arguments.net=choice({depth: 2, width: 8}, {depth: 3, width: 9})", "task.arguments.net.depth=7,8"]
    tokens = ["+task.arguments.net={depth: 1, width: 1}", *(reversed(ranges) if lower_first else ranges)]
    composition = composed("ray_train_function", "~space", *tokens)
    point = {"task.arguments.net": {"depth": 2, "width": 8}, "task.arguments.net.depth": 7}
    suggested = {path: point[path] for path in composition.config.space}
    assert composition.trial(suggested).task.arguments["net"] == {"depth": 7, "width": 8}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${oc.env:PLACE}", "here"),
        ("${oc.env:PLACE}/${name}", "here/digits"),
        ("${oc.decode:${oc.env:NUMBERS}}", [1, 2]),
        ("${oc.decode:${oc.env:NO_NUMBERS,null}}", None),
        ("${calc:'seed + ${oc.env:ONE}'}", 3),
        ("${oc.env:FOLDER}/${name}", "/data (1), b/digits"),
        ("${oc.select:nothing,${oc.env:ONE}}", "1"),
        ("${oc.select:nothing,${oc.env:MISSING,null}}", None),
        ("\\${oc.env:PLACE}", "${oc.env:PLACE}"),
    ],
)
def test_trials_of_a_resumed_sweep_and_on_other_machines_have_what_its_config_took_from_the_environment(
    text: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would train with other values than the sweep records."""
    for variable in ("PLACE=here", "NUMBERS=[1, 2]", "ONE=1", "FOLDER=/data (1), b"):
        monkeypatch.setenv(*variable.split("="))
    composition = composed("ray_train_function", "name=digits", "seed=2", f'+task.arguments.taken="{text}"')
    for variable in ("PLACE=there", "NUMBERS=[3]", "ONE=5", "NO_NUMBERS=[4]", "FOLDER=/x", "MISSING=6"):
        monkeypatch.setenv(*variable.split("="))
    resumed = Composition.from_json(json.loads(json.dumps(composition.as_json())))
    for config in (resumed.config, resumed.trial({}), resumed.changed({"search.num_trials": 99}).trial({})):
        assert config.task.arguments["taken"] == value  # type: ignore[union-attr]


def test_the_time_in_a_config_is_that_of_its_sweep_in_each_trial() -> None:
    composition = composed("ray_train_function", "+task.arguments.stamp='${now:%H-%M-%S.%f}'")
    document = composition.as_json()
    assert "${now" not in json.dumps(document["variants"])  # the process of a trial does not have Hydra's resolver
    assert composition.trial({}).task == composition.config.task


@pytest.mark.parametrize("text", ["${name}: {question}", "at \\${name}", "${unknown}"])
def test_a_searched_text_that_only_looks_like_an_interpolation_is_trained_as_it_was_suggested(text: str) -> None:
    choices = [text, [text], {"prompt": text}]
    searched = {"type": "categorical", "choices": choices}
    composition = composed("command", "task.command=run", written_override("space.task.arguments.prompt", searched))
    assert composition.config.space["task.arguments.prompt"].choices == choices  # type: ignore[union-attr]
    for choice in choices:
        task = composition.trial({"task.arguments.prompt": choice}).task
        assert task.arguments["prompt"] == choice  # type: ignore[union-attr]
