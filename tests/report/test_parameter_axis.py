"""Ticks of a parameter's axis."""

from __future__ import annotations

import math

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.report.figures.parameter_axis import ParameterAxis
from sweeps.report.figures.study_in_memory import label


@pytest.mark.parametrize(
    ("distribution", "texts"),
    [
        (IntDistribution(4, 16, log=True), ["4", "6", "8", "11", "16"]),
        (IntDistribution(1, 1000, log=True), ["1", "10", "100", "1000"]),
        (IntDistribution(1, 2, log=True), ["1", "2"]),
        (IntDistribution(1, 4), ["1", "2", "3", "4"]),
        (FloatDistribution(0.01, 1.0, log=True), ["0.01", "0.1", "1"]),
        (
            CategoricalDistribution([label(True), label(False), label(None), label("adamw")]),
            ["true", "false", "null", "adamw"],
        ),
    ],
    ids=str,
)
def test_the_ticks_are_values_of_the_parameter_as_its_config_writes_them(
    distribution: BaseDistribution, texts: list[str]
) -> None:
    assert ParameterAxis(distribution).ticks()[1] == texts


def test_the_ticks_of_a_whole_number_are_where_it_is_on_the_logarithm() -> None:
    positions, texts = ParameterAxis(IntDistribution(4, 16, log=True)).ticks()
    assert positions == pytest.approx([math.log10(int(text)) for text in texts])
