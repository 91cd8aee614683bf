"""Lines that a user writes for the same sweep with Ray Tune, Optuna, W&B Sweeps, Katib and Sweeps.

    python benchmarks/lines_of_code.py --write docs/migrate.md

The sweep: 8 trials of a perceptron on digits, each on two workers; TPE; trials that fall behind are stopped;
parameters, losses and checkpoints of every trial are recorded; after a crash the search continues. The programs are in
``benchmarks/lines_of_code``; the model, the data and the step that all share are not counted. Those of Ray Tune, Optuna
and Sweeps are run, which takes some minutes; the training script of W&B and of Katib is compiled alone, since they need
a server and a cluster.

Ray Tune's needs ``ray[default]``, which Sweeps does not install, and a machine without another Ray cluster. When Tune
ends a trial, also at ASHA's ``max_t``, the trainer's workers keep their CPUs until its PlacementGroupCleaner has asked
Ray's State API whether its controller is gone. That API is a part of the dashboard, and the cleaner looks for it in
any Ray cluster of the machine: where it finds none, several or another one, its thread ends with an exception, and with
8 CPUs the search waits for ever in its fourth trial.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from results_document import markdown_table, write_between_marks

FOLDER = Path(__file__).parent / "lines_of_code"
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Program:
    """A way to write the sweep."""

    title: str
    folder: str
    missing: str
    """Parts of the sweep that the program does not have."""
    command: tuple[str, ...] = ()
    """Command that runs it, if it can run here."""
    needs: str | None = None
    """Module without which it cannot run, of a package that Sweeps does not install."""

    @property
    def can_run(self) -> bool:
        """Whether it can run here."""
        return bool(self.command) and (self.needs is None or importlib.util.find_spec(self.needs) is not None)


PROGRAMS = (
    Program(
        "Sweeps",
        "sweeps",
        "nothing",
        ("-m", "sweeps", "run", "conf=digits_sweep", "--config-dir", str(FOLDER / "sweeps"), "cluster.num_cpus=4"),
    ),
    Program(
        "Ray Tune",
        "ray_tune",
        "checkpoints of trials in MLflow",
        (str(FOLDER / "ray_tune" / "search.py"),),
        needs="aiohttp_cors",  # of ray[default]
    ),
    Program(
        "Optuna",
        "optuna",
        "an interrupted trial starts again; one machine",
        (str(FOLDER / "optuna" / "search.py"),),
    ),
    Program("W&B Sweeps", "wandb", "a trial continues only if its agent does; records in W&B, not in MLflow"),
    Program("Katib", "katib", "the image and the cluster; a median rule in place of successive halving"),
)


def count_lines(folder: Path) -> int:
    """Lines in all files of a folder that are neither blank nor a comment."""
    lines = [line for file in sorted(folder.iterdir()) if file.is_file() for line in file.read_text().splitlines()]
    return sum(1 for line in lines if line.strip() and not re.match(r"\s*#", line))


def run(program: Program) -> None:
    """Run a program in an empty folder; raises ``CalledProcessError`` if it fails."""
    paths = [FOLDER / "shared", FOLDER / program.folder, ROOT, ROOT / "src"]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *program.command], cwd=folder, env=environment, check=True)


@click.command()
@click.option("--run/--no-run", "runs", default=True, help="Run what can run here.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its table.")
def main(runs: bool, write: Path | None) -> None:
    """Count the lines, and run the programs."""
    rows = []
    for program in PROGRAMS:
        if runs and program.can_run:
            run(program)
        else:
            for file in (FOLDER / program.folder).glob("*.py"):
                compile(file.read_text(), str(file), "exec")
        checked = "run" if runs and program.can_run else "compiled"
        rows.append([program.title, str(count_lines(FOLDER / program.folder)), checked, program.missing])
    table = markdown_table(["", "lines", "checked by", "what is missing"], rows, left=4)
    print(table)
    if write is not None:
        write_between_marks(write, {"lines": table})


if __name__ == "__main__":
    main()
