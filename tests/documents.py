"""Blocks of code in the documents, with the files that readers are told to write, and for each command and block which
test runs it, or the reason why none does."""

from __future__ import annotations

import functools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from composing import composed

CHECKOUT = Path(__file__).resolve().parent.parent
DOCUMENTS = [CHECKOUT / "README.md", CHECKOUT / "SECURITY.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
LANGUAGES = {"", "python", "yaml", "text", "console", "json", "ini"}
BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n(?P<gap>\n?)(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<text>.*?)\n(?P=indent)```", re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
NAMED = re.compile(r"`(?P<file>[\w./]+\.(?:py|yaml|jsonl))`[^`\n]*:$")
NAMED_INSIDE = re.compile(r"# (?P<file>[\w./]+\.(?:py|yaml))\b")

MODULE = """
def train(config):
    from ray.train import report

    report({"loss": config["lr"]})

trainer = training = train

def data(**arguments):
    pass

class Model:
    pass
"""
SCRIPT = """
import argparse
import json

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--config")
parser.add_argument("--output")
parser.add_argument("--seed", type=int)
parser.add_argument("--resume")
options = parser.parse_args()
print(json.dumps({"loss": options.lr}))
"""
EXPORTED = composed("digits", "space=none").as_yaml()
"""Config as ``best --export`` writes it: all values, and no groups of which an option could be chosen."""
OTHER_FILES = {
    "texts.jsonl": '{"text": "a document"}\n' * 1000,
    "customers.csv": "id,age,city,visits,joined,member,spent\n"
    + "".join(
        f"{n},{n % 60},{'OLR'[n % 3]},{n % 7},2024-01-{n % 28 + 1:02},{'ny'[n % 2]},{n / 7}\n" for n in range(90)
    ),
    "module.py": MODULE,
    "train.py": SCRIPT,
    "winner.yaml": EXPORTED,
    "trial7.yaml": EXPORTED,
    "sweep.yaml": "program: train.py\nmethod: random\nmetric: {name: loss}\nparameters: {lr: {min: 0.0, max: 1.0}}\n",
    "my_module.py": "from ray import tune\nparam_space = {'lr': tune.loguniform(1e-4, 1e-1)}\n"
    "tune_config = tune.TuneConfig(metric='loss', mode='min', num_samples=4)\n",
    "base.yaml": "model: {layers: 1}\noptimizer: {name: adam, lr: 0.1}\n",
    "PATH/.keep": "",
    "study.db": "",
    "trials.csv": "",
    "conf/service/team.yaml": "queue: {running: 2}\n",
    "my/service/team.yaml": "queue: {running: 2}\n",
}
"""Files that the documents suppose, besides those that they show."""


@dataclass(frozen=True)
class Block:
    """One block of code."""

    document: str
    line: int
    language: str
    text: str
    reason: str | None
    """Reason for not running it."""
    file: str | None
    """Path that the reader writes it to."""

    @property
    def commands(self) -> list[str]:
        """Commands of a block without a language, which has nothing else."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "" else []
        return [line.strip() for line in lines if line.strip()]

    @property
    def printed(self) -> list[tuple[str, str]]:
        """Commands of a block with the language ``console``, each with what it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else []
        return [(command, output.strip()) for command, _, output in (part.partition("\n") for part in parts)]


def blocks() -> list[Block]:
    """All blocks of all documents."""
    return [block for path in DOCUMENTS for block in blocks_of(path)]


@functools.cache
def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = match["before"].strip()
        reason = NOT_RUN.fullmatch(before)
        if reason is not None:  # the sentence before the comment may name the file
            before = text[: match.start()].rstrip().rpartition("\n")[2]
        named = NAMED.search(before) or (NAMED_INSIDE.match(match["text"]) if match["language"] != "" else None)
        line = text.count("\n", 0, match.start("language")) + 1
        why = reason["reason"] if reason is not None else None
        found.append(Block(path.name, line, match["language"], match["text"], why, named["file"] if named else None))
    return found


def write_files(document: str, folder: Path) -> None:
    """Write the files that a document tells its readers to write."""
    (path,) = (each for each in DOCUMENTS if each.name == document)
    for block in blocks_of(path):
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text + "\n", encoding="utf-8")


def words(command: str) -> list[str]:
    """Words of a command, as a shell gives them to the program."""
    return [word.replace("\\$", "$") for word in shlex.split(command, comments=True)]


# --- which test runs what ---------------------------------------------------------------------------------------

