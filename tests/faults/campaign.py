"""Injects faults into running sweeps, and checks after each sweep that nothing is lost, twice, wrong or stuck.

python tests/faults/campaign.py --minutes 20 --seed 0 [--faults 200] [--kind "broker killed"] [--write docs/faults.md]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checker import Verdict, check
from disk import Disk
from fault_kinds import RESTING, RUNNING, NothingToHit
from postgres import program
from recording import Server
from stores import SHARED, make_store
from victim import SEARCHES, TRIALS, Record, Victim

PER_SWEEP = 12
"""Faults of each sweep."""
WHOLE_WITHIN_S = 180.0
"""Seconds in which a sweep must end when no more faults come."""
STARTS = 6
"""Times that a sweep is resumed in which it does not train before it counts as one that cannot go on."""
HAS_POSTGRES = program("initdb") is not None
STEPS = list(range(20, 201, 20))


@dataclass
class Outcome:
    """A sweep, the faults that it had, and what was wrong afterwards."""

    search: str
    faults: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    left: list[str] = field(default_factory=list)
    """Processes that outlived their driver."""
    seconds: float = 0.0
    load: float = 0.0
    """Processes that wanted a processor of the machine, on average of its last five minutes."""


class Round:
    """One sweep with its faults."""

    def __init__(self, victim: Victim, deck: list[str], chance: random.Random, until: float) -> None:
        self._victim, self._deck, self._chance, self._until = victim, deck, chance, until
        self.outcome = Outcome(victim.search)

    def play(self) -> Outcome:
        victim = self._victim
        victim.run()
        starts = 0
        while len(self.outcome.faults) < PER_SWEEP and self._deck and time.monotonic() < self._until:
            if not victim.wait_for_trials(120):
                if victim.runs:
                    self.outcome.verdict.stuck.append("no trial begins to train")
                    break
                starts += 1
                if starts == STARTS or not self._go_on():
                    break
                continue
            starts = 0
            time.sleep(self._chance.uniform(0.2, 2.0))
            self._disturb(RUNNING)
            if not victim.runs and not self._go_on():
                break
        self._end()
        return self.outcome

    def _disturb(self, kinds: dict[str, object]) -> None:
        """Inject the next fault of these kinds that has something to hit."""
        for name in [each for each in self._deck if each in kinds]:
            try:
                (RUNNING | RESTING)[name](self._victim, self._chance)
            except NothingToHit:
                continue
            self._deck.remove(name)
            self.outcome.faults.append(name)
            return

    def _go_on(self) -> bool:
        """Damage the files of a sweep whose driver has ended, and resume it; returns whether it had not finished."""
        victim = self._victim
        self.outcome.left += victim.reap(15)
        if victim.is_over:
            return False
        for _ in range(self._chance.randint(2, 3)):
            self._disturb(RESTING)
        victim.resume()
        return True

    def _end(self) -> None:
        """Let the sweep end, and check it."""
        victim, verdict = self._victim, self.outcome.verdict
        for _ in range(STARTS):
            status = victim.wait(WHOLE_WITHIN_S)
            if status is None:
                verdict.stuck.append(f"the sweep did not end within {WHOLE_WITHIN_S:.0f} s")
                victim.kill()
                return
            self.outcome.left += victim.reap(15)
            if victim.is_over:
                break
            victim.resume()
        else:
            verdict.stuck.append(f"resume ends with status {status}")
            return
        of_sweep = (victim.folder, victim.name, victim.record.database, victim.record.uri)
        found = check(*of_sweep, trials=TRIALS, steps=STEPS)
        for kind, texts in vars(found).items():
            getattr(verdict, kind).extend(texts)


@contextmanager
def servers(folder: Path) -> Iterator[list[Record]]:
    """Start MLflow's servers: one with an SQLite file, and one with PostgreSQL where that is installed."""
    with ExitStack() as running:

        def start(name: str, database: str) -> Server:
            server = Server(folder / name, store=database)
            running.callback(server.kill)
            return server

        for name in ("server", "server-postgresql"):
            (folder / name).mkdir()
        make_store(folder / "server" / "mlflow.db")
        database = f"sqlite:///{folder}/server/mlflow.db"
        records = [Record.on_server(start("server", database), database)]
        if HAS_POSTGRES:
            from postgres_cluster import Cluster

            postgres = running.enter_context(Cluster())
            records.append(Record.on_server(start("server-postgresql", postgres.url), postgres.url, postgres))
        yield records


