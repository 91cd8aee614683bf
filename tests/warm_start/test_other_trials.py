"""Warm start from an Optuna study, an MLflow experiment or a table that Sweeps did not make."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from pydantic import TypeAdapter
from rich.console import Console
from spaces import space_of
from stores import make_store

from sweeps.config.samplers import TPESampler
from sweeps.config.space import Distribution
from sweeps.config.warm_start import OtherTrials
from sweeps.constants import COMPLETED
from sweeps.driver.run import run
from sweeps.driver.terminal_view import PlainView
from sweeps.errors import UserError
from sweeps.plan.plan import Plan, make_plan
from sweeps.search import (
    EarlierSweep,
    EarlierTrials,
    MLflowExperiment,
    OptunaSearcher,
    OptunaStudy,
    TrialTable,
    build_sampler,
    load_earlier,
    points_to_retry,
)
from sweeps.search.samplers.saved_trials import save_earlier
from sweeps.search.study_search import StudySearch
from sweeps.space.space import Space
from sweeps.warm_start.other_trial import OtherSearch, OtherTrial
from sweeps.warm_start.points import as_earlier_sweep, typed

SPACE = space_of(
    {
        "train.lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "train.optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
        "train.batch": {"type": "categorical", "choices": [16, 32]},
    }
)
TRIALS: list[dict[str, Any]] = [
    {"lr": 1e-2, "optimizer": "adamw", "batch": 16, "loss": 0.3, "state": "COMPLETE"},
    {"lr": 2e-2, "optimizer": "sgd", "batch": 32, "loss": 0.2, "state": "COMPLETE"},
    {"lr": 3e-2, "optimizer": "sgd", "batch": 32, "loss": 0.9, "state": "PRUNED"},
    {"lr": 0.5, "optimizer": "sgd", "batch": 32, "loss": 0.1, "state": "COMPLETE"},
    {"lr": 1e-2, "optimizer": "lion", "batch": 32, "loss": 0.1, "state": "COMPLETE"},
    {"lr": 1e-2, "optimizer": "sgd", "batch": 32, "loss": None, "state": "FAIL"},
]
FOUND = ([0.2, 0.3, 0.9], [2e-2, 1e-2, 3e-2])
"""Values and learning rates of the trials that lie in the space, the best first."""
FINISHED = ([0.2, 0.3], [2e-2, 1e-2])
DISTRIBUTIONS = {
    "lr": optuna.distributions.FloatDistribution(1e-5, 1.0, log=True),
    "optimizer": optuna.distributions.CategoricalDistribution(["adamw", "sgd", "lion"]),
    "batch": optuna.distributions.CategoricalDistribution([16, 32]),
}


def nothing(path: str) -> None:
    return None


def load(
    kind: type[OtherTrials], mode: str = "min", metric: str = "loss", space: Space = SPACE, **source: Any
) -> EarlierSweep:
    names = {OptunaStudy: "optuna", MLflowExperiment: "mlflow", TrialTable: "table"}
    (earlier,) = load_earlier("sqlite:///no.db", [kind(kind=names[kind], **source)], space, nothing, metric, mode)
    return earlier


def found(earlier: EarlierSweep) -> tuple[list[float], list[float]]:
    return earlier.values, [point["train.lr"] for point in earlier.points]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the same trials in every form."""
    folder = tmp_path_factory.mktemp("trials")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for storage in (f"sqlite:///{folder}/study.db", JournalStorage(JournalFileBackend(f"{folder}/study.log"))):
        study = optuna.create_study(study_name="theirs", storage=storage, direction="minimize")
        for trial in TRIALS:
            study.add_trial(as_optuna(trial))
        optuna.create_study(study_name="several", storage=storage, directions=["minimize", "maximize"])
    table = pd.DataFrame(TRIALS)
    table.rename(columns={"lr": "config/lr"}).to_csv(folder / "trials.csv", index=False)
    table.to_parquet(folder / "trials.parquet")
    table.assign(note="x").to_json(folder / "trials.jsonl", orient="records", lines=True)
    (folder / "empty.log").touch()
    (folder / "text.log").write_text("no database")
    make_store(folder / "mlflow.db")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("theirs", artifact_location=str(folder))
    for trial in TRIALS:
        run = client.create_run(experiment)
        for name in ("lr", "optimizer", "batch"):
            client.log_param(run.info.run_id, name, trial[name])
        if trial["loss"] is not None:
            client.log_metric(run.info.run_id, "val_loss", trial["loss"])
            client.log_metric(run.info.run_id, "recall_x0040_5", trial["loss"])  # as a sweep records recall@5
        client.set_terminated(run.info.run_id, "FINISHED" if trial["state"] == "COMPLETE" else "FAILED")
    return folder


