"""Files, hosts and code that a config submitted to the service may reach."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic.dataclasses import dataclass

from sweeps.config import Reach, SweepConfig
from sweeps.config.access import Access
from sweeps.config.service import Service
from sweeps.errors import ConfigError, SweepsError
from sweeps.plan.plan import Plan, make_plan
from sweeps.service.auth import field_policy
from sweeps.service.auth.command_policy import CommandPolicy
from sweeps.service.auth.config_policy import ConfigPolicy
from sweeps_train.config.reach import Text

PLANTED = "planted-secret-7Q"

PROGRAM = """
defaults: [{task: program}, {search: random}, {scaling: single_worker}, {checkpoint: last}, {tracking: mlflow},
  {cluster: local}, _self_]
name: program
space: {task.arguments.lr: {type: float, low: 0.1, high: 1.0}}
search: {metric: loss, mode: min, num_trials: 2}
"""

TASK = "{kind: command, command: 'true {lr}', options: {}, arguments: {lr: 0.1}}\n"


def staged(*overrides: str) -> str:
    return f"search.stages=[{{overrides: [{', '.join(map(repr, overrides))}], num_trials: 8}}]"


MANY = ",".join(str(number) for number in range(600))

HOSTILE: list[tuple[str, list[str], str]] = [
    # (conf, overrides, what the refusal says)
    ("ray_train_function", [], "task._target_=sweeps_train.examples.ray_train_digits.train: is not among"),
    ("command", [], "task.command=python -m sweeps_train.examples.two_spirals"),
    ("command", [], "the service runs only programs that its operator has written into conf/task/NAME.yaml"),
    ("program", ["task.command=id"], "task.command=id: the service runs only programs"),
    ("program", ["task.options={--out: /tmp}"], "the service runs only programs"),
    ("program", ["+task.environment={LD_PRELOAD: inside/a.so}"], "the service runs only programs"),
    ("program", ["task.options=choice({}, {--x: 1})"], "the service runs only programs"),
    ("program", ["space.task.command={type: constant, value: id}"], "task.command=id: the service runs only programs"),
    ("program", ["search.points=[{task.command: id}]"], "task.command=id: the service runs only programs"),
    ("program", ["search.stages=[{overrides: ['task.command=id'], num_trials: 2}]"], "task.command=id: the service"),
    ("digits", [staged("data=custom", "data._target_=os.system")], "os.system: is not among"),
    ("digits", ["search={stages: [{overrides: ['+data@task=text'], num_trials: 2}]}"], "be a dotted path or a group"),
    ("digits", [staged("hydra.run.dir=x")], "Hydra itself cannot be configured"),
    ("digits", [staged("model.channels=${oc.env:HOME}")], "interpolations cannot be given"),
    ("program", ["task=command", "task.command=id"], "task.command=id: the service runs only programs"),
    ("program", ["+task.arguments.more=1"], "task.arguments.more=1: the operator's file has no such argument"),
    ("program", ["task.arguments.lr=--output"], "task.arguments.lr=--output: begins with a dash"),
    ("program", ["task.arguments.lr=choice(1, --output)"], "task.arguments.lr=--output: begins with a dash"),
    ("program", ["task.arguments.lr=/etc/passwd"], "/etc/passwd is outside of the folders"),
    (
        "digits",
        ["model.kind=choice(conv_net, custom)", "model._target_=choice(os.system, os.popen)"],
        "model._target_=os.system: is not among",
    ),
    ("llm_lora", ["data=text", "data.path=inside/../outside/a.txt"], "'..' leads out of the service's folders"),
    ("ray_train_function", ["task.working_folder=/tmp"], "task.working_folder=/tmp: sweeps of the service are written"),
    (
        "ray_data",
        ["task._target_=allowed_module.train", "task.datasets.train._target_=os.system"],
        "os.system is not among the import paths",
    ),
    ("digits", ["name=${oc.env:PLANTED}"], "interpolations cannot be given"),
    ("digits", [r"name=$\{oc.env:PLANTED\}"], "interpolations cannot be given"),
    ("digits", ["name='${tracking.uri}'"], "interpolations cannot be given"),
    ("digits", ["task.metrics=['${oc.decode:${oc.env:PLANTED}}']"], "interpolations cannot be given"),
    ("digits", ["tracking.experiment=choice('a', '${oc.env:PLANTED}')"], "interpolations cannot be given"),
    ("digits", ["space.model.channels.choices=['${oc.env:PLANTED}']"], "interpolations cannot be given"),
    ("digits", ["hydra.searchpath=[file:///tmp/evil]"], "Hydra itself cannot be configured"),
    ("digits", ["hydra.searchpath=[pkg://antigravity]"], "Hydra itself cannot be configured"),
    ("digits", ["+hydra/launcher=basic"], "Hydra itself cannot be configured"),
    ("digits", ["~hydra.run.dir"], "Hydra itself cannot be configured"),
    ("digits", ["model=../../../../evil/x"], "'..' leads out"),
    ("digits", ["model=choice(conv_net, '../../../../evil/x')"], "'..' leads out"),
    ("digits", ["space={model: {type: categorical, choices: ['../../../../evil/x']}}"], "'..' leads out"),
    ("digits", ["+model@data=conv_net"], "a key must be a dotted path or a group"),
    ("digits", ["+data@_global_=digits"], "a key must be a dotted path or a group"),
    ("../digits", [], "give the name of a config"),
    ("/etc/evil.yaml", [], "give the name of a config"),
    ("evil.yaml", [], "give the name of a config"),
    ("digits", ["name=" + "[" * 500 + "]" * 500], "levels of brackets"),
    ("digits", ["name=" + "a" * 20_000], "is longer than"),
    ("digits", ["seed=" + "9" * 5000], "more than a thousand digits"),
    ("digits", ["seed=1"] * 300, "there are 300 overrides"),
    ("digits", ["name=a\x00b"], "cannot be printed"),
]
"""Tried through the service's own way of planning a sweep; SECURITY.md has the same table in words."""

