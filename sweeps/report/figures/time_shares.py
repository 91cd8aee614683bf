"""Figure of the workers' time by activity: a bar for the sweep and one for each of its trials."""

from __future__ import annotations

from dataclasses import asdict

import plotly.graph_objects as go

from sweeps.report.figures.section import style_figure
from sweeps.report.figures.style import STARTING_COLOUR
from sweeps.report.formatting import duration
from sweeps.report.report_data import ReportData
from sweeps.tracking.time_account import NAMES, WORDS, TimeAccount

MOST_TRIALS = 30
"""Maximum number of trials with a bar of their own: those that used the most time."""
COLOURS = {
    "training": "#2563c9",
    "start": STARTING_COLOUR,
    "data_wait": "#d9892b",
    "communication": "#178f8f",
    "checkpoint": "#7d55c7",
    "evaluation": "#4d7c0f",
    "lost": "#c93a3a",
    "other": "#6b7280",
    "waiting": "#92400e",
    "idle_tail": "#a21caf",
}


def time_shares(data: ReportData) -> go.Figure | None:
    """The figure; None if the sweep has no account of its time."""
    account = data.record.time.account
    if account is None or not account.total:
        return None
    trials = [(trial.trial, trial.account) for trial in data.record.trials if trial.account is not None]
    trials.sort(key=lambda each: each[1].total, reverse=True)
    rows = [("sweep", account), *((f"trial {trial}", each) for trial, each in sorted(trials[:MOST_TRIALS]))]
    figure = go.Figure()
    reached = [0.0] * len(rows)
    for part in NAMES:
        shares = [each.shares()[part] for _, each in rows]
        if any(shares):
            _add_part(figure, part, rows, reached, shares)
        reached = [before + share for before, share in zip(reached, shares, strict=True)]
    style_figure(figure, barmode="overlay", bargap=0.25, hovermode="closest")
    figure.update_xaxes(title="share of the workers' time", range=(0, 1), tickformat=".0%")
    figure.update_yaxes(categoryorder="array", categoryarray=[name for name, _ in rows][::-1])
    return figure


def _add_part(
    figure: go.Figure, part: str, rows: list[tuple[str, TimeAccount]], begin: list[float], shares: list[float]
) -> None:
    trace = go.Bar(
        y=[name for name, _ in rows],
        base=begin,
        x=shares,
        orientation="h",
        name=WORDS.get(part, part),
        marker={"color": COLOURS[part]},
        customdata=[duration(asdict(account)[part]) for _, account in rows],
        hovertemplate="%{y}: " + WORDS.get(part, part) + " %{x:.1%}, %{customdata} of all workers<extra></extra>",
    )
    figure.add_trace(trace)


def height(figure: go.Figure) -> int:
    """Height of the figure in pixels."""
    return 150 + 24 * len(figure.data[0].y)
