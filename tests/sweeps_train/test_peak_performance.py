"""Peak performance of devices by their names."""

from __future__ import annotations

import pytest
import torch

from sweeps_train.devices.peak_performance import PEAKS, peak_of, peak_tflops

NAMES = {
    "NVIDIA B200": 2250,
    "NVIDIA B300 SXM6 AC": 2250,
    "NVIDIA GB200": 2500,
    "NVIDIA H200": 989,
    "NVIDIA H200 NVL": 835,
    "NVIDIA GH200 480GB": 989,
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100 NVL": 835,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": 989 / 7,
    "NVIDIA H20": 148,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A30": 165,
    "NVIDIA A30 MIG 2g.12gb": 165 / 2,
    "NVIDIA A40": 149.7,
    "NVIDIA A10": 125,
    "NVIDIA A10G": 70,
    "NVIDIA L40": 181,
    "NVIDIA L40S": 362,
    "NVIDIA L4": 121,
    "Tesla V100-SXM2-16GB": 125,
    "Tesla V100-PCIE-16GB": 112,
    "Tesla T4": 65,
    "NVIDIA T400": None,
    "NVIDIA T400 4GB": None,
    "NVIDIA RTX A1000": None,
    "NVIDIA RTX A1000 Laptop GPU": None,
    "NVIDIA RTX A6000": 154.8,
    "NVIDIA RTX 6000 Ada Generation": 364.2,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 503.8,
    "NVIDIA GeForce RTX 3090": 71,
    "NVIDIA GeForce RTX 3090 Ti": 80,
    "NVIDIA GeForce RTX 4090": 165.2,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,  # half of it
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 4080 SUPER": None,
    "NVIDIA GeForce RTX 3080 Ti": None,
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": None,
    "NVIDIA GeForce RTX 5090": 209.5,
    "NVIDIA GeForce GTX 1080": None,
    "AMD Instinct MI300X": 1307.4,
    "AMD Instinct MI300X OAM": 1307.4,
    "AMD Instinct MI250X": 191.5,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_device_is_known_by_the_words_of_its_name(name: str) -> None:
    assert peak_tflops(name, "16 bit") == (None if NAMES[name] is None else pytest.approx(NAMES[name]))


def test_a_training_in_fp32_is_compared_with_the_peak_of_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    device = torch.device("cuda", 0)
    assert peak_of(device, torch.bfloat16) == peak_of(device, torch.float16) == 312
    assert peak_of(device, None) == 19.5
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert peak_of(device, None) == 156  # TF32
    assert peak_of(torch.device("cpu"), None) is None
    assert peak_tflops("AMD Instinct MI250X", "fp32") == 47.9  # of its matrix units


def test_no_two_entries_have_the_same_words() -> None:
    words = [frozenset(peak.words) for peak in PEAKS]
    assert len(set(words)) == len(words)
