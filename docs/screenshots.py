"""Screenshots for docs/images/: pages of the MLflow UI (trials, charts, runs of a sweep and of a trial) and the report.

Run:
    make demo                      # or any other sweep
    make env
    python docs/screenshots.py SWEEP

Needs Chromium (Debian: ``apt-get install chromium``). The UI is served on loopback for as long as this runs. When a new
MLflow changes its pages, this fails and says what it waited for. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

import sweeps
from sweeps.report.page.report import make_report
from sweeps.tracking.mlflow_pages import run_page, trials_page
from sweeps.tracking.record import MlflowIds

IMAGES = Path(__file__).parent / "images"
DEADLINE_S = 180.0
"""Seconds to wait for a page or a server."""
SETTLE_MS = 2500
"""Milliseconds until animations of a page have ended."""
WITHOUT_ASSISTANT = """
localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
"""
"""A new browser shows MLflow's assistant beside the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("sweep", help="name of the sweep")
    parser.add_argument("--tracking-uri", help="MLflow store; default: MLFLOW_TRACKING_URI, else mlflow.db here")
    parser.add_argument("--output", type=Path, default=IMAGES, help="folder for the pictures; default: docs/images")
    arguments = parser.parse_args()
    sweep = sweeps.load(arguments.sweep, tracking_uri=arguments.tracking_uri)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with mlflow_ui(sweep.mlflow.tracking_uri) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        take(sweep, address, browser, arguments.output)
        browser.close()


@contextlib.contextmanager
def mlflow_ui(tracking_uri: str) -> Iterator[str]:
    """Serve the UI of a store within the context; the address of a server is used as it is."""
    if tracking_uri.startswith(("http://", "https://")):
        yield tracking_uri
        return
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri, "--port", str(port)]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    # Its own session, so that the workers that the server starts end with it.
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the MLflow UI did not start: {shlex.join(command)}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def take(sweep: sweeps.Sweep, address: str, browser: Browser, output: Path) -> None:
    """Take all pictures, of the pages that the links of Sweeps open."""
    number, ids = sweep.mlflow.experiment_id, sweep.mlflow
    assert sweep.best is not None, "no trial has a value"
    which = number, sweep.sweep, sweep.metrics[0], sweep.modes[0]
    best = MlflowIds(tracking_uri=ids.tracking_uri, experiment_id=number, run_id=sweep.best.run_id)

    page = opened(browser, f"{address}/{trials_page(*which)}", 1920, 460 + 32 * len(sweep.trials))
    shown(page.get_by_text(f"{len(sweep.trials)} matching runs"))
    picture(page, output / "mlflow-runs.png")

    page = opened(browser, f"{address}/{trials_page(*which, charts=True)}", 1920, 1500)
    shown(page.locator(".js-plotly-plot .lines").first)
    picture(page, output / "mlflow-charts.png")

    page = opened(browser, f"{address}/{run_page(ids)}", 1600, 900)
    shown(page.get_by_role("link", name="Their charts"))
    picture(page, output / "mlflow-sweep.png")

    page = opened(browser, f"{address}/{run_page(best)}", 1600, 1000)
    shown(page.get_by_text(f"python -m sweeps show {sweep.sweep} --trial {sweep.best.trial}"))
    picture(page, output / "mlflow-trial.png")

    with tempfile.TemporaryDirectory() as folder:
        page = opened(browser, make_report(sweep, Path(folder)).as_uri(), 1280, 1320)
        for section in ("best", "curves"):
            shown(page.locator(f"#{section} .figure svg").first)
        picture(page, output / "report.png")


def opened(browser: Browser, address: str, width: int, height: int) -> Page:
    """Open an address in a window with an empty profile."""
    page = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB").new_page()
    page.set_default_timeout(1000 * DEADLINE_S)
    if address.startswith("http"):
        page.add_init_script(WITHOUT_ASSISTANT)
    page.goto(address)
    return page


def shown(part: Locator) -> None:
    """Wait until a part of the page is visible."""
    part.wait_for(state="visible")


def picture(page: Page, file: Path) -> None:
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=file)
    page.context.close()


if __name__ == "__main__":
    main()
