"""Configs and overrides with a mistake are answered with the key, the value and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from composing import checked, composed, refusal

from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import ConfigError, UnknownName
from sweeps.validate.config_checks import check_sweep


@pytest.mark.parametrize(
    ("conf", "tokens", "error", "words"),
    [
        ("digit", [], UnknownName, ["conf=digit", "digits"]),
        ("digits", ["model=conv_ne"], UnknownName, ["model=conv_ne", "conv_net"]),
        ("digits", ["~model", "space=none"], ConfigError, ["model", "required", "image_classification"]),
        (
            "digits",
            ["task=function", "task._target_=os.getcwd"],
            ConfigError,
            [
                "model, data, train, strategy",
                "task.kind=function ignores these sections",
                "~model ~data",
                "use task=image",
            ],
        ),
        ("ray_train_function", ["train.lr=3"], ConfigError, ["train: task.kind=function ignores this section"]),
        ("ray_train_function", ["+model=conv_net"], ConfigError, ["model", "task.arguments"]),
        ("ray_train_function", ["checkpoint.every=3"], ConfigError, ["checkpoint.every=3", "remove it"]),
        ("ray_train_function", ["task.argument.lr=3"], ConfigError, ["task.argument", "task.arguments"]),
        (
            "digits",
            ["my_rate=3"],
            ConfigError,
            ["my_rate=3: there is no such key; a value of your own belongs below vars"],
        ),
        ("digits", ["train.max_steps=null"], ConfigError, ["train: give max_steps, as in max_steps: 200, or epochs"]),
        (
            "digits",
            ["~checkpoint"],
            ConfigError,
            ["checkpoint: is required and has no default; choose an option, as `checkpoint: OPTION`"],
        ),
        ("digits", ["modle=conv_net"], ConfigError, ["modle", "did you mean model"]),
        ("digits", ["train.lrr=3"], ConfigError, ["train.lrr=3", "did you mean train.lr"]),
        ("digits", ["train.LR=3"], ConfigError, ["train.LR=3", "did you mean train.lr"]),
        ("digits", ["search.mode=maximize"], ConfigError, ["search.mode='maximize'", "did you mean max?"]),
        ("digits", ["train.lr=abc"], ConfigError, ["train.lr='abc'", "number"]),
        ("llm_lora", ["data=text", "data.path=2026"], ConfigError, ["data.path=2026", """'data.path="2026"'"""]),
        ("digits", ["train.lr=-1"], ConfigError, ["train.lr=-1", "greater than 0"]),
        ("digits", ["space.train.lr.low=3", "space.train.lr.high=1"], ConfigError, ["train.lr", "low=3", "high=1"]),
        ("digits", ["space.train.lr.low=0"], ConfigError, ["space.train.lr", "low=0", "logarithm"]),
        ("digits", ["~space.train.l"], UnknownName, ["train.l", "train.lr"]),
        (
            "digits",
            ["space.train.lrr={type: float, low: 0, high: 1}"],
            ConfigError,
            ["space.train.lrr: the config has no such value; did you mean train.lr"],
        ),
        (
            "digits",
            ["space.task.arguments.max_depth={type: int, low: 1, high: 6}"],
            ConfigError,
            ["the config has no such value; remove this range (~space.task.arguments.max_depth)"],
        ),
        (
            "llm_lora",
            ["model.lora=null"],
            ConfigError,
            ["space.model.lora.r: the config has no such value; model.lora is null: set it, or remove this range"],
        ),
        (
            "digits",
            ["search.sampler=tpe"],
            ConfigError,
            ["remove it here, and write search/sampler=tpe on the command line"],
        ),
        ("digits", ["search.direction=min"], ConfigError, ["did you mean search.mode?"]),
        ("digits", ["search.constraints='a < b'"], ConfigError, ["""write 'search.constraints=["a < b"]'"""]),
        ("digits", ["train.eval_every=${lr}"], ConfigError, ["does not set lr", "write ${train.lr}"]),
        ("digits", ["train.eval_every=${HOME}"], ConfigError, ["does not set HOME", "${oc.env:HOME}"]),
        ("digits", ["train.eval_every=${mine}"], ConfigError, ["${vars.mine}, and below vars the line mine: VALUE"]),
        ("digits", ["train.eval_every=${vars.mine}"], ConfigError, ["add it, as in `vars: {mine: VALUE}`"]),
        ("digits", ["name='my sweep'"], ConfigError, ["name='my sweep': must have only letters, digits, '.', '_'"]),
        ("digits", ["~search/sampler"], ConfigError, ["as `search/sampler: OPTION` in the config's defaults"]),
        ("digits", ["space.search.num_trials={type: int, low: 1, high: 2}"], ConfigError, ["num_trials", "sweep"]),
        ("digits", ["model.channels=choice(4, 8)"], ConfigError, ["model.channels", "when: {model: conv_net}"]),
        ("digits", ["space.model.depth.when={modl: 1}"], ConfigError, ["modl", "model"]),
        ("digits", ["space.train.lr.low=-1", "space.train.lr.log=false"], ConfigError, ["train.lr", "-1"]),
        ("digits", ["search.metric=eval/los"], ConfigError, ["search.metric=eval/los: ", "; did you mean eval/loss"]),
        ("digits", ["train.global_batch_size=33"], ConfigError, ["global_batch_size=33", "32 or 34"]),
        ("llm_lora", ["model=conv_net"], ConfigError, ["model.kind=conv_net", "causal_lm"]),
        ("llm_lora", ["model=huggingface"], ConfigError, ["model.path", "must be given"]),
        ("digits", ["train.lr=${nope}"], ConfigError, ["train.lr", "does not set nope"]),
        ("digits", ["a b"], ConfigError, ["a b", "key=value"]),
        ("digits", ["=3"], ConfigError, ["=3", "key"]),
        ("digits", [" train.lr=3"], ConfigError, ["without blanks around =: train.lr=3"]),
        ("digits", ["search.limits.eval/loss.max=3"], ConfigError, ["'search.limits={eval/loss: {max: 3}}'"]),
        ("digits", ["search/sampler.kind=tpe"], ConfigError, ["write search.sampler.kind=tpe"]),
        ("digits", ["train/note.a=b c; d"], ConfigError, ["write 'train.note.a=b c; d'"]),
        ("digits", ["space.train.lr.when.model=conv_net"], ConfigError, ["'space.train.lr.when={model: conv_net}'"]),
        ("digits", ["space.train.lr.prior.value=0.01"], ConfigError, ["'space.train.lr.prior={value: 0.01}'"]),
        ("digits", ["train.lr=tag(lgo, interval(1, 2))"], ConfigError, ["lgo", "log"]),
        ("digits", ["train.lr=range(0.1, 1, 0)"], ConfigError, ["range(0.1, 1, 0)", "positive step"]),
        ("digits", ["train.lr=range(0.1, inf)"], ConfigError, ["range(0.1, inf)", "must be finite"]),
        ("digits", ["train.max_steps=sort(range(80, 10, -20))"], ConfigError, ["sort(range", "remove sort"]),
        ("digits", ["train=null"], ConfigError, ["train=null", "is a group"]),
        ("digits", ["space=null"], ConfigError, ["space=null", "write space=none"]),
        ("digits", ["space=None"], UnknownName, ["space=None", "did you mean none?"]),
        ("digits", ["space.model.choices=[conv_net, 5]"], ConfigError, ["space.model.choices.1=5", "option"]),
        ("digits", ["space.model.choices=[]"], ConfigError, ["space.model.choices=[]: must have at least 1 item"]),
        ("digits", ["task.kind=[a]"], ConfigError, ["task.kind=", "['a']", "must be one of"]),
        (
            "digits",
            ["space=none", "search/sampler=gp", "space.train.lr={type: float, low: 0, high: 1, step: 1e-320}"],
            ConfigError,
            ["space.train.lr: search.sampler.kind=gp lists its inf values"],
        ),
        ("digits", ["space.train.lr.low=nan"], ConfigError, ["space.train.lr.low=nan", "finite"]),
        ("digits", ["train.lr=choice(0.1, nan)"], ConfigError, ["choices has nan", "null or text"]),
        (
            "digits",
            ["space.train.lr={type: float, low: -1e308, high: 1e308, log: false}"],
            ConfigError,
            ["space.train.lr: low=-1e+308 and high=1e+308 are further apart than"],
        ),
        (
            "digits",
            ["space.train.lr={type: float, low: 1, high: 10, log: true, step: 1}"],
            ConfigError,
            ["space.train.lr: log and step=1.0 exclude each other"],
        ),
        ("digits", ["space.train.lr.high=1e400"], ConfigError, ["space.train.lr.high=inf", "finite"]),
        ("digits", [f"cluster.num_cpus=1{'0' * 400}"], ConfigError, ["cluster.num_cpus", "less than"]),
        ("digits", ["seed=5000000000"], ConfigError, ["seed=5000000000", "less than"]),
        ("digits", ["tracking.uri="], ConfigError, ["tracking.uri=''", "at least 1 character"]),
        ("digits", ["space.train.momentum.when={train.optimizer: sdg}"], ConfigError, ["momentum.when", "sdg", "sgd"]),
        ("digits", ["space.train.momentum.when={train.optimizer: []}"], ConfigError, ["when.train.optimizer=[]"]),
        ("digits", ["space.model.depth.when={model: vit}"], UnknownName, ["when.model='vit'", "vision_transformer"]),
        (
            "digits",
            ["search=grid", "space=none", "train.lr=range(0.1, 1, 1e-9)"],
            ConfigError,
            ["train.lr", "step=1e-09", "larger"],
        ),
        (
            "digits",
            ["search=grid", "space=none", "train.max_steps=range(1, 2000)", "train.log_every=range(1, 2000)"],
            ConfigError,
            ["more than 100,000 points"],
        ),
    ],
)
def test_a_mistake_is_answered_with_the_key_the_value_and_the_fix(
    conf: str, tokens: list[str], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as raised:
        checked(conf, *tokens)
    for word in words:
        assert word in str(raised.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        checked("digits", "train.lr=abc", "train.max_steps=-1", "seeed=3")
    assert [line.split("=")[0] for line in sorted(str(raised.value).splitlines())] == [
        "seeed",
        "train.lr",
        "train.max_steps",
    ]


def test_a_folder_of_configs_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownName, match="config-dir"):
        ConfSearchPath([Path("no/such/folder")])


STAGE = "search.stages=[{overrides: ['train.max_steps=40'], num_trials: 4, rescale: {train.lr: RULE}}]"


RESCALED = "search.stages.0.rescale.train.lr"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (STAGE.replace("RULE", "{train.max_steps: abc}"), f"{RESCALED}.train.max_steps='abc': must be a valid number"),
        (
            STAGE.replace("RULE", "{train.max_steps: 9}"),
            f"{RESCALED}.train.max_steps=9: must be less than or equal to 4",
        ),
        ("checkpoint.every=never", "checkpoint.every='never': must be a valid integer or 'auto'"),
        ("search.metric=[]", "search.metric=[]: must have at least 1 item"),
        ("search.metric={a: 1}", "search.metric={'a': 1}: must be a valid string"),
        ("search.mode=[min, mix]", "search.mode.1='mix': must be 'min' or 'max'"),
        ("scaling.use_gpu=3", "scaling.use_gpu=3: must be a valid boolean or 'auto'"),
        (
            "search/sampler=nosuch",
            "search/sampler=nosuch: there is no such option; use one of bohb, brute_force, cmaes",
        ),
    ],
)
def test_a_value_of_no_form_that_its_key_may_have_is_told_in_one_line(token: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownName)) as caught:
        composed("digits", token)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ("[auto, off, sdpa]", ["line 4", "off", "is false to YAML", "'off'"]),
        ("\n    - yes\n    - maybe", ["line 5", "yes", "is true to YAML"]),
    ],
)
def test_words_that_yaml_reads_as_booleans_are_refused_among_others(
    choices: str, words: list[str], tmp_path: Path
) -> None:
    space = f"space:\n  task.arguments.x:\n    choices: {choices}\n    type: categorical\n"
    (tmp_path / "words.yaml").write_text(f"defaults: [ray_train_function, _self_]\n{space}")
    message = refusal("words", folders=(tmp_path,))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train: {max_steps: 1:30}", "line 2, column 20: 1:30 is 90 to YAML, which counts in sixties"),
        ("vars: {ratios: [16:9]}", "16:9 is 969 to YAML, which counts in sixties; for the text write '16:9' in quotes"),
        ("vars: {time: 1:30.5}", "1:30.5 is 90.5 to YAML"),
        ("train: {max_steps: 010}", "line 2, column 20: 010 is 8 to YAML, which takes a number that begins with 0"),
        ("vars: {ids: [008, 012]}", "012 is 10 to YAML, which takes a number that begins with 0 as octal"),
    ],
)
def test_a_text_that_yaml_reads_as_a_number_in_base_60_or_8_is_refused(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(f"defaults: [digits, _self_]\n{line}\n")
    assert message in refusal("base", folders=(tmp_path,))


def test_a_text_with_colons_is_a_text_and_a_time_of_a_schedule_may_be_unquoted(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("defaults: [digits, _self_]\nvars: {a: '16:9', b: 1:80, c: a:1:2, d: '010'}\n")
    assert checked("base", folders=(tmp_path,)).config.vars == {"a": "16:9", "b": "1:80", "c": "a:1:2", "d": "010"}


@pytest.mark.parametrize("text", ["train:\n \u00a0lr: 0.1\n", "train:\n\u3000lr: 0.1\n", "seed:\u00a03\n"])
def test_a_blank_that_is_none_to_yaml_is_named_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "blanks.yaml").write_text(f"defaults: [digits, _self_]\n{text}")
    with pytest.raises(ConfigError, match=r"blanks.yaml: line [23], column \d+: .* replace it with a normal space"):
        checked("blanks", folders=(tmp_path,))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("null: 3", "line 4, column 3: the key null is null to YAML; write 'null' in quotes"),
        ("on: 3", "line 4, column 3: the key on is a boolean to YAML; write 'on' in quotes"),
        ("1.5: 3", "it is the name of a key: write it in quotes, as in '1.5': VALUE"),
        ("1: 3", "it is the name of a key: write it in quotes, as in '1': VALUE"),
        ("x: {1: 3}", "task.arguments.x.1: is a key, which must be text; write it in quotes, as in '1': VALUE"),
        ("x: [{y: {2.5: 3}}]", "task.arguments.x.0.y.2.5: is a key, which must be text; write it in quotes"),
    ],
)
def test_a_key_that_yaml_does_not_take_for_a_text_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(f"defaults: [ray_train_function, _self_]\ntask:\n arguments:\n  {line}\n")
    assert message in refusal("keys", folders=(tmp_path,))


def test_a_wrong_value_that_is_called_like_its_key_is_not_taken_for_one() -> None:
    assert "name of a key" not in refusal("digits", "train.precision=precision")


def test_two_options_that_search_a_path_in_different_ranges_are_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name, low in (("deep", 2), ("wide", 1)):
        (tmp_path / "model" / f"{name}.yaml").write_text(
            "# @package _global_\ndefaults: [vision_transformer@model, _self_]\n"
            f"space:\n  model.depth: {{type: int, low: {low}, high: 4}}\n"
        )
    with pytest.raises(ConfigError, match=r"space.model.depth: model=deep and model=wide give it different"):
        checked("digits", "space=none", "model=choice(deep, wide)", folders=(tmp_path,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("space: {model: {type: categorical, choices: []}}", "space.model.choices=[]: must have at least 1 item"),
        ("space: train.lr", "space=train.lr: must be distributions by path, as in space: {train.lr: {type: float"),
        ("space: ${vars.nothing}", "space=${vars.nothing}: must be distributions by path"),
        ("task: {kind: [function]}", "must be one of 'causal_lm', 'image"),
        ("model: vision_transformer", "; remove it here, and write model=vision_transformer on the command line, or"),
        ("search: {sampler: random}", "; remove it here, and write search/sampler=random on the command line, or"),
        (
            "train: lora",
            "; remove it here, and write train=lora on the command line, or choose it in the file's defaults",
        ),
        (
            "search/sampler: tpe",
            "there is no such key; write `- override search/sampler: OPTION` in the file's defaults",
        ),
        ("train.lr: 0.1", "train.lr=0.1: there is no such key; write it nested, as in `train: {lr: VALUE}`"),
        (
            "search: {stop.cost: 3}",
            "search.stop.cost=3: there is no such key; write it nested, as in `search: {stop",
        ),
        (
            "train: {lr: {low: 0.1, high: 1}}",
            "; to search it, move it: `space: {train.lr: {type: float, low: LOW, high: HIGH}}`",
        ),
        ("train: {lr: 'loguniform(0.1, 1)'}", "on the command line write 'train.lr=tag(log, interval(0.1, 1))'"),
        ("train: {lr: 'choice(0.1, 1)'}", "on the command line write 'train.lr=choice(0.1, 1)'"),
        ("train: {max_steps: 'interval(10, 99)'}", "on the command line write 'train.max_steps=interval(10, 99)'"),
        ("space: {train.lr: 'interval(0.1, 1)'}", "on the command line write 'train.lr=interval(0.1, 1)'"),
        ("train: {lr: '${lr}'}", "write ${vars.lr}, and below vars the line lr: VALUE"),
        ("train: {lr: '${lr}'}\nvars: {lr: 0.1}", "write ${vars.lr}"),
        ("train: {lr: '${a.b.mine}'}", "write ${vars.mine}, and below vars the line mine: VALUE"),
        ("search: {metric: ['${metric}']}", "write ${vars.metric}, and below vars the line metric: VALUE"),
    ],
)
def test_a_section_a_space_or_a_kind_of_another_form_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [digits, _self_]\n{text}\n")
    assert message in refusal("mine", folders=(tmp_path,))


def test_a_condition_that_is_a_list_is_named_in_the_space_of_an_option(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [vision_transformer@model, _self_]\n"
        "space:\n  model.width: {type: int, low: 16, high: 32, when: [a]}\n"
    )
    assert "space.model.width.when=['a']" in refusal("digits", "model=mine,conv_net", folders=(tmp_path,))


def test_a_space_inside_of_an_options_own_section_says_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "deep.yaml").write_text(
        "defaults: [vision_transformer, _self_]\nspace:\n  model.depth: {type: int, low: 2, high: 4}\n"
    )
    with pytest.raises(ConfigError, match=r"model.space=.*begin the option's file with `# @package _global_`"):
        checked("digits", "space=none", "model=deep", folders=(tmp_path,))


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("hydra.run.dir=x", "hydra.run.dir=x: is a setting of Hydra's own program, .*output_dir"),
        ("hydra/sweeper=optuna", "hydra/sweeper=optuna: is a setting of .*write search.num_trials"),
        ("hydra.sweeper.n_trials=3", "write search.num_trials, search/sampler"),
        ("hydra.searchpath=[file:///tmp]", "--config-dir=DIR"),
        ("~hydra", "remove it"),
        ("model@part=conv_net", "puts no option of model at part; write model=OPTION"),
        ("+model=conv_net", r"chooses the group model twice; .*model=OPTION without a \+"),
        ("~trani", "~trani: there is nothing of this name to remove; did you mean train"),
        ("+space=lora", r"chooses the group space twice; .*space=OPTION without a \+"),
        ("train/lr=5", "train/lr=5: there is no such key; write train.lr$"),
        ("train..lr=5", "write it without empty names between dots: train.lr=5$"),
        ("train.max_steps=${calc:max(1, 2)}", r"is no interpolation .*; write the expression of calc in quotes"),
        ("train.max_steps=${calc:1,2}", r"calc has 2 arguments; write the expression of calc in quotes"),
        ("train.lr=0.1,tag(log,interval(1,2))", "choices are values, and one of these is a range"),
        ("space.train.lr=interval(1, 2)", r"space.train.lr=interval\(1, 2\): write a range without `space.`"),
    ],
)
def test_what_hydra_would_answer_for_its_own_program_says_what_to_write_here(token: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        checked("digits", token)
    assert not any(odd in str(raised.value) for odd in ("++", "Sweep(", "None."))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("++checkpoint.keep={best: true}", "checkpoint.keep={'best': True}: must be a list, as in [VALUE, VALUE]"),
        ("search={sampler: [1]}", "search.sampler=[1]: must have keys of its own, as in {key: value}"),
        (
            "train={lr: interval(1, 2)}",
            "inside of another value; search train.lr itself, as in 'train.lr=choice(A, B)'",
        ),
        ("vars={a: {b: [choice(1, 2)]}}", "search vars.a.b itself"),
        ("train.optimizer=[choice(adamw, sgd)]", "search train.optimizer itself"),
        (
            "task.options.--lr=0.1,0.2",
            "YAML file, as in `space: {task.options.--lr: {type: categorical, choices: [A, B]}}`",
        ),
    ],
)
def test_an_override_of_another_form_and_a_range_inside_of_a_value_say_what_to_write(token: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        composed("digits", token)
    assert message in str(raised.value)
    assert "++" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hydra: {run: {dir: x}}\n", "conf=mine: hydra.run=.*is a setting of Hydra's own program"),
        ("output_dir: ${hydra:runtime.output_dir}\n", "only Hydra's own program has .*write the value itself"),
        ("vars: {a: '\\${b', c: ['${calc:max(1)}']}\n", r"line 2, column 23: \${calc:max\(1\)} is no inter.*quotes"),
        ("vars: &a {b: *a, c: '${'}\n", "(is no interpolation|refer to themselves)"),
        ("train: {lr: '${double:2}'}\n", "no resolver double; .*SWEEPS_CONFIG_MODULES=MODULE"),
    ],
)
def test_a_config_with_parts_of_hydras_own_program_says_what_to_write_here(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [digits, _self_]\n{text}")
    with pytest.raises(ConfigError, match=words):
        checked("mine", folders=(tmp_path,))


@pytest.mark.parametrize(
    "text",
    [
        "lr: 0.1\n",
        "lr: 0.1\nhydra: {run: {dir: x}}\n",
        "defaults: [override hydra/launcher: joblib, _self_]\nlr: 0.1\n",
        "defaults: [override hydra/job_logging: none, _self_]\nlr: 0.1\n",
    ],
)
def test_the_config_of_a_program_with_hydra_is_told_the_verb_that_writes_one_of_a_sweep(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"`python -m sweeps init --from PROGRAM.py`"):
        checked("config", folders=(tmp_path,))


def test_a_sweep_that_extends_one_with_a_space_of_its_own_is_told_how_to_remove_it(tmp_path: Path) -> None:
    groups = ["task: image_classification", "model: conv_net", "data: digits", "train: classifier", "strategy: ddp"]
    groups += ["scaling: two_workers", "search: optuna_asha", "checkpoint: last", "tracking: mlflow", "cluster: local"]
    (tmp_path / "base.yaml").write_text(
        yaml.dump({"defaults": [*map(yaml.safe_load, groups), "_self_"], "name": "base", "search": {"num_trials": 2}})
        + "  metric: eval/loss\n  mode: min\nspace:\n  train.lr: {type: float, low: 0.1, high: 1}\n"
    )
    (tmp_path / "child.yaml").write_text("defaults: [base, override space: none, _self_]\n")
    message = r"conf=child: its space is written in the config itself, .* ~space on the command line removes"
    with pytest.raises(ConfigError, match=message):
        checked("child", folders=(tmp_path,))
    with pytest.raises(ConfigError, match="conf=base: its space is written in the config itself"):
        checked("base", "space=none", folders=(tmp_path,))


def test_a_boolean_is_no_number_and_each_one_is_named_with_the_other_mistakes() -> None:
    tokens = ["train.lr=false", "train.max_steps=true", "search.num_trials=true", "train.momentum=2"]
    with pytest.raises(ConfigError) as caught:
        composed("digits", *tokens)
    lines = str(caught.value).split("\n")
    assert [line.partition(":")[0] for line in sorted(lines)] == sorted(
        ["train.lr=false", "train.max_steps=true", "search.num_trials=true", "train.momentum=2"]
    )
    assert sum("not a boolean; write the number itself" in line for line in lines) == 3


def test_a_searched_boolean_is_no_number() -> None:
    composition = composed("digits", "space=none", "train.lr=choice(0.1,true)")
    with pytest.raises(ConfigError, match=r"^train.lr=true: must be a valid number, not a boolean"):
        check_sweep(composition)


def test_a_condition_on_what_the_options_of_a_searched_group_set_is_refused_with_the_options(tmp_path: Path) -> None:
    def check(conditions: str) -> None:
        (tmp_path / "own.yaml").write_text(
            "defaults: [digits, {override space: none}, _self_]\nname: own\nspace:\n"
            "  model: {type: categorical, choices: [conv_net, vision_transformer]}\n"
            f"  train.lr: {{type: float, low: 1e-4, high: 1e-2, when: {conditions}}}\n"
        )
        checked("own", folders=(tmp_path,))

    with pytest.raises(ConfigError, match=r"train\.lr\.when\.model\.kind: depends .* when: {model: conv_net}$"):
        check("{model.kind: conv_net}")
    for accepted in ("{model: conv_net}", "{model: conv_net, model.kind: conv_net}", "{train.optimizer: adamw}"):
        check(accepted)


@pytest.mark.parametrize(
    ("condition", "searched"),
    [
        ("{train.eval_every: 40}", "train.max_steps"),
        ("{train.eval_every: [20, 40]}", None),
        ("{train.eval_every: 40, train.max_steps: 40}", None),
        ("{vars.section.a: 2}", "vars.section"),
        ("{vars.other: {b: 2}}", "vars.other.b"),
        ("{vars.section: {a: 2}, vars.other.b: 1}", None),
    ],
)
def test_a_condition_on_what_follows_from_a_searched_value_is_refused_with_that_value(
    condition: str, searched: str | None, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(
        "defaults: [digits, {override space: none}, _self_]\n"
        "vars: {section: {a: 1}, other: {b: 1}}\ntrain: {max_steps: 40, eval_every: '${train.max_steps}'}\nspace:\n"
        "  train.max_steps: {type: categorical, choices: [20, 40]}\n"
        "  vars.section: {type: categorical, choices: [{a: 1}, {a: 2}]}\n"
        "  vars.other.b: {type: categorical, choices: [1, 2]}\n"
        f"  train.lr: {{type: float, low: 1e-4, high: 1e-2, when: {condition}}}\n"
    )
    composition = composed("own", folders=(tmp_path,))
    check_sweep(composition, is_new=False)  # as an earlier release began it
    if searched is None:
        check_sweep(composition)
        return
    with pytest.raises(ConfigError) as caught:
        check_sweep(composition)
    key = f"space.train.lr.when.{condition[1:].partition(':')[0]}"
    expected = f"{key}: depends on {searched}, which is searched; name {searched} itself in `when` instead"
    assert str(caught.value) == expected


def test_a_value_of_a_searched_section_is_searched_where_a_choice_has_it(tmp_path: Path) -> None:
    section = "{_target_: torch.optim.RMSprop, arguments: {alpha: 0.9}}"
    condition = f"{{train.optimizer: {section}}}"
    for name in ("arguments", "argument"):
        (tmp_path / f"{name}.yaml").write_text(
            "defaults: [digits, {override space: none}, _self_]\nspace:\n"
            f"  train.optimizer: {{type: categorical, choices: [sgd, {section}]}}\n"
            f"  train.optimizer.{name}.alpha: {{type: float, low: 0.8, high: 0.9, when: {condition}}}\n"
        )
    checked("arguments", folders=(tmp_path,))
    assert "space.train.optimizer.argument.alpha: the config has no such" in refusal("argument", folders=(tmp_path,))
