"""From the command to the first report of its first trial: seconds, processor seconds, and with --json imports.

    python benchmarks/first_report.py --checkout ../before --write docs/performance.md

runs the shipped sweeps of this checkout and of others in turn, each in an empty folder, and ends them at their first
report. Run it where nothing else runs: a start is limited by the processors.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
from overhead.summary import machine
from results_document import write_between_marks
from rich.console import Console
from started.measure import Start, measure

HERE = Path(__file__).resolve().parents[1]
console = Console()


@click.command()
@click.option(
    "--checkout",
    "others",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, resolve_path=True),
    help="Another checkout to compare with; repeatable.",
)
@click.option("--confs", default="digits,llm_lora", show_default=True, help="Sweeps to start.")
@click.option(
    "--repeats", default=3, show_default=True, type=click.IntRange(1), help="Starts of each; the median counts."
)
@click.option("--imports/--no-imports", default=True, help="One more start with imports, for --json.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the numbers to it.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    others: tuple[Path, ...], confs: str, repeats: int, imports: bool, json_file: Path | None, write: Path | None
) -> None:
    """Measure how long a sweep takes to its first report."""
    checkouts = {path.name if path != HERE else "this checkout": path for path in (*others, HERE)}
    starts: dict[str, dict[str, list[Start]]] = {}
    described: dict[str, dict[str, list[Start]]] = {}
    for conf in confs.split(","):
        starts[conf] = {name: [] for name in checkouts}
        for _ in range(repeats):
            for name, path in checkouts.items():
                start = measure(path, [f"conf={conf}"], with_imports=False)
                starts[conf][name].append(start)
                console.print(f"{conf}, {name}: {start.seconds:.1f} s, {start.processor_s:.1f} s of processor")
        if imports:
            described[conf] = {
                name: [measure(path, [f"conf={conf}"], with_imports=True)] for name, path in checkouts.items()
            }
    text = f"{machine()}\n\n{_times(starts)}"
    console.print(text, highlight=False, soft_wrap=True)
    if json_file is not None:
        numbers = {
            conf: {
                name: [asdict(start) for start in (*each, *described.get(conf, {}).get(name, ()))]
                for name, each in by_checkout.items()
            }
            for conf, by_checkout in starts.items()
        }
        json_file.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"first report": text})


def _times(starts: dict[str, dict[str, list[Start]]]) -> str:
    rows = [
        f"| {conf} | {name} | {median(start.seconds for start in each):.1f} s "
        f"| {median(start.processor_s for start in each):.1f} s | {len(each[0].processes)} |"
        for conf, by_checkout in starts.items()
        for name, each in by_checkout.items()
    ]
    head = ["| sweep | code | first report | processor until then | processes |", "| --- | --- | ---: | ---: | ---: |"]
    return "\n".join([*head, *rows])


if __name__ == "__main__":
    main()
