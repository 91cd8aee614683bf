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
    ("conf", "tokens", "words"),
    [
        ("digit", [], ["conf=digit", "digits"]),
        ("digits", ["~model", "space=none"], ["model", "required", "image_classification"]),
        (
            "digits",
            ["task=function", "task._target_=os.getcwd"],
            [
                "model, data, train, strategy",
                "task.kind=function ignores these sections",
                "~model ~data",
                "use task=image",
            ],
        ),
        ("ray_train_function", ["train.lr=3"], ["train: task.kind=function ignores this section"]),
        ("ray_train_function", ["+model=conv_net"], ["model", "task.arguments"]),
        ("ray_train_function", ["checkpoint.every=3"], ["checkpoint.every=3", "remove it"]),
        ("ray_train_function", ["task.argument.lr=3"], ["task.argument", "task.arguments"]),
        ("llm_lora", ["data=text", "data.path=2026"], ["data.path=2026", """'data.path="2026"'"""]),
        ("digits", ["space.train.lr.low=3", "space.train.lr.high=1"], ["train.lr", "low=3", "high=1"]),
        (
            "llm_lora",
            ["model.lora=null"],
            ["space.model.lora.r: the config has no such value; model.lora is null: set it, or remove this range"],
        ),
        ("digits", ["space.train.lr.low=-1", "space.train.lr.log=false"], ["train.lr", "-1"]),
        ("llm_lora", ["model=conv_net"], ["model.kind=conv_net", "causal_lm"]),
        ("llm_lora", ["model=huggingface"], ["model.path", "must be given"]),
        (
            "digits",
            ["space=none", "search/sampler=gp", "space.train.lr={type: float, low: 0, high: 1, step: 1e-320}"],
            ["space.train.lr: search.sampler.kind=gp lists its inf values"],
        ),
        ("digits", ["search=grid", "space=none", "train.lr=range(0.1, 1, 1e-9)"], ["train.lr", "step=1e-09", "larger"]),
        (
            "digits",
            ["search=grid", "space=none", "train.max_steps=range(1, 2000)", "train.log_every=range(1, 2000)"],
            ["more than 100,000 points"],
        ),
    ],
)
def test_a_mistake_is_answered_with_the_key_the_value_and_the_fix(
    conf: str, tokens: list[str], words: list[str]
) -> None:
    message = refusal(conf, *tokens)
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("model=conv_ne", ["model=conv_ne", "conv_net"]),
        ("my_rate=3", ["my_rate=3: there is no such key; a value of your own belongs below vars"]),
        ("train.max_steps=null", ["train: give max_steps, as in max_steps: 200, or epochs"]),
        ("~checkpoint", ["checkpoint: is required and has no default; choose an option, as `checkpoint: OPTION`"]),
        ("modle=conv_net", ["modle", "did you mean model"]),
        ("train.lrr=3", ["train.lrr=3", "did you mean train.lr"]),
        ("train.LR=3", ["train.LR=3", "did you mean train.lr"]),
        ("search.mode=maximize", ["search.mode='maximize'", "did you mean max?"]),
        ("train.lr=abc", ["train.lr='abc'", "number"]),
        ("train.lr=-1", ["train.lr=-1", "greater than 0"]),
        ("space.train.lr.low=0", ["space.train.lr", "low=0", "logarithm"]),
        ("~space.train.l", ["train.l", "train.lr"]),
        (
            "space.train.lrr={type: float, low: 0, high: 1}",
            ["space.train.lrr: the config has no such value; did you mean train.lr"],
        ),
        (
            "space.task.arguments.max_depth={type: int, low: 1, high: 6}",
            ["the config has no such value; remove this range (~space.task.arguments.max_depth)"],
        ),
        ("search.sampler=tpe", ["remove it here, and write search/sampler=tpe on the command line"]),
        ("search.direction=min", ["did you mean search.mode?"]),
        ("search.timeout=600", ["did you mean search.stop.wall_hours? It is in hours"]),
        ("search.constraints='a < b'", ["""write 'search.constraints=["a < b"]'"""]),
        ("train.eval_every=${lr}", ["does not set lr", "write ${train.lr}"]),
        ("train.eval_every=${HOME}", ["does not set HOME", "${oc.env:HOME}"]),
        ("train.eval_every=${mine}", ["${vars.mine}, and below vars the line mine: VALUE"]),
        ("train.eval_every=${vars.mine}", ["add it, as in `vars: {mine: VALUE}`"]),
        ("name='my sweep'", ["name='my sweep': must have only letters, digits, '.', '_'"]),
        ("~search/sampler", ["as `search/sampler: OPTION` in the config's defaults"]),
        ("space.search.num_trials={type: int, low: 1, high: 2}", ["num_trials", "sweep"]),
        ("model.channels=choice(4, 8)", ["model.channels", "when: {model: conv_net}"]),
        ("space.model.depth.when={modl: 1}", ["modl", "model"]),
        ("search.metric=eval/los", ["search.metric=eval/los: ", "; did you mean eval/loss"]),
        ("train.global_batch_size=33", ["global_batch_size=33", "32 or 34"]),
        ("train.lr=${nope}", ["train.lr", "does not set nope"]),
        ("a b", ["a b", "key=value"]),
        ("=3", ["=3", "key"]),
        (" train.lr=3", ["without blanks around =: train.lr=3"]),
        ("search.limits.eval/loss.max=3", ["'search.limits={eval/loss: {max: 3}}'"]),
        ("search/sampler.kind=tpe", ["write search.sampler.kind=tpe"]),
        ("train/note.a=b c; d", ["write 'train.note.a=b c; d'"]),
        ("space.train.lr.when.model=conv_net", ["'space.train.lr.when={model: conv_net}'"]),
        ("space.train.lr.prior.value=0.01", ["'space.train.lr.prior={value: 0.01}'"]),
        ("train.lr=tag(lgo, interval(1, 2))", ["lgo", "log"]),
        ("train.lr=range(0.1, 1, 0)", ["range(0.1, 1, 0)", "positive step"]),
        ("train.lr=range(0.1, inf)", ["range(0.1, inf)", "must be finite"]),
        ("train.max_steps=sort(range(80, 10, -20))", ["sort(range", "remove sort"]),
        ("train=null", ["train=null", "is a group"]),
        ("space=null", ["space=null", "write space=none"]),
        ("space=None", ["space=None", "did you mean none?"]),
        ("space.model.choices=[conv_net, 5]", ["space.model.choices.1=5", "option"]),
        ("space.model.choices=[]", ["space.model.choices=[]: must have at least 1 item"]),
        ("task.kind=[a]", ["task.kind=", "['a']", "must be one of"]),
        ("space.train.lr.low=nan", ["space.train.lr.low=nan", "finite"]),
        ("train.lr=choice(0.1, nan)", ["choices has nan", "null or text"]),
        (
            "space.train.lr={type: float, low: -1e308, high: 1e308, log: false}",
            ["space.train.lr: low=-1e+308 and high=1e+308 are further apart than"],
        ),
        (
            "space.train.lr={type: float, low: 1, high: 10, log: true, step: 1}",
            ["space.train.lr: log and step=1.0 exclude each other"],
        ),
        ("space.train.lr.high=1e400", ["space.train.lr.high=inf", "finite"]),
        (f"cluster.num_cpus=1{'0' * 400}", ["cluster.num_cpus", "less than"]),
        ("seed=5000000000", ["seed=5000000000", "less than"]),
        ("tracking.uri=", ["tracking.uri=''", "at least 1 character"]),
        ("space.train.momentum.when={train.optimizer: sdg}", ["momentum.when", "sdg", "sgd"]),
        ("space.train.momentum.when={train.optimizer: []}", ["when.train.optimizer=[]"]),
        ("space.model.depth.when={model: vit}", ["when.model='vit'", "vision_transformer"]),
        ("hydra.run.dir=x", ["hydra.run.dir=x: is a setting of Hydra's own program,", "output_dir"]),
        ("hydra/sweeper=optuna", ["hydra/sweeper=optuna: is a setting of", "write search.num_trials"]),
        ("hydra.sweeper.n_trials=3", ["write search.num_trials, search/sampler"]),
        ("hydra.searchpath=[file:///tmp]", ["--config-dir=DIR"]),
        ("~hydra", ["remove it"]),
        ("model@part=conv_net", ["chooses no option of model for part; write model=OPTION"]),
        ("+model=conv_net", ["chooses the group model twice;", "model=OPTION without a +"]),
        ("~trani", ["~trani: there is nothing of this name to remove; did you mean train"]),
        ("+space=lora", ["chooses the group space twice;", "space=OPTION without a +"]),
        ("train/lr=5", ["train/lr=5: there is no such key; write train.lr"]),
        ("train..lr=5", ["write it without empty names between dots: train.lr=5"]),
        ("train.max_steps=${calc:max(1, 2)}", ["is no interpolation", "; write the expression of calc in quotes"]),
        ("train.max_steps=${calc:1,2}", ["calc has 2 arguments; write the expression of calc in quotes"]),
        ("train.lr=0.1,tag(log,interval(1,2))", ["choices are values, and one of these is a range"]),
        ("space.train.lr=interval(1, 2)", ["space.train.lr=interval(1, 2): write a range without `space.`"]),
        ("++checkpoint.keep={best: true}", ["checkpoint.keep={'best': True}: must be a list, as in [VALUE, VALUE]"]),
        ("search={sampler: [1]}", ["search.sampler=[1]: must have keys of its own, as in {key: value}"]),
        (
            "train={lr: interval(1, 2)}",
            ["inside of another value; search train.lr itself, as in 'train.lr=choice(A, B)'"],
        ),
        ("vars={a: {b: [choice(1, 2)]}}", ["search vars.a.b itself"]),
        ("train.optimizer=[choice(adamw, sgd)]", ["search train.optimizer itself"]),
        (
            "task.options.--lr=0.1,0.2",
            ["YAML file, as in `space: {task.options.--lr: {type: categorical, choices: [A, B]}}`"],
        ),
    ],
)
def test_a_mistake_in_one_value_is_answered_with_the_key_the_value_and_the_fix(token: str, words: list[str]) -> None:
    message = refusal("digits", token)
    assert not [word for word in words if word not in message], message
    assert not any(odd in message for odd in ("++", "Sweep(", "None."))


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