def as_optuna(trial: dict[str, Any]) -> optuna.trial.FrozenTrial:
    return optuna.create_trial(
        state=optuna.trial.TrialState[trial["state"]],
        value=trial["loss"] if trial["state"] == "COMPLETE" else None,
        params={name: trial[name] for name in DISTRIBUTIONS},
        distributions=DISTRIBUTIONS,
        intermediate_values={1: 1.5, 2: trial["loss"]} if trial["state"] == "PRUNED" else {},
    )


@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "{}/study.db", "{}/study.log"])
def test_a_studys_finished_and_pruned_trials_are_points_of_the_space_and_its_file_stays_as_it_was(
    folder: Path, storage: str
) -> None:
    before = [(folder / name).read_bytes() for name in ("study.db", "study.log")]
    earlier = load(OptunaStudy, storage=storage.format(folder), study="theirs")
    assert found(earlier) == FOUND
    assert earlier.points[0] == {"train.lr": 2e-2, "train.optimizer": "sgd", "train.batch": 32}
    assert "1: train.lr is not between 0.0001 and 0.1" in earlier.note
    assert "1: state FAIL" in earlier.note
    assert "lr is train.lr, optimizer is train.optimizer, batch is train.batch" in earlier.note
    assert [(folder / name).read_bytes() for name in ("study.db", "study.log")] == before


def test_a_study_of_the_other_direction_is_turned_round(folder: Path) -> None:
    earlier = load(OptunaStudy, mode="max", storage=f"{folder}/study.db", study="theirs")
    assert found(earlier) == ([-0.2, -0.3, -0.9], FOUND[1])
    assert "searches for a min" in earlier.note


def test_of_a_study_with_constraints_only_trials_that_keep_them_are_used_and_of_reports_those_with_a_number(
    tmp_path: Path,
) -> None:
    file = tmp_path / "study.log"
    study = optuna.create_study(study_name="theirs", storage=JournalStorage(JournalFileBackend(str(file))))
    for lr, loss, excess in ((1e-2, 0.1, 3.0), (2e-2, 0.2, -1.0)):
        params = {"lr": lr, "optimizer": "sgd", "batch": 16}
        trial = optuna.create_trial(value=loss, params=params, distributions=DISTRIBUTIONS)
        trial.set_constraint("memory", excess)
        study.add_trial(trial)
    pruned = as_optuna(TRIALS[2])
    pruned.intermediate_values[0] = float("nan")
    pruned.intermediate_values = dict(sorted(pruned.intermediate_values.items()))
    study.add_trial(pruned)
    earlier = load(OptunaStudy, storage=str(file))
    assert found(earlier) == ([0.2, 0.9], [2e-2, 3e-2])
    assert "left out: 1: it violates a constraint" in earlier.note


@pytest.mark.parametrize("release", ["this", "earlier"])
def test_ordered_choices_in_a_study_of_our_searcher_are_those_that_were_trained(release: str, tmp_path: Path) -> None:
    space, wider = (
        space_of({"depth": {"type": "ordinal", "choices": each}}) for each in ([1, 2, None], [0, 1, 2, None])
    )
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "this")))
    search = StudySearch(space, metric="loss", mode="min", storage=storage, study_name="this", num_trials=3)
    while (trial := search.next_trial()) is not None:
        report = {"loss": trial.point["depth"] or 0.0, "training_iteration": 1, COMPLETED: True}
        search.end(trial.number, report)
    old = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(tmp_path / "earlier"))))
    old.add_trials(search.study.trials)
    trained = [0.0, 1.0, 2.0], [None, 1, 2]
    same = load(OptunaStudy, space=space, storage=f"{tmp_path}/{release}")
    assert (same.values, [point["depth"] for point in same.points]) == trained
    if release == "this":
        more = load(OptunaStudy, space=wider, storage=f"{tmp_path}/{release}")
        assert (more.values, [point["depth"] for point in more.points]) == trained
    else:
        with pytest.raises(UserError, match="3: depth is one of 3 ordered choices that the study does not tell"):
            load(OptunaStudy, space=wider, storage=f"{tmp_path}/{release}")


