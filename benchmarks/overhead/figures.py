"""Figure of a long sweep."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from overhead.arms import Measured


def draw_scaling(measured: Measured, file: Path) -> None:
    """Draw seconds of each trial and memory of all processes over a sweep of trivial trials."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ends = [trial.reports[-1] for trial in measured.record.trials]
    seconds = [after - before for before, after in pairwise(ends)]
    memory = [(at - measured.began, mib / 1024) for at, mib in measured.memory]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    left.plot(range(2, len(ends) + 1), seconds, ".", markersize=4)
    left.set(xlabel="trial", ylabel="seconds a trial", ylim=(0, None), title="Time of a trial, after the first")
    right.plot([at for at, _ in memory], [gib for _, gib in memory])
    right.set(xlabel="seconds since the command", ylabel="GiB", ylim=(0, None), title="Memory of all processes")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)
