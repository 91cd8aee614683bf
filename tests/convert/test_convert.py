"""Searches of other tools as confs: what is carried over exactly, what is noted, and where a mistake is."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from converting import argument, carried_over, converted, plan_of
from processes import run_python
from verbs import refusal

from sweeps.cli import run_command
from sweeps.compose.overrides import parse_values
from sweeps.errors import ConfigError
from sweeps_train.command.command_line import command_line
from sweeps_train.command.output import parsers, record_in
from sweeps_train.command.placeholders import config_values
from sweeps_train.config import CommandConfig, CommandTask

# Inputs are of the forms that the tools' own examples have.
WANDB = """
program: fit.py
name: first try
project: shapes
entity: team
method: bayes
run_cap: 30
metric: {name: val/accuracy, goal: maximize, target: 0.95}
early_terminate: {type: hyperband, max_iter: 27, s: 2, eta: 3, strict: true}
command: ["${env}", "${interpreter}", "${program}", "--data=small", "--fast", "${args}"]
parameters:
  epochs: {value: 27}
  optimizer: {values: [adam, sgd]}
  units: {min: 16, max: 256}
  rate: {min: 1e-4, max: 0.1, distribution: log_uniform_values}
  decay: {min: 0.0, max: 0.2}
  batch: {distribution: q_log_uniform_values, min: 32, max: 256, q: 8}
  chunk: {distribution: q_uniform, min: 8, max: 32, q: 8}
  drop: {distribution: q_uniform, min: 0.04, max: 0.52, q: 0.1}
  noise: {distribution: normal, mu: 1.0, sigma: 0.5}
  scale: {distribution: log_normal, mu: 0, sigma: 1}
  old_rate: {distribution: log_uniform, min: -9.21034, max: -2.302585}
  inverse: {distribution: inv_log_uniform, min: 0, max: 2.302585}
  choice: {values: [a, b], probabilities: [0.9, 0.1]}
  share: {distribution: beta, a: 2, b: 5}
scheduler: {num_workers: 8}
"""
WANDB_NESTED = """
method: grid
program: fit.py
metric: {name: loss}
parameters:
  batch: {values: [32, 64]}
  optimizer:
    parameters:
      rate: {values: [0.001, 0.0001]}
      inner: {parameters: {beta: {values: [0.9, 0.95, 0.99]}}}
"""
HYDRA = """
defaults:
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: nsgaii
hydra:
  sweeper:
    sampler: {seed: 5}
    direction: [minimize, maximize]
    study_name: two goals
    storage: null
    n_trials: 40
    n_jobs: 4
    custom_search_space: app.configure
    params:
      x: range(-5.5, 5.5, step=0.5)
      steps: range(1, 9)
      model.width: tag(log, int(interval(8, 128)))
      rate: tag(log, interval(1e-5, 1e-1))
      solver: choice(adam, sgd)
      +extra: 3
model: {width: 16}
rate: 1e-3
solver: adam
folder: ${oc.env:HOME}
"""
HYDRA_OLD = """
defaults: [{override hydra/sweeper: optuna}]
hydra:
  sweeper:
    search_space:
      x: {type: float, low: -5.5, high: 5.5, step: 0.5}
      y: {type: categorical, choices: [-5, 0, 5]}
      rate: {type: float, low: 0.0001, high: 0.1, log: true}
      scale: {type: float, low: 0, high: 10, step: 1}
x: 1
"""
TUNE = """
from ray import tune