def campaign(folder: Path, seed: int, minutes: float, faults: int, kinds: list[str]) -> list[Outcome]:
    """Play rounds until the time is over or all faults were injected."""
    chance = random.Random(seed)
    deck: list[str] = []
    while len(deck) < faults:
        deck += chance.sample(kinds, len(kinds))
    del deck[faults:]
    outcomes: list[Outcome] = []
    with servers(folder) as records:
        until = time.monotonic() + 60 * minutes
        while deck and time.monotonic() < until and _hit_anything(outcomes):
            begun = time.monotonic()
            search = list(SEARCHES)[len(outcomes) % len(SEARCHES)]
            own = folder / f"{len(outcomes):03}-{search}"
            own.mkdir()
            make_store(own / "mlflow.db")
            possible = [*records, Record.in_file(own / "mlflow.db")]
            disk = Disk(own / "outputs") if Disk.is_possible() else None
            victim = Victim(own, search, possible[len(outcomes) % len(possible)], disk)
            try:
                outcome = Round(victim, deck, chance, until).play()
            finally:
                victim.kill()
                if disk is not None:
                    disk.unmount()
            outcome.seconds, outcome.load = time.monotonic() - begun, os.getloadavg()[1]
            outcomes.append(outcome)
            print_outcome(outcome, outcomes)
    return outcomes


def _hit_anything(outcomes: list[Outcome]) -> bool:
    """Whether any of the last sweeps had a fault, so that further sweeps may have some."""
    last = outcomes[-2 * len(SEARCHES) :]
    return len(last) < 2 * len(SEARCHES) or any(each.faults for each in last)


def print_outcome(outcome: Outcome, outcomes: list[Outcome]) -> None:
    """Print a sweep's faults and what was wrong."""
    number = sum(len(each.faults) for each in outcomes)
    faults = ", ".join(outcome.faults)
    print(f"{len(outcomes)}. {outcome.search}, {outcome.seconds:.0f} s: {faults} ({number} in all)", flush=True)
    for line in outcome.verdict.lines():
        print(f"   {line}", flush=True)
    if outcome.left:
        print(f"   left running: {', '.join(sorted(set(outcome.left)))}", flush=True)


def table(outcomes: list[Outcome], seed: int) -> str:
    """The numbers in words."""
    kinds = Counter(name for each in outcomes for name in each.faults)
    total = {kind: sum(len(getattr(each.verdict, kind)) for each in outcomes) for kind in vars(Verdict())}
    words = ", ".join(f"{number} {kind}" for kind, number in total.items())
    minutes = sum(each.seconds for each in outcomes) / 60
    load = sum(each.load for each in outcomes) / len(outcomes)
    return "\n".join(
        [
            f"Seed {seed}: {sum(kinds.values())} faults of {len(kinds)} kinds in {len(outcomes)} sweeps: {words}.",
            f"It took {minutes:.0f} minutes on {os.cpu_count()} cores, at a mean load of {load:.0f}.",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--kind", action="append", help="only this kind; may be given again")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument(
        "--write", type=Path, help="a document with a line `<!-- faults -->`, under which the numbers go"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sweeps-faults-"))
    print(folder, flush=True)
    os.environ[SHARED] = str(folder)
    missing = ("disk",) * (not Disk.is_possible()) + ("PostgreSQL",) * (not HAS_POSTGRES)
    kinds = options.kind or [each for each in (*RUNNING, *RESTING) if not each.startswith(missing)]
    outcomes = campaign(folder, options.seed, options.minutes, options.faults, kinds)
    numbers = table(outcomes, options.seed)
    print(numbers)
    if options.write is not None:
        head, mark, _ = options.write.read_text(encoding="utf-8").partition("<!-- faults -->\n")
        options.write.write_text(f"{head}{mark}\n{numbers}\n", encoding="utf-8")
    failed = any(each.verdict for each in outcomes)
    if not options.keep and not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
