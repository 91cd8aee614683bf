"""Goodput of a training that is killed again and again: a model, checked by simulation, and extrapolated to many nodes.

    python benchmarks/goodput.py --write docs/checkpoints.md

It takes seconds, and measures nothing: the cost of a save, of a restart and of an epoch are options.
"""

from __future__ import annotations

from pathlib import Path

import click
from results_document import markdown_table, write_between_marks
from survived.model import Training

from sweeps_train.save_schedule import optimal_interval

NODE_FAILURE_S = 54 * 86_400 * 2_048 / 419
"""Mean seconds between failures of one node of 8 GPUs: 419 unexpected interruptions in 54 days on 16,384 GPUs ("The
Llama 3 Herd of Models", https://arxiv.org/abs/2407.21783, table 5)."""


def extrapolated_table(save_s: float, restart_s: float, epoch_s: float) -> str:
    """Goodput by the model and by its simulation, for one training on all nodes."""
    rows = []
    for nodes in (1, 10, 100, 1_000, 10_000):
        mean = NODE_FAILURE_S / nodes
        best = Training(optimal_interval(save_s, mean), save_s, restart_s, mean)
        epochs = Training(epoch_s, save_s, restart_s, mean)
        cells = [f"{mean / 3600:,.1f} h", f"{best.interval:,.0f} s"]
        for each in (best, epochs):
            cells += [f"{each.expected_goodput():.2%}", f"{each.simulated_goodput(200_000, seed=nodes):.2%}"]
        rows.append([f"{nodes:,}", *cells])
    headers = ["nodes", "between failures", "interval", "goodput", "simulated", "at each epoch", "simulated"]
    return markdown_table(headers, rows)


@click.command()
@click.option("--save-s", default=0.3, show_default=True, help="Seconds for which a save blocks.")
@click.option("--restart-s", default=30.0, show_default=True, help="Seconds to go on after a failure.")
@click.option("--epoch-s", default=3600.0, show_default=True, help="Seconds of an epoch.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(save_s: float, restart_s: float, epoch_s: float, write: Path | None) -> None:
    """Extrapolate the goodput to many nodes."""
    table = extrapolated_table(save_s, restart_s, epoch_s)
    click.echo(table)
    if write is not None:
        write_between_marks(write, {"extrapolated": table})


if __name__ == "__main__":
    main()