space = {
    "rate": tune.loguniform(1e-5, 1e-1),
    "decay": tune.quniform(0, 0.3, 0.1),
    "layers": tune.randint(1, 5),
    "units": tune.qrandint(2, 10, 2),
    "net": {"width": tune.lograndint(8, 129), "act": tune.choice(["relu", "gelu"])},
    "noise": tune.randn(0, 1),
    "linked": tune.sample_from(lambda spec: 1),
    "epochs": 3,
    "device": object(),
}
trainer = {"train_loop_config": {"a": tune.grid_search([1, 2]), "b": tune.grid_search([3, 4, 5])}, "scaling_config": 1}
config = tune.TuneConfig(
    metric="accuracy",
    mode="max",
    num_samples=10,
    max_concurrent_trials=2,
    time_budget_s=7200,
    scheduler=tune.schedulers.MedianStoppingRule(),
)
"""


@pytest.fixture(autouse=True)
def _user(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the user: a script, and a function that takes any arguments."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (working_folder / "fit.py").write_text("import sys; print(sys.argv)\n")
    (working_folder / "stand_in.py").write_text("def train(config):\n    print(dict(config))\n")


def test_a_sweep_of_weights_and_biases(capsys: pytest.CaptureFixture[str]) -> None:
    conf = converted(WANDB)
    assert conf["name"] == "first_try"
    assert conf["tracking"]["experiment"] == "shapes"
    assert conf["task"]["command"] == ["python", "fit.py", "--data=small", "--fast", "{arguments}"]
    assert conf["task"]["arguments"] == {**conf["task"]["arguments"], "epochs": 27, "optimizer": "adam"}
    assert argument(conf, "optimizer") == {"type": "categorical", "choices": ["adam", "sgd"]}
    assert argument(conf, "units") == {"type": "int", "low": 16, "high": 256}
    assert argument(conf, "rate") == {"type": "float", "low": 1e-4, "high": 0.1, "log": True}
    assert argument(conf, "decay") == {"type": "float", "low": 0.0, "high": 0.2}
    assert argument(conf, "batch") == {"type": "int", "low": 32, "high": 256, "log": True}
    assert argument(conf, "chunk") == {"type": "int", "low": 8, "high": 32, "step": 8}
    assert argument(conf, "drop") == {"type": "float", "low": 0.0, "high": 0.5, "step": 0.1}
    assert argument(conf, "noise")["prior"]["value"] == 1.0
    assert (argument(conf, "noise")["low"], argument(conf, "noise")["high"]) == (-0.5, 2.5)
    assert argument(conf, "scale")["log"] is True
    assert argument(conf, "scale")["high"] == pytest.approx(math.exp(3))
    assert argument(conf, "old_rate")["low"] == pytest.approx(1e-4, rel=1e-4)  # exponents of e
    assert argument(conf, "inverse")["low"] == pytest.approx(0.1, rel=1e-4)
    search = conf["search"]
    assert (search["metric"], search["mode"], search["num_trials"]) == ("val/accuracy", "max", 30)
    assert search["scheduler"] == {"grace": 3, "eta": 3}
    assert search["stop"] == {"target": 0.95}
    told = capsys.readouterr().err
    notes = (
        *("line 5: entity", "choice: the choices are equally", "share: a beta", "multiples of 8", "max_concurrent"),
        "from wandb.config are its own defaults",
    )
    for words in notes:
        assert words in told
        assert words in Path("conf/first_try.yaml").read_text()
    plan = plan_of(conf)
    assert plan.config.search.sampler.kind == "gp"
    assert plan.config.search.scheduler.kind == "asha"


def test_nested_parameters_of_a_grid_are_all_its_points() -> None:
    conf = converted(WANDB_NESTED)
    assert conf["search"]["num_trials"] == 12
    assert argument(conf, "optimizer.inner.beta")["choices"] == [0.9, 0.95, 0.99]
    plan = plan_of(conf)
    assert plan.config.search.sampler.kind == "grid"
    assert plan.config.search.scheduler.kind == "none"


PARAMETERS = (
    "method: random\nparameters: {fast: {values: [true, false]}, rate: {min: 0.0, max: 1.0}, device: {value: null},"
    " norm: {values: [false]}}"
)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ["python", "fit.py", "--device=None", "--fast=True", "--rate=0.5", "--norm=False"]),
        (
            "[bash, -c, 'echo {}', '${args_no_hyphens}']",
            ["bash", "-c", "echo {}", "device=None", "fast=True", "rate=0.5", "norm=False"],
        ),
        (
            "['${env}', python3, '${program}', '${args_no_boolean_flags}']",
            ["python3", "fit.py", "--fast", "--rate=0.5"],
        ),
    ],
)
def test_a_trial_is_started_as_by_the_agent_of_weights_and_biases(command: str, words: list[str]) -> None:
    plan = plan_of(converted(f"program: fit.py\n{PARAMETERS}\n{f'command: {command}' if command else ''}"))
    fast = plan.space["task.arguments.fast"].choices[0]  # type: ignore[union-attr]
    point = {"task.arguments.fast": fast, "task.arguments.rate": 0.5}
    norm = plan.space["task.arguments.norm"].value  # type: ignore[union-attr]
    training = plan.composition.trial({**point, "task.arguments.norm": norm}).training()
    assert isinstance(training, CommandConfig)
    assert command_line(training.task, training.values.__getitem__) == words


def test_lists_reach_a_program_in_the_notation_of_the_agent_of_weights_and_biases() -> None:
    conf = converted(
        "program: fit.py\nmethod: random\nparameters: {layers: {values: [[a, null], [true, 1]]},"
        " sizes: {value: [1, 2]}, rate: {min: 0.0, max: 1.0}}\n"
    )
    assert argument(conf, "layers")["choices"] == ["['a', None]", "[True, 1]"]
    assert conf["task"]["arguments"]["sizes"] == [1, 2]


def test_a_section_keeps_the_types_of_its_values_in_the_json_that_a_program_gets() -> None:
    section = "nesterov: {values: [false, true]}, clip: {value: null}, deep: {parameters: {betas: {value: [a, null]}}}"
    conf = converted(
        "program: fit.py\nmethod: random\nparameters: {lr: {values: [1, 2]}, opt.fast: {value: true}, opt: "
        f"{{parameters: {{{section}}}}}}}\n"
    )
    assert argument(conf, "opt.nesterov")["choices"] == [False, True]
    task = plan_of(conf).config.task
    assert isinstance(task, CommandTask)
    options = dict(word.split("=", 1) for word in command_line(task, {"arguments": task.arguments}.__getitem__)[2:])
    expected = {"clip": None, "deep": {"betas": ["a", None]}, "nesterov": False}
    assert (options["--opt.fast"], json.loads(options["--opt"])) == ("True", expected)
    told = [line for line in Path("conf/source.yaml").read_text().splitlines() if "as JSON" in line]
    assert told == [
        "# - opt: is passed as JSON, where W&B's agent passes a dictionary of Python; read it with json.loads"
    ]


def test_a_logarithmic_range_that_the_default_step_rounds_to_zero_is_zero_and_says_so() -> None:
    conf = converted(
        "program: fit.py\nmethod: random\nparameters: {units: {values: [1, 2]},"
        " rate: {distribution: q_log_uniform_values, min: 0.001, max: 0.1}}\n"
    )
    assert argument(conf, "rate") == {"type": "constant", "value": 0}
    assert "rate: every value is rounded to 0, a multiple of 1" in Path("conf/source.yaml").read_text()
    plan_of(conf)


@pytest.mark.parametrize(
    ("mean", "step", "expected"),
    [
        (3, 1, {"type": "int", "low": 1, "high": 403, "log": True, "prior": {"value": 20, "confidence": 0.67}}),
        (-1, 1, {"type": "int", "low": 1, "high": 7, "log": True, "prior": {"value": 1, "confidence": 0.67}}),
        (-9, 1, {"type": "constant", "value": 0}),
    ],
)
def test_a_log_normal_value_that_is_rounded_to_whole_numbers_is_one(
    mean: int, step: int, expected: dict[str, Any]
) -> None:
    parameter = f"{{distribution: q_log_normal, mu: {mean}, sigma: 1, q: {step}}}"
    conf = converted(f"program: fit.py\nmethod: random\nparameters: {{units: {parameter}, b: {{values: [1, 2]}}}}\n")
    assert argument(conf, "units") == expected
    plan_of(conf)


def test_what_a_command_of_weights_and_biases_cannot_say_here_is_noted_and_refused() -> None:
    conf = converted(f"program: fit.py\n{PARAMETERS}\ncommand: [python, fit.py, '${{args_json}}']")
    assert "line 4: command: ${args_json}: replace it" in Path("conf/source.yaml").read_text()
    with pytest.raises(ConfigError, match="args_json"):
        plan_of(conf)


def test_a_grid_over_a_range_without_steps_becomes_random_and_says_so() -> None:
    conf = converted("program: fit.py\nmethod: grid\nparameters: {a: {min: 0.0, max: 1.0}, b: {values: [1, 2]}}\n")
    assert conf["search"]["num_trials"] == 20
    assert "# - the grid: a has no step" in Path("conf/source.yaml").read_text()
    assert plan_of(conf).config.search.sampler.kind == "random"


def test_a_config_of_hydras_optuna_sweeper() -> None:
    conf = converted(HYDRA)
    assert conf["name"] == "two_goals"
    assert conf["seed"] == 5
    assert argument(conf, "x") == {"type": "float", "low": -5.5, "high": 5.5, "step": 0.5}  # with the end, as there
    assert argument(conf, "steps") == {"type": "int", "low": 1, "high": 9, "step": 1}
    assert argument(conf, "model.width") == {"type": "int", "low": 8, "high": 128, "log": True}
    assert argument(conf, "rate") == {"type": "float", "low": 1e-5, "high": 0.1, "log": True}
    assert argument(conf, "solver") == {"type": "categorical", "choices": ["adam", "sgd"]}
    given = conf["task"]["arguments"]
    assert (given["application"], given["model"], given["rate"], given["extra"]) == ("???", {"width": 16}, 0.001, 3)
    assert "folder" not in given  # the application's own config has it
    search = conf["search"]
    assert (search["metric"], search["mode"]) == (["objective_0", "objective_1"], ["min", "max"])
    assert (search["num_trials"], search["max_concurrent"]) == (40, 4)
    assert "custom_search_space: a function cannot be carried over" in Path("conf/two_goals.yaml").read_text()
    plan = plan_of(conf, "task.arguments.application=fit.py")
    assert plan.config.search.sampler.kind == "nsga2"
    task = plan.config.task
    assert isinstance(task, CommandTask)
    values = {**task.arguments, "trial.folder": "here", "model.width": 32, "solver": None}
    assert command_line(task, values.__getitem__) == [
        *("python", "fit.py", 'hydra.run.dir="here/hydra"', "x=-5.5", "steps=1", "model.width=32", "rate=0.001"),
        *("solver=null", "+extra=3"),
    ]


CHOICES = "{lr: '0.1,0.01', layers: 'range(1, 4)', solver: 'choice(adam, sgd)', +note: fixed}"


def test_a_config_of_hydras_own_sweeper_is_the_grid_of_all_its_points_without_the_ends_of_ranges() -> None:
    conf = converted(
        f"defaults: [_self_, override hydra/launcher: joblib]\nhydra: {{sweeper: {{params: {CHOICES}}}}}\n"
    )
    config = plan_of(conf, "task.arguments.application=fit.py").config
    assert config.search.sampler.kind == "grid"
    assert argument(conf, "layers") == {"type": "int", "low": 1, "high": 3, "step": 1}
    assert config.search.num_trials == 2 * 3 * 2
    assert conf["task"]["arguments"]["note"] == "fixed"


@pytest.mark.parametrize(
    "more",
    [
        "defaults: [override hydra/sweeper: optuna]\nhydra: {sweeper: {params: PARAMS}}",
        "defaults: [override /hydra/sweeper: optuna]\nhydra: {mode: MULTIRUN, sweeper: {params: PARAMS}}",
        "defaults: [override hydra/sweeper/sampler: tpe]\nhydra: {sweeper: {params: PARAMS}}",
        "hydra: {sweeper: {n_trials: 20, params: PARAMS}}",
        "hydra: {sweeper: {direction: maximize, params: PARAMS}}",
        "hydra: {sweeper: {_target_: hydra_plugins.hydra_optuna_sweeper.OptunaSweeper, params: PARAMS}}",
        "hydra: {sweeper: {params: {rate: 'interval(0, 1)', layers: 'range(1, 4)'}}}",
    ],
)
def test_whatever_names_the_optuna_sweeper_is_read_as_its_config(more: str) -> None:
    conf = converted(more.replace("PARAMS", CHOICES) + "\n")
    assert plan_of(conf, "task.arguments.application=fit.py").config.search.sampler.kind == "tpe"
    assert argument(conf, "layers")["high"] == 4
    assert conf["search"]["num_trials"] == 20


def test_the_grid_of_hydras_optuna_sweeper_leaves_the_ends_of_ranges_out_as_there() -> None:
    grid = HYDRA.replace("nsgaii", "grid").replace("[minimize, maximize]", "minimize").replace("interval", "range")
    conf = converted(grid.replace("tag(log, int(range(8, 128)))", "1").replace("tag(log, range(1e-5, 1e-1))", "1"))
    assert argument(conf, "x") == {"type": "float", "low": -5.5, "high": 5.0, "step": 0.5}
    assert argument(conf, "steps") == {"type": "int", "low": 1, "high": 8, "step": 1}


def test_what_hydra_resolves_and_the_settings_of_a_sampler_and_a_launcher_are_told() -> None:
    file = HYDRA.replace("{seed: 5}", "{seed: '${seed}', n_startup_trials: 10, _target_: optuna.samplers.TPESampler}")
    assert converted(file.replace("hydra:\n", "hydra:\n  launcher: {n_jobs: 4}\n"))["seed"] == 0
    told = Path("conf/two_goals.yaml").read_text()
    for note in (
        "sampler.seed=${seed}: write",
        "sampler.n_startup_trials: is not carried",
        "hydra.launcher: trials run",
    ):
        assert note in told


def test_as_many_jobs_as_cores_set_no_bound_of_their_own() -> None:
    assert "max_concurrent" not in converted(HYDRA.replace("n_jobs: 4", "n_jobs: -1"))["search"]


def test_the_application_of_a_hydra_config_is_found_beside_its_folder_and_takes_its_values(tmp_path: Path) -> None:
    Path("folder").mkdir()
    script = """
