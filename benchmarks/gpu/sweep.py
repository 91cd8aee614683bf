"""A whole sweep on Ray: trials an hour, overhead of a trial, and how busy the GPU is meanwhile."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gpu.results import Results, run_part, say

MISSING = [name for name in ("ray", "mlflow", "optuna", "hydra") if importlib.util.find_spec(name) is None]
TRIALS = 6
ENDED = re.compile(r"\[\d+/\d+\] trial (\d+) (finished|pruned|failed)")
COMPUTING = ("training", "data_wait", "communication", "evaluation")
"""Parts of the sweep's time in which a trial computes; the others are overhead."""


def measure(results: Results, tiny: bool) -> None:
    """Run the sweep."""
    if MISSING:
        results.add("left out", reason=f"missing: {', '.join(MISSING)}; carry.py brings them")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = _tiny_settings() if tiny else _settings(folder)
        began = time.monotonic()
        with GpuUse() as use:
            ended, document = _run(folder, settings, results, began)
        results.add(
            "sweep", **_summary(document, ended, time.monotonic() - began), gpu_use=use.mean(since=began + ended[0])
        )


def _tiny_settings() -> list[str]:
    return ["cluster.num_cpus=2", "train.max_steps=4", "train.eval_every=4", "train.log_every=4"]


def _settings(folder: Path) -> list[str]:
    """Trials of some seconds with a base of half a billion parameters, which is made on the GPU and written once."""
    say("importing torch and transformers")
    from transformers import AutoModelForCausalLM

    from gpu.bases import SMALL, random_weights
    from sweeps_train.devices.worker_device import worker_device

    say("writing the base")
    model = folder / "base"
    SMALL.write_config(model)
    with random_weights(worker_device()):
        made: Any = AutoModelForCausalLM.from_pretrained(str(model), dtype="auto")
    made.save_pretrained(model)
    return [
        f"model.path={model}",
        "model.tokenizer=builtin:tiny_llama",
        "model.dtype=auto",
        "data.sequence_length=512",
        "train.max_steps=20",
        "train.eval_every=10",
        "train.log_every=10",
        "train.precision=bf16",
        "scaling.use_gpu=true",
    ]


def _run(folder: Path, settings: list[str], results: Results, began: float) -> tuple[list[float], dict[str, Any]]:
    """Seconds at which each trial ended, and the sweep's document."""
    command = [sys.executable, "-m", "sweeps", "run", "conf=llm_lora", "--json", "scaling=single_worker"]
    # These parameters are fixed, not searched, so that every trial computes the same amount.
    command += [f"search.num_trials={TRIALS}", "search.max_concurrent=1", "train.global_batch_size=8"]
    command += ["model.lora.r=16", "model.lora.target_modules=all-linear", "preflight.timeout_s=0", *settings]
    ended = []
    # In this process's group, which is interrupted at the limit of time: the sweep then stops Ray.
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=lambda out: output.append(out.read()), args=(process.stdout,))
    reader.start()
    for line in process.stderr:
        say(line.rstrip())
        if (found := ENDED.search(line)) is not None:
            ended.append(time.monotonic() - began)
            results.add("trial", trial=found[1], state=found[2], at_s=ended[-1])
    status = process.wait()
    reader.join()
    if status or len(ended) < 2:
        raise SystemExit(f"the sweep ended with status {status} and {len(ended)} trials")
    document: dict[str, Any] = json.loads(output[0])
    return ended, document


def _summary(document: dict[str, Any], ended: list[float], wall_s: float) -> dict[str, Any]:
    """Numbers of the sweep; those of a trial are of the trials after the first one."""
    account = document["time"]["account"]
    per_trial = (ended[-1] - ended[0]) / (len(ended) - 1)
    computing = sum(account[part] for part in COMPUTING) / len(ended)
    return {
        "trials": len(ended),
        "wall_s": wall_s,
        "first_trial_s": ended[0],
        "trial_s": per_trial,
        "trials_per_hour": 3600 / per_trial,
        "computing_s": computing,
        "overhead_s": per_trial - computing,
        "account": account,
        "counts": document["counts"],
    }


class GpuUse:
    """Asks the driver every second how busy the GPU is."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> GpuUse:
        if shutil.which("nvidia-smi") is not None:
            command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop=1"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit():
                self._samples.append((time.monotonic(), int(line) / 100))

    def mean(self, since: float) -> float | None:
        """Mean share of the time in which the GPU computed; None without an NVIDIA GPU."""
        shares = [share for at, share in self._samples if at >= since]
        return statistics.fmean(shares) if shares else None


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    run_part("sweep", measure)