def test_a_text_with_colons_is_a_text_and_a_time_of_a_schedule_may_be_unquoted(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("defaults: [digits, _self_]\nvars: {a: '16:9', b: 1:80, c: a:1:2, d: '010'}\n")
    assert checked("base", folders=(tmp_path,)).config.vars == {"a": "16:9", "b": "1:80", "c": "a:1:2", "d": "010"}


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
    ("text", "words"),
    [
        ("train: {max_steps: 1:30}", ["line 2, column 20: 1:30 is 90 to YAML, which counts in sixties"]),
        (
            "vars: {ratios: [16:9]}",
            ["16:9 is 969 to YAML, which counts in sixties; for the text write '16:9' in quotes"],
        ),
        ("vars: {time: 1:30.5}", ["1:30.5 is 90.5 to YAML"]),
        ("train: {max_steps: 010}", ["line 2, column 20: 010 is 8 to YAML, which takes a number that begins with 0"]),
        ("vars: {ids: [008, 012]}", ["012 is 10 to YAML, which takes a number that begins with 0 as octal"]),
        ("train:\n \u00a0lr: 0.1", ["mine.yaml: line 3, column 2: ", "replace it with a normal space"]),
        ("train:\n\u3000lr: 0.1", ["mine.yaml: line 3, column 1: ", "replace it with a normal space"]),
        ("seed:\u00a03", ["mine.yaml: line 2, column 6: ", "replace it with a normal space"]),
        ("space: {model: {type: categorical, choices: []}}", ["space.model.choices=[]: must have at least 1 item"]),
        ("space: train.lr", ["space=train.lr: must be distributions by path, as in space: {train.lr: {type: float"]),
        ("space: ${vars.nothing}", ["space=${vars.nothing}: must be distributions by path"]),
        ("task: {kind: [function]}", ["must be one of 'causal_lm', 'image"]),
        ("model: vision_transformer", ["; remove it here, and write model=vision_transformer on the command line, or"]),
        ("search: {sampler: random}", ["; remove it here, and write search/sampler=random on the command line, or"]),
        (
            "train: lora",
            ["; remove it here, and write train=lora on the command line, or choose it in the file's defaults"],
        ),
        (
            "search/sampler: tpe",
            ["there is no such key; write `- override search/sampler: OPTION` in the file's defaults"],
        ),
        ("train.lr: 0.1", ["train.lr=0.1: there is no such key; write it nested, as in `train: {lr: VALUE}`"]),
        ("search: {stop.cost: 3}", ["search.stop.cost=3: there is no such key; write it nested, as in `search: {stop"]),
        (
            "train: {lr: {low: 0.1, high: 1}}",
            ["; to search it, move it: `space: {train.lr: {type: float, low: LOW, high: HIGH}}`"],
        ),
        ("train: {lr: 'loguniform(0.1, 1)'}", ["on the command line write 'train.lr=tag(log, interval(0.1, 1))'"]),
        ("train: {lr: 'choice(0.1, 1)'}", ["on the command line write 'train.lr=choice(0.1, 1)'"]),
        ("train: {max_steps: 'interval(10, 99)'}", ["on the command line write 'train.max_steps=interval(10, 99)'"]),
        ("space: {train.lr: 'interval(0.1, 1)'}", ["on the command line write 'train.lr=interval(0.1, 1)'"]),
        ("train: {lr: '${lr}'}", ["write ${vars.lr}, and below vars the line lr: VALUE"]),
        ("train: {lr: '${lr}'}\nvars: {lr: 0.1}", ["write ${vars.lr}"]),
        ("train: {lr: '${a.b.mine}'}", ["write ${vars.mine}, and below vars the line mine: VALUE"]),
        ("search: {metric: ['${metric}']}", ["write ${vars.metric}, and below vars the line metric: VALUE"]),
        ("hydra: {run: {dir: x}}", ["conf=mine: hydra.run=", "is a setting of Hydra's own program"]),
        ("output_dir: ${hydra:runtime.output_dir}", ["only Hydra's own program has", "write the value itself"]),
        ("vars: {a: '\\${b', c: ['${calc:max(1)}']}", ["line 2, column 23: ${calc:max(1)} is no inter", "quotes"]),
        ("vars: &a {b: *a, c: '${'}", ["refer to themselves"]),
        ("train: {lr: '${double:2}'}", ["no resolver double;", "SWEEPS_CONFIG_MODULES=MODULE"]),
    ],
)
def test_a_mistake_in_a_file_is_answered_with_its_place_and_the_fix(
    text: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [digits, _self_]\n{text}\n")
    message = refusal("mine", folders=(tmp_path,))
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "space:\n  task.arguments.x:\n    choices: [auto, off, sdpa]\n    type: categorical",
            ["line 4", "off", "is false to YAML", "'off'"],
        ),
        (
            "space:\n  task.arguments.x:\n    choices: \n    - yes\n    - maybe\n    type: categorical",
            ["line 5", "yes", "is true to YAML"],
        ),
        ("task:\n arguments:\n  null: 3", ["line 4, column 3: the key null is null to YAML; write 'null' in quotes"]),
        ("task:\n arguments:\n  on: 3", ["line 4, column 3: the key on is a boolean to YAML; write 'on' in quotes"]),
        ("task:\n arguments:\n  1.5: 3", ["it is the name of a key: write it in quotes, as in '1.5': VALUE"]),
        ("task:\n arguments:\n  1: 3", ["it is the name of a key: write it in quotes, as in '1': VALUE"]),
        (
            "task:\n arguments:\n  x: {1: 3}",
            ["task.arguments.x.1: a key must be text; write it in quotes, as in '1': VALUE"],
        ),
        (
            "task:\n arguments:\n  x: [{y: {2.5: 3}}]",
            ["task.arguments.x.0.y.2.5: a key must be text; write it in quotes"],
        ),
    ],
)
def test_a_text_that_yaml_reads_otherwise_is_named_in_arguments_of_any_name(
    text: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [ray_train_function, _self_]\n{text}\n")
    message = refusal("mine", folders=(tmp_path,))
    assert not [word for word in words if word not in message], message


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
