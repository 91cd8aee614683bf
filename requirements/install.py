"""Installs Sweeps with the locked versions into the environment whose Python runs this.

    .venv/bin/python requirements/install.py run       # what `make demo` needs
    .venv/bin/python requirements/install.py dev       # and what `make test` needs beside

uv does it, and pip where uv cannot be had. Both take packages from where pip is told to: its variables and config files
count for uv, too.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sources import uv_settings

FOLDER = Path(__file__).resolve().parent
DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Made by the drivers of NVIDIA and AMD, and by Windows for its Linux."""
PIP = [sys.executable, "-m", "pip"]
UV = [sys.executable, "-m", "uv", "pip"]


def main() -> None:
    locks = [f"--requirement={FOLDER / name}.txt" for name in sys.argv[1:]]
    with_package = "run" in sys.argv[1:]
    if installs_uv():
        environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_settings(), **os.environ}  # as pip chooses
        # The versions of what builds the few source distributions are locked, too.
        installer = [*UV, "install", f"--python={sys.executable}", f"--build-constraint={FOLDER / 'run.txt'}"]
        quiet = ["--quiet"] if not sys.stderr.isatty() else []
        torch = torch_options(environment) if with_package else []
        announce(locks + torch, environment)
    else:
        print("==> uv cannot be installed here, so pip installs the rest, which takes minutes", file=sys.stderr)
        environment, torch, quiet = dict(os.environ), [TORCH], ["-q", "-q"]
        installer = [*PIP, "install", "--disable-pip-version-check"]
    # Lock files are complete: nothing is resolved, and each file has one of the hashes there.
    steps = [["--no-deps", *locks]]
    if with_package:
        steps += [torch, ["--no-deps", "--no-build-isolation", f"--editable={FOLDER.parent}"]]
    for step in steps:
        subprocess.run([*installer, *quiet, *step], env=environment, check=True)
    subprocess.run([*PIP, "check", "--disable-pip-version-check"], check=True, stdout=subprocess.DEVNULL)


TORCH = f"--requirement={FOLDER / 'torch.txt'}"


def installs_uv() -> bool:
    command = [
        *PIP,
        "install",
        "-q",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        f"--requirement={FOLDER}/uv.txt",
    ]
    return subprocess.run(command, check=False).returncode == 0


def torch_options(environment: dict[str, str]) -> list[str]:
    """The options for installing torch: a build for CPUs alone where no GPU is and the sources have one.

    Builds for GPUs bring several GB of CUDA. Where pip is told of no index, PyTorch's own is asked, which uv knows.
    """
    told = {"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_NO_INDEX"} & environment.keys()
    if platform.system() != "Linux" or any(Path(each).exists() for each in DEVICES) or told:
        return [TORCH]
    if any(each["version"].endswith("+cpu") for each in found([TORCH], environment) if each["name"] == "torch"):
        return [TORCH]
    for_cpus = ["--torch-backend=cpu", TORCH]
    quickly = {**environment, "UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
    return for_cpus if found(for_cpus, quickly) else [TORCH]


def found(requirements: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    """The packages that uv would install, with their files; empty if a source does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "pylock.toml"
        files = [each.removeprefix("--requirement=") for each in requirements]
        command = [*UV, "compile", "--quiet", f"--python={sys.executable}", *files, f"--output-file={output}"]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return tomllib.loads(output.read_text(encoding="utf-8"))["packages"] if done.returncode == 0 else []


def announce(requirements: list[str], environment: dict[str, str]) -> None:
    """Say how much is to be downloaded."""
    command = [*UV, "install", f"--python={sys.executable}", "--dry-run", "--output-format=json", *requirements]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return  # the installation says why
    missing = {each["name"] for each in json.loads(done.stdout)["changes"] if each["action"] == "installed"}
    if not missing:
        return
    size = sum(file_size(each) for each in found(requirements, environment) if each["name"] in missing)
    print(
        f"==> Installing {len(missing)} packages, {size / 1e6:.0f} MB (less what uv has in its cache)", file=sys.stderr
    )


def file_size(package: dict[str, Any]) -> int:
    """Bytes of the largest of its wheels for this machine, or of its source."""
    files = package.get("wheels") or [package["sdist"]]
    return max(each.get("size") or local_size(each["url"]) for each in files)


def local_size(url: str) -> int:
    """Bytes of a file on this machine, whose size an index of files does not tell."""
    path = Path(url2pathname(urlsplit(url).path))
    return path.stat().st_size if path.is_file() else 0


if __name__ == "__main__":
    main()
