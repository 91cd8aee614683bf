"""Names and addresses on a terminal of 80 columns are whole, so that they can be copied."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace

from records import sweep_record, trial_record
from rich.console import Console

from sweeps.report.plain_console import plain_console, plain_table, print_facts
from sweeps.report.terminal_tables import print_best, print_sweep, print_sweeps
from sweeps.tracking.record import SweepSummary

NAME = "classification_of_all_pictures-20261120-021500"
CHECKPOINT = "file:///home/ada/projects/pictures/outputs/" + NAME + "/checkpoints/0007/step 000000120/best"


def shown(show: Callable[[Console], object]) -> str:
    console = plain_console(width=80, record=True)
    show(console)
    return console.export_text()


def test_texts_of_users_do_not_control_the_terminal() -> None:
    hostile = "a\x1b]0;t\x07\x1b[2J\u202eb\x9b31mc"

    def show(console: Console) -> None:
        table = plain_table("sweep")
        table.add_row(hostile)
        for each in (hostile, table):
            console.print(each)
        console.out(hostile)
        print_facts([("conf", hostile)], console)

    text = shown(show)
    assert (text.count("a"), text.count("bc"), text.replace("\n", "").isprintable()) == (4, 4, True)


def test_what_the_encoding_of_a_terminal_lacks_is_a_question_mark() -> None:
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="latin-1") as file:
        console = plain_console(width=80, file=file)
        table = plain_table("sweep")
        table.add_row("größe: 1…")
        console.print(table)
        file.flush()
        assert written.getvalue().decode("latin-1").split() == ["sweep", "größe:", "1?"]


def test_a_trial_without_a_finite_value_is_named_below_the_table() -> None:
    trials = [trial_record(0, 0.5), trial_record(1, math.nan, "pruned"), trial_record(2, None, "running")]
    text = shown(lambda console: print_sweep(sweep_record(trials=trials), console))
    assert [line for line in text.splitlines() if "no finite" in line] == ["trial 0001 reported no finite eval/loss"]


def test_a_trial_whose_code_saved_no_checkpoint_has_none() -> None:
    best = trial_record(7, 0.5)
    text = shown(lambda console: print_best(sweep_record(trials=[best], front=[best]), console))
    assert ["checkpoint", "none"] in [line.split() for line in text.splitlines()]


def test_an_address_is_on_one_line() -> None:
    best = trial_record(7, 0.5, params={"train.lr": 0.1, "train.nesterov": True}, checkpoint=CHECKPOINT)
    record = sweep_record(sweep=NAME, counts={"finished": 1}, front=[best])
    text = shown(lambda console: print_best(record, console))
    assert CHECKPOINT in text
    assert "0007 (finished after 1 step)" in text
    assert "train.nesterov  true" in text


def test_no_sweeps_name_is_ever_cut() -> None:
    summary = SweepSummary(
        sweep=NAME,
        conf="classification_of_all_pictures",
        status="finished",
        metrics=("eval/balanced_accuracy",),
        modes=("max",),
        counts={"finished": 16},
        best=0.5,
        started=0.0,
        wall_s=1.0,
        experiment="pictures",
        experiment_id="1",
        run_id="run",
    )
    text = shown(lambda console: print_sweeps([summary, replace(summary, sweep=f"{NAME}-2")], console, "here"))
    assert f"{NAME} " in text
    assert f"{NAME}-2" in text
