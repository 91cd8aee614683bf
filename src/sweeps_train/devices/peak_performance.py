"""Peak performance of accelerators, the reference for a training's speed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

from sweeps_train.devices.device_operations import is_accelerator, name_of


@dataclass(frozen=True)
class Peak:
    """Dense peak performance of one device, in 10^12 operations per second.

    Sources: the data sheets of NVIDIA and AMD for each device, those of consumer cards from the architecture white
    papers. 16-bit numbers are multiplied by matrix units that add in float32, as torch does.
    """

    words: tuple[str, ...]
    """Words in the device's name, such as ``H100`` and ``PCIe``."""
    sixteen_bit: float
    """Performance with bf16 or fp16."""
    fp32: float
    """Performance with float32, without TF32."""
    has_tf32: bool = True
    """Whether float32 matrices can be multiplied as TF32, at half the 16-bit performance."""


PEAKS = (
    Peak(("B300",), 2250.0, 75.0),
    Peak(("GB300",), 2500.0, 80.0),
    Peak(("B200",), 2250.0, 75.0),
    Peak(("GB200",), 2500.0, 80.0),
    Peak(("H200", "NVL"), 835.0, 60.0),
    Peak(("H200",), 989.0, 67.0),
    Peak(("GH200",), 989.0, 67.0),
    Peak(("H100", "PCIe"), 756.0, 51.0),
    Peak(("H100", "NVL"), 835.0, 60.0),
    Peak(("H100",), 989.0, 67.0),
    Peak(("H800", "PCIe"), 756.0, 51.0),
    Peak(("H800",), 989.0, 67.0),
    Peak(("H20",), 148.0, 44.0),
    Peak(("A100",), 312.0, 19.5),
    Peak(("A800",), 312.0, 19.5),
    Peak(("A30",), 165.0, 10.3),
    Peak(("A40",), 149.7, 37.4),
    Peak(("A10",), 125.0, 31.2),
    Peak(("A10G",), 70.0, 35.0),
    Peak(("A16",), 17.9, 4.5),
    Peak(("A2",), 18.0, 4.5),
    Peak(("L40S",), 362.0, 91.6),
    Peak(("L40",), 181.0, 90.5),
    Peak(("L20",), 119.5, 59.8),
    Peak(("L4",), 121.0, 30.3),
    Peak(("V100", "PCIE"), 112.0, 14.0, has_tf32=False),
    Peak(("V100",), 125.0, 15.7, has_tf32=False),
    Peak(("T4",), 65.0, 8.1, has_tf32=False),
    Peak(("RTX", "PRO", "6000", "Blackwell"), 503.8, 125.0),
    Peak(("RTX", "6000", "Ada"), 364.2, 91.1),
    Peak(("RTX", "5000", "Ada"), 261.1, 65.3),
    Peak(("RTX", "A6000"), 154.8, 38.7),
    Peak(("RTX", "A5000"), 111.1, 27.8),
    Peak(("RTX", "A4000"), 76.7, 19.2),
    Peak(("RTX", "5090"), 209.5, 104.8),
    Peak(("RTX", "4090"), 165.2, 82.6),
    Peak(("RTX", "4080"), 97.5, 48.7),
    Peak(("RTX", "3090", "Ti"), 80.0, 40.0),
    Peak(("RTX", "3090"), 71.0, 35.6),
    Peak(("RTX", "3080"), 59.5, 29.8),
    Peak(("MI355X",), 2516.6, 157.3, has_tf32=False),
    Peak(("MI350X",), 2306.9, 144.2, has_tf32=False),
    Peak(("MI325X",), 1307.4, 163.4),
    Peak(("MI300X",), 1307.4, 163.4),
    Peak(("MI300A",), 980.6, 122.6),
    # Torch sees two devices, each of which is half of the card.
    Peak(("MI250X",), 191.5, 47.9, has_tf32=False),
    Peak(("MI210",), 181.0, 45.3, has_tf32=False),
)
"""Known devices. If a name contains the words of several entries, the entry with the most words applies."""

_VARIANTS = {"laptop", "max", "super", "ti", "d"}
"""Words that distinguish devices with the same number, of which one may be twice as fast: ``RTX 4090 Laptop GPU``. A
device with such a word in its name is known only if an entry has that word."""
_MIG_SLICES = {"A30": 4}
"""Number of compute slices of a whole GPU, for GPUs that do not have seven."""


def peak_tflops(name: str, precision: Literal["8 bit", "16 bit", "fp32", "tf32"]) -> float | None:
    """Return the peak performance of a device or of a MIG slice.

    Args:
        name: The device's name, as the driver gives it.
        precision: Type of the numbers that matrices are multiplied in. All devices that multiply 8-bit floating-point
            numbers do so at twice the 16-bit performance.

    Returns:
        10^12 operations per second; None if the device is unknown.

    Example:
        >>> peak_tflops("NVIDIA H100 80GB HBM3", "16 bit"), peak_tflops("NVIDIA H100 PCIe", "16 bit")
        (989.0, 756.0)
        >>> round(peak_tflops("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "tf32"), 1)  # three sevenths
        66.9
        >>> peak_tflops("NVIDIA RTX A1000", "16 bit") is None
        True
    """
    # Bare GPUs are named "NVIDIA A10G", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X"; a slice has "MIG 1g.5gb" added.
    words = {word.lower() for word in re.split(r"[^A-Za-z0-9]+", name)}
    variant = words & _VARIANTS
    known = [peak for peak in PEAKS if variant <= {word.lower() for word in peak.words} <= words]
    if not known:
        return None
    peak = max(known, key=lambda each: len(each.words))
    slices = re.search(r"\bMIG (\d+)[gc]", name)
    part = int(slices[1]) / _MIG_SLICES.get(peak.words[0], 7) if slices else 1.0
    if precision == "tf32":
        return part * (peak.sixteen_bit / 2 if peak.has_tf32 else peak.fp32)
    if precision == "8 bit":
        return part * 2 * peak.sixteen_bit
    return part * (peak.fp32 if precision == "fp32" else peak.sixteen_bit)


def peak_of(device: torch.device, dtype: torch.dtype | None, *, float8: bool = False) -> float | None:
    """Return the peak performance of this process's device for matrices of ``dtype`` (None: float32, the type of the
    weights) or of 8-bit numbers, in 10^12 operations per second; None if the device is unknown, as all CPUs are."""
    if not is_accelerator(device):
        return None
    name = name_of(device)
    if float8:
        return peak_tflops(name, "8 bit")
    if dtype in (torch.bfloat16, torch.float16):
        return peak_tflops(name, "16 bit")
    return peak_tflops(name, "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32")
