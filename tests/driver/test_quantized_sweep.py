"""A sweep over quantized base models, and its best model as a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from running import points, run, verb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = (
    *("train.max_steps=8", "train.eval_every=4", "train.log_every=4", "train.lr=0.02", "search=random"),
    *("data.max_eval_documents=8", "data.max_train_documents=200", "search.num_trials=2", "space=none"),
)


def test_trials_with_and_without_quantization_share_workers_and_the_best_is_merged(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    both = points({"model.quantization": "nf4"}, {"model.quantization": "none"})
    searched = ("model.quantization=choice(none, nf4)", both)
    done = run(tmp_path, "conf=llm_lora", *SMALL, *searched, "--name=quantized", within_s=600)
    assert done.document["counts"]["finished"] == 2, done.err
    values = {trial["params"]["model.quantization"]: trial["value"] for trial in done.document["trials"]}
    assert values["nf4"] != values["none"]
    assert values["nf4"] == pytest.approx(values["none"], rel=0.2)

    number = next(each["trial"] for each in done.document["trials"] if each["params"]["model.quantization"] == "nf4")
    verb(tmp_path, "best", "quantized", f"--trial={number}", "--save-model=merged", "--merge")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert not hasattr(model.config, "quantization_config")
