"""Converts the search of another tool into a conf: ``python -m sweeps convert``.

``wandb_sweep``, ``hydra_optuna`` and ``ray_tune`` each read one format into a ``Conversion``,
with the distributions of ``distributions``; ``conf_file`` writes it. What has no equivalent becomes a note.
"""
