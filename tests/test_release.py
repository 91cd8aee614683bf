"""``make release``: made of a commit alone, the same bytes each time, and what it builds runs where nothing else is
installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from processes import run_python

COMMITTER = {
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@b"))
    },
    "GIT_COMMITTER_DATE": "2026-11-27T12:00:00Z",
}
PROJECT = '[project]\nname = "ray-sweeps"\nversion = "0.3.0"\n'


def commit_all(folder: Path) -> None:
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=folder, env={**os.environ, **COMMITTER}, check=True)


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    return run_python("requirements/release.py", folder=folder, status=None)


@pytest.fixture
def small(checkout: Path, tmp_path: Path) -> Path:
    """A checkout with only what is looked at first."""
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    for name in ("release.py", "sources.py"):
        shutil.copy(checkout / "requirements" / name, folder / "requirements")
    (folder / ".gitignore").write_text("__pycache__/\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## [0.3.0] - 2027-01-31\n\n- More.\n")
    return folder


def test_a_release_is_made_of_a_commit_alone(small: Path) -> None:
    commit_all(small)
    (small / "forgotten.py").touch()
    refused = release(small)
    assert refused.returncode == 1
    assert "There are uncommitted changes" in refused.stderr
    assert "forgotten.py" in refused.stderr
    assert not (small / "dist").exists()


@pytest.mark.parametrize(
    "newest", ["[0.2.0] - 2026-11-27", "[Unreleased]", "[0.3.0]", "[0.3.0] - soon"], ids=lambda newest: newest
)
def test_the_newest_section_of_the_changelog_is_that_of_the_version(small: Path, newest: str) -> None:
    (small / "CHANGELOG.md").write_text(f"# Changelog\n\n## {newest}\n\n## [0.3.0]\n")
    commit_all(small)
    refused = release(small)
    assert refused.returncode == 1
    assert "CHANGELOG.md must begin with [0.3.0] - DATE" in refused.stderr
    assert not (small / "dist").exists()


def copied(checkout: Path, folder: Path) -> Path:
    """Commit the checkout's files elsewhere, changes included, with a section for its version in the changelog."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (checkout / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, folder / name)
    version = re.findall(r'^version = "(.+?)"', (folder / "pyproject.toml").read_text(), re.MULTILINE)[0]
    changelog = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(changelog.replace("## [", f"## [{version}] - 2026-11-27\n\n## [", 1))
    commit_all(folder)
    return folder


@pytest.fixture(scope="module")
def released(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders that two releases of the same commit have made, in different places."""
    folders = [copied(checkout, tmp_path_factory.mktemp(name)) for name in ("here", "there")]
    for folder in folders:
        done = release(folder)
        assert done.returncode == 0, done.stderr
    return [folder / "dist" for folder in folders]


@pytest.mark.slow
def test_two_releases_of_a_commit_are_the_same_bytes(released: list[Path]) -> None:
    one, other = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in released)
    assert {Path(name).suffix for name in one} == {".gz", ".whl", ".json", ""}
    assert [name for name in one if other.get(name) != one[name]] == []
    assert len(other) == len(one)


@pytest.mark.slow
def test_a_release_has_checksums_the_site_and_the_locked_versions(checkout: Path, released: list[Path]) -> None:
    dist = released[0]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == 3
    (wheel,) = dist.glob("*.whl")
    assert {"sweeps/docs/index.html", "sweeps/docs/upgrading.html"} <= set(zipfile.ZipFile(wheel).namelist())
    (bill,) = dist.glob("*.cdx.json")
    document = json.loads(bill.read_text())
    component = document["metadata"]["component"]
    assert (component["name"], component["version"]) == ("ray-sweeps", wheel.name.split("-")[1])
    listed = {each["name"]: each for each in document["components"]}
    locked = (checkout / "requirements" / "run.txt").read_text()
    assert {"ray", "torch", "optuna", "mlflow"} <= listed.keys()
    assert f"optuna=={listed['optuna']['version']}" in locked
    (hashed,) = (each for each in listed["optuna"]["externalReferences"] if each["type"] == "distribution")
    assert all(each["content"] in locked for each in hashed["hashes"])


@pytest.mark.slow
def test_the_wheel_alone_installs_what_a_sweep_needs(checkout: Path, released: list[Path], tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    (wheel,) = released[0].glob("*.whl")
    locks = checkout / "requirements"
    code = (
        "import os, subprocess, sys; from install import torch_options; from sources import uv_settings;"
        "environment = {'UV_INDEX_STRATEGY': 'unsafe-best-match', **uv_settings(), **os.environ};"
        f"uv = [sys.executable, '-m', 'uv']; python = '--python={bare}/bin/python';"
        f"subprocess.run([*uv, 'venv', '--python', sys.executable, {str(bare)!r}], check=True);"
        "install = [*uv, 'pip', 'install', '--quiet', python];"
        "subprocess.run([*install, *torch_options(environment)], env=environment, check=True);"
        f"subprocess.run([*install, '--constraint={locks}/run.txt', {str(wheel)!r}], env=environment, check=True)"
    )
    run_python("-c", code, folder=locks)
    assert not list(bare.glob("lib/python*/site-packages/pytest"))

    def sweeps(*arguments: str) -> str:
        """Call the installed command, and return what it prints."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(bare / "bin" / "sweeps"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "run" in sweeps("--help")
    assert wheel.name.split("-")[1] in sweeps("--version")
    found = json.loads(
        sweeps(
            "run",
            "conf=digits",
            "search.num_trials=2",
            "search/scheduler=none",
            "train.max_steps=99",
            "--name=bare",
            "--json",
        )
    )
    assert (found["status"], found["counts"]["finished"]) == ("finished", 2)
    assert (Path("outputs") / "bare" / "report" / "report.html").exists()
    assert [each["sweep"] for each in json.loads(sweeps("list", "--json"))] == ["bare"]
