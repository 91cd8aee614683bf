"""Writes the lock files beside it: exact versions with hashes, for every platform, from the ranges in pyproject.toml.

    make lock                       # after a change of pyproject.toml: other versions stay as they are
    make lock LOCK_ARGS=--upgrade   # the newest versions that the ranges allow

``uv pip install --no-deps -r FILE`` and ``pip install --no-deps -r FILE`` read them alike. torch and the CUDA packages
that its builds ask for are not in them: which build there is differs by the place that it comes from, and each names
its own CUDA packages. Its version is in torch.txt.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from sources import uv_settings

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parent / "pyproject.toml"
BUILDS_OF_TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)$")

HEADER = "# {}. Made by `make lock`; the ranges are in pyproject.toml.\n"
FILES = {
    "uv": "The installer",
    "run": "Everything that `make demo` needs, and what builds the package",
    "dev": "What `make test` needs beside run.txt",
    "cluster": "What ray[default] needs beside both",
    "fp8": "What the extra fp8 needs beside both",
    "torch": "The version of torch that the tests run with; see lock.py for why it is not beside the others",
}


def resolved(*extras: str, known: str, upgrade: bool = False) -> dict[str, str]:
    """Resolve pyproject.toml with some of its extras, for every platform.

    Args:
        extras: Optional dependencies.
        known: The text of lock files; their versions are kept, unless ``upgrade``.

    Returns:
        For each package its lines of a requirements file; two versions of a package are one entry.
    """
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    added = [*project["build-system"]["requires"], "editables", "setuptools", "uv"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        output.write_text(known, encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += ["--no-annotate", "--no-header", "--python-version", "3.11", str(PROJECT), "-"]
        command += [f"--extra={extra}" for extra in extras]
        command += ["--upgrade"] if upgrade else []
        command += ["--output-file", str(output)]
        # Folders of wheels and further indexes have but some builds, and so some of the hashes.
        left_out = {"UV_FIND_LINKS", "UV_EXTRA_INDEX_URL", "UV_CONSTRAINT"}
        settings = {name: value for name, value in uv_settings().items() if name not in left_out}
        subprocess.run(command, input="\n".join(added), env={**os.environ, **settings}, text=True, check=True)
        blocks: dict[str, str] = {}
        for block in re.split(r"^(?=\S)", output.read_text(encoding="utf-8"), flags=re.MULTILINE):
            name = block.partition("==")[0]
            blocks[name] = blocks.get(name, "") + block
    return blocks


def main() -> None:
    everything = resolved("dev", "cluster", "fp8", known=read(), upgrade="--upgrade" in sys.argv)
    known = "".join(everything.values())
    elsewhere = {name for name in everything if BUILDS_OF_TORCH.match(name)}
    for file, extras in {"run": [], "dev": ["dev"], "cluster": ["cluster"], "fp8": ["fp8"]}.items():
        names = [name for name in resolved(*extras, known=known) if name not in elsewhere]
        write(file, [everything[name] for name in names])
        if file in ("run", "dev"):
            elsewhere.update(names)
    write("uv", [everything["uv"]])
    write("torch", [everything["torch"].split()[0] + "\n"])


def read() -> str:
    """The locked versions of all files."""
    files = [FOLDER / f"{name}.txt" for name in FILES]
    return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


def write(name: str, blocks: list[str]) -> None:
    (FOLDER / f"{name}.txt").write_text(HEADER.format(FILES[name]) + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
