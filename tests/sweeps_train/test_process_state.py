"""Settings that a user's function leaves in its process do not reach the next one in it."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_python

from sweeps_train.workers.process_state import process_state_restored

Settings = dict[str, Any]
CUDA: Any = torch.backends.cuda


def settings() -> Settings:
    return {
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "streams": (sys.stdout, sys.stderr),
        "type": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "anomalies": torch.is_anomaly_enabled(),
        "float32": torch.backends.fp32_precision,  # type: ignore[attr-defined]
        "matrices": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "attention": CUDA.flash_sdp_enabled(),
        "logging": [[*logging.getLogger(name).handlers] for name in (None, "sweeps.mine")],
        "level": logging.getLogger().level,
        "warnings": [*warnings.filters],
        "errors": np.geterr(),
        "collects": gc.isenabled(),
        "recursion": sys.getrecursionlimit(),
        "sockets": socket.getdefaulttimeout(),
    }


def change_environment() -> None:
    os.environ["ACCELERATE_USE_FSDP"] = "true"  # as Hugging Face Accelerate does
    del os.environ["WORLD_SIZE"]  # as Lightning does
    os.environ["OMP_NUM_THREADS"] += "1"


def take_newer_names() -> None:
    torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]  # as transformers does for `tf32=True`


def take_streams() -> None:
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()  # as scripts do that keep a log file of their own


class FullDisk(logging.FileHandler):
    def close(self) -> None:
        super().close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "change",
    [
        change_environment,
        take_newer_names,
        lambda: os.chdir("/"),
        take_streams,
        lambda: torch.set_default_dtype(torch.bfloat16),
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: CUDA.enable_flash_sdp(not CUDA.flash_sdp_enabled()),
        lambda: logging.basicConfig(filename="train.log", level=logging.DEBUG, force=True),
        lambda: logging.getLogger().addHandler(logging.StreamHandler()),
        lambda: logging.getLogger("sweeps.mine").addHandler(FullDisk("train.log")),
        lambda: warnings.simplefilter("error"),
        lambda: np.seterr(all="raise"),
        gc.disable,
        lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
        lambda: socket.setdefaulttimeout(0.001),
    ],
)
def test_settings_are_as_before_also_after_an_error(
    change: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = settings()
    with contextlib.suppress(KeyError), process_state_restored():
        change()
        raise KeyError
    assert settings() == before
    assert torch.empty(1).device.type == "cpu"


def test_an_accelerator_has_its_own_settings_in_every_trial() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # of an earlier test
    with process_state_restored():
        assert Accelerator(cpu=True, mixed_precision="bf16").mixed_precision == "bf16"
    with process_state_restored():
        assert Accelerator(cpu=True).mixed_precision == "no"


@pytest.mark.filterwarnings("ignore")  # torch's own, about what it compiles
def test_a_function_is_compiled_in_every_trial() -> None:
    compiled: list[int] = []

    def trial(number: int) -> None:
        def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
            compiled.append(number)
            return graph.forward

        torch.compile(double, backend=backend)(torch.ones(number + 2))

    limit = torch._dynamo.config.recompile_limit
    for number in range(limit + 2):
        with process_state_restored():
            trial(number)
    assert compiled == [*range(limit + 2)]


def double(values: torch.Tensor) -> torch.Tensor:
    return 2 * values


def test_trials_of_a_process_log_each_once_into_files_and_to_the_console_and_close_its_output_for_nobody(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text("import logging\nlogging.basicConfig(level=logging.INFO)\n", encoding="utf-8")
    code = (
        "import logging, os, sys, warnings\n"
        "from sweeps_train.workers.process_state import process_state_restored\n"
        "logging.getLogger().setLevel(logging.INFO)\n"  # as in a worker
        "logging.lastResort.setLevel(logging.NOTSET)\n"
        "os.chdir(sys.argv[1])\n"
        "sys.path.append('.')\n"
        "mine = logging.getLogger('mine')\n"
        "for trial in (1, 2, 3):\n"
        "    with process_state_restored():\n"
        "        if not mine.handlers:\n"
        "            mine.addHandler(logging.FileHandler(f'{trial}.log'))\n"
        "            mine.addHandler(logging.StreamHandler())\n"
        "        mine.info(f'own {trial}')\n"
        "        import own\n"
        "        logging.getLogger().info(f'root {trial}')\n"
        "        logging.captureWarnings(True)\n"
        "        logging.getLogger('py.warnings').addHandler(logging.FileHandler(f'warnings-{trial}.log'))\n"
        "        warnings.warn(f'warning {trial}')\n"
        "with process_state_restored():\n"
        "    sys.stdout = os.fdopen(1, 'w', buffering=1)\n"  # a stream of the user's own
        "with open('file', 'w') as file:\n"
        "    print('said', flush=True)\n"
    )
    done = run_python("-c", code, str(tmp_path), within_s=100)
    said = done.stderr
    for trial in (1, 2, 3):
        assert (tmp_path / f"{trial}.log").read_text(encoding="utf-8") == f"own {trial}\n"
        assert [said.count(f"{kind} {trial}\n") for kind in ("own", "root")] == [1, 1]
        assert f"UserWarning: warning {trial}\n" in (tmp_path / f"warnings-{trial}.log").read_text(encoding="utf-8")
    assert done.stdout == "said\n"
    assert (tmp_path / "file").read_text() == ""


def test_a_default_device_that_was_set_before_comes_back() -> None:
    torch.set_default_device("meta")
    try:
        with process_state_restored():
            torch.set_default_device("cpu")
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
