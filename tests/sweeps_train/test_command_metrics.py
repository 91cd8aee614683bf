"""Metrics of ``task=command``: read from output and files, with their steps, and made into reports."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

from sweeps_train.command.measurements import Measurements
from sweeps_train.command.output import dictionary_record, json_record, parsers, pattern_record, record_in
from sweeps_train.command.sources import CsvTail, EventFiles, JsonLinesTail, MlflowStore, file_sources, with_own_store
from sweeps_train.config.command import CsvFile, JsonLines, MlflowRun, PrintedDictionaries

# --- metrics in the output ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"loss": 0.5, "step": 3}', {"loss": 0.5, "step": 3}),
        ('2026-01-01 INFO {"eval": {"loss": "0.5"}, "done": true}', {"eval/loss": 0.5}),
        ("{'loss': '2.578', 'grad_norm': nan, 'epoch': '1e-2'}", {"loss": 2.578, "grad_norm": math.nan, "epoch": 0.01}),
        (
            "{'a': tensor(-0.5, device='cuda:0'), 'b': np.float64(1.5), 'c': -inf}",
            {"a": -0.5, "b": 1.5, "c": -math.inf},
        ),
        ("{'a': tensor(0.5, grad_fn=<MeanBackward0>), 'b': <object at 0x1>, 'c': 1}", {"a": 0.5, "c": 1}),
        ("{'<unk>': 0.5}", {"<unk>": 0.5}),
        ("{'a': Fraction(1, 2), 'at': datetime.datetime(2026, 1, 2, 3, 4), 'b': np.float64(0.5)}", {"b": 0.5}),
        ("\x1b[1m{\x1b[32m'loss'\x1b[0m: \x1b[1;36m0.5\x1b[0m}", {"loss": 0.5}),  # as rich prints them
        ("{'train_loss': 0.5} {'eval': {'loss': 0.25}}", {"train_loss": 0.5, "eval/loss": 0.25}),
        ('{"step": 3, "loss": 0.5}, {"step": 3, "accuracy": 0.9}', {"step": 3, "loss": 0.5, "accuracy": 0.9}),
        ("train {'loss': 0.5, 'lr': 0.1} val {'loss': 0.25}", {"lr": 0.1}),
        ('{"a": "}{"} and {"b": 1}', {"b": 1}),
        ("{}" * 10_000, {}),
        ("{'loss': __import__('os').system('x')}", {}),
        ("{'loss': (lambda: 1)()}", {}),
        (f"{{'loss': {2000 * '-'}1}}", {}),  # deeper than Python's stack
        ("{" * 10_000, {}),
        ("loss 0.5", {}),
        ("[1, 2]", {}),
        ("{1, 2}", {}),
    ],
)
def test_numbers_are_found_in_json_lines_and_printed_dictionaries(line: str, expected: dict[str, float]) -> None:
    found = record_in(line, parsers([JsonLines(kind="json"), PrintedDictionaries(kind="dict")]))
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_printed_dictionary_is_never_evaluated(capfd: pytest.CaptureFixture[str]) -> None:
    assert dictionary_record("{'loss': print('evaluated')}") == {}
    assert capfd.readouterr().out == ""


def test_json_is_no_pattern_and_a_pattern_gives_its_named_groups() -> None:
    assert json_record("{'loss': 1}") == {}
    parse = pattern_record(r"\[(?P<step>\d+)\]\s+eval-rmse:(?P<rmse>\S+)( .*(?P<note>fast))?")
    assert parse("[7]\teval-rmse:0.25 fast") == {"step": 7, "rmse": 0.25}
    assert parse("[7]") == {}


# --- steps and reports --------------------------------------------------------------------------------------


def measured(measurements: Measurements, *records: dict[str, float]) -> list[tuple[int, bool]]:
    taken = [measurements.take(record) for record in records]
    return [(each.step, each.is_report) for each in taken]


def test_records_are_counted_if_none_has_a_step() -> None:
    measurements = Measurements(objectives=["eval/loss"], rename={"eval_loss": "eval/loss"})
    assert measured(measurements, {"loss": 1}, {"eval_loss": 2}, {"loss": 1}) == [(1, False), (2, True), (3, False)]


def test_a_program_that_continues_does_not_report_steps_again() -> None:
    measurements = Measurements(objectives=["loss"], done=4)
    records: list[dict[str, float]] = [{"step": 4, "loss": 1.0}, {"step": 5, "loss": 1.0}]
    assert measured(measurements, *records) == [(4, False), (5, True)]


def test_an_evaluation_at_step_0_is_recorded_and_never_judged() -> None:
    notes: list[str] = []
    measurements = Measurements(objectives=["loss", "size"], note=notes.append)
    records: list[dict[str, float]] = [
        {"step": 0, "loss": 1.0, "size": 1.0},
        {"step": 0, "size": 1.0},
        {"step": 1, "loss": 1.0},
        {"step": 1, "size": 1.0},
    ]
    assert measured(measurements, *records) == [(0, False), (0, False), (1, False), (1, True)]
    assert measurements.only_result is None
    assert notes == []


def test_a_program_that_gives_step_0_to_everything_has_the_last_values_as_its_only_result() -> None:
    """MLflow and TensorBoard give step 0 to what is logged without a step."""
    measurements = Measurements(objectives=["loss"])
    assert measurements.only_result is None
    assert measured(measurements, {"step": 0, "loss": 1.0}, {"step": 0, "loss": 0.5}) == [(0, False), (0, False)]
    result = measurements.only_result
    assert result is not None
    assert (result.step, result.metrics, result.is_report) == (1, {"loss": 0.5}, True)


def test_the_first_report_waits_for_limited_metrics_and_is_refused_if_they_do_not_come() -> None:
    measurements = Measurements(objectives=["loss"], limited=["memory"])
    late: list[dict[str, float]] = [{"step": 1, "loss": 1.0}, {"step": 1, "memory": 9.0}, {"step": 2, "loss": 1.0}]
    assert measured(measurements, *late) == [(1, False), (1, True), (2, True)]
    without = Measurements(objectives=["loss"], limited=["memory"])
    assert measured(without, {"step": 1, "loss": 1.0}) == [(1, False)]
    with pytest.raises(
        ValueError, match=r"search\.limits\.memory: .* did not report it at step 1, .* reported only loss"
    ):
        without.take({"step": 2, "loss": 1.0})


def test_a_report_is_made_when_all_objectives_have_come_and_has_limited_metrics() -> None:
    measurements = Measurements(objectives=["loss", "size"], limited=["memory"])
    taken = [
        measurements.take(record)
        for record in ({"step": 1.0, "memory": 9.0}, {"step": 2.0, "size": 3.0}, {"step": 2.0, "loss": 1.0})
    ]
    assert [each.is_report for each in taken] == [False, False, True]
    assert taken[-1].metrics == {"memory": 9.0, "size": 3.0, "loss": 1.0}


def test_a_step_that_goes_back_is_recorded_and_said_once_to_the_user() -> None:
    notes: list[str] = []
    measurements = Measurements(objectives=["loss"], note=notes.append)
    records: list[dict[str, float]] = [{"step": 5, "loss": 1.0}, {"step": 5, "loss": 1.0}, {"step": 4, "loss": 1.0}]
    assert [is_report for _, is_report in measured(measurements, *records)] == [True, False, False]
    assert notes == ["it reported step 5 after step 5: this report is recorded, but not judged"]


def test_a_step_that_is_no_whole_number_is_refused_if_it_was_named() -> None:
    assert measured(Measurements(objectives=["loss"]), {"step": 0.5, "loss": 1}) == [(1, True)]
    with pytest.raises(ValueError, match=r"task\.step=epoch: it was 0\.5, and must be a whole number"):
        Measurements(objectives=["loss"], step="epoch").take({"epoch": 0.5, "loss": 1})
    with pytest.raises(ValueError, match=r"task\.step=step: it was -1, and must be a whole number from 0"):
        Measurements(objectives=["loss"]).take({"step": -1, "loss": 1})


# --- metrics in files ---------------------------------------------------------------------------------------


def test_a_csv_file_is_read_as_it_grows_without_half_lines(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    source = CsvTail(file)
    assert source.read() == []
    with file.open("a", buffering=1) as log:
        log.write("step, loss,note\n1,0.5,a\n2,0.")
        log.flush()
        assert source.read() == [{"step": 1, "loss": 0.5}]
        log.write("25,b\n3,0.125")
        log.flush()
        assert source.read() == [{"step": 2, "loss": 0.25}]
        assert source.read(at_end=True) == [{"step": 3, "loss": 0.125}]


def test_a_csv_file_may_have_long_texts_beside_its_metrics(tmp_path: Path) -> None:
    source = CsvTail(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text(f"step,loss,sample\n1,0.5,{'x' * 200_000}\n2,0.25,y\n")
    assert source.read() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


def test_what_an_earlier_attempt_has_written_is_left_out_and_a_new_file_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss\n1,0.5\n2,0.4\n")
    source = CsvTail(file)
    with file.open("a") as log:
        log.write("3,0.3\n")
    assert source.read() == [{"step": 3, "loss": 0.3}]
    file.write_text("loss\n0.1\n")
    assert source.read() == [{"loss": 0.1}]


def test_a_csv_file_that_is_written_anew_with_more_columns_gives_its_new_rows_alone(tmp_path: Path) -> None:
    """Lightning's ``CSVLogger`` does so when a metric comes for the first time."""
    file = tmp_path / "metrics.csv"
    rows = [f"{step},0.{step},{step}e-3" for step in range(1, 100)]
    file.write_text("step,loss,lr\n" + "\n".join(rows[:50]) + "\n")
    source = CsvTail(file)
    file.write_text("step,loss,lr\n" + "\n".join(rows) + "\n")
    assert [record["step"] for record in source.read()] == [*range(51, 100)]
    anew = "accuracy,step,loss,lr\n" + "\n".join(f",{row}" for row in rows)
    file.write_text(f"{anew}\n0.9,100,")
    assert source.read() == []
    file.write_text(f"{anew}\n0.9,100,0.1,\n0.8,101,0.2,\n")
    assert source.read() == [
        {"accuracy": 0.9, "step": 100, "loss": 0.1},
        {"accuracy": 0.8, "step": 101, "loss": 0.2},
    ]
    file.write_text("accuracy,step\n0.9,1\n")
    assert source.read() == [{"accuracy": 0.9, "step": 1}]


