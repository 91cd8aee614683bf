"""A Lightning module and its ``Trainer`` as in Lightning's documentation, on scikit-learn's digits."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

Batch = tuple[Tensor, Tensor]


class Digits(LightningDataModule):
    def __init__(self, batch_size: int) -> None:
        """
        Args:
            batch_size: Samples of one worker.
        """
        super().__init__()
        self.batch_size = batch_size
        images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        images = images.float() / 16
        held_out = torch.arange(len(labels)) % 5 == 0
        self.training: Dataset[Any] = TensorDataset(images[~held_out], labels[~held_out])
        self.validation: Dataset[Any] = TensorDataset(images[held_out], labels[held_out])

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.training, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.validation, batch_size=self.batch_size)


class Classifier(LightningModule):
    def __init__(self, lr: float, hidden: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def training_step(self, batch: Batch, index: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: Batch, index: int) -> None:
        images, labels = batch
        logits = self.network(images)
        self.log("loss", nn.functional.cross_entropy(logits, labels), sync_dist=True)
        self.log("accuracy", (logits.argmax(dim=1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


def training(config: dict[str, Any]) -> tuple[Trainer, LightningModule, LightningDataModule]:
    """Build a ``Trainer``, a module and its data.

    Args:
        config: ``lr``, ``hidden`` (width of the hidden layer), ``batch_size`` (samples of one worker) and ``epochs``.
    """
    trainer = Trainer(max_epochs=config["epochs"], logger=False, enable_model_summary=False)
    return trainer, Classifier(config["lr"], config["hidden"]), Digits(config["batch_size"])
