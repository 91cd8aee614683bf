"""Time to the first byte, and CPU time, of the service's pages with 1,000 sweeps, of which one has 2,000 trials.

The sweeps are simulated: some by our own recorder with everything that a sweep writes (see record.py), the others only
by their parent runs, which is all that the list needs. The pages come from a real service over a real connection. The
CPU time is that of the service's process: unlike the time to the first byte it hardly depends on what else runs.

    python benchmarks/pages.py --write benchmarks/measurements.md                 # in a folder that is removed
    python benchmarks/pages.py --sweeps 20 --trials 300 --keep /tmp/pages --port 8643   # for docs/page_pictures.py
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from record import simulate
from results_document import markdown_table, write_between_marks

if TYPE_CHECKING:
    from sweeps.service.nights.night import Verdict

USERS = (("mira", "chat"), ("jonas", "chat"), ("ines", "vision"), ("tom", "vision"))
CONFS = ("llm_lora", "digits", "support_chat", "defect_images")
LARGEST = "llm_lora-large"
DETAILED = 12
"""Sweeps with trials, besides the largest."""
RUNNING = 2
WAITING = 3
REQUESTS = 30
SCHEDULE = "support_nightly"
REASONS = {
    "first": "The first champion, eval/loss 1.4168 on tonight's data.",
    "promoted": "A new champion: better by 0.053 than the champion on tonight's data, where noise is 0.018.",
    "kept": "The champion stays: nothing was better on tonight's data.",
    "regression": "Its best eval/loss, 1.524, is worse than the usual 1.3485 by 0.18. Nothing is promoted.",
}
NIGHTS: tuple[tuple[Verdict, float, float | None], ...] = (
    ("first", 1.412, None),
    ("promoted", 1.351, 1.405),
    ("kept", 1.362, 1.358),
    ("kept", 1.346, 1.352),
    ("promoted", 1.297, 1.349),
    ("kept", 1.304, 1.301),
    ("regression", 1.524, 1.533),
)
"""Verdict, best value, and the champion's value of each night of the schedule."""
PATHS = {
    "list": "/",
    "list, tenth page of finished sweeps": "/?state=finished&page=10",
    "list, searched": "/?q=digits",
    "list, its live part": "/?part=live",
    "queue": "/queue",
    "new sweep": "/submit",
    "sweep": f"/sweeps/{LARGEST}",
    "sweep, its live part": f"/sweeps/{LARGEST}?part=live",
    "sweep, figure of the curves": f"/sweeps/{LARGEST}/figures/curves",
    "sweep, best so far": f"/sweeps/{LARGEST}/figures/best",
    "sweep, parallel coordinates": f"/sweeps/{LARGEST}/figures/parallel",
    "sweep, importance": f"/sweeps/{LARGEST}/figures/importance",
    "sweep, slices": f"/sweeps/{LARGEST}/figures/slices",
    "sweep, contours": f"/sweeps/{LARGEST}/figures/contours",
    "sweep, timeline": f"/sweeps/{LARGEST}/figures/timeline",
    "trial": f"/sweeps/{LARGEST}/trials/7",
    "another trial": f"/sweeps/{LARGEST}/trials/250",
}


