"""Runs contract tests, tests of the runtime and of trainings, and whole sweeps with other than the locked versions.

    make test-versions                                     # all, which takes an hour or more, and gigabytes of torch
    make test-versions VERSIONS_ARGS="ray-2.55 torch-2.6"  # some of them

Each combination gets an environment in a temporary folder, of files that uv has in its cache, and is removed at the
end. What came of it is written into docs/versions.md at once; rows of other combinations stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sources import uv_settings

FOLDER = Path(__file__).resolve().parent
CHECKOUT = FOLDER.parent
TABLE = CHECKOUT / "docs" / "versions.md"
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "lightning", "setuptools")
"""Packages of the tests; torch 2.6 compiles with setuptools on CPUs and does not install it."""
SHOWN = ("ray", "torch", "transformers", "peft", "optuna", "mlflow-skinny", "numpy")
"""Packages whose installed version stands in the table."""
LEFT_TO_UV = re.compile(r"(torch|triton|nvidia-.*|cuda-.*|setuptools|sympy)$")
"""Packages of which builds of torch ask for different versions."""

TESTS = {
    "contracts": ["tests/compat", "tests/test_private_names.py"],
    "runtime": [
        f"tests/runtime/test_{name}.py"
        for name in ("worker_group", "lost_worker", "elastic", "freeing", "spare_processes", "slot_queue")
    ],
    "training": [
        "tests/sweeps_train/test_loop.py",
        "tests/sweeps_train/test_two_workers.py",
        "tests/sweeps_train/test_measurements.py",
    ],
    "GPU script": ["-m", "slow", "tests/test_gpu_measurement.py"],
}
"""Files of tests by column, and pytest's options for them."""
SWEEPS = {
    "digits": ["conf=digits", "search.num_trials=3"],
    "llm_lora": ["conf=llm_lora", "search.num_trials=2"],
}
"""Arguments of sweeps by column."""
TESTS_WITHIN_S, SWEEP_WITHIN_S, INSTALLED_WITHIN_S = 900, 600, 1200
NOT_RUN = "not run"


@dataclass(frozen=True)
class Combination:
    """Versions that are tried together. Those that nothing is said about are the locked ones."""

    name: str
    python: str = "3.11"
    pins: tuple[str, ...] = ()
    """Versions instead of the locked ones; the ranges in pyproject.toml do not hold for them."""
    newest: bool = False
    """Nothing is locked: the newest of all that the ranges allow."""
    lowest: bool = False
    """The lowest of every direct dependency that the ranges allow."""


COMBINATIONS = (
    Combination("locked"),
    Combination("python-3.12", python="3.12"),
    Combination("python-3.13", python="3.13"),
    *(
        Combination(f"ray-{release[:4]}", pins=(f"ray[tune,train]=={release}",))
        for release in ("2.55.1", "2.56.1", "2.57.1", "2.58.1", "2.59.0")
    ),
    Combination("torch-2.6", pins=("torch==2.6.0",)),
    Combination(
        "torch-2.11",
        python="3.12",
        pins=("torch==2.11.0", "transformers==5.17.0", "huggingface-hub<2", "peft==0.21.0", "accelerate==1.15.0"),
    ),
    Combination("newest", newest=True),
    Combination("lowest", lowest=True),
)


