"""A Hugging Face ``Trainer`` as in its documentation; it fine-tunes a small Llama on Python's docstrings."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from sweeps_train.data.standard_library import docstrings
from sweeps_train.models.causal_lm import BUILTIN_MODELS


def trainer(config: dict[str, Any]) -> Trainer:
    """Build a ``Trainer``.

    Args:
        config: ``lr``, ``weight_decay``, ``batch_size`` (samples of one worker) and ``max_steps``.
    """
    folder = BUILTIN_MODELS["builtin:tiny_llama"]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token

    def tokenized(texts: list[str]) -> Dataset:
        return Dataset.from_dict(dict(tokenizer(texts, truncation=True, max_length=64)))

    arguments = TrainingArguments(
        output_dir="trainer",
        learning_rate=config["lr"],
        weight_decay=config["weight_decay"],
        per_device_train_batch_size=config["batch_size"],
        max_steps=config["max_steps"],
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=5,
        logging_steps=5,
        report_to="none",
        disable_tqdm=True,
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=tokenized(docstrings("train")[:512]),
        eval_dataset=tokenized(docstrings("eval")[:32]),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
