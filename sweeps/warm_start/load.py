"""Loads trials of other programs, as named by ``search.warm_start``."""

from __future__ import annotations

from sweeps.config.warm_start import MLflowExperiment, OptunaStudy, OtherTrials
from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.space.space import Lookup, Space
from sweeps.warm_start.points import as_earlier_sweep


def load_other_trials(
    key: str, source: OtherTrials, tracking_uri: str, space: Space, lookup: Lookup, objective: tuple[str, str]
) -> EarlierSweep:
    """Load the trials of one source that lie in this sweep's space.

    Args:
        key: Config key of the source, for messages.
        source: Source of the trials.
        tracking_uri: Tracking URI of this sweep.
        space: This sweep's space.
        lookup: Returns this sweep's own value at a path.
        objective: Metric that this sweep optimises, and its mode.

    Raises:
        UserError: The source does not exist, cannot be read, or has no trial in the space.
        TrackingUnreachable: Its MLflow server does not answer.
    """
    metric, mode = objective
    # The readers import Optuna, MLflow or pandas, which takes seconds.
    if isinstance(source, OptunaStudy):
        from sweeps.warm_start.optuna_study import read_study

        search = read_study(key, source)
    elif isinstance(source, MLflowExperiment):
        from sweeps.warm_start.mlflow_experiment import read_experiment

        search = read_experiment(key, source, tracking_uri, metric)
    else:
        from sweeps.warm_start.trial_table import read_table

        search = read_table(key, source, metric)
    return as_earlier_sweep(key, search, source.parameters, source.fixed, space, lookup, mode)