import json, hydra

@hydra.main(version_base=None, config_path="folder", config_name="{}")
def main(config):
    print(json.dumps(dict(objective=config.x, y=config.y)))

main()
"""
    Path("other.py").write_text(script.format("other"))
    Path("broken.py").write_text("def (\n")
    Path("app.py").write_text(script.format("config"))
    # As the sweeper's config, but without the choice of its plugin, which is not installed here.
    Path("folder/config.yaml").write_text(
        "hydra: {sweeper: {params: {x: 'interval(-5, 5)', y: 'choice(true, false)', +z: 'range(1, 3)'}}}\n"
        "x: 1.0\ny: 0\n"
    )
    conf = carried_over("folder/config.yaml", "conf")
    task = plan_of(conf).config.task
    assert isinstance(task, CommandTask)
    values = {**task.arguments, "trial.folder": str(tmp_path), "x": -2.5, "y": False}
    command = command_line(task, values.__getitem__)
    assert command[:2] == ["python", "app.py"]
    done = run_python(*command[1:])
    assert record_in(done.stdout.strip(), parsers(task.read)) == {"objective": -2.5}
    assert (tmp_path / "hydra" / ".hydra" / "overrides.yaml").read_text() == "- x=-2.5\n- y=false\n- +z=1\n"


def test_the_old_form_of_the_sweepers_space() -> None:
    conf = converted(HYDRA_OLD)
    assert argument(conf, "x") == {"type": "float", "low": -5.5, "high": 5.5, "step": 0.5}
    assert argument(conf, "rate") == {"type": "float", "low": 0.0001, "high": 0.1, "log": True}
    assert argument(conf, "scale") == {"type": "float", "low": 0, "high": 10, "step": 1}
    assert conf["search"]["num_trials"] == 20
    assert plan_of(conf, "task.arguments.application=fit.py").config.search.sampler.kind == "tpe"


def test_a_param_space_of_ray_tune(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tuned_space.py").write_text(TUNE)
    conf = carried_over("tuned_space:space", "conf", "--tune-config=tuned_space:config")
    assert argument(conf, "rate") == {"type": "float", "low": 1e-5, "high": 0.1, "log": True}
    assert argument(conf, "decay") == {"type": "float", "low": 0.0, "high": 0.3, "step": 0.1}
    assert argument(conf, "layers") == {"type": "int", "low": 1, "high": 4}  # randint leaves its end out
    assert argument(conf, "units") == {"type": "int", "low": 2, "high": 10, "step": 2}
    assert argument(conf, "net.width") == {"type": "int", "low": 8, "high": 128, "log": True}
    assert argument(conf, "noise")["prior"]["value"] == 0.0
    assert conf["task"]["arguments"]["epochs"] == 3
    search = conf["search"]
    assert (search["metric"], search["mode"], search["num_trials"]) == ("accuracy", "max", 10)
    assert (search["max_concurrent"], search["stop"]) == (2, {"wall_hours": 2.0})
    told = capsys.readouterr().err
    assert "linked: sample_from" in told
    assert "device: a config cannot hold" in told
    assert plan_of(conf, "task._target_=stand_in.train").config.search.scheduler.kind == "asha"
    grid = carried_over("tuned_space:trainer", "of_trainer", "--name=grid")
    assert grid["search"]["num_trials"] == 6
    assert plan_of(grid, "task._target_=stand_in.train", folder="of_trainer").config.search.sampler.kind == "grid"


def test_samples_beside_a_grid_of_tune_are_as_many_for_each_of_its_points() -> None:
    Path("mixed.py").write_text(
        "from ray import tune\ngrid = {'a': tune.grid_search([1, 2]), 'b': tune.grid_search([3, 4, 5])}\n"
        "space = {**grid, 'lr': tune.uniform(0, 1)}\nconfig = tune.TuneConfig(metric='x', mode='max', num_samples=4)\n"
    )
    for name in ("space", "grid"):
        conf = carried_over(f"mixed:{name}", name, "--tune-config=mixed:config")
        assert conf["search"]["num_trials"] == {"space": 24, "grid": 6}[name]
        text = Path(f"{name}/mixed.yaml").read_text()
        assert ("num_samples=4: each point of the grid is trained once here" in text) == (name == "grid")


def test_tunes_own_searcher_given_by_hand_trains_a_grid_as_without_it() -> None:
    Path("named.py").write_text(
        "from ray import tune\nfrom ray.tune.search import BasicVariantGenerator\n"
        "grid = {'a': tune.grid_search([1, 2]), 'b': tune.grid_search([3, 4, 5])}\n"
        "config = tune.TuneConfig(metric='x', mode='max', search_alg=BasicVariantGenerator(max_concurrent=2))\n"
    )
    conf = carried_over("named:grid", "conf", "--tune-config=named:config")
    assert (conf["search"]["num_trials"], conf["search"]["max_concurrent"]) == (6, 2)
    assert plan_of(conf, "task._target_=stand_in.train").config.search.sampler.kind == "grid"


@pytest.mark.parametrize(
    ("searcher", "scheduler", "kinds", "bound", "told"),
    [
        ("ConcurrencyLimiter(BayesOptSearch(), max_concurrent=3)", None, ("gp", "none"), 3, "ConcurrencyLimiter of "),
        ("Repeater(ConcurrencyLimiter(OptunaSearch(), 8), repeat=2)", None, ("tpe", "none"), 5, "Repeater of Concurr"),
        ("'bohb'", "'hb_bohb'", ("bohb", "hyperband"), 5, "search_alg bohb: the sampler is bohb"),
        ("'random'", "'fifo'", ("random", "none"), 5, "points_to_evaluate (search.points)"),
    ],
)
def test_the_searcher_inside_of_tunes_wrappers_is_carried_over(
    searcher: str,
    scheduler: str | None,
    kinds: tuple[str, str],
    bound: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("wrapped.py").write_text(
        "from ray import tune\nfrom ray.tune.search import ConcurrencyLimiter, Repeater, Searcher\n"
        "class BayesOptSearch(Searcher):\n    pass\nclass OptunaSearch(Searcher):\n    pass\n"
        f"space = {{'lr': tune.uniform(0, 1)}}\nconfig = tune.TuneConfig(metric='x', mode='max', num_samples=2, "
        f"search_alg={searcher}, scheduler={scheduler}, max_concurrent_trials=5)\n"
    )
    conf = carried_over("wrapped:space", "conf", "--tune-config=wrapped:config")
    sys.modules.pop("wrapped")
    assert told in capsys.readouterr().err
    search = plan_of(conf, "task._target_=stand_in.train").config.search
    assert (search.sampler.kind, search.scheduler.kind) == kinds
    assert search.max_concurrent == bound


def test_the_metric_of_tune_may_be_given_to_its_scheduler_or_its_searcher(capsys: pytest.CaptureFixture[str]) -> None:
    Path("elsewhere.py").write_text(
        "from ray import tune\nfrom ray.tune.search.optuna import OptunaSearch\n"
        "space = {'lr': tune.uniform(0, 1)}\nasha = tune.schedulers.ASHAScheduler(metric='accuracy', mode='max')\n"
        "by_scheduler = tune.TuneConfig(scheduler=asha)\n"
        "by_searcher = tune.TuneConfig(search_alg=OptunaSearch(metric='accuracy', mode='max'))\n"
        "nowhere = tune.TuneConfig(num_samples=3)\n"
        "of_two = tune.TuneConfig(search_alg=OptunaSearch(metric=['loss', 'accuracy'], mode=['min', 'max']))\n"
        "by_names = tune.TuneConfig(scheduler='asha', search_alg='optuna', metric='accuracy', mode='max')\n"
    )
    for name, expected in {
        "by_scheduler": ("accuracy", "max"),
        "by_searcher": ("accuracy", "max"),
        "nowhere": ("loss", "min"),
        "of_two": (["loss", "accuracy"], ["min", "max"]),
        "by_names": ("accuracy", "max"),
    }.items():
        written = carried_over("elsewhere:space", name, f"--tune-config=elsewhere:{name}")
        assert (written["search"]["metric"], written["search"]["mode"]) == expected
        assert written["task"]["metrics"] == (expected[0] if name == "of_two" else [expected[0]])
        assert ("the TuneConfig has no metric" in capsys.readouterr().err) == (name == "nowhere")


def test_without_a_folder_the_conf_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    Path("source.yaml").write_text(WANDB)
    assert run_command(["convert", "source.yaml"]) == (0, None)
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "first_try"


def test_no_file_is_overwritten() -> None:
    converted(WANDB)
    before = Path("conf/first_try.yaml").read_text()
    message = refusal("convert", "source.yaml", "--output=conf")
    assert "conf/first_try.yaml already exists" in message
    assert Path("conf/first_try.yaml").read_text() == before


RANDOM = "method: random\nparameters:\n  a: "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RANDOM + "{values: [1, 2]\n", ["source.yaml, line"]),
        ("- a\n", ["source.yaml", "key: value"]),
        ("a: 1\n", ["neither a W&B sweep", "nor a config of Hydra"]),
        ("method: bayesian\nparameters:\n  a: {values: [1, 2]}\n", ["line 1", "method=bayesian", "did you mean bayes"]),
        ("method: random\nparameters:\n  a:\n    min: 1\n", ["line 3", "parameters.a", "min and max"]),
        (RANDOM + "{min: 2, max: 1}\n", ["line 3", "min=2 is above max=1"]),
        (RANDOM + "{min: x, max: 1}\n", ["line 3", "parameters.a.min='x'", "number"]),
        (RANDOM + "{distribution: uniformly, min: 0, max: 1}\n", ["line 3", "did you mean uniform"]),
        (RANDOM + "3\n", ["line 3", "must be a mapping"]),
        (RANDOM + "{value: 3}\n", ["searches nothing"]),
        (
            "method: random\nmetric: {goal: min}\nparameters:\n  a: {values: [1]}\n",
            ["line 2", "metric.name is missing"],
        ),
        (RANDOM + "{distribution: log_uniform_values, min: 0, max: 1}\n", ["line 3", "min=0 has no logarithm"]),
        (RANDOM + "{distribution: log_normal, mu: 1000, sigma: 1}\n", ["line 3", "mu=1000", "logarithm"]),
        (HYDRA.replace("choice(adam, sgd)", "choice(adam"), ["line 19", "solver=choice(adam"]),
        (
            "hydra: {sweeper: {ax_config: {params: {x: {type: range, bounds: [0, 1]}}}}}\n",
            ["searches nothing", "of Ax"],
        ),
        (HYDRA.replace("[minimize, maximize]", "up"), ["line 8", "hydra.sweeper.direction=up"]),
        (
            RANDOM + "{parameters: {b: {values: [1, 2]}}}\n  a.b: {value: 3}\n",
            ["line 4", "parameters.a.b: is the name of two parameters; rename one"],
        ),
        ("a: &a\n  b: *a\n", ["nested too deeply"]),
        (RANDOM + f"{{min: 0, max: {10**400}}}\n", ["line 3", "parameters.a.max", "number"]),
        ("a: \x01\n", ["source.yaml"]),
    ],
)
def test_a_mistake_is_one_message_with_its_line_and_status_2(text: str, words: list[str]) -> None:
    Path("source.yaml").write_text(text)
    message = refusal("convert", "source.yaml", "--output=conf")
    assert [word for word in words if word not in message] == [], message
    assert not Path("conf").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], ["nowhere.yaml", "cannot be read"]),
        (["train.py"], ["train.py", "give MODULE:NAME", "python -m sweeps init --from train.py"]),
        (["nowhere:space"], ["nowhere:space", "cannot be imported"]),
        (["objective.py"], ["objective.py", "init --from objective.py", "an Optuna objective", "docs/migrate.md"]),
        (["folder.py"], ["folder.py: cannot be read (Is a directory)"]),
        (["study.db"], ["study.db", "neither a W&B sweep", "search.warm_start"]),
        (["stand_in:trian"], ["stand_in has no 'trian'", "did you mean train"]),
        (["stand_in:train"], ["not a function", "mapping"]),
        (["objects:grid"], ["objects:grid: act: has choices that a config cannot hold", "give names"]),
        (["objects:space"], ["objects:space: act: has choices that a config cannot hold", "give names"]),
        (["objects:drawn"], ["objects:drawn: searches nothing", "lr: sample_from: a function"]),
        (["objects:wandbs"], ["objects:wandbs: is a W&B sweep", "into a YAML file"]),
        (["objects:optunas"], ["objects:optunas: searches nothing", "lr: a config", "distribution of another library"]),
        (["objects:fixed", "--tune-config=objects:pbt"], ["searches nothing", "hyperparam_mutations"]),
        (["fit.yaml", "--tune-config=a:b"], ["--tune-config=a:b", "is only for"]),
    ],
)
def test_what_is_not_there_is_one_message_and_status_2(arguments: list[str], words: list[str]) -> None:
    Path("fit.yaml").write_text("a: 1")
    Path("objects.py").write_text(
        "from ray import tune\ngrid, space = ({'act': each([int, str])} for each in (tune.grid_search, tune.choice))\n"
        "drawn, fixed = {'lr': tune.sample_from(lambda: 1)}, {'lr': 0.1}\n"
        "wandbs = {'method': 'grid', 'parameters': {'layers': {'values': [32, 64]}}}\n"
        "from optuna.distributions import FloatDistribution\noptunas = {'lr': FloatDistribution(0, 1)}\n"
        "from ray.tune.schedulers import PopulationBasedTraining as PBT\n"
        "pbt = tune.TuneConfig(scheduler=PBT(hyperparam_mutations={'lr': [1, 2]}))\n"
    )
    Path("folder.py").mkdir()
    Path("objective.py").write_text("def objective(trial):\n    return trial.suggest_float('x', 0, 1)\n")
    Path("study.db").write_bytes(b"SQLite format 3\x00\xff")
    message = refusal("convert", *arguments)
    assert [word for word in words if word not in message] == [], message


FLAT = """
program: fit.py
method: random
metric: {name: loss, goal: minimize}
parameters:
  model.init_args.lr: {min: 0.001, max: 0.1}
  model: {values: [small, large]}
  optimizer:
    parameters:
      beta.one: {value: 0.9}
