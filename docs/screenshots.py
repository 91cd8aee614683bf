"""Screenshots for docs/images/: pages of the MLflow UI (runs, comparison, charts, sweep, best trial) and the report.

Run:
    make demo                      # or any other sweep
    python -m pip install --constraint constraints.txt --editable '.[docs]'
    python docs/screenshots.py SWEEP

Needs Chromium (Debian: ``apt-get install chromium``), which is driven over its DevTools protocol. The UI is served
on loopback for as long as this runs. MLflow's pages have no stable addresses or names for what is on them: when a new
MLflow changes them, this fails and says what it waited for. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

import sweeps
from sweeps.report.page.report import make_report
from sweeps.tracking.record import SweepRecord

IMAGES = Path(__file__).parent / "images"
DEADLINE = 60.0
"""Seconds to wait for a page, a browser or a server."""
SETTLE = 2.0
"""Seconds until animations of a page have ended."""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("sweep", help="name of the sweep")
    parser.add_argument("--tracking-uri", help="MLflow store; default: MLFLOW_TRACKING_URI, else mlflow.db here")
    parser.add_argument("--chromium", default="chromium", help="the browser's command")
    parser.add_argument("--output", type=Path, default=IMAGES, help="folder for the pictures; default: docs/images")
    arguments = parser.parse_args()
    sweep = sweeps.load(arguments.sweep, tracking_uri=arguments.tracking_uri)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with mlflow_ui(sweep.mlflow.tracking_uri) as address:
        asyncio.run(take(sweep, address, arguments.chromium, arguments.output))


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
        deadline = time.monotonic() + DEADLINE
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


class Page:
    """One page of a browser, over the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self._socket = socket
        self._sent = 0

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        await self._socket.send_json({"id": self._sent, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != self._sent:
            pass  # skip events
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def evaluate(self, script: str) -> Any:
        answer = await self.command("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['result'].get('description')}")
        return answer["result"].get("value")

    async def wait_for(self, script: str, what: str) -> None:
        """Wait until a script's value is true."""
        deadline = time.monotonic() + DEADLINE
        while not await self.evaluate(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page never had {what}; has MLflow changed? ({script})")
            await asyncio.sleep(0.2)

    async def open(self, address: str, *, width: int, height: int) -> None:
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.command("Page.navigate", url="about:blank")  # a change of the fragment alone would not load the page
        await self.command("Page.navigate", url=address)

    async def picture(self, path: Path) -> None:
        await asyncio.sleep(SETTLE)
        answer = await self.command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@contextlib.asynccontextmanager
async def browser(chromium: str) -> AsyncIterator[Page]:
    """Page of a headless Chromium with an empty profile."""
    profile = Path(tempfile.mkdtemp(prefix="sweeps-screenshots-"))
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        address = profile / "DevToolsActivePort"  # written once it listens
        deadline = time.monotonic() + DEADLINE
        while not address.exists() or not address.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the browser did not start: {shlex.join(command)}")
            await asyncio.sleep(0.1)
        port = address.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as response:
                pages = [each for each in await response.json() if each["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as connection:
                yield Page(connection)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def take(sweep: SweepRecord, address: str, chromium: str, output: Path) -> None:
    async with browser(chromium) as page:
        await page.command("Page.enable")
        await page.command("Page.addScriptToEvaluateOnNewDocument", source=storage_script(settings(sweep)))
        await runs_page(page, sweep, address)
        await page.picture(output / "mlflow-runs.png")
        await comparison_page(page, sweep, address)
        await page.picture(output / "mlflow-compare.png")
        await charts_page(page, sweep, address)
        await page.picture(output / "mlflow-charts.png")
        await sweep_page(page, sweep, address)
        await page.picture(output / "mlflow-sweep.png")
        await trial_page(page, sweep, address)
        await page.picture(output / "mlflow-trial.png")
        await report_page(page, sweep, output / "report.png")


def settings(sweep: SweepRecord) -> dict[str, Any]:
    """Local storage of MLflow's UI with the assistant closed, the sweep unfolded and the columns chosen."""
    experiment = sweep.mlflow.experiment_id
    columns = [f"metrics.`{sweep.metric}`", *(f"params.`{path}`" for path in paths(sweep)), "tags.`sweeps.state`"]
    fixed = {"attributes.`Run Name`": 250, "runDateAndNestInfo": 130, "duration": 80}
    widths = fixed | {column: max(100, 5 * len(column)) for column in columns}  # pixels
    return {
        "mlflow.assistant.panelOpen_v1": False,
        "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
        f'MLflowLocalStorage-1.1-ExperimentPage-["{experiment}"]-ReactComponentState': {
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "modelVersionFilter": "All Runs",
            "datasetsFilter": [],
            "selectedColumns": columns,
            "columnOrder": list(widths),
            "columnWidths": widths,
            "runsExpanded": {sweep.mlflow.run_id: True},
            "runsPinned": [],
            "runsHidden": [],
            "runsVisibilityMap": {},
            "groupsExpanded": {},
        },
    }


def storage_script(values: dict[str, Any]) -> str:
    """JavaScript that puts values into the page's local storage."""
    lines = [f"localStorage.setItem({json.dumps(key)}, {json.dumps(json.dumps(values[key]))})" for key in values]
    return "if (location.protocol === 'http:') {" + ";".join(lines) + "}"


def paths(sweep: SweepRecord) -> list[str]:
    """Dotted paths of the parameters."""
    return list(dict.fromkeys(path for trial in sweep.trials for path in trial.params))


async def runs_page(page: Page, sweep: SweepRecord, address: str) -> None:
    """Open the runs of the experiment with the sweep unfolded."""
    await page.open(
        f"{address}/#/experiments/{sweep.mlflow.experiment_id}/runs?workflowType=machine_learning",
        width=1920,
        height=420 + 32 * len(sweep.trials),
    )
    texts = json.dumps([sweep.sweep, *(f"{trial.trial} " for trial in sweep.trials), sweep.metric, *paths(sweep)])
    await page.wait_for(f"{texts}.every(text => document.body?.innerText.includes(text))", "all trials and columns")


async def comparison_page(page: Page, sweep: SweepRecord, address: str) -> None:
    """Open the comparison of the trials: parallel coordinates of the parameters, coloured by the metric."""
    runs = json.dumps([trial.run_id for trial in sweep.trials if trial.value is not None], separators=(",", ":"))
    experiments = json.dumps([sweep.mlflow.experiment_id])
    # MLflow reads the runs only if they come first.
    query = f"runs={quote(runs)}&experiments={quote(experiments)}&workflowType=machine_learning"
    await page.open(f"{address}/#/compare-runs?{query}", width=1600, height=1000)
    await page.wait_for("document.querySelectorAll('[role=combobox]').length === 2", "its two lists")
    await page.evaluate("[...document.querySelectorAll('button')].find(b => b.innerText === 'Clear All').click()")
    for index, names in enumerate((paths(sweep), [sweep.metric])):
        box = f"document.querySelectorAll('[role=combobox]')[{index}]"
        await page.evaluate(f"{box}.dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}))")
        for name in names:
            await page.evaluate(f"{box}.focus()")
            await page.command("Input.insertText", text=name)  # scrolls a long list to it
            selector = json.dumps(f'[class*=select-item-option][title="{name}"]')
            option = f"document.querySelector({selector})"
            await page.wait_for(f"Boolean({option})", f"the option {name}")
            await page.evaluate(f"{option}.click()")
        await page.evaluate(f"{box}.blur()")
    titles = "[...document.querySelectorAll('.axis-title')].map(title => title.textContent)"
    await page.wait_for(f"{json.dumps([*paths(sweep), sweep.metric])}.every(n => {titles}.includes(n))", "all axes")


async def charts_page(page: Page, sweep: SweepRecord, address: str) -> None:
    """Open the charts of all trials."""
    experiment = sweep.mlflow.experiment_id
    await page.open(
        f"{address}/#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART",
        width=1920,
        height=1400,
    )
    await page.wait_for("document.querySelectorAll('.js-plotly-plot').length > 2", "its charts")


async def sweep_page(page: Page, sweep: SweepRecord, address: str) -> None:
    """Open the sweep's run with its description."""
    await page.open(
        f"{address}/#/experiments/{sweep.mlflow.experiment_id}/runs/{sweep.mlflow.run_id}?workflowType=machine_learning",
        width=1600,
        height=860,
    )
    await page.wait_for(f"document.body?.innerText.includes({json.dumps(sweep.metric)})", "the description")


async def trial_page(page: Page, sweep: SweepRecord, address: str) -> None:
    """Open the charts of the best trial."""
    assert not isinstance(sweep.best, list), "several objectives have no best trial"
    assert sweep.best is not None, "no trial has a value"
    await page.open(
        f"{address}/#/experiments/{sweep.mlflow.experiment_id}/runs/{sweep.best.run_id}/model-metrics"
        "?workflowType=machine_learning",
        width=1600,
        height=1300,
    )
    await page.wait_for("document.querySelectorAll('.js-plotly-plot').length > 2", "its charts")


async def report_page(page: Page, sweep: SweepRecord, picture: Path) -> None:
    """Take a picture of the report: the result and the first figures."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_report(sweep, Path(folder))
        await page.open(made.as_uri(), width=1280, height=1320)
        drawn = "[...document.querySelectorAll('#best .figure, #curves .figure')].filter(f => f.querySelector('svg'))"
        await page.wait_for(f"{drawn}.length >= 2", "its first two figures")
        await page.picture(picture)


if __name__ == "__main__":
    main()