class Environment:
    """An environment with a combination's versions."""

    def __init__(self, combination: Combination, folder: Path):
        self._combination, self._folder = combination, folder
        self._python = folder / "environment" / "bin" / "python"
        self._uv = uv_command()
        self._variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_settings(), **os.environ}
        self._variables |= {"UV_PYTHON_DOWNLOADS": "never", "PYTHONDONTWRITEBYTECODE": "1"}

    def install(self) -> None:
        """Make it.

        Raises:
            RuntimeError: An installer has failed.
        """
        interpreter = interpreter_of(self._combination.python)
        self._call([*self._uv, "venv", "--quiet", "--python", interpreter, str(self._folder / "environment")])
        overrides = self._folder / "overrides.txt"
        overrides.write_text("\n".join(self._combination.pins), encoding="utf-8")
        options = ["--quiet", "--python", str(self._python), "--override", str(overrides)]
        if self._combination.lowest:
            # The tests' own packages are not what is tried; those of the project in one call, for one resolution.
            self._call([*self._uv, "pip", "install", *options, "--resolution=lowest-direct", "-e", str(CHECKOUT)])
            self._call([*self._uv, "pip", "install", "--quiet", "--python", str(self._python), *TEST_PACKAGES])
            return
        if not self._combination.newest:
            locked = self._folder / "locked.txt"
            locked.write_text(self._locked(), encoding="utf-8")
            options += ["--constraint", str(locked)]
        self._call([*self._uv, "pip", "install", *options, "-e", str(CHECKOUT), *TEST_PACKAGES])

    def _locked(self) -> str:
        """Locked versions of what the combination does not pin."""
        pinned = {re.split(r"[\[=<>]", pin)[0] for pin in self._combination.pins}
        text = "".join((FOLDER / f"{name}.txt").read_text(encoding="utf-8") for name in ("run", "dev"))
        locked = re.findall(r"^([\w.-]+)==([^\s;]+)(.*?)\s*\\?$", text, flags=re.MULTILINE)
        kept = [(name, version, marker) for name, version, marker in locked if name not in pinned]
        lines = [f"{name}=={version}{marker}" for name, version, marker in kept if not LEFT_TO_UV.match(name)]
        torch = (FOLDER / "torch.txt").read_text(encoding="utf-8").split("\n", 1)[1]
        return "\n".join([*lines, *([] if "torch" in pinned else [torch])])

    def versions(self) -> dict[str, str]:
        """Installed versions by package."""
        listed = self._call([*self._uv, "pip", "list", "--python", str(self._python), "--format=json"])
        return {each["name"]: each["version"] for each in json.loads(listed)}

    def test(self, files: list[str]) -> str:
        """Run files of tests, with options; returns what came of them."""
        # Warnings are errors with the locked versions alone: others warn of other things.
        command = [str(self._python), "-m", "pytest", "-q", "-n2", "--dist=loadfile", "-o", "filterwarnings=default"]
        output = self._run([*command, "-p", "no:cacheprovider", *files], CHECKOUT, TESTS_WITHIN_S)
        return summary(output)

    def sweep(self, arguments: list[str]) -> str:
        """Run a sweep; returns what came of it."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        began = time.monotonic()
        output = self._run([str(self._python), "-m", "sweeps", "run", *arguments], folder, SWEEP_WITHIN_S)
        if not output.endswith("status 0"):
            return f"failed: {last_line(output)}"
        return f"ended ({time.monotonic() - began:.0f} s)"

    def _run(self, command: list[str], folder: Path, within_s: float) -> str:
        """Output of a command, with its status at the end; it is also kept in a file for who wants to know more."""
        logged = self._folder / "log.txt"
        with logged.open("w+", encoding="utf-8") as log:
            try:
                variables = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
                done = subprocess.run(
                    command, cwd=folder, env=variables, stdout=log, stderr=log, timeout=within_s, check=False
                )
                status = f"status {done.returncode}"
            except subprocess.TimeoutExpired:
                status = f"not ended within {within_s:.0f} s"
        text = logged.read_text(encoding="utf-8", errors="replace")
        print(text, status, flush=True)
        return f"{text}\n{status}"

    def _call(self, command: list[str]) -> str:
        done = subprocess.run(
            command, env=self._variables, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-2000:])
        return done.stdout


def uv_command() -> list[str]:
    """uv of this environment, or else of this machine."""
    if subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    if found is None:
        sys.exit("uv is needed: make env")
    return [found]


def interpreter_of(version: str) -> str:
    """An interpreter of a minor version: pyenv's if it has one, or else what uv finds."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else version


