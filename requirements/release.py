"""Builds what a release is made of, in dist/: sdist, wheel, bill of materials, checksums.

    make release

It is built from the last commit, with nothing else that lies in the folder; the same commit gives the same bytes. The
tree must have no uncommitted changes, and the newest section of CHANGELOG.md must be that of the version in
pyproject.toml. The bill of materials (CycloneDX) lists the locked versions that the tests run with.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from sources import uv_settings

CHECKOUT = Path(__file__).resolve().parent.parent
DIST = CHECKOUT / "dist"
LOCKS = ("run.txt", "torch.txt")
BILL_OF_MATERIALS = ("--from", "cyclonedx-bom==7.5.0", "cyclonedx-py", "requirements")
"""A tool in an environment of its own, since it brings chardet, which `requests` warns of."""
SECTION = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def main() -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    check(version)
    with tempfile.TemporaryDirectory(prefix="sweeps-release-") as folder:
        commit, built = Path(folder, "commit"), Path(folder, "dist")
        export(commit)
        built.mkdir()
        environment = {
            **os.environ,
            "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct"),
            "PYTHONPATH": f"{commit}{os.pathsep}{commit / 'src'}",  # the reference is written from the commit, too
        }
        python = sys.executable
        run([python, "docs/build_site.py", "--output", "sweeps/docs"], commit, environment)
        run([python, "-m", "build", "--no-isolation", f"--outdir={built}"], commit, environment)
        write_bill_of_materials(commit, built / f"ray_sweeps-{version}.cdx.json", environment)
        write_checksums(built)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(built, DIST)
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.relative_to(CHECKOUT)}")


def check(version: str) -> None:
    """Exit if the commit is not that of a release."""
    if changes := git("status", "--porcelain"):
        sys.exit(f"There are uncommitted changes; a release is made from a commit:\n{changes}")
    newest = SECTION.search((CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if newest is None or newest["version"] != version or newest["date"] is None:
        found = "nothing" if newest is None else newest[0].removeprefix("## ")
        sys.exit(
            f"pyproject.toml has version {version}, so CHANGELOG.md must begin with [{version}] - DATE; it has {found}."
        )


def export(folder: Path) -> None:
    """Write the files of the last commit into a new folder."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    git("archive", "--format=tar", f"--output={archive}", "HEAD")
    shutil.unpack_archive(archive, folder, filter="data")


def write_bill_of_materials(commit: Path, file: Path, environment: dict[str, str]) -> None:
    locks = "".join((commit / "requirements" / name).read_text(encoding="utf-8") for name in LOCKS)
    lock = file.parent.parent / "locked.txt"
    lock.write_text(locks, encoding="utf-8")
    options = ["--pyproject=pyproject.toml", "--mc-type=library", "--output-reproducible", f"--output-file={file}"]
    command = [sys.executable, "-m", "uv", "tool", "run", *BILL_OF_MATERIALS, *options, str(lock)]
    run(command, commit, {**uv_settings(), **environment})


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a command whose output matters only if it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
