"""Sdist and wheel: complete, the same for everybody who builds them, and working far from the checkout, with the
versions that they were tested with."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# --- the wheel ------------------------------------------------------------------------------------------------


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def build(folder: Path, output: Path, *targets: str) -> list[Path]:
    """Build the ``sdist`` or the ``wheel`` of a folder, or both."""
    chosen = [word for target in targets for word in ("--target", target)]
    run([sys.executable, "-m", "hatchling", "build", "--directory", str(output), *chosen], cwd=folder)
    return sorted(output.iterdir())


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = build(checkout, tmp_path_factory.mktemp("built"), "wheel")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    quick = ("--no-deps", "--no-compile", "--no-index", "--disable-pip-version-check", "--quiet")
    run([sys.executable, "-m", "pip", "install", *quick, "--target", str(folder), str(wheel)])
    return folder


@pytest.fixture
def elsewhere(installed: Path) -> dict[str, str]:
    """An environment in which the installed wheel comes before an editable install of the checkout."""
    return {**os.environ, "PYTHONPATH": str(installed)}


def test_wheel_holds_every_file_of_the_packages_and_of_conf_and_nothing_else(checkout: Path, wheel: Path) -> None:
    sources = {
        "sweeps": checkout / "sweeps",
        "sweeps_train": checkout / "src/sweeps_train",
        "sweeps/conf": checkout / "conf",
    }
    expected = {
        f"{target}/{path.relative_to(folder).as_posix()}"
        for target, folder in sources.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected
    assert {"sweeps/py.typed", "sweeps_train/py.typed", "sweeps/conf/digits.yaml", "sweeps/conf/llm_lora.yaml"} <= names


@pytest.mark.slow
def test_the_sdist_makes_the_same_sdist_and_the_same_wheel_as_the_checkout(checkout: Path, tmp_path: Path) -> None:
    built = build(checkout, tmp_path / "built", "sdist", "wheel")
    (sdist,) = (each for each in built if each.suffix == ".gz")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("ray_sweeps-*")
    again = build(unpacked, tmp_path / "again", "sdist", "wheel")
    assert [each.name for each in again] == [each.name for each in built]
    assert [one.name for one, other in zip(built, again, strict=True) if one.read_bytes() != other.read_bytes()] == []


def test_wheel_holds_the_base_model_that_the_demo_tunes(wheel: Path) -> None:
    prefix = "sweeps_train/models/tiny_llama/"
    suffixes = {Path(name).suffix for name in zipfile.ZipFile(wheel).namelist() if name.startswith(prefix)}
    assert {".safetensors", ".json"} <= suffixes


def test_installed_wheel_is_found_before_the_checkout(installed: Path, elsewhere: dict[str, str]) -> None:
    code = "import sweeps, sweeps_train; print(sweeps.__file__); print(sweeps_train.__file__)"
    files = run([sys.executable, "-c", code], env=elsewhere).stdout.splitlines()
    assert files == [str(installed / "sweeps/__init__.py"), str(installed / "sweeps_train/__init__.py")]


def test_installed_wheel_begins_a_project_plans_its_sweep_and_completes(
    elsewhere: dict[str, str], working_folder: Path
) -> None:
    run([sys.executable, "-m", "sweeps", "init", "--kind=script", "--name=mine"], env=elsewhere)
    written = sorted(working_folder.rglob("*"))
    run([sys.executable, "-m", "sweeps", "run", "conf=mine", "--config-dir=conf", "--dry-run"], env=elsewhere)
    assert sorted(working_folder.rglob("*")) == written, "a plan leaves nothing behind"
    asked = {**elsewhere, "COMP_LINE": "sweeps run conf=dig", "_SWEEPS_COMPLETE": "fish_complete"}
    assert "conf=digits" in run([sys.executable, "-m", "sweeps"], env=asked).stdout


def test_installed_wheel_brings_the_command(installed: Path, elsewhere: dict[str, str]) -> None:
    assert "run" in run([str(installed / "bin/sweeps"), "--help"], env=elsewhere).stdout


# --- the versions ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locks(checkout: Path) -> Path:
    return checkout / "requirements"


@pytest.fixture(scope="module")
def pins(locks: Path) -> dict[str, str]:
    """The locked version of each distribution that is installed on this machine."""
    lines = [line.removesuffix(" \\") for lock in locks.glob("*.txt") for line in lock.read_text().splitlines()]
    pinned = [Requirement(line) for line in lines if line and not line.startswith((" ", "#"))]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in pinned
        if each.marker is None or each.marker.evaluate()
    }


def test_each_locked_file_but_those_of_torch_has_a_hash(locks: Path) -> None:
    for lock in locks.glob("*.txt"):
        packages = re.split(r"^(?=[a-z])", lock.read_text(), flags=re.MULTILINE)[1:]
        assert packages
        for package in packages:
            assert package.startswith("torch==") or "--hash=sha256:" in package, f"{lock.name}: {package}"


@pytest.fixture(scope="module")
def requirements(checkout: Path) -> list[Requirement]:
    """Requirements in pyproject.toml: to use, to develop and to build."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"]]
    return [Requirement(line) for line in asked + project["build-system"]["requires"]]


def test_each_requirement_is_pinned_within_its_range(requirements: list[Requirement], pins: dict[str, str]) -> None:
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked: `make lock`"
        assert version in requirement.specifier, (
            f"locked is {version}, pyproject.toml asks for {requirement}: `make lock`"
        )


def test_what_the_requirements_require_is_pinned_too(requirements: list[Requirement], pins: dict[str, str]) -> None:
    floating = {
        f"{requirement} (of {owner})"
        for owner, requirement in closure(requirements)
        # torch pins the CUDA packages of its own build by itself.
        if canonicalize_name(requirement.name) not in pins and not str(requirement.specifier).startswith("==")
    }
    assert floating == set(), "lock them: `make lock`"


def closure(requirements: list[Requirement]) -> Iterator[tuple[str, Requirement]]:
    """Each requirement that holds on this machine, of these and in turn of what they install, with its owner."""
    waiting = [("pyproject.toml", requirement) for requirement in requirements]
    seen = set()
    while waiting:
        owner, requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        yield owner, requirement
        for line in importlib.metadata.requires(name) or []:
            needed = Requirement(line)
            if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in {"", *key[1]}):
                waiting.append((requirement.name, needed))