def fill(folder: Path, sweeps: int, trials: int, seed: int = 0) -> None:
    """Write a store and a queue into a folder; the largest sweep has so many trials."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    detailed = min(DETAILED, sweeps - 1)
    names = [_name(rng, index, sweeps) for index in range(sweeps)]
    _parents_alone(folder, names[: sweeps - detailed - 1], rng)
    for index, name in enumerate(names[sweeps - detailed - 1 : -1]):
        simulate(folder, rng.randint(12, 40), 2 if index == 3 else 1, seed + index, sweep=name, conf=_conf(name))
    simulate(folder, trials, 1, seed, sweep=LARGEST, conf="llm_lora")
    _take_time(folder)
    running = names[-1 - min(RUNNING, detailed) : -1] if detailed else []
    _let_run(folder, [*running, LARGEST] if sweeps < DETAILED else running)
    _submit(folder, [*names[:-1], LARGEST], rng)
    _fire_nightly(folder, names[-1 - len(NIGHTS) :])


def _name(rng: random.Random, index: int, sweeps: int) -> str:
    started = time.gmtime(time.time() - (sweeps - index) * 5400 - rng.randint(0, 3000))
    return f"{rng.choice(CONFS)}-{time.strftime('%Y%m%d-%H%M%S', started)}"


def _conf(name: str) -> str:
    return name.partition("-")[0]


def _parents_alone(folder: Path, names: list[str], rng: random.Random) -> None:
    from sweeps import constants
    from sweeps.tracking.client import connect

    client = connect(f"sqlite:///{folder}/mlflow.db")
    experiments = {conf: client.create_experiment(conf) for conf in CONFS if names}
    for index, name in enumerate(names):
        finished, pruned, failed = rng.randint(4, 30), rng.randint(0, 20), rng.choice([0, 0, 0, 1])
        counts = {"finished": finished, "pruned": pruned, "failed": failed, "running": 0, "stopped": 0}
        status = rng.choices(["finished", "stopped", "failed", "interrupted"], [90, 5, 3, 2])[0]
        wall_s = rng.uniform(200, 20_000)
        tags = {
            constants.TAG_KIND: "sweep",
            constants.TAG_SWEEP: name,
            constants.TAG_CONF: _conf(name),
            constants.TAG_STATE: status,
            constants.TAG_METRIC: "eval/loss",
            constants.TAG_MODE: "min",
            constants.TAG_BEST_VALUE: repr(rng.uniform(1.2, 1.9)),
            constants.TAG_COUNTS: json.dumps(counts),
            constants.TAG_PLANNED: str(finished + pruned + failed),
            constants.TAG_TIME: json.dumps({"wall_s": wall_s, "train_s": wall_s, "goodput": 0.9}),
        }
        started = int(1000 * (time.time() - (len(names) - index + DETAILED) * 5400))
        run = client.create_run(experiments[_conf(name)], started, tags, run_name=name)
        client.set_terminated(run.info.run_id, "FINISHED", started + int(1000 * wall_s))


def _take_time(folder: Path) -> None:
    """Give the runs of simulated trials, which take no time, the start and end of their spans."""
    from sweeps.tracking.reader import list_sweeps, load_sweep

    uri = f"sqlite:///{folder}/mlflow.db"
    trials = [trial for each in list_sweeps(uri) for trial in load_sweep(uri, each.sweep).trials if trial.spans]
    times = [(trial.spans[-1].held * 1000, (trial.spans[-1].ended or 0.0) * 1000, trial.run_id) for trial in trials]
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.executemany("UPDATE runs SET start_time = ?, end_time = ? WHERE run_uuid = ?", times)
        database.commit()


def _let_run(folder: Path, names: list[str]) -> None:
    """Make sweeps look as if their drivers were alive, for the next day."""
    from sweeps import constants
    from sweeps.tracking.client import connect
    from sweeps.tracking.reader import load_sweep

    uri = f"sqlite:///{folder}/mlflow.db"
    client = connect(uri)
    for name in names:
        record = load_sweep(uri, name)
        for trial in record.trials[-3:]:
            client.set_tag(trial.run_id, constants.TAG_STATE, "running")
        counts = {state: sum(trial.state == state for trial in record.trials[:-3]) for state in record.counts}
        tags = {
            constants.TAG_STATE: "running",
            constants.TAG_COUNTS: json.dumps({**counts, "running": 3}),
            constants.TAG_PLANNED: str(round(1.6 * len(record.trials))),
            constants.TAG_HEARTBEAT: str(time.time() + 86400),
        }
        for key, value in tags.items():
            client.set_tag(record.mlflow.run_id, key, value)


def _submit(folder: Path, names: list[str], rng: random.Random) -> None:
    """Most of the sweeps came through the service; some wait in its queue."""
    from sqlalchemy import update

    from sweeps.service.database.engine import open_database, writing
    from sweeps.service.database.tables import jobs as table
    from sweeps.service.queue import jobs
    from sweeps.service.queue.job_requests import Run

    engine = open_database(f"sqlite:///{folder}/outputs/service.db")
    now = time.time()
    with writing(engine) as connection:
        for name in names:
            user, project = rng.choice(USERS)
            request = Run(conf=_conf(name), overrides=["search.num_trials=24"], name=name)
            job = jobs.submit(connection, request, name, user=user, project=project, now=now - 7200)
            connection.execute(update(table).where(table.c.id == job.id).values(state="finished", started=now - 500))
        for index in range(WAITING if len(names) > 1 else 0):
            user, project = USERS[index]
            request = Run(conf=CONFS[index], overrides=["search.num_trials=40"])
            jobs.submit(
                connection,
                request,
                f"{CONFS[index]}-next",
                user=user,
                project=project,
                now=now - 60,
                priority=2 - index,
            )
    engine.dispose()


def _fire_nightly(folder: Path, names: list[str]) -> None:
    """Add a schedule, and a night for each of some sweeps."""
    from sqlalchemy import insert, update

    from sweeps.config.nights import Champion, Nights
    from sweeps.service.database import tables
    from sweeps.service.database.engine import open_database, writing
    from sweeps.service.nights.night import Night, begin
    from sweeps.service.queue import jobs
    from sweeps.service.queue.job_requests import Run

    file = folder / "conf" / "schedule" / f"{SCHEDULE}.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"# Tickets of the last day, every night.\nname: {SCHEDULE}\ncron: 0 2 * * *\nconf: llm_lora\n"
        "overrides: [search.num_trials=24]\nnights:\n  warm_start: 3\n  champion: {model: support, repeats: 3}\n"
    )
    engine = open_database(f"sqlite:///{folder}/outputs/service.db")
    last = time.time() // 86400 * 86400 + 2 * 3600
    for ago, (name, (verdict, best, champion)) in enumerate(zip(names[::-1], NIGHTS[::-1], strict=False)):
        due = last - ago * 86400
        with writing(engine) as connection:
            request = Run(conf="llm_lora", overrides=["search.num_trials=24"])
            night_of = f"{SCHEDULE}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(due))}"
            job = jobs.submit(
                connection, request, night_of, user="schedules", project="chat", now=due, schedule=SCHEDULE, due=due
            )
            connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(state="finished"))
            values = {"schedule": SCHEDULE, "due": due, "outcome": "queued", "decided": due, "job": job.id}
            connection.execute(insert(tables.firings).values(values))
        settings = Nights(champion=Champion(model="support"))
        begin(
            engine,
            Night(
                schedule=SCHEDULE,
                due=due,
                sweep=name,
                settings=settings,
                metric="eval/loss",
                mode="min",
                verdict=verdict,
                reason=REASONS[verdict],
                best=best,
                champion=champion,
                noise=0.011,
                version=str(1 + sum(each[0] == "promoted" for each in NIGHTS[: len(NIGHTS) - ago])),
                decided=due + 5000,
                reported=due + 5001,
            ),
        )
    engine.dispose()


def answer(folder: Path, port: int) -> None:
    """Answer as a service does, and start none of the sweeps that wait."""
    import uvicorn

    from sweeps.config.service import Service
    from sweeps.service.api.app import make_app
    from sweeps.service.app_context import AppContext
    from sweeps.service.web.figures import load_libraries

    uri, database = f"sqlite:///{folder}/mlflow.db", f"sqlite:///{folder}/outputs/service.db"
    os.environ["MLFLOW_TRACKING_URI"] = uri  # configs refer to it, as in `python -m sweeps serve`
    config = Service(
        tracking_uri=uri,
        database=database,
        output_dir=str(folder / "outputs"),
        config_dirs=[str(folder / "conf")],
        schedules=[SCHEDULE],
    )
    service = AppContext(config)
    load_libraries(uri)
    uvicorn.run(make_app(service), port=port, log_level="warning")


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a service that answers, in a process of its own; returns the process and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen([sys.executable, __file__, "--keep", str(folder), "--port", str(port)])
    deadline = time.monotonic() + 90
    while True:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the service did not start")
        time.sleep(0.2)


def measure(port: int, process: psutil.Process, path: str) -> tuple[list[float], list[float], int]:
    """Milliseconds to the first byte of each request, CPU milliseconds of each, and bytes of the answer."""
    times, cpu, size = [], [], 0
    for _ in range(REQUESTS):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        used, start = _cpu_s(process), time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        times.append(1000 * (time.perf_counter() - start))
        size = len(answer.read())
        cpu.append(1000 * (_cpu_s(process) - used))
        assert answer.status == 200, (path, answer.status)
        connection.close()
    return times, cpu, size


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=2000, help="of the largest sweep")
    parser.add_argument("--keep", type=Path, help="keep the store in this folder, or measure with the one that it has")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="update its table")
    parser.add_argument("--port", type=int, help="only answer, with what was kept, until Ctrl-C")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).absolute()
        if not (folder / "mlflow.db").exists():
            fill(folder, arguments.sweeps, arguments.trials)
        if arguments.port is not None:
            answer(folder, arguments.port)
            return
        process, port = serve(folder)
        try:
            rows = []
            for name, path in PATHS.items():
                times, cpu, size = measure(port, psutil.Process(process.pid), path)
                numbers = (times[0], cpu[0], statistics.median(times[1:]), statistics.fmean(cpu[1:]), max(times[1:]))
                rows.append([name, *(f"{each:.0f}" for each in (*numbers, size / 1024))])
            heads = ["page", "first", "its CPU", "median", "mean CPU", "slowest other", "KiB"]
            print(table := markdown_table(heads, rows))
            if arguments.write is not None:
                write_between_marks(arguments.write, {"pages": table})
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


if __name__ == "__main__":
    main()