command: [python, "${program}", "%s"]
"""


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("${args}", ["--model.init_args.lr=0.01", "--model=small", """--optimizer={"beta.one": 0.9}"""]),
        ("${args_no_hyphens}", ["model.init_args.lr=0.01", "model=small", """optimizer={"beta.one": 0.9}"""]),
    ],
)
def test_names_with_dots_of_weights_and_biases_stay_one_option(word: str, words: list[str]) -> None:
    conf = converted(FLAT % word)
    point = {"task.arguments.model.init_args.lr": 0.01, "task.arguments.model": "small"}
    task = plan_of(conf).composition.trial(point).task
    assert isinstance(task, CommandTask)
    values, unknown = config_values(task, {})
    assert unknown == []
    assert sorted(command_line(task, values.__getitem__)) == sorted(["python", "fit.py", *words])


def test_a_group_of_hydra_and_a_value_below_it_are_both_searched() -> None:
    conf = converted(
        """
hydra:
  sweeper:
    _target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper
    n_trials: 4
    params:
      model: choice(small, large)
      model.lr: interval(0.001, 0.1)
      model/encoder@model.coder: choice(deep, wide)
"""
    )
    composition = plan_of(conf, "task.arguments.application=app.py").composition
    task = composition.trial({"task.arguments.model": "large", "task.arguments.model.lr": 0.01}).task
    assert isinstance(task, CommandTask)
    assert task.arguments["model.lr"] == 0.01
    values, unknown = config_values(task, {})
    assert unknown == []
    words = command_line(task, {**values, "trial.folder": "here"}.__getitem__)
    assert words[3:] == ["model=large", "model.lr=0.01", "model/encoder@model.coder=deep"]


def test_choices_of_a_hydra_config_reach_the_application_as_what_they_are() -> None:
    params = """{text: "choice('a&b', 'c,d', 'x=y', 'null', '1e-3', plain)", solver: "choice({name: sgd, on: true})",
      sizes: "choice([1, a b], [3])", +tag: "'#1'"}"""
    conf = converted(f"hydra:\n  sweeper:\n    params: {params}\n")
    composition = plan_of(conf, "task.arguments.application=fit.py").composition
    got: list[Any] = []
    for index, text in enumerate(argument(conf, "text")["choices"]):
        point = {
            "task.arguments.text": text,
            "task.arguments.solver": argument(conf, "solver")["value"],
            "task.arguments.sizes": argument(conf, "sizes")["choices"][index % 2],
        }
        training = composition.trial(point).training()
        assert isinstance(training, CommandConfig)
        values = {**training.values, "trial.folder": "here"}
        got.append(parse_values(command_line(training.task, values.__getitem__)[3:]))
    assert [each["text"] for each in got] == ["a&b", "c,d", "x=y", "null", "1e-3", "plain"]
    assert got[0] == {"text": "a&b", "solver": {"name": "sgd", "on": True}, "sizes": [1, "a b"], "tag": "#1"}


def test_numbers_of_numpy_and_names_with_dots_of_ray_tune_stay_what_they_are() -> None:
    Path("numpy_space.py").write_text(
        "import numpy as np\nfrom ray import tune\n"
        "space = {'lr': tune.choice(list(np.logspace(-3, -1, 3))), 'depth': np.int64(3), 'sizes': np.arange(2),\n"
        "         'model.width': tune.randint(np.int64(1), np.int64(5)), 'a.b': np.float32(0.5),\n"
        "         'on': np.bool_(True)}\n"
    )
    conf = carried_over("numpy_space:space", "conf")
    assert argument(conf, "lr") == {"type": "categorical", "choices": [0.001, 0.01, 0.1]}
    assert argument(conf, "model.width") == {"type": "int", "low": 1, "high": 4}
    assert conf["task"]["arguments"] == {"depth": 3, "sizes": [0, 1], "model.width": 1, "a.b": 0.5, "on": True}


def test_dates_and_texts_like_numbers_of_a_yaml_file_are_the_texts_that_a_program_gets() -> None:
    conf = converted(
        "program: fit.py\nmethod: random\nparameters: {start: {value: 2024-01-01},"
        " day: {values: [2024-01-01, 2024-06-30]}, part: {values: ['.5', '1.50']}, rate: {min: 0.0, max: 1.0}}\n"
    )
    assert argument(conf, "day")["choices"] == ["2024-01-01", "2024-06-30"]
    assert argument(conf, "part")["choices"] == [".5", "1.50"]
    task = plan_of(conf).composition.trial({"task.arguments.day": "2024-06-30"}).task
    assert isinstance(task, CommandTask)
    assert task.arguments["start"] == "2024-01-01"
