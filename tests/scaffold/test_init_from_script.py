"""``init --from``: the options of a script, read without importing it, and the space that is proposed for them."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from composing import planned
from processes import run_python
from running import run
from verbs import refusal

from sweeps.cli import run_command
from sweeps.scaffold.option import Option
from sweeps.scaffold.proposals import propose
from sweeps.scaffold.script_options import read_script
from sweeps_train.command.output import pattern_record, record_in

ARGPARSE = """
import argparse, json
raise SystemExit("imported")
LR = 3e-4
parser = argparse.ArgumentParser()
group = parser.add_argument_group("model")
parser.add_argument("data")
parser.add_argument("-q", type=int)
parser.add_argument("--lr", type=float, default=LR)
parser.add_argument("--batch-size", "-b", type=int, default=64)
parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
parser.add_argument("--dataset", choices=["a", "b"], default="a")
group.add_argument("--hidden_dim", type=int, default=128)
group.add_argument("--num-layers", type=int, default=2)
group.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--wd", default=0.01)
parser.add_argument("--data-dir", required=True)
metrics = {"accuracy": 0.75, "val_accuracy": 0.5}
print(json.dumps({"step": 1, **metrics}))
"""
TYRO = """
import dataclasses, json
from typing import Annotated, Literal, Optional
import tyro

@dataclasses.dataclass
class Optimizer:
    lr: float = 10 ** -3
    weight_decay: "float | None" = 0.0
    schedule: Literal["cosine", "linear"] = "cosine"

@dataclasses.dataclass
class Warmup:
    warmup_ratio: float

@dataclasses.dataclass
class Base:
    batch_size: Optional[int] = 32

@dataclasses.dataclass
class Arguments(Base):
    warmup: Warmup = dataclasses.field(kw_only=True)
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    width: Annotated[int, "of the layers"] = dataclasses.field(default=64)
    flag: bool = False

arguments = tyro.cli(Arguments)
"""
HUGGING_FACE = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class ModelArguments:
    model_name: str = field(metadata={"help": "of the hub"})
    lora_rank: int = field(default=8)

model, training = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
"""
HYDRA = """
import json
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    for step in range(2):
        print(json.dumps({"step": step + 1, "loss": cfg.lr * cfg.model.hidden + step, "text": cfg.text}))

if __name__ == "__main__":
    main()
"""
HYDRA_CONFIG = """
defaults: [{model: mlp}, _self_]
lr: 1e-3
text: "two, words"
epochs: 3
"""
HYDRA_APPLICATION = {
    "conf/config.yaml": HYDRA_CONFIG,
    "conf/model/mlp.yaml": "hidden: 64\ndropout: 0.1\n",
    "app.py": HYDRA,
}


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a plan puts the working folder on the import path."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def proposed(texts: str | dict[str, str], script: str = "train.py", *options: str, conf: str = "conf") -> Any:
    """Write a script, or several files, and make a sweep over the script; returns its config.

    Args:
        texts: The script, or each file by its path.
        script: Path of the script.
        options: More options of ``init``.
        conf: Folder of the config.
    """
    for name, text in ({script: texts} if isinstance(texts, str) else texts).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    assert run_command(["init", f"--from={script}", *options]) == (0, None)
    (file,) = Path(conf).glob("*.yaml")
    return yaml.safe_load(file.read_text())


def test_a_space_is_proposed_for_the_options_of_argparse(capsys: pytest.CaptureFixture[str]) -> None:
    conf = proposed(ARGPARSE)
    assert conf["space"] == {
        "task.arguments.lr": {"type": "float", "low": 3e-5, "high": 3e-3, "log": True},
        "task.arguments.batch-size": {"type": "ordinal", "choices": [32, 64, 128]},
        "task.arguments.optimizer": {"type": "categorical", "choices": ["adam", "sgd"]},
        "task.arguments.hidden_dim": {"type": "int", "low": 64, "high": 512, "log": True},
        "task.arguments.num-layers": {"type": "int", "low": 1, "high": 4},
        "task.arguments.dropout": {"type": "float", "low": 0.0, "high": 0.5},
    }
    assert conf["task"]["_target_"] == "train.py"
    assert conf["task"]["arguments"]["lr"] == 3e-4
    assert conf["task"]["arguments"]["data-dir"] == "???"
    assert (conf["search"]["metric"], conf["search"]["mode"]) == ("val_accuracy", "max")
    text = Path("conf/train.yaml").read_text()
    for line in ("# epochs: default 10", "# amp: no default; a flag", "# wd: default 0.01; without type="):
        assert line in text
    captured = capsys.readouterr()
    assert "positional argument data" in captured.err
    assert "option with one dash -q" in captured.err
    typed = captured.out.splitlines()[1]
    assert typed == "python -m sweeps run conf=train --config-dir conf task.arguments.data-dir=value"
    assert planned("conf=train", "task.arguments.data-dir=x", folders=[Path("conf")]).space