@pytest.mark.parametrize("name", ["trials.csv", "trials.parquet", "trials.jsonl"])
def test_rows_of_a_table_are_trials_and_a_column_of_states_tells_which_failed(folder: Path, name: str) -> None:
    earlier = load(TrialTable, path=f"{folder}/{name}", metric="loss")
    assert found(earlier) == FOUND
    assert "1: state FAIL" in earlier.note
    assert found(load(TrialTable, path=f"{folder}/{name}", mode="max", metric="loss")) == (
        FOUND[0][::-1],
        FOUND[1][::-1],
    )


def test_finished_runs_of_an_experiment_are_trials_though_mlflow_has_only_texts(folder: Path) -> None:
    uri = f"sqlite:///{folder}/mlflow.db"
    assert found(load(MLflowExperiment, uri=uri, experiment="theirs", metric="val_loss")) == FINISHED
    assert found(load(MLflowExperiment, uri=uri, experiment="theirs", metric="recall@5")) == FINISHED
    only = {"uri": uri, "experiment": "theirs", "metric": "val_loss"}
    assert found(load(MLflowExperiment, **only, filter="params.optimizer = 'adamw'")) == ([0.3], [1e-2])


def test_a_run_of_mlflow_with_an_infinite_value_has_none(tmp_path: Path) -> None:
    make_store(tmp_path / "mlflow.db")
    client = mlflow.MlflowClient(uri := f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.create_experiment("diverged", artifact_location=str(tmp_path))
    for lr, loss in ((0.01, 0.3), (0.05, math.inf), (0.06, math.nan)):
        run = client.create_run(experiment).info.run_id
        for name, value in {"lr": lr, "optimizer": "sgd", "batch": 16}.items():
            client.log_param(run, name, value)
        client.log_metric(run, "loss", loss)
        client.set_terminated(run)
    earlier = load(MLflowExperiment, uri=uri, experiment="diverged")
    assert found(earlier) == ([0.3], [0.01])
    assert "left out: 2: no value of loss" in earlier.note


def test_texts_of_values_that_are_not_searched_are_compared_by_what_they_mean() -> None:
    own = {"train.nesterov": True, "train.betas": [0.9, 0.999], "train.schedule": None, "train.precision": "bf16"}
    params = {"train.lr": "0.01", "train.optimizer": "sgd", "train.batch": "16", "train.seed": "3"}
    same = {name: str(value) for name, value in own.items()}
    trials = [OtherTrial(params | same, 0.3), OtherTrial(params | same | {"train.nesterov": "False"}, 0.2)]
    earlier = as_earlier_sweep("key", OtherSearch("theirs", trials, None, "loss"), {}, {}, SPACE, own.get, "min")
    assert found(earlier) == ([0.3], [0.01])
    assert "train.nesterov is not True" in earlier.note


def test_a_column_whose_path_the_config_gives_to_another_one_is_not_taken_for_another_path(tmp_path: Path) -> None:
    ends = {"type": "float", "low": 1e-4, "high": 1e-1}
    space = space_of({"train.lr": ends, "optim.lr": ends})
    pd.DataFrame({"rate": [0.01], "train.lr": [0.02], "loss": [1.0]}).to_csv(tmp_path / "odd.csv", index=False)
    named: dict[str, Any] = {"path": f"{tmp_path}/odd.csv", "parameters": {"rate": "train.lr"}}
    earlier = load(TrialTable, space=space, fixed={"optim.lr": 0.05}, **named)
    assert earlier.points == [{"train.lr": 0.01, "optim.lr": 0.05}]
    assert earlier.note == "rate is train.lr; ignored: train.lr"


def test_names_are_mapped_and_what_was_not_searched_is_given(folder: Path, tmp_path: Path) -> None:
    row = {"rate": [0.01], "train.lr": [0.02], "bs": ["32"], "score": [1.0]}
    pd.DataFrame(row).to_csv(tmp_path / "odd.csv", index=False)
    earlier = load(
        TrialTable,
        path=f"{tmp_path}/odd.csv",
        metric="score",
        parameters={"rate": "train.lr", "bs": "train.batch"},
        fixed={"train.optimizer": "sgd"},
    )
    assert earlier.points == [{"train.lr": 0.01, "train.batch": 32, "train.optimizer": "sgd"}]
    assert earlier.note == "rate is train.lr, bs is train.batch; ignored: train.lr"


WRONG: list[tuple[type[OtherTrials], dict[str, Any], list[str]]] = [
    (OptunaStudy, {"storage": "no.db"}, ["storage=no.db", "no such file"]),
    (OptunaStudy, {"storage": "study.db", "study": "thiers"}, ["study=thiers", "did you mean theirs?"]),
    (OptunaStudy, {"storage": "study.db"}, ["has 2 studies", "several, theirs"]),
    (OptunaStudy, {"storage": "study.db", "study": "several"}, [".objective", "2 objectives"]),
    (OptunaStudy, {"storage": "study.db", "study": "several", "objective": 2}, ["objective=2", "numbered from 0"]),
    (OptunaStudy, {"storage": "trials.csv"}, ["is not a storage of Optuna"]),
    (
        OptunaStudy,
        {"storage": "empty.log"},
        ["storage=empty.log", "contains no Optuna study", "SQLite or journal file"],
    ),
    (OptunaStudy, {"storage": "text.log"}, ["storage=text.log", "contains no Optuna study", "SQLite or journal file"]),
    (OptunaStudy, {"storage": "mlflow.db"}, ["is not a storage of Optuna", "version_info"]),
    (TrialTable, {"path": "study.db"}, ["must be one of .csv"]),
    (TrialTable, {"path": "trials.csv", "metric": "los"}, ["metric=los", "did you mean loss?"]),
    (TrialTable, {"path": "trials.csv", "state": "stat"}, ["state=stat", "did you mean state?"]),
    (TrialTable, {"path": "trials.csv", "parameters": {"rate": "train.lr"}}, ["parameters.rate", "no such parameter"]),
    (TrialTable, {"path": "$NO_SUCH_VARIABLE"}, ["NO_SUCH_VARIABLE is not set"]),
    (MLflowExperiment, {"uri": "sqlite:///no.db", "experiment": "x"}, ["uri=no.db", "no such file"]),
    (MLflowExperiment, {"uri": "sqlite:///mlflow.db", "experiment": "their"}, ["experiment=their", "theirs?"]),
    (MLflowExperiment, {"uri": "sqlite:///mlflow.db", "experiment": "theirs"}, ["metric=loss", "val_loss", "recall@5"]),
    (
        MLflowExperiment,
        {"uri": "sqlite:///mlflow.db", "experiment": "theirs", "metric": "val_loss", "filter": "a b"},
        ["filter='a b'", "MLflow refuses it"],
    ),
]


@pytest.mark.parametrize(("kind", "source", "words"), WRONG, ids=[" ".join(words) for *_, words in WRONG])
def test_what_cannot_be_read_is_named_with_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[OtherTrials], source: dict[str, Any], words: list[str]
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError) as raised:
        load(kind, **source)
    assert [word for word in ["search.warm_start.0", *words] if word not in str(raised.value)] == []
    assert not (folder / "no.db").exists()