WARM_STARTS = """
search.warm_start=[not-mine, {kind: table, path: /etc/passwd.csv}, {kind: table, path: outside/a.txt},
{kind: table, path: 'https://evil.example/x.csv'}, {kind: table, path: $PLANTED},
{kind: optuna, storage: 'sqlite:////tmp/x.db'}, {kind: optuna, storage: 'postgresql://host/db'},
{kind: mlflow, uri: 'http://evil.example', experiment: x}, {kind: mlflow, experiment: x}]
"""
PATHS = """
data.path=choice('/etc/passwd', 'file:///etc/passwd', 'file://elsewhere/etc/passwd', 's3://ours/%2e%2e/theirs/x.json',
'http://169.254.169.254/latest/x.json', 'zip://x.json::s3://ours/a.zip', '/**/*.txt', 'outside/*.txt', text,
someone/else, inside/link.txt, inside, 'inside/*.txt')
"""
LINK = "is outside of the folders that the service allows (access.allowed_folders): a link leads out of them"
TOGETHER = [
    # (conf, overrides, what the refusal says of each)
    (
        "digits",
        [
            *(f"train.lr=choice({MANY})", f"train.weight_decay=choice({MANY})"),
            "search.points=[" + ",".join(["{}"] * 600) + "]",
            "search.constraints=[" + ",".join(["'train.lr < 1'"] * 60) + "]",
            "search.warm_start=[" + ",".join(["a"] * 30) + "]",
            *(f"space.task.arguments.a{n}={{type: constant, value: 1}}" for n in range(120)),
        ],
        [
            *("1,336 choices and values", "search.points: has 600 points", "search.constraints: has 60"),
            *("search.warm_start: has 30 sweeps", "at most 100 (access.max_space)"),
        ],
    ),
    (
        "digits",
        [
            *("search/sampler=custom", "search.sampler._target_=os.system", "data=custom"),
            *("data._target_=builtins.exec", "model=custom", "model._target_=subprocess.Popen"),
            "model.arguments={file: /etc/passwd, inner: {_target_: os.popen}}",
            *("search.points=[{data._target_: os.system}]", "search.constraints=['tracking.uri < \"m\"']"),
            *("output_dir=/tmp/elsewhere", "tracking.uri=sqlite:////tmp/other.db"),
            "cluster.address='ray://evil.example:10001'",
            *("cluster.env=[PLANTED, 'PLAN*', 'OPEN*']", "cluster.slurm.setup=['touch planted']"),
        ],
        [
            "search.sampler._target_=os.system: is not among the import paths",
            "data._target_=builtins.exec: is not among the import paths",
            "model._target_=subprocess.Popen: is not among the import paths",
            *("/etc/passwd is outside of the folders", "os.popen is not among the import paths"),
            "data._target_=os.system: is not among the import paths",
            "tracking.uri cannot be read",
            "output_dir=/tmp/elsewhere: sweeps of the service are written to its own folder",
            "tracking.uri=sqlite:////tmp/other.db: sweeps of the service are recorded in its own store",
            "cluster.address=ray://evil.example:10001: sweeps of the service run on local or auto",
            "PLANTED is not among the environment variables that access.allowed_env",
            *("PLAN* is not among the environment variables", "OPEN* is not among the environment variables"),
            'cluster.slurm={"setup": ["touch planted"]}: is for `submit`',
        ],
    ),
    (
        "digits",
        [
            *("search/sampler=custom", "search.sampler._target_=allowed_module.system"),
            *("model=custom", "model._target_=allowed_module._private"),
            *("data=custom", "data._target_=allowed_module.os.system"),
            "space.data._target_={type: constant, value: os.popen}",
            "space.cluster.env={type: constant, value: [PLANTED]}",
            "space.tracking.uri={type: constant, value: 'http://evil.example'}",
            *("cluster=kuberay", "cluster.kuberay.image=evil", "output_dir=outputs/deeper"),
            WARM_STARTS.replace("\n", " ").strip(),
        ],
        [
            "search.sampler._target_=allowed_module.system: is not defined in",
            "model._target_=allowed_module._private: is not among the import paths",
            "data._target_=allowed_module.os.system: is not among the import paths",
            "data._target_=os.popen: is not among the import paths",
            'cluster.env=["PLANTED"]: PLANTED is not among the environment variables',
            "tracking.uri=http://evil.example: sweeps of the service are recorded in its own store",
            'cluster.kuberay={"image": "evil"}: is for `submit`',
            "output_dir=outputs/deeper: sweeps of the service are written to its own folder",
            "there is no sweep 'not-mine'",
            *("path=/etc/passwd.csv: is outside of the folders", "path=outside/a.txt: is outside of the folders"),
            "path=https://evil.example/x.csv: is not among the addresses",
            "path=$PLANTED: environment variables of the service",
            "storage=sqlite:////tmp/x.db: is outside of the folders",
            "storage=postgresql://host/db: is not among the addresses",
            "uri=http://evil.example: is not among the addresses",
            "sweeps of the service are read by their names",
        ],
    ),
    (
        "digits",
        [
            *("output_dir=choice(outputs, /tmp)", "cluster=choice(local, slurm)"),
            *("model=custom", "model._target_=allowed_module.build"),
            "model.arguments.file=choice(mlflow.db, outside/a.txt)",
        ],
        [
            "output_dir=/tmp: sweeps of the service are written to its own folder",
            *("is for `submit`", "outside/a.txt is outside of the folders"),
        ],
    ),
    (
        "llm_lora",
        [
            *("data=text", "data.path=/etc/passwd", "data.eval_path=mlflow.db", "model=huggingface"),
            *("model.path=/root", "model.tokenizer='~/secrets'", "model.trust_remote_code=true"),
            *("model.attention=kernels-community/flash-attn", "train.optimizer={_target_: subprocess.Popen}"),
        ],
        [
            "data.path=/etc/passwd: is outside of the folders",
            "data.eval_path=mlflow.db: is outside of the folders",
            "model.path=/root: is outside of the folders",
            "model.tokenizer=~/secrets: is outside of the folders",
            "model.trust_remote_code=true: code from the hub",
            "model.attention=kernels-community/flash-attn: must be one word, without a slash",
            "train.optimizer._target_=subprocess.Popen: is not among the import paths",
        ],
    ),
    (
        "llm_lora",
        [
            *("data=text", "model=huggingface", "model.path=choice(ours/llama, 'runs:/0123456789abcdef/model')"),
            *("model.trust_remote_code=choice(true, false)", PATHS.replace("\n", " ").strip()),
        ],
        [
            "model.path=runs:/0123456789abcdef/model: is not among the addresses that the service allows",
            "model.trust_remote_code=true: code from the hub",
            "data.path=/etc/passwd: is outside of the folders",
            "data.path=file:///etc/passwd: is outside of the folders",
            "data.path=file://elsewhere/etc/passwd: names another machine",
            "data.path=s3://ours/%2e%2e/theirs/x.json: is not among the addresses that",
            "data.path=http://169.254.169.254/latest/x.json: is not among the addresses that",
            "data.path=zip://x.json::s3://ours/a.zip: is not among the addresses that",
            "data.path=/**/*.txt: is outside of the folders",
            "data.path=outside/*.txt: is outside of the folders",
            "data.path=text: is neither owner/name on the hub",
            "data.path=someone/else: is not among the hub names",
            "data.path=inside/link.txt: is outside of the folders",
            f"data.path=inside: {LINK}",
            f"data.path=inside/*.txt: {LINK}",
        ],
    ),
]
"""Values of which each is refused by a rule of its own, and named beside the others."""


