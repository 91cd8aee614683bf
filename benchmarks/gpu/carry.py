"""Makes the archives of the libraries that a lent machine lacks, for ``measure.sh``: run it where ``make env`` was run.

    .venv/bin/python benchmarks/gpu/carry.py

writes ``training.tar.xz`` (for all parts without Ray) and ``sweep.tar.xz`` (for the others) into ``.carry/``, which is
to be ignored by git and carried along. What the machine has is in ``installed.txt``; versions are those of
this environment, for CPython 3.12 on x86-64.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from importlib.metadata import distribution, requires, version
from pathlib import Path

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
LIMIT_MIB = 60
"""Largest size of both archives: 64 MiB travel, with the checkout."""
TRAINING = ("pydantic", "datasets")
"""Libraries that ``sweeps_train`` needs and the machine lacks."""
SYSTEMS = ("2_28", "2_27", "2_17", "2_12", "2_5")
PLATFORMS = [*(f"manylinux_{each}_x86_64" for each in SYSTEMS), "manylinux2014_x86_64", "manylinux1_x86_64"]
SOURCE_ONLY = {"antlr4-python3-runtime"}
"""Pure Python without a wheel."""
LEFT_OUT = (
    "ray/jars/",
    "ray/rllib/",
    "ray/serve/",
    "ray/llm/",
    "ray/dashboard/client/",
    "ray/include/",
    "ray/core/src/ray/cpp/",
    "ray/cpp/",
    "mlflow/server/js/build/static/",
    "plotly/labextension/",
    "flask_swagger_ui/dist/",
)
"""Folders that neither a training nor a sweep without pages reads."""


@click.command()
@click.option("--to", default=CHECKOUT / ".carry", show_default=".carry", type=click.Path(path_type=Path))
def main(to: Path) -> None:
    """Make both archives."""
    to.mkdir(parents=True, exist_ok=True)
    there = {canonicalize_name(name) for name in (HERE / "installed.txt").read_text(encoding="utf-8").split()}
    training = needed(TRAINING, there)
    sizes = []
    for name, libraries in (("training", training), ("sweep", needed(["ray-sweeps"], there) - training)):
        file = to / f"{name}.tar.xz"
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            install(libraries - {"ray-sweeps"}, folder)
            if "ray-sweeps" in libraries:
                describe_ourselves(folder)
            click.echo(f"{file.name}: {len(libraries)} libraries, compressing ...", err=True)
            unfinished = file.with_suffix(".unfinished")
            with tarfile.open(unfinished, "w:xz") as archive:
                archive.add(folder, arcname=".")
            unfinished.replace(file)
        sizes.append(file.stat().st_size / 2**20)
        click.echo(f"{file.name}: {sizes[-1]:.1f} MiB")
    if sum(sizes) > LIMIT_MIB:
        raise click.ClickException(f"{sum(sizes):.0f} MiB in all, and {LIMIT_MIB} MiB travel; leave out more")


def needed(names: Iterable[str], there: set[str]) -> set[str]:
    """Libraries that these ones need and that are not there, with these."""
    environment = {"python_version": "3.12", "python_full_version": "3.12.3", "extra": ""}
    found: set[str] = set()
    asked = [Requirement(name) for name in names]
    while asked:
        wanted = asked.pop()
        name = canonicalize_name(wanted.name)
        if name in there or (name in found and not wanted.extras):
            continue
        found.add(name)
        for line in requires(name) or []:
            each = Requirement(line)
            extras = ["", *wanted.extras]
            if each.marker is None or any(each.marker.evaluate({**environment, "extra": extra}) for extra in extras):
                asked.append(each)
    return found


def install(libraries: set[str], folder: Path) -> None:
    """Install the libraries into a folder, in the versions of this environment, without what nobody reads there."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--disable-pip-version-check",
    ]
    platforms = [word for each in PLATFORMS for word in ("--platform", each)]
    target = ["--only-binary=:all:", "--python-version=3.12", "--implementation=cp", *platforms]
    for some, options in ((libraries - SOURCE_ONLY, target), (libraries & SOURCE_ONLY, [])):
        pins = [f"{each}=={version(each)}" for each in sorted(some)]
        if pins:
            subprocess.run([*pip, *options, "--target", str(folder), "--upgrade", *pins], check=True)
    for name in LEFT_OUT:
        shutil.rmtree(folder / name, ignore_errors=True)
    for tests in [*folder.rglob("tests"), *folder.rglob("test")]:
        shutil.rmtree(tests, ignore_errors=True)
    for program in [*folder.rglob("*.so"), *folder.rglob("raylet"), *folder.rglob("gcs_server")]:
        if program.is_file():
            subprocess.run(["strip", "--strip-unneeded", str(program)], check=True)


def describe_ourselves(folder: Path) -> None:
    """Write the metadata of this checkout, which runs without being installed."""
    own = distribution("ray-sweeps")
    described = folder / f"ray_sweeps-{own.version}.dist-info"
    described.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        if (text := own.read_text(name)) is not None:
            (described / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