def test_characters_at_which_no_line_ends_and_a_byte_order_mark_lose_nothing(tmp_path: Path) -> None:
    lines, table = tmp_path / "log.jsonl", tmp_path / "log.csv"
    sources = JsonLinesTail(lines), CsvTail(table)
    lines.write_text('\ufeff{"note": "a\u2028b\x85", "loss": 0.5}\r\n{"loss": 0.25}\n', encoding="utf-8")
    table.write_bytes("\ufeffstep,note,loss\r\n1,a\u2028b\x0c,0.5\r\n".encode())
    assert [source.read() for source in sources] == [
        [{"loss": 0.5}, {"loss": 0.25}],
        [{"step": 1, "loss": 0.5}],
    ]
    again = CsvTail(table)
    with table.open("ab") as log:
        log.write(b"2,b,0.25\r\n")
    assert again.read() == [{"step": 2, "loss": 0.25}]


@pytest.mark.parametrize("kind", [CsvTail, JsonLinesTail])
def test_a_training_that_begins_anew_and_writes_the_same_rows_again_has_them(
    kind: type[CsvTail] | type[JsonLinesTail], tmp_path: Path
) -> None:
    file = tmp_path / "log"
    text = "step,loss\n1,0.5\n" if kind is CsvTail else '{"step": 1, "loss": 0.5}\n'
    file.write_text(text)
    source = kind(file, is_resumed=False)
    with file.open("a") as log:
        log.write("2,0.25\n" if kind is CsvTail else '{"step": 2, "loss": 0.25}\n')
    assert source.read() == [{"step": 2, "loss": 0.25}]
    file.write_text("")
    assert source.read() == []
    file.write_text(text)
    assert source.read() == [{"step": 1, "loss": 0.5}]


