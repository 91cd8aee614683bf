"""Rows of a table of learning curves, which are checked when the table is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, FloatDistribution
from sweeps.errors import UserError
from sweeps.plan.plan import make_plan
from sweeps.simulate.inputs import Inputs, read_inputs
from sweeps.simulate.recorded_table import CurveTable, point_key, read_table
from sweeps.simulate.run import simulate
from sweeps.simulate.simulation_summary import print_simulation, simulation_document
from sweeps.space.space import Space

SPACE = Space(
    {
        "lr": FloatDistribution(type="float", low=0.1, high=1.0),
        "kind": CategoricalDistribution(type="categorical", choices=["a", [1, 2]]),
    }
)
LR = [0.3, 0.6, 0.9]


def rows() -> pd.DataFrame:
    """Three configurations with four reports each."""
    return pd.DataFrame(
        {
            "config_id": number,
            "step": 10 * report,
            "elapsed_s": 2.0 * report,
            "lr": LR[number],
            "kind": "[1, 2]" if number else "a",
            "loss": LR[number] / report,
        }
        for number in range(3)
        for report in range(1, 5)
    )


def read(frame: pd.DataFrame, folder: Path) -> CurveTable:
    frame.to_parquet(folder / "curves.parquet")
    return read_table(folder / "curves.parquet", SPACE, lambda path: None, ["loss"])


def with_values(column: str, values: Any, where: Any = slice(None)) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        column_values = frame[column].astype(object)
        column_values[frame.index[where]] = values
        return frame.assign(**{column: column_values.infer_objects()})

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_values("config_id", None), r"column config_id: row 1 has none \(12 of 12 rows have none\); name the"),
        (with_values("config_id", math.nan, 5), r"column config_id: row 6 has none \(1 of 12 rows have none\)"),
        (with_values("step", math.nan, 5), "column step: configuration 1 has nan; write whole numbers from 1 on"),
        (with_values("step", 0, 4), "column step: configuration 1 has 0; write whole numbers from 1 on"),
        (with_values("step", 10.5, 4), "column step: configuration 1 has 10.5; write whole numbers from 1 on"),
        (with_values("step", math.inf, 4), "column step: configuration 1 has inf; write whole numbers from 1 on"),
        (lambda frame: frame.astype({"step": str}), r"column step: .*not numbers \(configuration 0 has '10'\)"),
        (with_values("elapsed_s", math.nan, 5), "column elapsed_s: configuration 1 has nan at step 20; write the sec"),
        (with_values("elapsed_s", 0.0), "column elapsed_s: configuration 0 has 0.0 at step 10; .* above 0"),
        (with_values("elapsed_s", -1.0, 4), "column elapsed_s: configuration 1 has -1.0 at step 10; .* above 0"),
        (with_values("elapsed_s", math.inf, 7), "column elapsed_s: configuration 1 has inf at step 40; write the sec"),
        (with_values("elapsed_s", 1.0, 6), "column elapsed_s: configuration 1 has 1.0 at step 30; .* never fewer"),
        (with_values("elapsed_s", pd.Timestamp(2026, 1, 1)), "column elapsed_s: holds dates, not numbers"),
        (with_values("loss", "bad"), r"column loss: holds text .*\(configuration 0 has 'bad'\); write numbers"),
        (lambda frame: frame.assign(loss=frame["loss"] > 0.3), "column loss: holds truth values, not numbers"),
        (with_values("loss", math.nan), r"column loss: no row has a finite number \(configuration 0 has nan\)"),
        (with_values("loss", 1e200, 4), r"column loss: configuration 1 has 1e\+200 at step 10; write at most 1e\+150"),
        (
            lambda frame: frame.astype({"lr": str}),
            r"column lr: holds text .*, not numbers \(configuration 0 has '0.3'\)",
        ),
        (with_values("lr", 0.5, 5), "column lr: configuration 1 has both 0.6 and 0.5; write one value in all of its"),
        (with_values("kind", "a", 5), r"column kind: configuration 1 has both '\[1, 2\]' and 'a'; write one value"),
        (
            lambda frame: frame.assign(kind=[[1, 2]] * 12),
            r"column kind: holds lists or mappings \(configuration 0 has array\(\[1, 2\]\)\); write each as a text",
        ),
        (with_values("lr", 5.0), r"none of its 3 configurations lies in the space .*\(configuration 0 has lr=5.0\)"),
        (
            lambda frame: pd.concat([frame, frame.assign(loss=frame["loss"] + 1)]),
            "column step: configuration 0 has several rows for step 10, which differ; keep one",
        ),
    ],
)
def test_a_table_with_a_value_that_is_part_of_no_learning_curve_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        read(change(rows()), tmp_path)
    assert str(refused.value).startswith(f"--simulate {tmp_path / 'curves.parquet'}: ")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda frame: frame.sample(frac=1, random_state=0), id="in any order"),
        pytest.param(lambda frame: pd.concat([frame, frame]), id="each row twice"),
        pytest.param(lambda frame: frame.set_index("config_id"), id="configurations as the index of pandas"),
        pytest.param(lambda frame: frame.convert_dtypes(), id="types of pandas that have no NaN"),
        pytest.param(lambda frame: frame.astype({"step": float}), id="whole numbers as floats"),
    ],
)
def test_a_table_is_the_same_however_its_rows_are_written(
    change: Callable[[pd.DataFrame], pd.DataFrame], tmp_path: Path
) -> None:
    assert read(change(rows()), tmp_path) == read(rows(), tmp_path)


def test_a_configuration_with_constants_is_answered_as_it_was_trained(tmp_path: Path) -> None:
    layers = ConstantDistribution(type="constant", value=4, when={"kind": "a"})
    sizes = ConstantDistribution(type="constant", value=[8, 8])
    space = Space({**SPACE.distributions, "layers": layers, "sizes": sizes})
    frame = rows().assign(sizes="[8, 8]")
    frame.assign(layers=[4 if kind == "a" else None for kind in frame["kind"]]).to_parquet(tmp_path / "curves.parquet")
    table = read_table(tmp_path / "curves.parquet", space, lambda path: None, ["loss"])
    points = [{"lr": 0.3, "kind": "a", "layers": 4, "sizes": [8, 8]}, {"lr": 0.6, "kind": [1, 2], "sizes": [8, 8]}]
    assert [table.by_point[point_key(each)] for each in points] == table.trials[:2]


def test_a_training_that_diverged_may_have_any_values_after_it(tmp_path: Path) -> None:
    frame = with_values("loss", [math.nan, math.inf, -math.inf], slice(5, 8))(rows())
    losses = [report.metrics["loss"] for report in read(frame, tmp_path).trials[1].reports]
    assert losses[0] == 0.6
    assert not any(map(math.isfinite, losses[1:]))


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder; give the Parquet file in it"):
        read_table(tmp_path, SPACE, lambda path: None, ["loss"])


def planned(folder: Path, values: Callable[[int], float]) -> Inputs:
    """Eight configurations with forty reports of these values."""
    frame = pd.DataFrame(
        {"config_id": number, "step": step, "elapsed_s": step, "train.lr": 0.001 * (number + 1), "eval/accuracy": value}
        for number in range(8)
        for step, value in ((step, values(step)) for step in range(1, 41))
    )
    frame.to_parquet(folder / "curves.parquet")
    space = ["space=none", "train.lr=tag(log, interval(1e-3, 1e-2))"]
    plan = make_plan(["conf=digits", "search.num_trials=4", *space], [], "planned", "", where="elsewhere")
    return read_inputs(plan, folder / "curves.parquet")


def test_a_metric_that_is_the_same_everywhere_is_simulated_without_a_warning_and_has_no_normalized_regret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulate(planned(tmp_path, lambda step: 0.5))
    assert result.error is not None
    assert result.error.rank_correlation == 0
    assert result.sweeps[0].improvements[-1].regret == 0
    assert simulation_document(result)["simulation"]["seeds"][0]["normalized_regret"] is None
    print_simulation(result, Console(width=200))
    assert re.search(r"\s0\s+-\n", capsys.readouterr().out)


def test_a_metric_that_is_rarely_reported_may_leave_nothing_to_fit_a_forest_to(tmp_path: Path) -> None:
    inputs = planned(tmp_path, lambda step: 0.5 if step == 39 else math.nan)
    with pytest.raises(UserError, match=r"--between=forest: .* finite values of all of eval/accuracy; use --between=n"):
        simulate(inputs)
    assert simulate(inputs, between="nearest").sweeps[0].record.counts["failed"] == 4


def test_the_command_refuses_a_table_with_one_message(
    tmp_path: Path, typed: Callable[..., tuple[int, str, str]], working_folder: Path
) -> None:
    file = tmp_path / "curves.parquet"
    with_values("step", math.nan, 5)(rows().rename(columns={"lr": "train.lr", "loss": "eval/accuracy"})).to_parquet(
        file
    )
    command = ["run", "conf=digits", "space=none", "train.lr=interval(0.1,1)", "--simulate", str(file)]
    status, _, err = typed(*command)
    assert status == 2
    assert err == f"sweeps: --simulate {file}: column step: configuration 1 has nan; write whole numbers from 1 on\n"