def test_none_and_null_in_a_table_are_choices_and_empty_cells_are_missing(tmp_path: Path) -> None:
    rows = ["lr,optimizer,batch,loss", "0.01,None,16,0.1", "0.02,null,16,0.2", "0.03,,16,0.3", "NA,None,16,0.4"]
    (tmp_path / "trials.csv").write_text("\n".join(rows))
    space = space_of(
        {
            "train.lr": {"type": "float", "low": 1e-4, "high": 1e-1},
            "train.optimizer": {"type": "categorical", "choices": ["None", "null"]},
            "train.batch": {"type": "categorical", "choices": [16]},
        }
    )
    earlier = load(TrialTable, space=space, path=f"{tmp_path}/trials.csv")
    assert [(point["train.lr"], point["train.optimizer"]) for point in earlier.points] == [
        (0.01, "None"),
        (0.02, "null"),
    ]
    assert "left out: 1: no value of train.optimizer; 1: no value of train.lr" in earlier.note


def test_a_choice_of_null_is_that_of_an_empty_cell_and_not_of_a_parameter_that_the_table_lacks(tmp_path: Path) -> None:
    (tmp_path / "trials.csv").write_text("lr,clip,loss\n0.01,,0.1\n0.02,1.0,0.2\n")
    (tmp_path / "without.csv").write_text("lr,loss\n0.01,0.1\n")
    clip = {"type": "categorical", "choices": [None, 1.0]}
    space = space_of({"train.lr": {"type": "float", "low": 1e-4, "high": 1e-1}, "train.clip": clip})

    def read(name: str, **fixed: Any) -> EarlierSweep:
        return load(TrialTable, space=space, path=f"{tmp_path}/{name}", fixed=fixed)

    assert [point["train.clip"] for point in read("trials.csv").points] == [None, 1.0]
    with pytest.raises(UserError, match=r"none of its 1 trials can be used \(1: no value of train.clip\)"):
        read("without.csv")
    assert read("without.csv", **{"train.clip": None}).points == [{"train.lr": 0.01, "train.clip": None}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_texts_of_numbers_and_dates_in_a_table_are_the_choices_that_they_name(suffix: str, tmp_path: Path) -> None:
    rows = [
        {"rate": "1e-3", "version": "007", "start_at": "2024-01-01"},
        {"rate": "5e-4", "version": "010", "start_at": "2024-06-30"},
    ]
    table, file = pd.DataFrame(rows).assign(loss=[0.1, 0.2]), tmp_path / f"trials.{suffix}"
    match suffix:
        case "csv":
            table.to_csv(file, index=False)
        case "jsonl":
            table.to_json(file, orient="records", lines=True)
        case _:
            table.to_parquet(file)
    space = space_of(
        {f"data.{name}": {"type": "categorical", "choices": [row[name] for row in rows]} for name in rows[0]}
    )
    earlier = load(TrialTable, space=space, path=str(file))
    assert earlier.points == [{f"data.{name}": text for name, text in row.items()} for row in rows]


@pytest.mark.parametrize("choices", [[["q"], ["q", "v"]], [[[1, 2]], [[3, 4], [5, 6]]], [{"a": [1]}, {"a": [2, 3]}]])
def test_lists_in_a_parquet_table_are_the_choices_that_they_are(choices: list[Any], tmp_path: Path) -> None:
    pd.DataFrame({"modules": choices, "loss": [0.1, 0.2]}).to_parquet(tmp_path / "trials.parquet")
    space = space_of({"model.modules": {"type": "categorical", "choices": choices}})
    earlier = load(TrialTable, space=space, path=f"{tmp_path}/trials.parquet")
    assert earlier.points == [{"model.modules": each} for each in choices]


def test_a_value_in_an_array_of_one_element_is_the_value(tmp_path: Path) -> None:
    values = {
        "lr": [[0.01], [0.02]],
        "optimizer": [["sgd"], ["adamw"]],
        "batch": [[16], [32]],
        "train.seed": [[3], [4]],
    }
    pd.DataFrame({**values, "loss": [0.1, 0.2]}).to_parquet(tmp_path / "trials.parquet")
    (earlier,) = load_earlier(
        "sqlite:///no.db",
        [TrialTable(kind="table", path=f"{tmp_path}/trials.parquet")],
        SPACE,
        {"train.seed": 0}.get,
        "loss",
        "min",
    )
    assert earlier.points == [
        {"train.lr": 0.01, "train.optimizer": "sgd", "train.batch": 16},
        {"train.lr": 0.02, "train.optimizer": "adamw", "train.batch": 32},
    ]


@pytest.mark.parametrize(
    ("metric", "columns", "note"),
    [
        ("eval/loss", ["eval/loss", "train/loss", "loss"], ""),
        ("eval/loss", ["metrics.eval/loss", "metrics.train/loss", "loss"], "metrics.eval/loss is eval/loss"),
        ("eval/loss", ["Loss", "train/loss"], "Loss is eval/loss"),
        ("eval/loss", ["metrics.loss", "metrics.train/loss"], "metrics.loss is eval/loss"),
        ("loss", ["metrics.loss", "loss_scale"], "metrics.loss is loss"),
        ("eval/loss", ["train/loss", "eval/accuracy"], None),
        ("eval/accuracy", ["train/accuracy"], None),
        ("loss", ["eval/loss", "train/loss"], None),
    ],
)
def test_the_values_are_those_of_the_column_of_the_metric_and_never_of_another_metric(
    metric: str, columns: list[str], note: str | None, tmp_path: Path
) -> None:
    values = {column: [float(index)] for index, column in enumerate(columns, start=1)}
    pd.DataFrame({"lr": [0.01], "optimizer": ["sgd"], "batch": [16], **values}).to_csv(tmp_path / "t.csv", index=False)
    if note is None:
        with pytest.raises(UserError, match=f"0.metric={metric}: the table has no such column; "):
            load(TrialTable, path=f"{tmp_path}/t.csv", metric=metric)
        return
    earlier = load(TrialTable, path=f"{tmp_path}/t.csv", metric=metric)
    assert earlier.values == [1.0]
    assert note in earlier.note
    assert (note == "") == (f"is {metric}" not in earlier.note)


def test_columns_of_other_names_and_trials_outside_of_the_space_are_mistakes(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1.0], "loss": [1.0]}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(UserError, match=r"none of its parameters \(x\) has the name of a searched path"):
        load(TrialTable, path=f"{tmp_path}/other.csv")
    pd.DataFrame({"lr": [1.0, 2.0], "loss": [1.0, 2.0]}).to_csv(tmp_path / "far.csv", index=False)
    with pytest.raises(UserError, match=r"none of its 2 trials can be used \(2: train.lr is not between"):
        load(TrialTable, path=f"{tmp_path}/far.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lr;loss\n0,1;1\n", "separated by ';'; write it with commas"),
        ("lr,größe\n1,1\n", "not UTF-8 .*save it"),
    ],
)
def test_a_table_of_another_separator_or_encoding_says_so(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "trials.csv").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=message):
        load(TrialTable, path=f"{tmp_path}/trials.csv")


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("train.lr", "1e-3", 1e-3),
        ("train.lr", "fast", "fast"),
        ("train.batch", "16", 16),
        ("train.batch", 16.0, 16),
        ("train.batch", 24, 24),
        ("train.optimizer", "sgd", "sgd"),
    ],
)
def test_a_text_becomes_a_number_or_a_choice_where_it_is_one(path: str, given: Any, expected: Any) -> None:
    value = typed(SPACE[path], given)
    assert (value, type(value)) == (expected, type(expected))


