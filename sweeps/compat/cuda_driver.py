"""The state of NVIDIA's driver in this process, which torch cannot read without changing it."""

from __future__ import annotations

import ctypes

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Environment variable that makes ``torch.cuda.is_available`` ask NVML instead of initialising the driver."""


def initialized_gpus() -> int | None:
    """Return the number of GPUs that this process sees; None without a driver, or if nothing has initialised it yet.

    The driver reads ``CUDA_VISIBLE_DEVICES`` only when it is initialised.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else None
