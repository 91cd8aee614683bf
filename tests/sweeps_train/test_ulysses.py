"""Attention shared by workers, as transformers sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from training_runs import PACKED, TEXT, configured, on_two_workers, run, write_prompts

from sweeps_train.strategies.ulysses import shard_sequences


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_attention_finds_its_own_name_in_the_config(mesh: DeviceMesh) -> None:
    """Flash attention reads its name from the config, to find its kernels."""
    from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    heard = []

    def asks(module: Any, *args: Any, **kwargs: Any) -> Any:
        heard.append(module.config._attn_implementation)
        return sdpa_attention_forward(module, *args, **kwargs)

    AttentionInterface.register("asks", asks)
    AttentionMaskInterface.register("asks", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 8}
    config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    model = LlamaForCausalLM(config).eval()
    tokens = torch.arange(8).unsqueeze(0)
    alone = model(input_ids=tokens).logits
    model.set_attn_implementation("asks")
    shard_sequences(model, mesh)
    for _ in range(2):  # what the model itself asks for must be there again
        assert torch.allclose(model(input_ids=tokens).logits, alone, atol=1e-5)
    assert heard == ["asks"] * 4


def one_document_a_sequence() -> float:
    """The first loss of sequences that are shorter than most documents."""
    packed = {**PACKED, "isolate_documents": True, "sequence_length": 8}
    train = {"max_steps": 1, "eval_every": 1}
    recorder = run(configured(TEXT, data=packed, train=train, strategy={"kind": "context_parallel"}))
    return recorder.final["train/loss"] if recorder.reports else 0.0


@pytest.mark.slow
def test_documents_need_not_be_as_many_as_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_prompts(tmp_path)
    together = on_two_workers(one_document_a_sequence, tmp_path)[0]
    monkeypatch.chdir(tmp_path)
    assert together == pytest.approx(one_document_a_sequence(), rel=1e-4)
