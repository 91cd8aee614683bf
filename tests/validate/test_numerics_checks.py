"""Numeric switches that contradict something are refused on the driver: TF32, deterministic algorithms, divergence."""

from __future__ import annotations

import pytest
from composing import checked

from sweeps.errors import ConfigError


@pytest.mark.parametrize(
    ("tokens", "variables", "message"),
    [
        (["train.tf32=true", "scaling.use_gpu=false"], {}, "train.tf32=true: is for GPUs, and scaling.use_gpu=false"),
        (
            ["train.expandable_segments=true", "scaling.use_gpu=false"],
            {},
            "train.expandable_segments=true: is for GPUs",
        ),
        (
            ["train.deterministic=true", "train.max_communication_share=0.1", "train.max_global_batch_size=512"],
            {},
            "train.deterministic=true: train.max_communication_share=0.1 chooses the batch by measured times",
        ),
        (
            ["train.on_divergence=restore", "checkpoint.every=40", "train.eval_every=20"],
            {},
            "train.on_divergence=restore: with checkpoint.every=40 the training would go back to before its last",
        ),
        (
            ["train.on_divergence=skip", "train.max_grad_norm=null"],
            {},
            "on_divergence=skip needs the norm of the gradients; set max_grad_norm",
        ),
        (
            ["train.deterministic=choice(true, false)"],
            {"CUBLAS_WORKSPACE_CONFIG": ":0:0"},
            "train.deterministic=true: cuBLAS is not deterministic with the variable CUBLAS_WORKSPACE_CONFIG=:0:0",
        ),
        (
            ["train.expandable_segments=true"],
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False turns them off; remove that setting",
        ),
    ],
)
def test_a_contradiction_is_named_with_the_fix(
    tokens: list[str], variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        checked("digits", *tokens)


def test_switches_that_fit_pass() -> None:
    switches = ["train.tf32=true", "train.deterministic=true", "train.expandable_segments=true"]
    checked("digits", *switches)
