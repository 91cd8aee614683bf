"""Registers a trial's checkpoint as a version of a model in MLflow's registry, which can be loaded without this
service.

Begin with ``register``; ``flavours`` decides how MLflow saves and loads each kind of model.
"""
