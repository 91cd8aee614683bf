"""TF32, deterministic algorithms and the allocator: set for one training, and for the processes that need them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from training_runs import IMAGES, configured, run

from sweeps_train.config import Train
from sweeps_train.config.process import process_environment
from sweeps_train.devices.numerics import numerics, precision_restored


def settings() -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.get_float32_matmul_precision(),
        cudnn.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        cudnn.deterministic,
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("medium", True, False, False)),
        ({"tf32": True}, ("high", True, False, False)),
        ({"tf32": False}, ("highest", False, False, False)),
        ({"deterministic": True}, ("medium", True, True, True)),
        ({"deterministic": True, "tf32": True}, ("high", True, True, True)),
    ],
)
def test_settings_are_those_of_the_training_and_afterwards_as_before(
    options: dict[str, bool], expected: tuple[Any, ...]
) -> None:
    torch.set_float32_matmul_precision("medium")  # a user's own
    try:
        before = settings()
        with contextlib.suppress(KeyError), numerics(Train(max_steps=1, **options)):
            assert settings() == expected
            raise KeyError
        assert settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("tf32", [None, False])
def test_settings_by_torchs_newer_names_are_no_error_and_stay(tf32: bool | None) -> None:
    backends: Any = torch.backends
    with precision_restored():
        backends.fp32_precision, backends.cuda.matmul.fp32_precision = "tf32", "none"
        with numerics(Train(max_steps=1, tf32=tf32)):
            assert backends.cuda.matmul.fp32_precision == ("tf32" if tf32 is None else "ieee")
        assert (backends.fp32_precision, backends.cuda.matmul.fp32_precision) == ("tf32", "tf32")


def test_settings_that_a_users_code_makes_once_hold_for_the_next_training_too() -> None:
    with precision_restored():
        with numerics(Train(max_steps=1)):
            torch.backends.cuda.matmul.allow_tf32 = True  # as a module does when it is imported
        with numerics(Train(max_steps=1)):
            assert torch.backends.cuda.matmul.allow_tf32


class Puts(torch.nn.Module):
    """Its forward pass has an operation without a deterministic algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = torch.zeros(1).put_(torch.tensor([0, 0]), torch.rand(2))
        logits: torch.Tensor = self.layer(images.flatten(1)) + first
        return logits


def test_a_deterministic_training_refuses_an_operation_that_is_not() -> None:
    model = {"kind": "custom", "_target_": f"{__name__}.Puts"}
    short = {"max_steps": 1, "eval_every": 1}
    config = {**IMAGES, "model": model}
    assert run(configured(config, train=short)).final
    with pytest.raises(RuntimeError, match=r"put_ does not have a deterministic implementation"):
        run(configured(config, train={**short, "deterministic": True}))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("options", "present", "expected"),
    [
        ({}, {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}, {}),
        ({"deterministic": True}, {}, {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "FLASH_ATTENTION_DETERMINISTIC": "1"}),
        (
            {"deterministic": True},
            {"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
            {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "FLASH_ATTENTION_DETERMINISTIC": "1"},
        ),
        ({"expandable_segments": True}, {}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        (
            {"expandable_segments": True},
            {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128, expandable_segments:True"},
            {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"},
        ),
    ],
)
def test_what_cuda_reads_when_it_starts_is_in_the_environment_of_the_process(
    options: dict[str, bool], present: dict[str, str], expected: dict[str, str]
) -> None:
    assert process_environment(Train(max_steps=1, **options), present) == expected


def test_torch_accepts_the_setting_of_its_allocator() -> None:
    settings = process_environment(Train(max_steps=1, expandable_segments=True), {})
    torch._C._accelerator_setAllocatorSettings(*settings.values())
    with pytest.raises((RuntimeError, ValueError)):
        torch._C._accelerator_setAllocatorSettings("expandable_segments=true")
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