def summary(output: str) -> str:
    """Result of pytest in a few words, with the names of tests that failed.

    >>> summary("FAILED tests/a.py::test_b - AssertionError\\n1 failed, 3 passed, 2 skipped in 4.5s\\nstatus 1")
    '1 failed, 3 passed, 2 skipped: test_b'
    """
    counted = re.findall(r"^=*\s*((?:\d+ \w+,? ?)+) in [\d.]+s", output, flags=re.MULTILINE)
    failed = re.findall(r"^(?:FAILED|ERROR) (?:\S+::)?(\S+)", output, flags=re.MULTILINE)
    shown = ", ".join(failed[:4]) + (", ..." if len(failed) > 4 else "")
    counts = ", ".join(each for each in counted[-1].split(", ") if "warning" not in each) if counted else ""
    return (counts or last_line(output)) + (f": {shown}" if failed else "")


def last_line(output: str) -> str:
    """The last lines of an output that tell why it ended, as a cell of a table."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "; ".join(lines[-2:])[-200:].replace("|", "/")


COLUMNS = ("Combination", "Date", "Python", *SHOWN, *TESTS, *(f"`conf={name}`" for name in SWEEPS))
TITLE = """# Versions

Combinations of versions that were tested by `make test-versions`, on Linux without a GPU: contract tests of the
libraries' private names, tests of the runtime and of trainings, all parts of the script that measures GPUs (with a tiny
model on a CPU), and short sweeps. A combination has the locked versions (`requirements/`) except those in its name.
`lowest` has the lowest version of every direct dependency that `pyproject.toml` allows, and `newest` the newest.

"""


def rows_of(text: str) -> dict[str, list[str]]:
    """Rows of the table by combination."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row for row in rows[2:] if len(row) == len(COLUMNS)}


def written(rows: dict[str, list[str]]) -> str:
    """The document with a row for each combination."""
    unknown = [NOT_RUN] * (len(COLUMNS) - 1)
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [rows.get(each.name, [each.name, *unknown]) for each in COMBINATIONS]
    return TITLE + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tried(combination: Combination, parts: list[str]) -> Iterator[list[str]]:
    """Try a combination; its row, again after each part."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="sweeps-versions-") as name:
        environment = Environment(combination, Path(name))
        try:
            environment.install()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr, flush=True)
            missing = ["cannot be installed", *[NOT_RUN] * (len(COLUMNS) - 4)]
            yield [combination.name, today, combination.python, *missing]
            return
        versions = environment.versions()
        row = [combination.name, today, combination.python, *(versions.get(each, "") for each in SHOWN)]
        known = rows_of(TABLE.read_text(encoding="utf-8") if TABLE.exists() else "").get(combination.name, [])
        same = known[2 : len(row)] == row[2:]  # the same versions: other parts stay
        row += known[len(row) :] if same else [NOT_RUN] * (len(COLUMNS) - len(row))
        for index, part in enumerate([*TESTS, *SWEEPS], start=len(row) - len(TESTS) - len(SWEEPS)):
            if part in parts:
                row[index] = environment.test(TESTS[part]) if part in TESTS else environment.sweep(SWEEPS[part])
                yield row
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="Try other versions, and write docs/versions.md.")
    parser.add_argument("names", nargs="*", help="combinations; all if none is named")
    parser.add_argument("--parts", default=",".join([*TESTS, *SWEEPS]), help="columns to run; all others: not run")
    given = parser.parse_args()
    by_name = {each.name: each for each in COMBINATIONS}
    unknown = [each for each in given.names if each not in by_name]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(by_name)}")
    for name in given.names or by_name:
        print(f"==> {name}", flush=True)
        for row in tried(by_name[name], given.parts.split(",")):
            print(" | ".join(row), flush=True)
            rows = rows_of(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
            TABLE.write_text(written({**rows, name: row}), encoding="utf-8")


if __name__ == "__main__":
    main()
