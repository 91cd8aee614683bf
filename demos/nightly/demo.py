"""Three nights of a nightly sweep in a few minutes: a schedule fires every minute, on data that differ every night.

``make nightly-demo`` runs it. A model trained by hand is the champion at first; the first night finds a better one; in
the third night the labels are broken: the service reports a regression and promotes no model. The service's page stays
open until Ctrl-C on a terminal, or with ``--keep``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sweeps.service.database.engine import open_database
from sweeps.service.nights.night import OPEN, Night, of_schedule
from sweeps.service.queue import jobs

HERE = Path(__file__).resolve().parent
SCHEDULE = "digits_nightly"
NIGHTS = 3
BROKEN = "'data.arguments.mislabelled=0.5'"
WITHIN_S = 900.0
ADDRESS = re.compile(r"serves on (http://\S+)")


class Demo:
    """A folder with a service that runs the nights."""

    def __init__(self, folder: Path, port: int):
        """
        Args:
            folder: Folder of the service's config, database and sweeps; must not exist yet.
            port: Port of the service; 0 for any free one.
        """
        shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("demo.py", "__pycache__"))
        self.folder, self._port = folder, port
        self._definition = folder / "conf" / "schedule" / f"{SCHEDULE}.yaml"
        paths = [str(HERE.parent.parent), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
        store = f"sqlite:///{folder}/mlflow.db"
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "MLFLOW_TRACKING_URI": store,
        }

    def champion_by_hand(self) -> None:
        """Train the config's own values and register the model as the first champion."""
        say("training the config as it is, and registering the model as the champion")
        self.sweeps("run", "conf=digits_nightly", "--config-dir=conf", "--name=by-hand", "search.num_trials=1")
        self.sweeps("best", "by-hand", "--register=digits")

    def serve(self) -> tuple[subprocess.Popen[bytes], str]:
        """Start the service; return its process and its address."""
        command = [sys.executable, "-m", "sweeps", "serve", "--config-dir=conf", f"port={self._port}"]
        log = self.folder / "service.log"
        with log.open("w") as file:
            service = subprocess.Popen(
                [*command, f"schedules=[{SCHEDULE}]"],
                cwd=self.folder,
                env=self._environment,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for this script, which ends the service
            )
        while service.poll() is None:
            if (found := ADDRESS.search(log.read_text())) is not None:
                return service, found[1]
            time.sleep(0.2)
        sys.exit(f"the service did not start: {log.read_text()}")

    def nights(self) -> list[Night]:
        """Follow the nights until all of them are judged and in their reports."""
        database = open_database(f"sqlite:///{self.folder}/outputs/service.db")
        shown: dict[float, str] = {}
        began = time.monotonic()
        while True:
            with database.connect() as connection:
                nights = of_schedule(connection, SCHEDULE)
                fired = len(jobs.query(connection, schedule=SCHEDULE))
            self._update_schedule(fired)
            for night in nights:
                if shown.get(night.due) != night.verdict:
                    shown[night.due] = night.verdict
                    say(f"{night.sweep}: {night.verdict}" + ("" if night.verdict in OPEN else f". {night.reason}"))
            if len(nights) >= NIGHTS and all(night.reported is not None for night in nights):
                return nights
            if time.monotonic() - began > WITHIN_S:
                sys.exit(f"the nights were not over within {WITHIN_S:.0f} s; {self.folder} has the service's log")
            time.sleep(0.5)

    def _update_schedule(self, fired: int) -> None:
        """Break the labels before the last night, and disable the schedule after it."""
        text = before = self._definition.read_text(encoding="utf-8")
        if fired >= NIGHTS - 1 and BROKEN not in text:
            text = re.sub(r"(?m)^overrides: \[(.*)\]$", rf"overrides: [\1, {BROKEN}]", text)
        if fired >= NIGHTS and "enabled" not in text:
            text += "enabled: false\n"
        if text != before:
            unfinished = self._definition.with_suffix(".new")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.rename(self._definition)

    def sweeps(self, *arguments: str) -> None:
        """Run ``sweeps`` with these arguments in the folder."""
        command = [sys.executable, "-m", "sweeps", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"`sweeps {' '.join(arguments)}`: {done.stderr}")
        if arguments[0] == "schedule":
            sys.stdout.write(done.stdout)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="Folder for all files of the demo; default: a new one in outputs/.")
    parser.add_argument("--port", type=int, default=0, help="Port of the page; default: any free one.")
    parser.add_argument("--keep", action="store_true", help="Keep the page open even without a terminal.")
    asked = parser.parse_args(arguments)
    folder = asked.folder or Path("outputs", f"nightly-demo-{time.strftime('%Y%m%d-%H%M%S')}")
    demo = Demo(folder.absolute(), asked.port)
    demo.champion_by_hand()
    service, address = demo.serve()
    try:
        say(f"the service's page: {address} (everything is in {demo.folder})")
        nights = demo.nights()
        demo.sweeps("schedule", "nights", SCHEDULE)
        say(f"the figure: {demo.folder}/outputs/{nights[-1].sweep}/report/nights.png")
        if asked.keep or sys.stdin.isatty():
            say(f"the page stays open until Ctrl-C: {address}/schedules/{SCHEDULE}")
            service.wait()
    except KeyboardInterrupt:
        pass
    finally:
        service.terminate()
        service.wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
