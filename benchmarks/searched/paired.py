"""Paired comparison of a method with a baseline: on which problems it is significantly better or worse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

BASELINE = "random+asha"
"""Method with which the others are compared."""
LEVEL = 0.05
"""Probability that a method which is no different is called better or worse on any of the problems."""

Verdict = Literal["better", "worse"]
MARKS: dict[Verdict | None, str] = {"better": " ▼", "worse": " ▲"}
LEGEND = (
    f"▼ (better) and ▲ (worse): significantly lower and higher than {BASELINE} with the same seeds, by Wilcoxon's "
    "signed-rank test (two-sided, 5 %) with Holm's correction over the problems of the table."
)


def compare(method: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Verdict | None]:
    """Two-sided Wilcoxon signed-rank tests of the regrets of a method and a baseline over the same seeds, with Holm's
    correction over the problems. For each problem: whether the method is significantly better or worse; None if it is
    neither."""
    tested = {name: signed_rank(method[name] - baseline[name]) for name in method}
    verdicts: dict[str, Verdict | None] = dict.fromkeys(method)
    for position, (name, (probability, verdict)) in enumerate(sorted(tested.items(), key=lambda each: each[1][0])):
        if probability * (len(tested) - position) > LEVEL:
            break  # of the problems that follow, none counts
        verdicts[name] = verdict
    return verdicts


def signed_rank(differences: Any) -> tuple[float, Verdict | None]:
    """Probability of such differences if a method is no different from the baseline, and how it seems to be."""
    from scipy.stats import wilcoxon

    if not np.any(differences):
        return 1.0, None
    lower, higher = (
        float(wilcoxon(differences, zero_method="zsplit", alternative=alternative).pvalue)
        for alternative in ("less", "greater")
    )
    return min(1.0, 2 * min(lower, higher)), "better" if lower < higher else "worse"
