"""Seconds to resume a large sweep, from the command until its next trial starts.

    python benchmarks/resume.py --checkout ../before

makes a sweep of some trials on disk, by the same code that records a real one, and lets this checkout and others resume
it in turn. A sweep of two trials beside it shows what Ray and MLflow take to start.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import click
from overhead.summary import machine
from results_document import markdown_table

HERE = Path(__file__).resolve().parents[1]
NAME = "large"
REPORTS = 9
STEPS = ("searches", "next trial")


@click.command()
@click.option("--checkout", "others", multiple=True, type=click.Path(path_type=Path, exists=True, resolve_path=True))
@click.option("--trials", default=10_000, show_default=True, help="Trials that have ended.")
@click.option("--repeats", default=3, show_default=True, help="Times that each resumes it; the median counts.")
@click.option("--kept", type=click.Path(path_type=Path), help="Folder of the sweep: made there, or found there.")
def main(others: tuple[Path, ...], trials: int, repeats: int, kept: Path | None) -> None:
    """Measure how long a large sweep takes to go on."""
    checkouts = {path.name if path != HERE else "this checkout": path for path in (*others, HERE)}
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in (2, trials):
            folder, made = (Path(kept or temporary).resolve() / each for each in (str(number), f"{number}-made"))
            if not made.is_dir():
                _make(folder, number)
                folder.rename(made)
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
            for _ in range(repeats):
                for name, checkout in checkouts.items():
                    seconds[name].append(_resume(made, checkout, folder))
                    click.echo(f"{number} trials, {name}: {seconds[name][-1]}")
            rows += [
                [f"{number:,}", name, *(f"{median(each):.1f} s" for each in zip(*times, strict=True))]
                for name, times in seconds.items()
            ]
    click.echo(f"{machine()}\n\n{markdown_table(['trials', 'checkout', *STEPS], rows, left=2)}")


def _make(folder: Path, trials: int) -> None:
    """Make a sweep whose trials have all ended, and that may start one more."""
    folder.mkdir(parents=True)
    begun = ["run", "conf=digits", "search.num_trials=2", "train.max_steps=20", "--name", NAME]
    subprocess.run([sys.executable, "-m", "sweeps", *begun], cwd=folder, check=True, capture_output=True)
    subprocess.run([sys.executable, __file__, "fill", str(trials)], cwd=folder, check=True)


def _fill(trials: int) -> None:
    """Add ended trials to the sweep in the working folder, at random points: a sampler would take minutes for them."""
    from optuna.samplers import RandomSampler

    from sweeps.driver.startup import open_recorder
    from sweeps.plan.resume import reopened
    from sweeps.plan.saved_sweep import save
    from sweeps.plan.searcher_options import searcher_options
    from sweeps.search.study_file import open_study_storage
    from sweeps.search.study_search import StudySearch
    from sweeps.search.study_version import STUDY_FILE
    from sweeps.search.trial_ids import trial_id
    from sweeps.tracking.reader import load_sweep

    plan = reopened(load_sweep("sqlite:///mlflow.db", NAME), {"search.num_trials": trials + 1})
    save(plan)
    storage, _ = open_study_storage(plan.folder / STUDY_FILE)
    options = searcher_options(plan, None) | {"sampler": RandomSampler(seed=0)}
    search = StudySearch(plan.space, storage=storage, study_name=plan.name, **options)
    recorder = open_recorder(plan, None, resume=True)
    metric, config = plan.config.search.metrics[0], plan.composition.as_yaml()
    for number in range(2, trials):
        suggested = search.next_trial()
        assert suggested is not None
        name = trial_id(number, None)
        recorder.trials.start(name, suggested.point, config, 1)
        for step in range(1, REPORTS + 1):
            value = 1 / (step + number % 7)
            recorder.trials.log(name, step, {metric: value, "train/loss": value, "system/memory_mib": 500.0 + step})
            result = {metric: value, "step": step, "training_iteration": step, "sweeps_completed": step == REPORTS}
            if step < REPORTS:
                search.report(number, result)
        search.end(number, result)
        recorder.trials.end(name, "finished", REPORTS, 1)
    assert not recorder.close("finished")


def _resume(made: Path, checkout: Path, folder: Path) -> tuple[float, float]:
    """Seconds until the search goes on, and until its next trial starts."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder, symlinks=True)
    command = [str(checkout / ".venv" / "bin" / "python"), "-m", "sweeps", "resume", NAME]
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        seen: list[float] = []
        assert driver.stderr is not None
        lines = []
        for line in driver.stderr:
            lines.append(line)
            if ("starting workers", "started")[len(seen)] in line:
                seen.append(time.monotonic() - began)
            if len(seen) == len(STEPS):
                break
        os.killpg(driver.pid, signal.SIGINT)
        driver.stderr.read()
    if len(seen) < len(STEPS):
        raise click.ClickException("".join(lines))
    return seen[0], seen[1]


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        _fill(int(sys.argv[2]))
    else:
        main()