def test_words_for_true_and_none_are_choices() -> None:
    distribution = TypeAdapter[Distribution](Distribution).validate_python(
        {"type": "categorical", "choices": [True, False, None]}
    )
    assert [typed(distribution, text) for text in ("True", "false", "None", 1)] == [True, False, None, 1]


def test_a_search_of_ray_tune_begins_with_the_best_rows(folder: Path) -> None:
    earlier = [load(TrialTable, path=f"{folder}/trials.csv", metric="loss")]
    sampler = build_sampler(
        TPESampler(kind="tpe"), seed=0, space=SPACE, earlier=EarlierTrials(earlier, SPACE, "min", seed=0)
    )
    searcher = OptunaSearcher(SPACE, metric="loss", mode="min", sampler=sampler, points=points_to_retry(earlier, SPACE))
    assert searcher.suggest("0") == {"train.lr": 2e-2, "train.optimizer": "sgd", "train.batch": 32}


def planned(source: str) -> Plan:
    tokens = ["conf=digits", "space=none", "train.lr=interval(0.001, 0.1)"]
    return make_plan([*tokens, f"search.warm_start=[{source}]"], [], "warm", "")


def test_a_misspelt_parameter_is_reported_before_ray_starts(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd.DataFrame({"rate": [0.01], "accuracy": [0.5]}).to_csv(working_folder / "trials.csv", index=False)
    monkeypatch.setattr("sweeps.driver.joined_cluster.connected", lambda config: pytest.fail("Ray was started"))
    with pytest.raises(UserError, match=r"parameters\.rat: the source has no such parameter; did you mean rate\?"):
        run(planned("{kind: table, path: trials.csv, parameters: {rat: train.lr}}"), PlainView(Console(quiet=True)))
    assert not (working_folder / "outputs").exists()


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ("nosuchsweep", ["search.warm_start.0=nosuchsweep", "there is no sweep 'nosuchsweep'"]),
        ("{kind: optuna, storage: text.log}", ["search.warm_start.0.storage=text.log", "contains no Optuna study"]),
        ("{kind: table, path: text.csv}", ["search.warm_start.0.metric=eval/accuracy", "no such column"]),
        ("{kind: mlflow, experiment: their, uri: 'sqlite:///mlflow.db'}", ["warm_start.0.experiment=their", "theirs?"]),
        (
            "{kind: mlflow, experiment: theirs, uri: 'sqlite:///mlflow.db'}, {kind: optuna, storage: text.log}",
            ["search.warm_start.1.storage=text.log"],
        ),
        (
            "{kind: mlflow, experiment: theirs, uri: 'sqlite:///mlflow.db'}, nosuchsweep",
            ["search.warm_start.1=nosuchsweep", "there is no sweep 'nosuchsweep'"],
        ),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_by_the_plan(
    folder: Path, working_folder: Path, sources: str, words: list[str]
) -> None:
    for name in ("text.log", "mlflow.db"):
        (working_folder / name).write_bytes((folder / name).read_bytes())
    (working_folder / "text.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError) as raised:
        planned(sources)
    assert [word for word in words if word not in str(raised.value)] == []


def test_the_plan_says_that_an_experiment_was_not_read(folder: Path, working_folder: Path) -> None:
    (working_folder / "mlflow.db").write_bytes((folder / "mlflow.db").read_bytes())
    plan = planned("{kind: mlflow, experiment: theirs, uri: 'sqlite:///mlflow.db', metric: val_loss}")
    (note,) = [note for note in plan.notes if "warm_start" in note]
    assert note.startswith("search.warm_start.0: the trials are read when the sweep starts")


def test_a_sweep_that_continues_learns_from_the_same_trials_though_their_file_is_gone(working_folder: Path) -> None:
    table = working_folder / "trials.csv"
    pd.DataFrame({"lr": [0.01, 0.02], "accuracy": [0.5, 0.7]}).to_csv(table, index=False)
    plan = planned("{kind: table, path: trials.csv}")
    assert plan.warm_start[0].values == [0.7, 0.5]
    plan.folder.mkdir(parents=True)
    save_earlier(plan.folder, plan.warm_start)
    table.unlink()
    again = Plan(plan.name, plan.composition, plan.space, plan.scalings, plan.command, plan.folder, plan.working_folder)
    assert again.warm_start == plan.warm_start


MISTAKES = [
    ("{kind: table, path: no.csv}", ["search.warm_start.0.path=no.csv", "no such file"]),
    ("{kind: table, path: trials.txt}", ["must be one of .csv"]),
    ("{kind: tables, path: trials.csv}", ["search.warm_start.0.kind='tables'", "did you mean table?"]),
    ("{path: trials.csv}", ["search.warm_start.0", "needs the key 'kind'"]),
    ("{kind: table, path: trials.csv, metrics: x}", ["search.warm_start.0.metrics='x'", "0.metric?"]),
    ("{kind: table}", ["search.warm_start.0.path", "is required"]),
    ("5", ["search.warm_start.0=5: must be a valid string"]),
    ("{kind: table, path: trials.csv, parameters: {lr: train.lrr}}", ["parameters.lr=train.lrr", "train.lr?"]),
    ("{kind: table, path: trials.csv, parameters: {a: train.lr, b: train.lr}}", ["a has this path already"]),
    ("{kind: table, path: trials.csv, fixed: {train.lr: 5}}", ["fixed.train.lr=5", "must be between"]),
    ("{kind: table, path: trials.csv, fixed: {train.optimizer: sgd}}", ["fixed.train.optimizer", "is not searched"]),
    (
        "{kind: table, path: trials.csv}, {kind: table, path: trials.csv}",
        ["search.warm_start.1", "is named twice"],
    ),
    ("{kind: optuna, storage: 'postgresql://me:secret@host/db'}", ["me:***@host", "environment variable"]),
]


@pytest.mark.parametrize(("source", "words"), MISTAKES, ids=[source for source, _ in MISTAKES])
def test_mistakes_in_a_config_are_found_before_anything_is_read(
    working_folder: Path, source: str, words: list[str]
) -> None:
    for name in ("trials.csv", "trials.txt"):
        (working_folder / name).write_text("lr,accuracy\n0.01,0.5\n")
    with pytest.raises(UserError) as raised:
        planned(source)
    assert [word for word in words if word not in str(raised.value)] == []
    assert "secret" not in str(raised.value)