def test_a_default_that_names_a_file_of_the_start_folder_is_given_since_trials_work_in_their_own() -> None:
    Path("points.pt").touch()
    added = [("points", "points.pt"), ("prompt", "x" * 999)]
    options = "".join(f"parser.add_argument('--{name}', default='{default}')\n" for name, default in added)
    conf = proposed(ARGPARSE.replace("metrics = ", f"{options}metrics = ", 1))
    assert conf["task"]["arguments"]["points"] == "points.pt"
    assert "# points:" not in Path("conf/train.yaml").read_text()


def test_a_default_that_names_a_folder_with_data_is_given_and_one_that_trials_write_to_is_not(
    monkeypatch: pytest.MonkeyPatch, working_folder: Path
) -> None:
    monkeypatch.setenv("PWD", str(working_folder))
    for name in ("rows", "results"):
        Path(name).mkdir()
    added = [("rows-data", "rows"), ("output-dir", "results")]
    options = "".join(f"parser.add_argument('--{name}', default='{default}')\n" for name, default in added)
    proposed(ARGPARSE.replace("metrics = ", f"{options}metrics = ", 1))
    plan = planned("conf=train", "task.arguments.data-dir=x", folders=[Path("conf")])
    assert plan.config.task.arguments["rows-data"] == str(working_folder / "rows")
    assert "output-dir" not in plan.config.task.arguments


