"""From a trial's checkpoint to a version of a model in MLflow's registry, which loads without this service."""
