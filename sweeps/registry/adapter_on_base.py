"""MLflow's loader of a language model that consists of adapters and their base. This file and ``sweeps_train`` are
copied into the registered model. The base is loaded from ``model.path``: from Sweeps, the hub, or a folder."""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd
import torch
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from sweeps_train import load_model, read_training_config


class AdapterOnBase(PythonModel):
    """Completes texts. ``unwrap_python_model()`` has the attributes ``model`` and ``tokenizer``."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the model and its tokenizer from the checkpoint."""
        from pathlib import Path

        from transformers import AutoTokenizer

        folder = Path(context.artifacts["checkpoint"])
        self.config = read_training_config(folder)
        self.model = load_model(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[str]:
        """Return the completion of each text of a list, or of a table with one column. The parameters are arguments of
        transformers' ``generate``: ``max_new_tokens``, ``do_sample``, ``temperature``."""
        # The type is that of a table, since MLflow warns about each other one; without MLflow a list comes as it is.
        texts = model_input.iloc[:, 0].tolist() if hasattr(model_input, "iloc") else list(model_input)
        return [self._complete(str(text), params or {}) for text in texts]

    @torch.no_grad()
    def _complete(self, text: str, options: dict[str, Any]) -> str:
        tokens = self.tokenizer(text, return_tensors="pt")["input_ids"]
        has_end = tokens.shape[1] > 1 and tokens[0, -1] == self.tokenizer.eos_token_id
        if has_end and not text.endswith(self.tokenizer.eos_token):
            tokens = tokens[:, :-1]  # added by the tokenizer, as if the text had ended
        model: Any = self.model
        generated = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
            **options,
        )
        return str(self.tokenizer.decode(generated[0], skip_special_tokens=True))


mlflow.models.set_model(AdapterOnBase())
