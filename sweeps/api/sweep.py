"""A recorded sweep in Python and notebooks: tables, curves and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import UserError
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.uris import absolute

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def trial_id(trial: str | int | None) -> str | None:
    """Return the id of a trial that may be given as a number."""
    return None if trial is None else str(trial)


def config_folders(config_dirs: Sequence[str | Path]) -> list[Path]:
    """Return the paths of folders of configs, one of which may be given as a plain string."""
    return [Path(each) for each in ([config_dirs] if isinstance(config_dirs, str | Path) else config_dirs)]


class Trials(list[TrialRecord]):
    """List of a sweep's trial records, in the order of their ids; calling it returns them as a data frame."""

    def __init__(self, trials: Iterable[TrialRecord], sweep: SweepRecord | None = None) -> None:
        """
        Args:
            trials: The records.
            sweep: The sweep; None for a copy that ``dataclasses.asdict`` makes, which has no data frame.
        """
        super().__init__(trials)
        self._sweep = sweep

    def __call__(self) -> pd.DataFrame:
        """Return a data frame with a row for each trial, see ``sweeps.trials``."""
        from sweeps.report.dataframes import trials_frame

        return trials_frame([self._sweep] if self._sweep else [])


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(SweepRecord):
    """The record of one sweep, with its tables and figures; notebooks show it as a table.

    Tables and figures are read from MLflow at each call, so they also have what was reported since the record was read.

    Example:
        >>> sweep = sweeps.load("first")
        >>> sweep
        <first: finished, 2 finished; best trial ...>
        >>> len(sweep.trials), list(sweep.trials()["steps"])
        (2, [4, 4])
        >>> list(sweep.curves().columns)
        ['sweep', 'trial', 'state', 'step', 'value']
        >>> sweep.figure("learning_curves").layout.title.text
        'Learning curves'
    """

    trials: Trials
    """All trials, in the order of their ids; ``trials()`` is a data frame of them."""

    def __post_init__(self) -> None:
        # Also of a copy with other values, as ``settled`` makes it.
        object.__setattr__(self, "trials", Trials(self.trials, self))
        with suppress(UserError):  # this SQLAlchemy has no absolute URI of a folder with ? in its name
            object.__setattr__(self, "_uri", absolute(self.mlflow.tracking_uri))  # before the working folder changes

    @classmethod
    def of(cls, record: SweepRecord) -> Sweep:
        """Create a sweep with the contents of a record."""
        return cls(**{each.name: getattr(record, each.name) for each in fields(record)})

    @property
    def _located(self) -> SweepRecord:
        """The record with a store that is found from every working folder."""
        return replace(self, mlflow=replace(self.mlflow, tracking_uri=vars(self).get("_uri", self.mlflow.tracking_uri)))

    def curves(self, metric: str | None = None) -> pd.DataFrame:
        """Return the learning curves of all trials: one row for each report of a metric.

        Args:
            metric: Name of the metric; default: the first objective.

        Returns:
            Columns ``sweep``, ``trial``, ``state``, ``step`` and ``value``.
        """
        from sweeps.report.dataframes import curves_frame

        return curves_frame([self._located], metric)

    @property
    def figures(self) -> dict[str, go.Figure]:
        """The figures of the sweep's report as Plotly objects, by name, such as ``learning_curves`` or ``slices,
        train.lr``."""
        from sweeps.report.figures.standalone import sweep_figures

        return sweep_figures(self._located)

    def figure(self, name: str) -> go.Figure:
        """Return one figure of the sweep's report as a Plotly object.

        Args:
            name: Its name, or a name of several figures, the first of which is returned: ``best_so_far``,
                ``learning_curves``, ``parallel_coordinates``, ``importance``, ``slices``, ``contours``, ``timeline``,
                or ``pareto_front``.

        Raises:
            UnknownName: There is no such figure, or the sweep has no data for it.
        """
        from sweeps.report.figures.standalone import sweep_figure

        return sweep_figure(self._located, name)

    def __repr__(self) -> str:
        from sweeps.report.notebook_html import sweep_text

        return sweep_text(self)

    def _repr_html_(self) -> str:
        from sweeps.report.notebook_html import sweep_html

        return sweep_html(self)
