"""Completion of the command line in bash, zsh and fish.

``shells`` speaks with the shells, through click's classes. ``token_candidates`` completes ``key=value``, from
``conf_names`` (confs and groups, read from the folders), ``config_keys`` (the schema) and ``sweep_names`` (MLflow's
SQLite file). It answers while a person waits, so nothing here imports Hydra, Ray, torch or MLflow.
"""