def in_words(value: object) -> str:
    return re.sub(r"\W+", "-", str(value))[:60]


@pytest.fixture
def allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigPolicy:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PLANTED", PLANTED)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for folder in ("inside", "outside", "clean"):
        Path(folder).mkdir()
        Path(folder, "a.txt").write_text("text\n")
    Path("inside", "link.txt").symlink_to(tmp_path / "outside" / "a.txt")
    Path("mlflow.db").touch()
    Path("clean", "study.db").touch()
    Path("clean", "trials.csv").touch()
    Path("allowed_module.py").write_text(
        "from os import system\nimport os\ndef build(**arguments): ...\ndef _private(): ...\n"
    )
    access = Access(
        allowed_targets=["allowed_module.*", "sweeps_train.examples.ray_train_digits.main"],
        allowed_commands=["program", "incomplete"],
        allowed_folders=["inside", "clean"],
        allowed_uris=["s3://ours/", "http://mlflow.example:5000"],
        allowed_hub=["ours/*"],
        allowed_env=["OPEN_ONE", "NCCL_*"],
    )
    Path("conf/task").mkdir(parents=True)
    Path("conf/program.yaml").write_text(PROGRAM)
    Path("conf/task/program.yaml").write_text(TASK)
    Path("conf/task/incomplete.yaml").write_text("kind: command\n")
    return ConfigPolicy(Service(access=access, tracking_uri="sqlite:///mlflow.db"), [Path("conf").absolute()])