def test_a_file_that_is_rewritten_whole_and_looked_at_while_it_is_empty_gives_no_row_twice(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    source = JsonLinesTail(file)
    rows = [f'{{"loss": 0.{each}}}\n' for each in range(1, 4)]
    file.write_text("".join(rows[:2]))
    assert source.read() == [{"loss": 0.1}, {"loss": 0.2}]
    for half in ("", rows[0]):
        file.write_text(half)
        assert source.read() == []
    file.write_text("".join(rows))
    assert source.read() == [{"loss": 0.3}]


@pytest.mark.parametrize(
    "before", ["\n", "# run 7, of today\n", "# run 7\n# of today\n\n", "#\n"], ids=["empty", "comment", "both", "#"]
)
def test_a_csv_file_may_have_empty_lines_and_comments_before_its_names(before: str, tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    source = CsvTail(file)
    for text in (before, "step,loss\n", "1,0.5\n"):
        with file.open("a") as log:
            log.write(text)
        found = source.read()
    assert found == [{"step": 1, "loss": 0.5}]


def test_fields_may_be_separated_by_a_tab_as_it_is_written_on_the_command_line(tmp_path: Path) -> None:
    given = CsvFile(kind="csv", path="log.tsv", delimiter=r"\t")  # as Hydra reads it
    (source,) = file_sources([given], tmp_path, tmp_path, {}.__getitem__)
    (tmp_path / "log.tsv").write_text("step\tloss\n1\t0.5\n")
    assert source.read() == [{"step": 1, "loss": 0.5}]


def test_names_of_a_csv_file_may_be_a_comment(tmp_path: Path) -> None:
    source = CsvTail(tmp_path / "log.csv")
    (tmp_path / "log.csv").write_text("# epoch,loss\n1,0.5\n")  # as numpy.savetxt writes them
    assert source.read() == [{"# epoch": 1, "loss": 0.5}]


BY_STEP = [
    {"step": 1, "eval/loss": 1.0, "train/loss": 2.0},
    {"step": 2, "eval/loss": 0.5, "train/loss": 1.0},
]


def test_tensorboards_events_are_read_by_step_from_any_depth(tmp_path: Path) -> None:
    source = EventFiles(tmp_path)
    with SummaryWriter(str(tmp_path / "run" / "deep")) as writer:
        for step in (1, 2):
            writer.add_scalar("eval/loss", 1 / step, step)
            writer.add_scalar("train/loss", 2 / step, step)
            writer.add_text("note", "x", step)
    assert source.read() == BY_STEP
    assert source.read() == []


@pytest.mark.parametrize("kind", [EventFiles, MlflowStore])
def test_a_program_may_remove_folders_while_its_metrics_are_looked_for(
    kind: type[EventFiles] | type[MlflowStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, removed = kind(tmp_path), tmp_path / "0" / "checkpoint" / "metrics" / "deep"
    removed.mkdir(parents=True)
    with SummaryWriter(str(tmp_path / "runs")) as writer:
        writer.add_scalar("loss", 0.5, 1)
    (tmp_path / "1" / "run" / "metrics").mkdir(parents=True)
    (tmp_path / "1" / "run" / "metrics" / "loss").write_text("1 0.5 1\n")
    scan = os.scandir

    def removing(path: Any) -> Any:
        if not isinstance(path, int) and Path(path) == removed:
            shutil.rmtree(tmp_path / "0", ignore_errors=True)
        return scan(path)

    monkeypatch.setattr(os, "scandir", removing)
    assert source.read() == [{"step": 1, "loss": 0.5}]
    assert not removed.exists()


def test_a_tag_that_a_program_writes_into_several_folders_is_refused_instead_of_mixed(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "earlier")) as writer:
        writer.add_scalar("epoch_loss", 2.0, 1)
    source, not_needed = EventFiles(tmp_path, ["epoch_loss"]), EventFiles(tmp_path, ["eval/acc"])
    for folder, loss in (("train", 1.0), ("validation", 1.5)):
        with SummaryWriter(str(tmp_path / folder)) as writer:
            writer.add_scalar("epoch_loss", loss, 1)
        if folder == "train":
            assert source.read() == [{"step": 1, "epoch_loss": 1.0}]
    assert not_needed.read() == [{"step": 1, "epoch_loss": 1.0}]
    with pytest.raises(
        ValueError, match=r"the TensorBoard tag 'epoch_loss' into .*train and into .*validation, and one"
    ):
        source.read()


def test_an_event_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        writer.add_scalar("loss", 0.5, 1)
    (whole,) = (tmp_path / "whole").iterdir()
    data = whole.read_bytes()
    part = tmp_path / "run" / "events.out.tfevents.1"
    part.parent.mkdir()
    source = EventFiles(part.parent)
    part.write_bytes(data[:-5])
    assert source.read() == []
    part.write_bytes(data)
    assert source.read() == [{"step": 1, "loss": 0.5}]


@pytest.fixture
def program_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[MlflowStore, Any]:
    """A program's own MLflow store as a source of metrics, and a client of it."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = tmp_path / "mlruns"
    return MlflowStore(store), MlflowClient(store.as_uri())


@pytest.mark.filterwarnings("ignore")  # MLflow's own, about stores of files
def test_a_value_of_a_run_takes_the_place_of_those_of_its_nested_runs_and_else_the_last_logged_one_counts(
    program_store: tuple[MlflowStore, Any],
) -> None:
    source, client = program_store
    experiment = client.create_experiment("folds")
    whole, first, second, deepest = runs = sorted(client.create_run(experiment).info.run_id for _ in range(4))
    for run, above in ((first, whole), (second, whole), (deepest, second)):
        client.set_tag(run, "mlflow.parentRunId", above)
    for at, (run, accuracy) in enumerate(zip((first, second, deepest, whole), (0.5, 1.0, 0.25, 0.75), strict=True)):
        client.log_metric(run, "accuracy", accuracy, timestamp=at)
        client.log_metric(run, f"only/{runs.index(run)}", accuracy)
    for at, run in enumerate((second, first)):
        client.log_metric(run, "loss", at, timestamp=at)
    others = {"only/0": 0.75, "only/1": 0.5, "only/2": 1.0, "only/3": 0.25}
    assert source.read() == [{"step": 0, "accuracy": 0.75, "loss": 1.0, **others}]


@pytest.mark.filterwarnings("ignore")  # MLflow's own, about stores of files
def test_metrics_that_a_program_logs_to_mlflow_are_read_from_its_store(
    program_store: tuple[MlflowStore, Any], tmp_path: Path
) -> None:
    source, client = program_store
    run_id = client.create_run(client.create_experiment("its own")).info.run_id
    for step in (1, 2):
        client.log_metric(run_id, "eval/loss", 1 / step, step=step)
        client.log_metric(run_id, "train/loss", 2 / step, step=step)
    assert source.read() == BY_STEP
    sources = file_sources([MlflowRun(kind="mlflow")], tmp_path, tmp_path, {}.__getitem__)
    assert [type(each) for each in sources] == [MlflowStore]


def test_a_program_that_logs_to_mlflow_starts_a_run_of_its_own_also_inside_of_a_job_that_has_one(
    tmp_path: Path,
) -> None:
    job = dict.fromkeys(("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"), "1" * 32)  # MLflow would fail with either of them
    sources, store = [MlflowRun(kind="mlflow")], MlflowStore(tmp_path / "mlruns")
    environment = with_own_store({**os.environ, **job}, sources, tmp_path)
    code = "import mlflow; mlflow.start_run(); mlflow.log_metric('loss', 0.5, step=1)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, check=True)
    assert store.read() == [{"step": 1, "loss": 0.5}]
