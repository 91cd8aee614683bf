"""Experiments of Katib as confs: search, command and metrics, and what is noted."""

from __future__ import annotations

from pathlib import Path

import pytest
from converting import argument, converted, plan_of

from sweeps.cli import run_command
from sweeps.errors import ConfigError
from sweeps_train.command.command_line import command_line
from sweeps_train.command.output import parsers, record_in
from sweeps_train.config import CommandTask

KATIB = """---
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {namespace: kubeflow, name: shapes}
spec:
  objective: {type: minimize, goal: 0.01, objectiveMetricName: loss, additionalMetricNames: [accuracy]}
  algorithm:
    algorithmName: tpe
    algorithmSettings: [{name: random_state, value: "7"}, {name: gamma, value: "0.3"}]
  earlyStopping:
    algorithmName: medianstop
    algorithmSettings: [{name: min_trials_required, value: "5"}, {name: start_step, value: "2"}]
  parallelTrialCount: 3
  maxTrialCount: 12
  maxFailedTrialCount: 3
  parameters:
    - {name: rate, parameterType: double, feasibleSpace: {min: "0.001", max: "0.1", distribution: logUniform}}
    - {name: momentum, parameterType: double, feasibleSpace: {min: "0.5", max: "0.9", step: "0.1"}}
    - {name: layers, parameterType: int, feasibleSpace: {min: "1", max: "4"}}
    - {name: solver, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
    - {name: width, parameterType: discrete, feasibleSpace: {list: ["32", "64"]}}
    - {name: noise, parameterType: double, feasibleSpace: {min: "0", max: "6", distribution: normal}}
  trialTemplate:
    primaryContainerName: training
    trialParameters:
      - {name: learningRate, reference: rate}
      - {name: momentum, reference: momentum}
      - {name: depth, reference: layers}
      - {name: solver, reference: solver}
      - {name: width, reference: width}
      - {name: noise, reference: noise}
      - {name: trialName, reference: "${trialSpec.Name}"}
    trialSpec:
      kind: PyTorchJob
      spec:
        pytorchReplicaSpecs:
          Master: {replicas: 1, template: {spec: {containers: [&c {name: training, image: shapes, command:
            [python3, /opt/fit.py, --epochs=1, "--lr=${trialParameters.learningRate}",
             --momentum, "${trialParameters.momentum}", "--depth=${trialParameters.depth}", --fast],
             args: ["--name=${trialParameters.trialName}-${HOME}",
             "${trialParameters.solver}${trialParameters.width}", "--noise=${trialParameters.noise}"]}]}}}
          Worker: {replicas: 2, template: {spec: {containers: [*c]}}}
"""


@pytest.fixture(autouse=True)
def _user(working_folder: Path) -> None:
    """The script of the user."""
    (working_folder / "fit.py").write_text("import sys; print(sys.argv)\n")


def test_an_experiment_of_katib() -> None:
    conf = converted(KATIB)
    assert conf["name"] == "shapes"
    assert conf["seed"] == 7
    assert conf["task"]["metrics"] == ["loss", "accuracy"]
    assert argument(conf, "rate") == {"type": "float", "low": 0.001, "high": 0.1, "log": True}
    assert argument(conf, "momentum") == {"type": "float", "low": 0.5, "high": 0.9, "step": 0.1}
    assert argument(conf, "layers") == {"type": "int", "low": 1, "high": 4}
    assert argument(conf, "solver") == {"type": "categorical", "choices": ["sgd", "adam"]}
    assert argument(conf, "width") == {"type": "ordinal", "choices": [32, 64]}
    assert argument(conf, "noise")["prior"]["value"] == 3.0
    assert conf["scaling"]["num_workers"] == 3
    search = conf["search"]
    assert (search["num_trials"], search["max_concurrent"], search["stop"]) == (12, 3, {"target": 0.01})
    assert search["scheduler"] == {"min_trials": 5, "grace": 2}
    text = Path("conf/shapes.yaml").read_text()
    for words in (
        "gamma=0.3 has no equivalent",
        "maxFailedTrialCount",
        "in the container",
    ):
        assert words in text
    plan = plan_of(conf)
    assert plan.config.search.scheduler.kind == "median"
    task = plan.config.task
    assert isinstance(task, CommandTask)
    assert task.processes == "per_worker"
    values = {**task.arguments, "trial.name": "shapes-0003"}
    assert command_line(task, values.__getitem__) == [
        *("python3", "/opt/fit.py", "--epochs=1", f"--lr={values['rate']}", "--momentum", "0.5", "--depth=1", "--fast"),
        *("--name=shapes-0003-${HOME}", "sgd32", f"--noise={values['noise']}"),
    ]


