"""Checkpoints: when they are saved, what is in them, and where a training continues from."""