PROGRAM = ("python", "-m", "sweeps")
ENDLESS = {"--follow", "--watch"}
IN_A_QUEUE = "service.md"
"""Document whose sweeps wait in a service's queue."""
OF_FIRST = ("README.md", "index.md", "life.md", "debugging.md", "report.md")
"""Documents with commands about ``first``, a sweep that has ended."""
ABOUT_AN_ENDED_SWEEP = {"show", "best", "report", "resume", "extend", "retrain", "reproduce", "logs", "clean", "list"}
SWEEPS = "tests/docs/test_documented_sweeps.py"
RUN_ELSEWHERE = {
    r"SWEEPS_NOTIFY=.* run .*": "tests/service/test_notifications.py sends messages, to receivers on this machine",
    r"make demo.*": f"{SWEEPS} runs sweeps of its config, llm_lora",
    r"make faults.*": "twenty minutes; tests/faults/test_campaign.py is its short form",
    r"python tests/faults/campaign.py .*": "tests/faults/test_campaign.py",
    r"eval .*": "tests/completion/test_shell_completion.py",
    r"sqlite3 .*": "tests/tracking/test_tracking.py",
    r"export SWEEPS_SERVER=.*": "tests/cli/test_server_option.py",
    r"python -m sweeps run .*--simulate .*": "tests/simulate/test_simulation.py, with a table of its own",
    r"python -m sweeps (show|report|run) .*": "tests/cli/test_server_option.py, for a sweep of a service",
    r"curl .*": "tests/service/test_api.py; that the route takes this body is checked here",
    r"python -m sweeps serve.*": "tests/service/test_serve.py",
    r"python -m sweeps doctor .*": "tests/doctor/test_doctor.py",
    r"python -m sweeps ui .*": "tests/tracking/test_mlflow_pages.py",
    r"python -m sweeps stop .*": "tests/driver/test_stop.py",
    r"python -m sweeps schedule (run|pause|resume) .*": "tests/cli/test_schedule_verbs.py",
    r"python -m sweeps submit .*--to (ray|slurm|kuberay).*": "tests/launch/test_ray_jobs.py, test_slurm.py and "
    "test_kuberay.py beside it; what would be submitted is made here",
    r"python -m sweeps retrain members .*": SWEEPS,
    r"python benchmarks/.*": "measures for many minutes on an idle machine; its options are checked here",
}
"""Test that runs such a command, or the reason why none does. Reasons for single blocks stand before them in the
documents, where readers see them, too."""
LIFE = "tests/docs/test_documented_life.py"
CODE_RUN_BY = {
    "README.md: import sweeps": LIFE,
    "python.md: import sweeps": LIFE,
    "python.md: sweep = sweeps.load": LIFE,
    "python.md: import mlflow": LIFE,
    "life.md: import sweeps_train": LIFE,
    "life.md: import mlflow": SWEEPS,
    "life.md: model.predict(images)": "tests/registry/test_registering.py, for other classes",
    "tables.md: import mlflow": SWEEPS,
    "confirm.md: from sweeps.search": "tests/search/test_confirmation_race.py",
    "prior_knowledge.md: from sweeps.search": SWEEPS,
    "searcher.md: from ray import tune": SWEEPS,
    "bring_your_own.md: def training(config):": "tests/sweeps_train/test_lightning.py, with the same function",
}
"""Test that runs a block of Python code, by its document and beginning; those that readers write to a file are run
by the commands that use them."""


def documented_sweeps() -> dict[tuple[str, ...], Block]:
    """Arguments of each command that trains, and the block where it stands first: ``test_documented_sweeps.py`` runs
    them."""
    found: dict[tuple[str, ...], Block] = {}
    for block in blocks():
        for command in block.commands if block.reason is None and block.document != IN_A_QUEUE else []:
            typed = tuple(words(command.removeprefix("RAY_ADDRESS=HOST:PORT ")))  # the test has a cluster of its own
            if typed[:4] == (*PROGRAM, "run") and not {"--dry-run", "--simulate"} & set(typed):
                found.setdefault(typed[4:], block)
    return found


def commands_about_an_ended_sweep() -> list[tuple[str, ...]]:
    """Arguments of each command about the sweep ``first``: ``test_documented_life.py`` runs them."""
    return list(
        dict.fromkeys(
            tuple({"SWEEP": "first"}.get(each, each) for each in words(command)[3:] if each not in ENDLESS)
            for path in DOCUMENTS
            if path.name in OF_FIRST
            for block in blocks_of(path)
            if block.reason is None
            for command in block.commands
            if tuple(words(command)[:3]) == PROGRAM and words(command)[3] in ABOUT_AN_ENDED_SWEEP
        )
    )
