"""A whole sweep of a language model with LoRA."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from mlflow import artifacts
from running import NO_PREFLIGHT, Done, run

from sweeps_train import load_model

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Two trials, of which only the best keeps its checkpoints."""
    tokens = ("train.max_steps=16", "train.eval_every=8", "train.log_every=4", "data.max_eval_documents=8")
    tokens += (
        "search=optuna",
        "search.num_trials=2",
        "train.lr=0.005",
        "checkpoint.trials=1",
        "model.lora.target_modules=choice(mlp,attention)",
    )
    return run(tmp_path_factory.mktemp("lora"), "conf=llm_lora", *tokens, NO_PREFLIGHT, "--name=lora")


def test_lora_trials_learn_and_their_adapters_load_from_mlflow_alone(lora: Done) -> None:
    import torch

    assert lora.document["counts"]["finished"] == 2
    for run_ in lora.trials():
        history = sorted(lora.client.get_metric_history(run_.info.run_id, "eval/loss"), key=lambda point: point.step)
        assert history[-1].value < history[0].value < 1.9  # the base model's own is about 1.8
        assert run_.data.metrics["eval/perplexity"] == pytest.approx(math.exp(history[-1].value))
        assert run_.data.metrics["train/tokens_per_second"] > 0
    folder = artifacts.download_artifacts(lora.document["best"]["checkpoint"], tracking_uri=lora.store)
    assert (Path(folder) / "adapter_model.safetensors").stat().st_size < 1_000_000
    for merge in (False, True):
        logits = load_model(folder, merge=merge)(input_ids=torch.tensor([[70, 71]])).logits
        assert logits.shape == (1, 2, 384)


def test_only_as_many_trials_as_wanted_keep_their_checkpoints(lora: Done) -> None:
    best = lora.document["best"]["trial"]
    kept = {
        trial["trial"]
        for trial in lora.document["trials"]
        if lora.client.list_artifacts(trial["run_id"], "checkpoints/best")
        or [*(lora.folder / "outputs" / "lora" / "trials" / trial["trial"]).glob("step-*")]
    }
    assert kept == {best}
