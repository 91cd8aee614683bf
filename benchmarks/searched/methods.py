"""The searches of other libraries by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from search_problems import Problem

from searched.hebo_peer import Hebo
from searched.peer import Peer, longest_progress, run_peer
from searched.ray_bohb import RayBohb
from searched.smac_peer import Smac
from searched.syne import SyneTune
from sweeps.simulate.simulation import Outcome
from sweeps.space.space import Point, Space


class Entry(NamedTuple):
    """Way to make a search."""

    package: str
    make: Callable[[Space, int, int], Peer]
    """Makes it for a space, a seed and the progress of a whole training."""


PEERS: dict[str, Entry] = {
    "syne tune asha": Entry("syne_tune", lambda *given: SyneTune("ASHA", *given)),
    "syne tune dyhpo": Entry("syne_tune", lambda *given: SyneTune("DyHPO", *given)),
    "syne tune mobster": Entry("syne_tune", lambda *given: SyneTune("MOBSTER", *given)),
    "smac": Entry("smac", Smac),
    "hebo": Entry("hebo", Hebo),
    "ray bohb": Entry("hpbandster", RayBohb),
}
INSTALL = "make .venv/peers/.ready, and run this with .venv/peers/bin/python"


def installed(name: str) -> bool:
    """Whether the package of a search is there."""
    return find_spec(PEERS[name].package) is not None


def searched_by(name: str) -> Callable[[Problem, int, int, float], tuple[Outcome, dict[int, Point]]]:
    """Returns what searches a problem with a seed and a number of workers for some simulated seconds."""

    def run(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Point]]:
        from threadpoolctl import threadpool_limits

        peer = PEERS[name].make(problem.space, seed, longest_progress(problem))
        with threadpool_limits(1):  # several searches run at a time; after the library and its own ones are loaded
            return run_peer(peer, problem, seed, workers, limit_s)

    return run
