"""Names that registered models of release 0.2 import from here."""

from sweeps_train.checkpoints.checkpoint import load_model, read_training_config

__all__ = ["load_model", "read_training_config"]
