"""Figure of how the regret of searches falls while they spend their budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from searched.regrets import FRACTIONS, Cell, Results


def draw_regrets(
    found: Results, methods: Sequence[str], names: Sequence[str], workers: int, budget: int, file: Path
) -> None:
    """Draw the mean regret over problems and seeds against the trainings that were spent, up to a budget of full
    trainings, as a PNG file; the first method stands out."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    spent = [part * budget for part in FRACTIONS]
    means = {
        method: np.mean([found[Cell(workers, budget, method, name)] for name in names], axis=(0, 1))
        for method in methods
    }
    lowest = np.inf
    for method, mean in sorted(means.items(), key=lambda item: item[1][-1]):
        is_first = method == methods[0]
        (line,) = axes.plot(spent, mean, linewidth=2.5 if is_first else 1.3, zorder=3 if is_first else 2)
        lowest = end = min(lowest, mean[-1]) if lowest == np.inf else max(mean[-1], lowest + 0.04)  # names apart
        axes.text(
            1.01 * budget, end, method, color=line.get_color(), va="center", weight="bold" if is_first else "normal"
        )
    axes.set(xlabel="full trainings spent", ylabel="mean normalized regret", xlim=(spent[0], 1.2 * budget))
    axes.set_ylim(bottom=0)
    axes.set_xticks([step for step in axes.get_xticks() if spent[0] <= step <= budget])
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
    plt.close(figure)
