"""Text of a trial in a hover label."""

from __future__ import annotations

import textwrap

from sweeps.report.figures.section import escape_hover
from sweeps.report.formatting import shorten
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.record import TrialRecord

LONGEST_HOVER = 160
MOST_DESCRIBED = 500
"""Maximum number of trials whose labels show their parameters: with more, the page would become large, and its table
shows them."""


def trial_hover(trial: TrialRecord, count: int) -> str:
    """Hover label of a trial."""
    name = f"trial {trial.trial}, {trial.state}, {counted(trial.steps, 'step')}"
    if count > MOST_DESCRIBED:
        return name
    text = shorten(describe(trial.params), LONGEST_HOVER)
    lines = textwrap.wrap(text, 60, break_long_words=False, break_on_hyphens=False) or [""]
    return "<br>".join([name, *map(escape_hover, lines)])
