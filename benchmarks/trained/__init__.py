"""Trainings side by side: our loop, one written by hand, and Hugging Face's ``Trainer``. Needs no Ray."""