@pytest.mark.parametrize(
    ("collector", "line"),
    [
        ("", "12:00 INFO epoch=2 val-loss=9, accuracy = 0.75, loss=5e-1;"),
        ("{collector: {kind: StdOut}}", 'INFO {"loss": 0.5, "accuracy": 0.75}'),
        (
            r"{source: {filter: {metricsFormat: ['{metricName: ([\w|-]+), metricValue: ((-?\d+)(\.\d+)?)}']}}}",
            "{metricName: accuracy, metricValue: 0.75};{metricName: loss, metricValue: 0.5}",
        ),
    ],
)
def test_metrics_are_read_from_a_program_as_katib_reads_them(collector: str, line: str) -> None:
    text = KATIB.replace("  parallel", f"  metricsCollectorSpec: {collector}\n  parallel") if collector else KATIB
    task = plan_of(converted(text)).config.task
    assert isinstance(task, CommandTask)
    assert record_in(line, parsers(task.read)) == {"loss": 0.5, "accuracy": 0.75}
    assert record_in("nothing", parsers(task.read)) == {}


def test_a_metric_of_katib_with_a_name_that_no_group_can_have_is_renamed() -> None:
    conf = converted(KATIB.replace("objectiveMetricName: loss", "objectiveMetricName: val-loss"))
    assert conf["task"]["rename"] == {"metric_0": "val-loss"}
    task = plan_of(conf).config.task
    assert isinstance(task, CommandTask)
    assert record_in("loss=1 val-loss=0.5", parsers(task.read)) == {"metric_0": 0.5}


def test_what_katib_reads_from_a_file_or_starts_from_elsewhere_is_noted() -> None:
    files = KATIB.replace("  parallel", "  metricsCollectorSpec: {collector: {kind: TensorFlowEvent}}\n  parallel")
    conf = converted(files)
    assert "read" not in conf["task"]
    assert "TensorFlowEvent: name the source in task.read" in Path("conf/shapes.yaml").read_text()


def test_a_command_that_the_experiment_does_not_have_is_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    conf = converted(KATIB[: KATIB.index("    trialSpec:")])
    assert conf["task"]["command"] == "???"
    assert """'task.command="PROGRAM {arguments}"' --dry-run""" in capsys.readouterr().out
    assert isinstance(plan_of(conf, "task.command='python fit.py {arguments}'").config.task, CommandTask)


def test_a_parameter_that_the_command_does_not_use_is_noted_and_refused() -> None:
    conf = converted(KATIB.replace(', "--noise=${trialParameters.noise}"', ""))
    assert "noise: not in the command" in Path("conf/shapes.yaml").read_text()
    with pytest.raises(ConfigError, match="noise"):
        plan_of(conf)


@pytest.mark.parametrize(
    ("algorithm", "sampler", "scheduler"),
    [
        ("random", "random", "none"),
        ("multivariate-tpe", "tpe", "none"),
        ("bayesianoptimization", "gp", "none"),
        ("cmaes", "cmaes", "none"),
        ("sobol", "qmc", "none"),
        ("hyperband", "random", "asha"),
        ("pbt", "random", "pbt"),
    ],
)
def test_each_algorithm_of_katib_has_its_sampler_and_scheduler(algorithm: str, sampler: str, scheduler: str) -> None:
    text = KATIB.replace("algorithmName: tpe", f"algorithmName: {algorithm}").replace("earlyStopping", "later")
    checkpoints = ('+task.checkpoints={folder: "{trial.folder}/out"}', "+task.options.--from='{checkpoint}'")
    config = plan_of(converted(text), *(checkpoints if scheduler == "pbt" else ())).config
    assert (config.search.sampler.kind, config.search.scheduler.kind) == (sampler, scheduler)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KATIB.replace("algorithmName: tpe", "algorithmName: enas"), ["line 8", "enas searches architectures"]),
        (KATIB.replace('max: "0.1"', 'maximum: "0.1"'), ["line 17", "rate: feasibleSpace has no max"]),
        (KATIB.replace("type: minimize", "type: min"), ["line 6", "did you mean minimize"]),
    ],
)
def test_a_mistake_in_an_experiment_is_one_message_with_its_line(text: str, words: list[str]) -> None:
    Path("source.yaml").write_text(text)
    status, message = run_command(["convert", "source.yaml"])
    assert status == 2
    assert message is not None
    assert [word for word in words if word not in message] == [], message
