"""A plan as HTML, for notebooks: what would be searched, and on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from sweeps.html_table import html_table, paragraphs
from sweeps.redact import redact_uri
from sweeps.space.descriptions import describe_conditions, describe_distribution
from sweeps_train.wording import counted

if TYPE_CHECKING:
    from sweeps.plan.plan import Plan


def plan_html(plan: Plan) -> str:
    """Return a plan's objective, its trials, its searched values and its notes."""
    config, search, space, fit = plan.config, plan.config.search, plan.space, plan.local_fit
    number = counted(plan.num_trials, "trial")
    headline = Markup("<b>{}</b> {}, {}; nothing was started").format(plan.name, number, search.objectives)
    facts = [
        ("search", f"sampler {search.sampler.kind}, scheduler {search.scheduler.kind}"),
        ("trial", fit.describe() if fit else f"asked of the cluster at {config.cluster.address} at the start"),
        *(("only where", constraint) for constraint in search.constraints),
        *((path, "fixed, not searched") for path in plan.composition.fixed),
        ("folder", plan.location),
        ("MLflow", redact_uri(config.tracking.uri)),
        *(("note", note) for note in plan.notes),
    ]
    searched = [(path, describe_distribution(space[path]), describe_conditions(space[path])) for path in space]
    conditional = any(when for _, _, when in searched)
    columns = ["searched", "values", "when"] if conditional else ["searched", "values"]
    rows = [row[: len(columns)] for row in searched]
    return str(paragraphs(headline) + html_table(columns, rows) + html_table(["", ""], facts))
