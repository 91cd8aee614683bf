"""Where a trial's workers may lie, checked against what the cluster has, or this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from composing import composed_digits
from pydantic import ValidationError

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config import SweepConfig
from sweeps.config.scaling import Scaling
from sweeps.errors import DoesNotFit
from sweeps.runtime import node_resources
from sweeps.runtime.node_resources import accelerator, label, local_resources
from sweeps.runtime.reservation import memory_share
from sweeps.runtime.trials_at_once import fit

GIB = 2.0**30
NODES = [
    {"CPU": 8.0, "GPU": 4.0, accelerator("A100"): 1.0, label("zone", "a"): 1.0, "memory": GIB},
    {"CPU": 8.0, "GPU": 4.0, accelerator("A100"): 1.0, label("zone", "b"): 1.0, "memory": GIB},
    {"CPU": 8.0, "GPU": 2.0, accelerator("L4"): 1.0, label("zone", "a"): 1.0, "licence": 1.0, "memory": GIB},
]


def config() -> SweepConfig:
    return composed_digits("search.num_trials=100").config


def concurrent(**scaling: Any) -> int:
    return fit(config(), [Scaling(**scaling)], NODES).concurrent


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"num_workers": 2}, 5),
        ({"num_workers": 8}, 1),  # wider than a node
        ({"num_workers": 4, "placement": "STRICT_PACK"}, 2),
        ({"num_workers": 2, "placement": "STRICT_PACK"}, 5),
        ({"num_workers": 3, "placement": "STRICT_SPREAD"}, 2),
        ({"num_workers": 2, "placement": "STRICT_SPREAD"}, 5),
        ({"num_workers": 2, "accelerator_type": "A100"}, 4),
        ({"num_workers": 2, "labels": {"zone": "a"}}, 3),
        ({"num_workers": 1, "resources_per_worker": {"GPU": 0.5}}, 20),
        ({"num_workers": 1, "resources_per_worker": {"licence": 1}}, 1),
        ({"num_workers": 4, "use_gpu": False, "placement": "SPREAD"}, 6),
    ],
)
def test_as_many_trials_run_at_once_as_can_be_placed_so(scaling: dict[str, Any], expected: int) -> None:
    assert concurrent(**scaling) == expected


@pytest.mark.parametrize(
    ("scaling", "share"),
    [
        ({"num_workers": 2}, 1.0),  # of a whole GPU, however many are on its node
        ({"num_workers": 1, "resources_per_worker": {"GPU": 0.25}}, 0.25),
        ({"num_workers": 1, "resources_per_worker": {"GPU": 2}}, 1.0),
        ({"num_workers": 2, "use_gpu": False}, 1 / 8),
        ({"num_workers": 2, "use_gpu": False, "resources_per_worker": {"CPU": 4}}, 1 / 2),
    ],
)
def test_a_worker_has_its_share_of_a_gpu_or_of_its_node(scaling: dict[str, Any], share: float) -> None:
    trials = fit(config(), [Scaling(**scaling)], NODES)
    resources = {"CPU": 1.0, **scaling.get("resources_per_worker", {})}
    assert memory_share(resources, trials.workers_per_node, use_gpu=trials.use_gpu) == share


@pytest.mark.parametrize(
    ("scaling", "nodes", "expected"),
    [
        ({}, [*NODES, {"CPU": 13.0, "GPU": 4.0}], 1.0),  # what the nodes with the fewest have for each GPU
        ({}, [{"CPU": 13.0, "GPU": 4.0}], 3.0),  # one CPU of the node stays free
        ({}, [{"CPU": 96.0, "GPU": 4.0}], 8.0),
        ({}, [{"CPU": 96.0, "GPU": 4.0}, {"CPU": 64.0}], 8.0),  # nodes without GPUs do not matter
        ({}, [{"CPU": 4.0, "GPU": 4.0}], 1.0),
        ({"resources_per_worker": {"GPU": 0.5}}, [{"CPU": 33.0, "GPU": 4.0}], 4.0),
        ({"resources_per_worker": {"CPU": 3}}, [{"CPU": 32.0, "GPU": 4.0}], 3.0),
        ({"use_gpu": False}, [{"CPU": 32.0, "GPU": 4.0}], 1.0),
        ({}, [{"CPU": 32.0}], 1.0),
    ],
)
def test_a_worker_with_a_gpu_has_its_share_of_the_cpus_and_no_gpu_stays_idle_for_it(
    scaling: dict[str, Any], nodes: list[dict[str, float]], expected: float
) -> None:
    trials = fit(config(), [Scaling(num_workers=1, **scaling)], nodes)
    assert trials.per_worker["CPU"] == expected
    if trials.use_gpu and "CPU" not in scaling.get("resources_per_worker", {}):
        one_cpu = fit(
            config(),
            [Scaling(num_workers=1, resources_per_worker={"CPU": 1, **scaling.get("resources_per_worker", {})})],
            nodes,
        )
        assert trials.concurrent == one_cpu.concurrent


def test_datasets_of_a_trial_find_cpus_that_no_worker_has_reserved() -> None:
    config = compose_sweep("ray_data", [], ConfSearchPath([])).config
    trials = fit(config, [Scaling(num_workers=1)], [{"CPU": 32.0, "GPU": 4.0}])
    assert trials.per_worker["CPU"] == 1.0


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"num_workers": 6, "placement": "STRICT_PACK"}, "the largest has room for 4; use PACK, or lower .* to 4"),
        ({"num_workers": 4, "placement": "STRICT_SPREAD"}, "3 have room for one; use SPREAD, or lower .* to 3"),
        ({"num_workers": 2, "labels": {"zone": "c"}}, "no node .* has these labels .*zone=a, zone=b"),
        ({"resources_per_worker": {"gpus": 1}}, r"resources_per_worker.gpus: no node has this resource; Ray's is GPU"),
        ({"num_workers": 2, "accelerator_type": "H100"}, "can place 0 workers of .*accelerator_type:H100"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_what_could(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(DoesNotFit, match=message):
        concurrent(**scaling)


def test_workers_of_one_trial_do_not_share_a_gpu() -> None:
    with pytest.raises(ValidationError, match="which NCCL refuses; use num_workers=1"):
        Scaling(num_workers=2, resources_per_worker={"GPU": 0.5})
    with pytest.raises(ValidationError, match="needs use_gpu=true"):
        Scaling(use_gpu=False, accelerator_type="A100")


def test_gpus_of_amd_are_counted_as_their_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, units in enumerate([0, 304, 304]):  # a CPU and two GPUs
        device = tmp_path / str(number)
        device.mkdir()
        (device / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\nmem_banks_count 1\n")
    monkeypatch.setattr(node_resources, "AMD_DEVICES", tmp_path, raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    config = composed_digits("scaling.use_gpu=true").config
    assert local_resources(config)["GPU"] == 2
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert local_resources(config)["GPU"] == 1
