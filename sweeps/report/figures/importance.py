"""Figure of parameter importance by two of Optuna's evaluators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import plotly.graph_objects as go
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances
from optuna.study import StudyDirection

from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.study_in_memory import build_study
from sweeps.report.report_data import ReportData, evenly

FEWEST_TRIALS = 8
"""Minimum number of trials with a value and a parameter for the importance of that parameter."""
FOREST_TRIALS, TREES = 200, 16
"""Numbers of trials and of trees for fANOVA. Its time grows with the square of the number of trials, to minutes at
3,000. Twice as many trees would change a share by about 0.01 and take twice as long."""
PED_TRIALS = 500
MOST_BARS = 20
EVALUATORS = {"fANOVA": "#2563c9", "PED-ANOVA": "#d9892b"}
"""Optuna's evaluators and their colours."""

Importance = dict[str, float]
"""Share of each parameter, by its short name."""


def importances(data: ReportData, objective: int) -> dict[str, Importance]:
    """Importances by Optuna's two evaluators for an objective, each summing to 1; empty if there are too few trials.

    A parameter that only some trials have is compared with the others among those trials, and weighted by their share
    of all trials; it has no importance where they are too few.
    """
    fanova = FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    found = {
        # fANOVA would see the values of a logarithmic range on a linear scale, and its trees none below 1e-7. It has a
        # column for each choice, and its time doubles with each: 16 choices take minutes. In the order of their means,
        # trees split them as well in one column. PED-ANOVA has a grid for each kind of range, which must keep its kind.
        "fANOVA": _by_group(data, fanova, objective, FOREST_TRIALS, scaled_for=objective),
        "PED-ANOVA": _by_group(data, PedAnovaImportanceEvaluator(), objective, PED_TRIALS, scaled_for=None),
    }
    return {name: shares for name, shares in found.items() if shares}


def _by_group(data: ReportData, evaluator: Any, objective: int, most: int, *, scaled_for: int | None) -> Importance:
    """Shares of all parameters, from one evaluation for each group of parameters that occur in the same trials."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in data.paths:
        groups.setdefault(tuple(trial.trial for trial in data.having(path)), []).append(path)
    shares: Importance = {}
    for trials, paths in groups.items():
        if len(trials) < FEWEST_TRIALS:
            continue
        having = data.having(paths[0])
        names = [data.names[path] for path in data.paths if all(path in trial.params for trial in having)]
        found = _evaluate(build_study(data, evenly(having, most), scaled_for=scaled_for), evaluator, objective, names)
        weight = len(trials) / len(data.valued)
        own = {data.names[path] for path in paths}
        shares |= {name: weight * share for name, share in found.items() if name in own}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()} if total > 0 else shares


def _evaluate(study: optuna.Study, evaluator: Any, objective: int, names: list[str]) -> Importance:
    if len({trial.values[objective] for trial in study.trials}) == 1:
        return {}  # Optuna would return equal shares
    # Given a target, Optuna takes its lowest values for the best, whatever the study's direction.
    sign = -1.0 if study.directions[objective] == StudyDirection.MAXIMIZE else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna warns of parameters that few trials have, and of the above
        try:
            found = get_param_importances(
                study, evaluator=evaluator, params=names, target=lambda trial: sign * trial.values[objective]
            )
        # All trials are equal, or share no parameter; or a sum of values is infinite, which fANOVA asserts not to be.
        except (ValueError, RuntimeError, AssertionError):
            return {}
    return {name: float(share) for name, share in found.items() if share == share}  # noqa: PLR0124 - no NaN


def by_importance(data: ReportData, found: Mapping[str, Importance]) -> list[str]:
    """Paths of the parameters, most important first; in their own order if importance is unknown."""
    total = {path: sum(shares.get(data.names[path], 0.0) for shares in found.values()) for path in data.paths}
    return sorted(data.paths, key=lambda path: -total[path])


def importance(data: ReportData, found: Sequence[Mapping[str, Importance]]) -> Section | None:
    """Section with a bar for each parameter and evaluator."""
    title, slug = "Parameter importance", "importance"
    if not any(found):
        if len(data.paths) < 2:
            return None
        most = max(len(data.having(path)) for path in data.paths)
        text = f"Needs at least {FEWEST_TRIALS} trials with a value that have a parameter, and there are {most}."
        if most >= FEWEST_TRIALS:
            text = "Needs trials that have the same parameters and differ in their values."
        return Section(slug=slug, title=title, text=text)
    figures = [_figure(data, metric, each) for metric, each in zip(data.record.metrics, found, strict=True)]
    text = (
        "fANOVA: how much of the variation of the value over the whole space a parameter explains. PED-ANOVA: how much "
        "it decides whether a trial is among the best tenth."
    )
    if any(len(data.having(path)) < len(data.valued) for path in data.paths):
        text += (
            " A parameter that only some trials have is compared among those trials, and weighted by their share of "
            f"all trials; it has no bar where fewer than {FEWEST_TRIALS} trials have it."
        )
    drawn = next(each for each in figures if each.figure.data)  # an objective may have no importances
    image = Image(name="importance", figures=[drawn.figure], size=(8, drawn.height / 80))
    return Section(slug=slug, title=title, text=text, figures=figures, image=image)


def _figure(data: ReportData, metric: str, found: Mapping[str, Importance]) -> SectionFigure:
    paths = by_importance(data, found)[:MOST_BARS][::-1]
    names, labels = [data.names[path] for path in paths], _labels(data, paths)
    figure = go.Figure()
    for evaluator, colour in reversed(EVALUATORS.items()):
        shares = found.get(evaluator, {})
        if shares:
            x = [shares.get(name) for name in names]
            bar = go.Bar(x=x, y=labels, orientation="h", name=evaluator, marker_color=colour)
            figure.add_trace(bar.update(hovertemplate="%{y}: %{x:.1%}<extra></extra>"))
    style_figure(figure, bargap=0.25, legend_traceorder="reversed")
    figure.update_xaxes(title=f"share of {metric}", tickformat=".0%", rangemode="tozero")
    return SectionFigure(figure=figure, label=metric, height=110 + 34 * len(names))


def _labels(data: ReportData, paths: Sequence[str]) -> list[str]:
    """Names of parameters; with the number of trials if only some trials have the parameter."""
    counts = {path: len(data.having(path)) for path in paths}
    return [
        data.names[path]
        if counts[path] == len(data.valued)
        else f"{data.names[path]} ({counts[path]:,} of {len(data.valued):,} trials)"
        for path in paths
    ]
