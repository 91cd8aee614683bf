"""Models for tables: building them, their files in a checkpoint, and predictions for raw rows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_model as load_weights
from torch import nn

from sweeps_train.config import CustomModel, Mlp
from sweeps_train.data.table_data import inputs
from sweeps_train.models.mlp import TableMlp
from sweeps_train.models.weights import WEIGHTS_FILE, checked_module
from sweeps_train.tables.encoding import Classes, TableEncoding, load_encoding
from sweeps_train.tables.predictions import prediction_frame, to_table
from sweeps_train.targets import call_target, import_target

if TYPE_CHECKING:
    import pandas as pd

TableModel = Mlp | CustomModel
ROWS_AT_ONCE = 2**16
"""Rows in a forward pass of a prediction."""


def build_table_model(config: TableModel, encoding: TableEncoding) -> nn.Module:
    """Build an initialised model with the inputs and outputs of an encoding.

    Returns:
        A module that maps numbers of shape (batch, ``encoding.num_inputs``) and category indices of shape (batch,
        columns) to outputs of shape (batch, ``encoding.num_outputs``).

    Raises:
        ValueError: A user's own model cannot be built.
    """
    sizes: dict[str, Any] = {
        "num_numbers": encoding.num_inputs,
        "category_sizes": encoding.category_sizes,
        "num_outputs": encoding.num_outputs,
    }
    if isinstance(config, Mlp):
        return TableMlp(config, **sizes)
    parameters = inspect.signature(import_target("model", config.target)).parameters
    given = {name: value for name, value in sizes.items() if name in parameters}
    return checked_module(config.target, call_target("model", config.target, {**given, **config.arguments}))


def load_table_model(config: TableModel, folder: Path) -> RowModel:
    """Load a model that ``TableTraining.save`` has written."""
    encoding = load_encoding(folder)
    model = build_table_model(config, encoding)
    load_weights(model, str(folder / WEIGHTS_FILE))
    return RowModel(model, encoding)


class RowModel(nn.Module):
    """A trained model with the encoding of its table, which predicts from raw rows."""

    def __init__(self, model: nn.Module, encoding: TableEncoding):
        super().__init__()
        self.model, self.encoding = model, encoding

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Return the model's outputs for encoded rows."""
        outputs: torch.Tensor = self.model(numbers, categories)
        return outputs

    @torch.no_grad()
    def predict(self, rows: Any) -> pd.DataFrame:
        """Predict the target of rows.

        Args:
            rows: A pandas frame, an Arrow table, or a list of dictionaries, with the columns of the training data.

        Returns:
            A frame with the column ``prediction``; for classes also ``probability_CLASS`` for each of them.

        Raises:
            ValueError: A column is missing, or has values that cannot be read.
        """
        numbers, categories = inputs(self.encoding, self.encoding.encode(to_table(rows)))
        parts = zip(torch.split(numbers, ROWS_AT_ONCE), torch.split(categories, ROWS_AT_ONCE), strict=True)
        outputs = torch.cat([self.eval()(*part) for part in parts]).double()
        if isinstance(self.encoding.output, Classes):
            return prediction_frame(self.encoding, outputs.softmax(dim=1).numpy())
        output = self.encoding.output
        return prediction_frame(self.encoding, np.asarray(outputs[:, 0]) * output.scale + output.mean)