def test_nested_dataclasses_of_tyro_get_a_launcher_that_gives_dotted_options() -> None:
    conf = proposed(TYRO)
    assert conf["task"]["_target_"] == "start_train.py"
    assert conf["task"]["arguments"] == {
        "batch_size": 32,
        "optimizer": {"lr": 0.001, "weight_decay": 0.0, "schedule": "cosine"},
        "width": 64,
        "warmup": {"warmup_ratio": 0.0},
    }
    of_optimizer = ("optimizer.lr", "optimizer.weight_decay", "optimizer.schedule")
    names = ("batch_size", *of_optimizer, "width", "warmup.warmup_ratio")
    assert set(conf["space"]) == {f"task.arguments.{name}" for name in names}
    assert planned("conf=train", folders=[Path("conf")]).space
    Path("train.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    given = ['--optimizer={"lr": 0.1, "schedule": "linear"}', "--width=8", "--name=a b"]
    Path("folder_of_trial").mkdir()
    done = run_python("../start_train.py", *given, folder=Path("folder_of_trial"))
    assert json.loads(done.stdout) == ["--optimizer.lr=0.1", "--optimizer.schedule=linear", "--width=8", "--name=a b"]


def test_the_usual_options_of_training_arguments_are_proposed() -> None:
    conf = proposed(HUGGING_FACE, "tune.py", "--name=llm")
    assert conf["task"]["arguments"]["model_name"] == "???"
    assert conf["space"]["task.arguments.learning_rate"] == {"type": "float", "low": 5e-6, "high": 5e-4, "log": True}
    assert conf["space"]["task.arguments.lora_rank"] == {"type": "ordinal", "choices": [4, 8, 16]}
    assert planned("conf=llm", "task.arguments.model_name=x", folders=[Path("conf")]).space


@pytest.mark.parametrize(("source", "is_program"), [(HYDRA, True), (HUGGING_FACE, True), (TYRO, False)])
def test_a_script_that_prints_no_json_may_be_read_as_it_is(
    source: str, is_program: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    others = HYDRA_APPLICATION if source == HYDRA else {}
    texts = {**others, "train.py": source.replace("json.dumps", "repr")}
    task = proposed(texts, conf="sweep_conf" if source == HYDRA else "conf")["task"]
    note = next(line for line in capsys.readouterr().err.splitlines() if "prints no metric as JSON" in line)
    assert "task.read" in note
    assert "docs/any_program.md" in note
    assert ("task=command" in note) is not is_program  # which is a command already
    assert task.get("read") == ([{"kind": "json"}, {"kind": "dict"}] if is_program else None)


def test_the_proposed_training_arguments_are_options_of_the_installed_transformers() -> None:
    from transformers import TrainingArguments

    conf = proposed(HUGGING_FACE, "tune.py")
    known = {"model_name", "lora_rank", *(field.name for field in dataclasses.fields(TrainingArguments))}
    assert set(conf["task"]["arguments"]) <= known


@pytest.mark.slow
def test_the_test_of_a_script_with_a_demanded_option_gives_it() -> None:
    proposed(HUGGING_FACE, "tune.py")
    run_python("-m", "pytest", "-q", "test_sweep_tune.py")


def test_each_script_of_a_folder_gets_a_sweep_and_a_test() -> None:
    for script in ("ppo.py", "dqn.py"):
        Path(script).write_text(ARGPARSE)
        assert run_command(["init", f"--from={script}"]) == (0, None)
    assert {each.name for each in Path.cwd().glob("test_*.py")} == {"test_sweep_ppo.py", "test_sweep_dqn.py"}
    assert "python -m pytest test_sweep_ppo.py" in Path("test_sweep_ppo.py").read_text()


def test_an_option_that_the_script_demands_is_asked_for_even_if_no_search_can_set_it() -> None:
    conf = proposed(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--layers", type=int, nargs="+", required=True)\n'
        'parser.add_argument("--lr", type=float, default=1e-3)\n'
    )
    assert conf["task"]["arguments"] == {"lr": 1e-3, "layers": "???"}


def test_what_no_config_can_hold_is_kept_as_the_script_has_it() -> None:
    conf = proposed(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--tags", default=set())\n'
        'parser.add_argument("--end", default=b"x", choices=["a", b"b"])\n'
        'parser.add_argument("--optim", choices=[[1], [2]])\n'
        'parser.add_argument("--lr", type=float, default=1e-3)\n'
    )
    assert set(conf["space"]) == {"task.arguments.lr"}


def test_the_config_of_a_hydra_application_is_read_and_ours_stays_apart_from_it() -> None:
    dates = "since: 2024-01-01\ndays: [2024-01-01, 2024-01-02 10:00:00]\n"
    conf = proposed({**HYDRA_APPLICATION, "conf/config.yaml": HYDRA_CONFIG + dates}, "app.py", conf="sweep_conf")
    assert "since: default 2024-01-01" in Path("sweep_conf/app.yaml").read_text().replace('"', "")
    assert set(conf["space"]) == {f"task.arguments.{name}" for name in ("model.hidden", "model.dropout", "lr")}
    assert planned("conf=app", folders=[Path("sweep_conf")]).space
    assert conf["defaults"][0] == {"task": "command"}
    assert conf["task"]["command"][:3] == ["python", "app.py", 'hydra.run.dir="{trial.folder}/hydra"']
    assert "model.hidden={model.hidden}" in conf["task"]["command"]


CONFIG_STORE = """
from dataclasses import dataclass, field
from typing import Any
import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

@dataclass
class Adam:
    lr: float = 1e-2
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])

@dataclass
class Model:
    width: int = 8
    dropout: float = 0.1

@dataclass
class Config:
    steps: int = 10
    weight_decay: float = 0.01
    label_smoothing: float = MISSING
    dropout: float = field(default=MISSING)
    source: str = "???"
    model: Model = MISSING
    optimizer: Any = MISSING

store = ConfigStore.instance()
store.store(name="base_config", node=Config)
store.store(group="optimizer", name="adam", node=Adam(lr=0.02))
store.store(group="optimizer", name="sgd", node={"lr": 0.1, "momentum": 0.5})
store.store(name="other", group="optimizer", node=elsewhere)

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(f"val_loss={cfg.optimizer.lr + cfg.model.width:.4f}")

main()
"""


def test_entries_of_hydras_config_store_are_read_from_the_source() -> None:
    texts = {
        "conf/config.yaml": "defaults: [base_config, {optimizer: adam}, {model: small}, _self_]\nsteps: 20\n",
        "conf/model/small.yaml": "width: 4\n",
        "app.py": CONFIG_STORE,
    }
    conf = proposed(texts, "app.py", conf="sweep_conf")
    assert conf["task"]["arguments"] == {
        "weight_decay": 0.01,
        "label_smoothing": 0.0,
        "dropout": 0.0,
        "source": "???",
        "model": {"width": 4, "dropout": 0.1},
        "optimizer": {"lr": 0.02},
    }
    text = Path("sweep_conf/app.yaml").read_text()
    assert "# optimizer: default adam, one of adam, sgd;" in text
    assert "# steps: default 20" in text
    assert planned("conf=app", "task.arguments.source=a", folders=[Path("sweep_conf")]).space


def test_groups_of_hydra_are_read_at_their_packages() -> None:
    texts = {
        "conf/config.yaml": "defaults: [base, base@actor, data/rows, "
        "{model/optimizer: adam}, {optimizer@critic: adam}, {exp: one}, _self_]\n",
        "conf/base.yaml": "dropout: 0.5\n",
        "conf/data/rows.yaml": "batch_size: 8\n",
        "conf/model/optimizer/adam.yaml": "lr: 0.1\n",
        "conf/optimizer/adam.yaml": "lr: 0.2\n",
        "conf/exp/one.yaml": "# @package _global_\nweight_decay: 0.1\n",
        "app.py": HYDRA,
    }
    proposed(texts, "app.py", conf="sweep_conf")
    assert {each.name: each.default for each in read_script(Path("app.py")).options} == {
        "dropout": 0.5,
        "actor.dropout": 0.5,
        "data.batch_size": 8,
        "model.optimizer.lr": 0.1,
        "critic.lr": 0.2,
        "weight_decay": 0.1,
    }


TEMPLATE = {
    "src/train.py": """
import hydra
@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg): ...
""",
    "configs/train.yaml": """
defaults:
  - _self_
  - {data: mnist}
  - {model: mnist}
  - {callbacks: default}
  - {logger: null}
  - {trainer: default}
  - {paths: default}
  - {hydra: default}
  - {optional local: default}
task_name: train
seed: null
""",
    "configs/data/mnist.yaml": "_target_: src.data.MNIST\ndata_dir: ${paths.data_dir}\nbatch_size: 128\n",
    "configs/model/mnist.yaml": "_target_: src.Module\noptimizer: {_target_: torch.optim.Adam, lr: 0.001}\n",
    "configs/callbacks/default.yaml": "checkpoint: {monitor: val/acc, mode: max}\nmodel_summary: {max_depth: -1}\n",
    "configs/logger/csv.yaml": "csv: {_target_: lightning.pytorch.loggers.CSVLogger, name: csv/}\n",
    "configs/trainer/default.yaml": "_target_: lightning.pytorch.trainer.Trainer\nmax_epochs: 10\n",
    "configs/paths/default.yaml": "data_dir: data/\n",
    "configs/hydra/default.yaml": "run: {dir: logs}\n",
}
NANOGPT = """
import torch
out_dir = 'out'
init_from = 'scratch' # 'scratch' or 'resume' or 'gpt2*'
eval_interval = 2000
batch_size = 12
n_head = 12
n_embd = 768
learning_rate = 6e-4
min_lr = 6e-5
dropout: float = 0.0
dtype = 'bfloat16' if torch.cuda.is_available() else 'float16'
exec(open('configurator.py').read()) # overrides from the command line
later = 3
print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
print(f"saving to {out_dir}")
if init_from == 'resume':
    checkpoint = torch.load(os.path.join(out_dir, 'ckpt.pt'), map_location=device)
torch.save(checkpoint, os.path.join(out_dir, 'ckpt.pt'))
"""


def test_a_project_of_the_lightning_hydra_template_becomes_a_command() -> None:
    conf = proposed(TEMPLATE, "src/train.py", conf="sweep_conf")
    assert set(conf["space"]) == {"task.arguments.model.optimizer.lr", "task.arguments.data.batch_size"}
    assert conf["task"]["command"] == [
        *("python", "src/train.py", "logger=csv", 'hydra.run.dir="{trial.folder}/hydra"'),
        *("data.batch_size={data.batch_size}", "model.optimizer.lr={model.optimizer.lr}"),
    ]
    assert conf["task"]["read"] == [{"kind": "csv", "path": "{trial.folder}/hydra/csv/version_0/metrics.csv"}]
    assert (conf["search"]["metric"], conf["search"]["mode"]) == ("val/acc", "max")
    assert "hydra.run" not in Path("sweep_conf/train.yaml").read_text().partition("kept as")[2]
    assert planned("conf=train", folders=[Path("sweep_conf")]).space


def test_a_script_that_prints_its_metrics_as_text_is_read_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    printed = 'print(f"epoch {epoch}: val loss {loss:.4f}")'
    conf = proposed(ARGPARSE.replace('print(json.dumps({"step": 1, **metrics}))', printed).replace("metrics =", "_ ="))
    assert "prints no metric" not in capsys.readouterr().err
    assert conf["task"]["command"][:4] == ["python", "train.py", "--lr={lr}", "--batch-size={batch-size}"]
    (source,) = conf["task"]["read"]
    found = re.search(source["pattern"], "epoch 3: val loss 0.2500")
    assert found is not None
    assert found.groupdict() == {"val_loss": "0.2500"}
    assert (conf["search"]["metric"], conf["search"]["mode"]) == ("val_loss", "min")
    assert planned("conf=train", "task.arguments.data-dir=/", folders=[Path("conf")]).space


LINES = """
print("Train Epoch: {} [{}/{} ({:.0f}%)]\\tLoss: {:.6f}".format(1, 64, 600, 11.0, 2.25))
print("\\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\\n".format(0.5, 98, 100, 98.0))
"""  # pytorch/examples, mnist
RESULTS = """
tqdm.write(f"Training Results - Epoch: {epoch} Avg accuracy: {accuracy:.2f}")
tqdm.write(f"Validation Results - Epoch: {epoch} Avg accuracy: {accuracy:.2f}")
"""  # ignite
WORDS = """
print("Epoch: {:04d}".format(1), "loss_train: {:.2f}".format(2.5), "loss_val: {:.2f}".format(loss.item()), "s", 4)
print("Test set results:", "loss= {:.4f}".format(loss.item()))
"""  # pygcn
STEPS = """
print(f"step {step} | loss {loss.item():.4f} | iter {time * 1000:.2f}ms | loss {loss}")
print(f"step {step} train loss: {train_loss} test loss: {test_loss}")
print(f"test loss {test_loss} is the best so far")
"""  # makemore
BEFORE = """
print(f"=> gradient accumulation steps: {steps}")
print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Val Acc: {val:.4f}")
"""  # nanochat, pytorch_geometric
PERCENT = """
print("loss %.3f" % loss)
print("val loss %.3f, %d%% of %s, val acc: %5.1f%%" % (loss, 50, name, 90))
print("val score: " + str(score))
print("test acc", acc, sep="=")
"""
BOTH = 'print(f"val_loss {val} loss {loss}")'


@pytest.mark.parametrize(
    ("printing", "metric", "records"),
    [
        (
            LINES,
            "average_loss",
            {
                "Train Epoch: 1 [64/600 (11%)]\tLoss: 2.250000": {},
                "Test set: Average loss: 0.5000, Accuracy: 98/100 (98%)": {"average_loss": 0.5},
            },
        ),
        (
            RESULTS,
            "avg_accuracy",
            {
                "Training Results - Epoch: 1 Avg accuracy: 0.90": {},
                "Validation Results - Epoch: 1 Avg accuracy: 0.50": {"avg_accuracy": 0.5},
            },
        ),
        (
            WORDS,
            "loss_val",
            {
                "Epoch: 0001 loss_train: 2.50 loss_val: 1.50 s 4": {"loss_train": 2.5, "loss_val": 1.5},
                "Test set results: loss= 0.5": {"loss": 0.5},
            },
        ),
        (
            STEPS,
            "test_loss",
            {
                "step 3 | loss 2.5 | iter 1.00ms | loss 2.5": {"step": 3, "loss": 2.5},
                "step 3 train loss: 2.25 test loss: 2.5": {"step": 3, "train_loss": 2.25, "test_loss": 2.5},
                "test loss 2.5 is the best so far": {},
            },
        ),
        (
            BEFORE,
            "val_acc",
            {
                "=> gradient accumulation steps: 4": {},
                "Epoch: 001, Loss: 2.5000, Val Acc: 0.5000": {"loss": 2.5, "val_acc": 0.5},
            },
        ),
        (
            PERCENT,
            "val_acc",
            {
                "loss 0.500": {},
                "val loss 0.250, 50% of a, val acc:  90.0%": {"val_loss": 0.25, "val_acc": 90},
                "val score: 0.75": {"val_score": 0.75},
                "test acc=0.5": {"test_acc": 0.5},
            },
        ),
        (BOTH, "val_loss", {"val_loss 0.5 loss 0.25": {"val_loss": 0.5, "loss": 0.25}}),
    ],
)
def test_the_held_out_value_of_what_a_script_prints_is_searched(
    printing: str, metric: str, records: dict[str, dict[str, float]]
) -> None:
    conf = proposed("parser.add_argument('--lr', type=float, default=0.1)\n" + printing)
    assert conf["search"]["metric"] == metric
    parse = [pattern_record(source["pattern"]) for source in conf["task"]["read"]]
    assert {line: record_in(line, parse) for line in records} == records


def test_a_script_without_an_option_to_search_has_an_empty_space_to_fill() -> None:
    script = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--height', type=float)\n"
    assert proposed(script)["space"] == {}


@pytest.mark.parametrize(("file", "is_read"), [("open('state.json', 'w')", False), ("sys.stdout", True)])
def test_json_that_a_script_writes_into_a_file_is_not_its_output(
    file: str, is_read: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    written = f'{file}.write(json.dumps({{"acc": 0.5}}))'
    conf = proposed(ARGPARSE.replace('print(json.dumps({"step": 1, **metrics}))', written))
    assert ("prints no metric" in capsys.readouterr().err) != is_read
    assert conf["search"]["metric"] == ("acc" if is_read else "loss")


SCRIPTS = (
    *("print(json.dumps(evaluate()))", "json.dump({'val_loss': 0.5}, sys.stdout)", "dist.init_process_group()"),
    *("deepspeed.init_distributed()", "Fabric().launch()", "world = os.environ['WORLD_SIZE']"),
    "print(json.dumps({'val_loss': 0.5, 'options': vars(args)}))",
)
PROGRAMS = ("print(json.dumps(vars(args)))", "state = pickle.dumps(model)", "json.dump({'val_loss': 0.5}, file)")


@pytest.mark.parametrize("line", [*SCRIPTS, *PROGRAMS])
def test_a_launched_script_is_not_made_a_program_by_a_line_of_progress(line: str) -> None:
    printed = f'print(f"epoch {{epoch}}: train loss {{loss:.4f}}"); {line}'
    conf = proposed(ARGPARSE.replace('print(json.dumps({"step": 1, **metrics}))', printed).replace("metrics =", "_ ="))
    assert ("command" in conf["task"]) is (line in PROGRAMS)
    assert ("val_loss" in conf["search"]["metric"]) is ("'val_loss'" in line and line in SCRIPTS)


def test_a_script_whose_own_values_are_its_options_becomes_a_command() -> None:
    conf = proposed(NANOGPT)
    assert set(conf["space"]) == {f"task.arguments.{name}" for name in ("batch_size", "learning_rate", "dropout")}
    assert conf["task"]["command"] == [
        *("python", "train.py", "--out_dir={trial.folder}/out", "--init_from={checkpoint?resume:scratch}"),
        *("--batch_size={batch_size}", "--learning_rate={learning_rate}", "--dropout={dropout}"),
    ]
    assert conf["task"]["working_folder"] == "."  # where configurator.py is, and data/
    assert conf["task"]["checkpoints"] == {"folder": "{trial.folder}/out", "pattern": "ckpt.pt", "put_back": True}
    (source,) = conf["task"]["read"]
    found = re.search(source["pattern"], "step 20: train loss 4.2500, val loss 4.3125")
    assert found is not None
    assert found.groupdict() == {"step": "20", "train_loss": "4.2500", "val_loss": "4.3125"}
    assert (conf["search"]["metric"], conf["search"]["mode"]) == ("val_loss", "min")
    assert planned("conf=train", folders=[Path("conf")]).space
    task = proposed(NANOGPT, "train.py", "my 50% project", conf="my 50% project/conf")["task"]
    assert (task["command"][:2], task["working_folder"]) == (["python", "train.py"], "..")


@pytest.mark.slow
def test_a_hydra_application_is_searched(working_folder: Path) -> None:
    proposed(HYDRA_APPLICATION, "app.py", conf="sweep_conf")
    done = run(working_folder, "conf=app", "--config-dir=sweep_conf", "search.num_trials=2", "cluster.num_cpus=2")
    assert done.status == 0, done.err
    assert done.document["counts"]["finished"] >= 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import torch", ["train.py", "shows no options", "docs/bring_your_own.md", "--kind=script"]),
        ("def broken(:", ["train.py, line 1", "is not valid Python"]),
        (
            "import hydra\n@hydra.main(config_path='nowhere')\ndef main(cfg): ...",
            ["nowhere/config.yaml", "cannot be read"],
        ),
        (None, ["--from=train.py", "cannot be read"]),
    ],
)
def test_a_script_that_cannot_be_read_is_one_message_and_status_2(source: str | None, words: list[str]) -> None:
    if source is not None:
        Path("train.py").write_text(source)
    message = refusal("init", "--from=train.py")
    assert [word for word in words if word not in message] == []
    assert not Path("conf").exists()


@pytest.mark.parametrize(
    ("option", "proposed"),
    [
        (Option("learning-rate", "float", 0.1), {"type": "float", "low": 0.01, "high": 1.0, "log": True}),
        (Option("lr", "float", None), {"type": "float", "low": 1e-4, "high": 0.01, "log": True}),
        (Option("optim.lr", default=0.01), {"type": "float", "low": 1e-3, "high": 0.1, "log": True}),
        (Option("lr_decay_steps", "int", 5), None),
        (Option("weight_decay", "float", 0.0), {"type": "float", "low": 0.0, "high": 0.1}),
        (Option("weight_decay", "float", 1e-4), {"type": "float", "low": 1e-5, "high": 1e-3, "log": True}),
        (Option("weight_decay", "float", 0.5), {"type": "float", "low": 0.05, "high": 5.0, "log": True}),
        (Option("ema_decay", "float", 0.999), None),
        (Option("lr_decay", "float", 0.95), None),
        (Option("lr-cycle-decay", "float", 0.5), None),
        (Option("lr-noise-pct", "float", 0.67), None),
        (Option("layer-decay", "float", None), None),
        (Option("bn-momentum", "float", None), None),
        (Option("momentum", "float", 0.5), {"type": "float", "low": 0.5, "high": 0.99}),
        (Option("batch_size", "int", 3), {"type": "ordinal", "choices": [3, 6]}),
        (Option("n_heads", "int", 4), {"type": "ordinal", "choices": [2, 4, 8]}),
        (Option("test_batch_size", "int", 100), None),
        (Option("batch_size_val", "int", 100), None),
        (Option("in_channels", "int", 3), None),
        (Option("input_dim", "int", 784), None),
        (Option("hidden_dim", "int", 128), {"type": "int", "low": 64, "high": 512, "log": True}),
        (Option("seed", "int", 1), None),
        (Option("num_epochs", "int", 10), None),
        (Option("hidden_size", "int", 1), None),
        (Option("activation", "str", "relu", ("relu", "gelu")), {"type": "categorical", "choices": ["relu", "gelu"]}),
        (Option("device", "str", "cpu", ("cpu", "cuda")), None),
    ],
)
def test_what_is_proposed_follows_from_name_type_and_default(option: Option, proposed: dict[str, Any] | None) -> None:
    assert propose(option) == proposed


def test_a_function_that_tyro_calls_has_its_parameters_as_options() -> None:
    Path("f.py").write_text("import tyro\ndef main(lr: float, *, width: int = 8): ...\ntyro.cli(main)\n")
    assert read_script(Path("f.py")).options == [
        Option("lr", "float", required=True),
        Option("width", "int", 8),
    ]
