"""Measures one GPU, part by part in the order of their worth: ``measure.sh`` calls this, README.md tells how.

Each part is a process of its own and is killed at its limit of time; what it has measured until then is kept.
"""

from __future__ import annotations

import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

import click

from gpu.results import FILE, Results, read_results, say

CHECKOUT = Path(__file__).resolve().parents[2]
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "ray")
SILENCE_S = 5.0
"""Seconds without a line of a part after which its last one is repeated."""
GRACE_S = 5.0
"""Seconds between an interrupt at the limit and a kill."""
TINY_FACTOR = 10
"""Longer limits with ``--tiny``, whose processors may be busy."""


Lines = queue.SimpleQueue[tuple[str, bool] | None]
"""Lines of a part, and whether it said them itself, on stdout; None when it has closed that."""


@dataclass(frozen=True)
class Part:
    """One process that measures; its module is ``gpu.NAME``."""

    name: str
    limit_s: float
    what: str


PARTS = (
    Part("speed", 120, "LoRA beside Hugging Face's Trainer"),
    Part("gpu_tests", 60, "tests marked gpu"),
    Part("memory", 60, "the memory plan and the measured peak"),
    Part("snapshots", 60, "blocked seconds of a save, and resuming"),
    Part("sweep", 90, "a whole sweep on Ray"),
    Part("lanes", 120, "several trainings in one step"),
)
NAMES = tuple(part.name for part in PARTS)


@click.command()
@click.option("--parts", default=",".join(NAMES), show_default=True, help="Parts to run, in this order.")
@click.option("--out", type=click.Path(path_type=Path), default=lambda: os.environ.get("OUT", "gpu_results"))
@click.option("--limit-factor", default=1.0, show_default=True, help="Multiplies the limits of time.")
@click.option("--tiny", is_flag=True, help="A tiny model on the CPU, to see that all of it runs.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar=FILE, help="Update docs/; run nothing.")
def main(parts: str, out: Path, limit_factor: float, tiny: bool, write: Path | None) -> None:
    """Measure what this GPU is worth."""
    if write is not None:
        from gpu.documents import write_documents

        try:
            written = write_documents(read_results(write), CHECKOUT / "docs")
        except ValueError as error:
            raise click.UsageError(f"--write {write}: {error}") from error
        for document in written:
            say(f"written: {document.relative_to(CHECKOUT)}")
        return
    chosen = [_part(name) for name in parts.split(",")]
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    _describe_machine(Results(out / FILE, "machine"), tiny=tiny)
    factor = limit_factor * (TINY_FACTOR if tiny else 1)
    ended = {part.name: run(part, out, part.limit_s * factor, tiny=tiny) for part in chosen}
    say(f"{time.monotonic() - began:.0f} s in all: {', '.join(f'{name} {end}' for name, end in ended.items())}")
    sys.exit(0 if all(end == "done" for end in ended.values()) else 1)


def _part(name: str) -> Part:
    if name not in NAMES:
        raise click.UsageError(f"--parts: there is no {name!r}; there are {', '.join(NAMES)}")
    return PARTS[NAMES.index(name)]


def _describe_machine(results: Results, *, tiny: bool) -> None:
    """Write the card, the versions and the commit. The process that asks torch ends, since it holds the GPU."""
    asked = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU')"
    card = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False).stdout.strip()
    if card == "no GPU" and not tiny:
        raise click.UsageError("torch sees no GPU here; --tiny shows on CPUs that it runs")
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    results.add(
        "machine",
        card=card,
        cores=os.cpu_count(),
        python=platform.python_version(),
        versions={name: _version(name) for name in LIBRARIES},
        commit=described.stdout.strip() or "unknown",
        tiny=tiny,
    )


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def run(part: Part, out: Path, limit_s: float, *, tiny: bool) -> str:
    """Run one part and tell how it ended: ``done``, ``failed`` or ``limit``."""
    say(f"== {part.name}: {part.what}, {limit_s:.0f} s at most")
    command = [sys.executable, "-u", "-m", f"gpu.{part.name}", str(out), *(["--tiny"] if tiny else [])]
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    lines: Lines = queue.SimpleQueue()
    for stream in (process.stdout, process.stderr):
        threading.Thread(target=_read, args=(stream, stream is process.stdout, lines), daemon=True).start()
    end = _follow(part.name, lines, began, limit_s)
    if end == "limit":
        _stop(process)
    status = process.wait()
    end = end or ("done" if status == 0 else "failed")
    seconds = time.monotonic() - began
    Results(out / FILE, part.name).add("end", end=end, seconds=seconds, limit_s=limit_s)
    return end


def _stop(process: subprocess.Popen[str]) -> None:
    """End a part and what it has started: by an interrupt, after which it removes its files, or else by force."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _read(stream: IO[str], is_said: bool, lines: Lines) -> None:
    for line in stream:
        lines.put((line.rstrip(), is_said))
    if is_said:
        lines.put(None)


def _follow(name: str, lines: Lines, began: float, limit_s: float) -> str | None:
    """Print a part's lines with the seconds so far; ``limit`` if it did not end in time."""
    last = "starts"
    while (seconds := time.monotonic() - began) < limit_s:
        try:
            found = lines.get(timeout=min(SILENCE_S, limit_s - seconds))
        except queue.Empty:
            say(f"[{name} {time.monotonic() - began:.0f} s] still: {last}")
            continue
        if found is None:
            return None
        line, is_said = found
        if line:
            last = line if is_said else last
            say(f"[{name} {time.monotonic() - began:.0f} s] {line}")
    return "limit"


if __name__ == "__main__":
    main()
