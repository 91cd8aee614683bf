"""Response times of the service for 100 polling clients, while 20 sweeps are written and one is trained.

A real service with SQLite; a real sweep in its queue; and 20 more that our own recorder writes like a running sweep, in
a few processes, since 20 drivers with Ray would not fit into a small machine. Every client requests the list, a sweep,
its page and the page of all sweeps in turn, every two seconds, and waits for each answer.

    python benchmarks/service.py
    python benchmarks/service.py --clients 100 --sweeps 20 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
import requests

EVERY_S = 2.0
TRIALS = 8
"""Trials of a sweep that is written."""
WRITERS = 4
"""Processes that write."""
REAL = ["search.num_trials=30", "train.max_steps=100", "train.eval_every=20", "tracking.report=false"]


def write(folder: Path, names: list[str], seconds: float) -> None:
    """Write sweeps at once, a point of two trials of each every second, as drivers do."""
    threads = [threading.Thread(target=_write, args=(folder, name, seconds)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(folder: Path, name: str, seconds: float) -> None:
    from sweeps.config.objectives import Objectives
    from sweeps.tracking.recorder import Recorder
    from sweeps.tracking.sweep_run import SweepInfo
    from sweeps.tracking.values import now_ms

    own = folder / "outputs" / name
    own.mkdir(parents=True)
    goals = Objectives(("eval/loss",), ("min",))
    uri = f"sqlite:///{folder}/mlflow.db"
    info = SweepInfo(name=name, conf="digits", objectives=goals, folder=own, config_yaml="name: written\n")
    recorder = Recorder.open(uri, "written", info)
    ends, step = time.monotonic() + seconds, 0
    ended = 0
    while time.monotonic() < ends:
        trial, at = divmod(step, 20)
        if trial < TRIALS * 10:
            if at == 0:
                recorder.trials.start(f"{trial:04}", {"train.lr": 10 ** -(1 + trial % 5)}, "train: {}\n", 1)
            recorder.trials.log(f"{trial:04}", at + 1, {"eval/loss": 1 + math.exp(-at), "train/loss": 1.0}, now_ms())
            if at == 19:
                recorder.trials.end(f"{trial:04}", "finished", 20, 1, None)
                ended += 1
        step += 1
        counts = {"finished": ended, "pruned": 0, "failed": 0, "running": 1, "stopped": 0}
        recorder.update(counts, [], {"wall_s": step, "train_s": step, "goodput": 1.0})
        time.sleep(0.5)
    recorder.close("finished")


async def poll(url: str, names: list[str], clients: int, seconds: float) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds that each kind of answer took, and what went wrong."""
    took: dict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:

        async def client(number: int) -> None:
            await asyncio.sleep(EVERY_S * number / clients)
            ends, turn = time.monotonic() + seconds, number
            while time.monotonic() < ends:
                name = names[(number + turn) % len(names)]
                kinds = {
                    "list": "/api/v1/sweeps",
                    "show": f"/api/v1/sweeps/{name}",
                    "page of all": "/",
                    "page of one": f"/sweeps/{name}",
                }
                kind = [*kinds][turn % len(kinds)]
                began = time.monotonic()
                try:
                    async with session.get(url + kinds[kind]) as answer:
                        await answer.read()
                        if answer.status != 200:
                            errors.append(f"{kind}: {answer.status}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    errors.append(f"{kind}: {error!r}")
                took[kind].append(time.monotonic() - began)
                turn += 1
                await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))

        await asyncio.gather(*(client(number) for number in range(clients)))
    return took, errors


def measure(folder: Path, clients: int, sweeps: int, seconds: float) -> dict[str, Any]:
    """Run it all."""
    from sweeps.tracking.client import connect

    connect(f"sqlite:///{folder}/mlflow.db")  # its tables, before many want to make them
    log = (folder / "serve.log").open("w+")
    service = subprocess.Popen(
        [sys.executable, "-m", "sweeps", "serve", "port=0", "schedules=[]"], cwd=folder, stdout=log, stderr=log
    )
    names = [f"written-{number:02}" for number in range(sweeps)]
    writers = []
    try:
        url = address_in(folder / "serve.log")
        body = {"conf": "digits", "name": "real", "overrides": REAL}
        requests.post(f"{url}/api/v1/sweeps", json=body, timeout=60).raise_for_status()
        for number in range(WRITERS):
            mine = names[number::WRITERS]
            command = [
                sys.executable,
                __file__,
                "--folder",
                str(folder),
                "--seconds",
                str(seconds + 40),
                "--write",
                *mine,
            ]
            writers.append(subprocess.Popen(command))
        _wait_until_recorded(url, sweeps + 1)
        took, errors = asyncio.run(poll(url, [*names, "real"], clients, seconds))
        job = requests.get(f"{url}/api/v1/jobs/1", timeout=30).json()
        requests.post(f"{url}/api/v1/sweeps/real/stop", timeout=30)
        time.sleep(10)
    finally:
        for process in (service, *writers):
            process.terminate()
            process.wait()
    every = [each for kind in took.values() for each in kind]
    return {
        "clients": clients,
        "sweeps": sweeps + 1,
        "seconds": seconds,
        "requests": len(every),
        "errors": len(errors),
        "kinds_of_errors": sorted(set(errors))[:5],
        "real_sweep": job["state"],
        "ms": {kind: shares(each) for kind, each in [*sorted(took.items()), ("all", every)]},
    }


def shares(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": round(1000 * cuts[49], 1), "p99": round(1000 * cuts[98], 1), "max": round(1000 * max(seconds), 1)}


def address_in(log: Path) -> str:
    for _ in range(300):
        if match := re.search(r"serves on (\S+)", log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise RuntimeError(log.read_text())


def _wait_until_recorded(url: str, count: int) -> None:
    for _ in range(120):
        if requests.get(f"{url}/api/v1/sweeps", timeout=30).json()["total"] >= count:
            return
        time.sleep(0.5)
    raise RuntimeError("the sweeps did not begin within a minute")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.folder, arguments.write, arguments.seconds)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = measure(Path(folder), arguments.clients, arguments.sweeps, arguments.seconds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