def plan(allowed: ConfigPolicy, conf: str, overrides: list[str], sees: Callable[[str], bool] = lambda _: False) -> Plan:
    """Plan a request as the API does."""
    allowed.check_request(conf, overrides)
    tokens = [f"conf={conf}", *overrides]
    folders = [Path("conf")]
    return make_plan(tokens, folders, "asked", "asked", approve=lambda composition: allowed.check(composition, sees))


def test_an_allowed_program_without_a_complete_file_is_noted(allowed: ConfigPolicy) -> None:
    access = Access(allowed_commands=["program", "incomplete", "missing"])
    notes = CommandPolicy(access, [Path("conf")]).notes
    assert [re.findall(r"(\w+) allows nothing, .* task/(\w+)\.yaml", note)[0][0] for note in notes] == [
        "incomplete",
        "missing",
    ]


@pytest.mark.parametrize(("conf", "overrides", "refusal"), HOSTILE, ids=in_words)
def test_a_hostile_config_is_refused(allowed: ConfigPolicy, conf: str, overrides: list[str], refusal: str) -> None:
    with pytest.raises(SweepsError, match=re.escape(refusal)) as error:
        plan(allowed, conf, overrides)
    assert isinstance(error.value, ConfigError)
    assert PLANTED not in str(error.value)


