"""Resources of this machine, found without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.runtime import node_resources
from sweeps.runtime.node_resources import local_resources


def test_gpus_of_amd_are_counted_as_their_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, units in enumerate([0, 304, 304]):  # a CPU and two GPUs
        device = tmp_path / str(number)
        device.mkdir()
        (device / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\nmem_banks_count 1\n")
    monkeypatch.setattr(node_resources, "AMD_DEVICES", tmp_path, raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    config = compose_sweep("digits", ["scaling.use_gpu=true"], ConfSearchPath([])).config
    assert local_resources(config)["GPU"] == 2
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert local_resources(config)["GPU"] == 1
