"""A plan as HTML, for notebooks: search, space and resources."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from sweeps.compose import Composition
from sweeps.runtime.trials_at_once import Fit, describe_unknown
from sweeps.space.descriptions import describe_conditions, describe_distribution
from sweeps.space.space import Space
from sweeps.texts.html_table import html_table, paragraphs
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import counted


def plan_html(
    name: str,
    composition: Composition,
    space: Space,
    fit: Fit | None,
    folder: str,
    notes: Iterable[str],
    num_trials: int,
    search_summary: str,
) -> str:
    """Return a plan's objective, its trials, its searched values and its notes. Only the cluster may know how its
    trials fit."""
    config, search = composition.config, composition.config.search
    headline = Markup("<b>{}</b> {}, {}; nothing was started").format(
        name, counted(num_trials, "trial"), search.objectives
    )
    facts = [
        ("search", search_summary),
        ("trial", fit.describe() if fit else describe_unknown(config.cluster)),
        *(("only where", constraint) for constraint in search.constraints),
        *((path, "fixed, not searched") for path in composition.fixed),
        ("folder", folder),
        ("MLflow", redact_uri(config.tracking.uri)),
        *(("note", note) for note in notes),
    ]
    searched = [(path, describe_distribution(space[path]), describe_conditions(space[path])) for path in space]
    conditional = any(when for _, _, when in searched)
    columns = ["searched", "values", "when"] if conditional else ["searched", "values"]
    rows = [row[: len(columns)] for row in searched]
    return str(paragraphs(headline) + html_table(columns, rows) + html_table(["", ""], facts))