@pytest.mark.parametrize(("conf", "overrides", "refusals"), TOGETHER, ids=in_words)
def test_each_hostile_value_of_a_config_is_refused(
    allowed: ConfigPolicy, conf: str, overrides: list[str], refusals: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        plan(allowed, conf, overrides)
    said = str(error.value)
    assert [each for each in refusals if each not in said] == [], said
    assert PLANTED not in said


@pytest.mark.parametrize(
    ("conf", "overrides"),
    [
        ("program", ["task.arguments.lr=0.5", "search.num_trials=4"]),
        ("digits", ["train.lr=tag(log, interval(1e-4, 1e-1))", "search.num_trials=4", "seed=3"]),
        ("digits", ["cluster=auto", "cluster.env=[OPEN_ONE, 'NCCL_*', NCCL_DEBUG, 'NCCL_IB_*']"]),
        ("digits", ["model=choice(conv_net, vision_transformer)", "~space.model.dropout"]),
        ("digits", ["output_dir=outputs", "tracking.uri=sqlite:///mlflow.db", "cluster=auto"]),
        ("digits", ["tracking.uri='http://mlflow.example:5000'", "search.warm_start=[mine]"]),
        ("digits", ["search.warm_start=[mine, {kind: table, path: clean/trials.csv}]"]),
        ("digits", ["search.warm_start=[{kind: optuna, storage: 'sqlite:///clean/study.db'}]"]),
        ("digits", ["search.warm_start=[{kind: mlflow, uri: 'http://mlflow.example:5000', experiment: x}]"]),
        (
            "digits",
            ["data=custom", "data._target_=allowed_module.build", "data.arguments={kind: a/b, file: clean/a.txt}"],
        ),
        ("llm_lora", ["data=text", "data.path=clean"]),
        ("llm_lora", ["data=text", "data.path='clean/*.txt'"]),
        ("llm_lora", ["data=text", "data.path=clean/a.txt"]),
        (
            "llm_lora",
            ["data=text", "data.path='s3://ours/books/x.jsonl'", "model=huggingface", "model.path=ours/llama"],
        ),
        ("llm_lora", ["search.constraints=['train.lr < 1']", "model.attention=sdpa"]),
    ],
    ids=in_words,
)
def test_what_is_allowed_passes(allowed: ConfigPolicy, conf: str, overrides: list[str]) -> None:
    assert plan(allowed, conf, overrides, lambda name: name == "mine").name == "asked"


def test_an_earlier_sweep_is_looked_up_once_for_all_values_of_a_space(allowed: ConfigPolicy) -> None:
    """Thousands of times the process of a plan asked the service, which went through all sweeps for each answer."""
    asked = list[str]()

    def sees(name: str) -> bool:
        asked.append(name)
        return True

    plan(allowed, "digits", ["search.warm_start=[mine, other]", "train.lr=choice(0.1, 0.2, 0.3)"], sees)
    assert asked == ["mine", "other"]


def test_nothing_is_imported_before_it_is_allowed(allowed: ConfigPolicy) -> None:
    Path("evil_package").mkdir()
    Path("evil_package", "__init__.py").write_text("open('was_imported', 'w').close()\n")
    Path("evil_package", "module.py").write_text("def f(): ...\n")
    with pytest.raises(ConfigError, match="is not among"):
        plan(allowed, "digits", ["model=custom", "model._target_=evil_package.module.f"])
    assert not os.path.exists("was_imported")  # noqa: PTH110


def undeclared_fields(annotation: Any) -> set[str]:
    """Return the fields of a class and its sections that lack a declared reach and need one, as ``Class.field``."""
    found: set[str] = set()
    for section in field_policy._sections(annotation):
        for name, field in section.__pydantic_fields__.items():
            if field_policy._reach(field) is None and field_policy._is_open(field.annotation):
                found.add(f"{section.__name__}.{name}")
            found |= undeclared_fields(field.annotation)
    if typing.get_origin(annotation) is list:
        found |= undeclared_fields(typing.get_args(annotation)[0])
    return found


def test_every_field_of_the_schema_that_could_reach_something_has_a_rule() -> None:
    assert undeclared_fields(SweepConfig) == set(), "annotate the new field with a Reach (sweeps_train.config.reach)"


def test_a_field_that_could_reach_something_and_does_not_say_so_is_found() -> None:
    @dataclass
    class Section:
        number: int
        word: Literal["a", "b"]
        free: Text | list[Text]
        path: Annotated[str | None, Reach.SOURCE]
        switch: bool
        forgotten: str | None

    assert undeclared_fields(Section) == {"Section.switch", "Section.forgotten"}
