"""What the parameters do: parallel coordinates, importance, slices and contours."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
import plotly.graph_objects as go
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator, get_param_importances
from optuna.visualization import plot_contour, plot_slice

from sweeps.report.page.drawing import Drawing, Section, polish
from sweeps.report.page.report_data import Material, evenly, values_of
from sweeps.report.page.scale import Scale
from sweeps.report.page.study import build_study, distribution_of, label
from sweeps.report.page.style import VALUE_SCALE, robust_range

FEWEST_TRIALS = 8
"""With a value and with a parameter; fewer tell nothing of how much that matters."""
FOREST_TRIALS, TREES = 200, 32
"""Trials from which fANOVA learns: its time grows with their square, to minutes at 3,000."""
PED_TRIALS = 1000
SLICE_TRIALS = 600
EVALUATORS = {"fANOVA": "#2563c9", "PED-ANOVA": "#d9892b"}
"""Optuna's, and their colours."""
SLICE_SCALE = [[0, "#9cc3f5"], [1, "#0b3a8f"]]
CONTOUR_TRIALS = 120
"""Optuna interpolates at every pair of their values: its size grows with the square of their number."""
CONTOUR_PARAMETERS = 4
LINES = 300
"""More cover each other."""
AXES = 10
MOST_SLICES = 16

Importance = dict[str, float]
"""Share of each parameter, by its short name."""


def importances(material: Material, index: int) -> dict[str, Importance]:
    """Importances by Optuna's two evaluators for an objective, each summing to 1; empty if there are too few trials.

    A parameter that not all trials have is compared with the others among the trials that have it, and counts by their
    share of all trials; without a share where they are too few.
    """
    fanova = FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    found = {
        "fANOVA": _by_group(material, fanova, index, FOREST_TRIALS),
        "PED-ANOVA": _by_group(material, PedAnovaImportanceEvaluator(), index, PED_TRIALS),
    }
    return {name: shares for name, shares in found.items() if shares}


def _by_group(material: Material, evaluator: Any, index: int, most: int) -> Importance:
    """The shares of all parameters, from one evaluation for each group of parameters that the same trials have."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in material.paths:
        groups.setdefault(tuple(trial.trial for trial in material.having(path)), []).append(path)
    shares: Importance = {}
    for trials, paths in groups.items():
        if len(trials) < FEWEST_TRIALS:
            continue
        having = material.having(paths[0])
        common = [path for path in material.paths if all(path in trial.params for trial in having)]
        names = [material.names[path] for path in common]
        found = _importance(build_study(material, evenly(having, most)), evaluator, index, names)
        weight = len(trials) / len(material.valued)
        own = {material.names[path] for path in paths}
        shares |= {name: weight * share for name, share in found.items() if name in own}
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()} if total > 0 else shares


def labels(material: Material, paths: Sequence[str]) -> list[str]:
    """Names of parameters; with the number of trials that one has, where others have more."""
    counts = {path: len(material.having(path)) for path in paths}
    return [
        material.names[path]
        if counts[path] == len(material.valued)
        else f"{material.names[path]} ({counts[path]:,} of {len(material.valued):,} trials)"
        for path in paths
    ]


def by_importance(material: Material, found: Mapping[str, Importance]) -> list[str]:
    """Paths, the most important first; in their own order where that is not known."""
    total = {path: sum(shares.get(material.names[path], 0.0) for shares in found.values()) for path in material.paths}
    return sorted(material.paths, key=lambda path: -total[path])


def importance(material: Material, found: Sequence[Mapping[str, Importance]]) -> Section | None:
    """A bar for each parameter and evaluator.

    Args:
        material: The sweep.
        found: ``importances`` of each objective.
    """
    if len(material.paths) < 2:
        return None
    title, slug = "Parameter importance", "importance"
    if not any(found):
        most = max(len(material.having(path)) for path in material.paths)
        text = f"Needs at least {FEWEST_TRIALS} trials with a value that have a parameter, and there are {most}."
        return Section(slug=slug, title=title, text=text)
    drawings = []
    for metric, each in zip(material.record.metrics, found, strict=True):
        paths = by_importance(material, each)[:20][::-1]
        names, shown = [material.names[path] for path in paths], labels(material, paths)
        figure = go.Figure()
        for evaluator, colour in reversed(EVALUATORS.items()):
            shares = each.get(evaluator, {})
            if shares:
                x = [shares.get(name) for name in names]
                bar = go.Bar(x=x, y=shown, orientation="h", name=evaluator, marker_color=colour)
                figure.add_trace(bar.update(hovertemplate="%{y}: %{x:.1%}<extra></extra>"))
        polish(figure, bargap=0.25, legend_traceorder="reversed")
        figure.update_xaxes(title=f"share of {metric}", tickformat=".0%", rangemode="tozero")
        drawings.append(Drawing(figure=figure, label=metric, height=110 + 34 * len(names)))
    text = (
        "fANOVA: how much of the variation of the value over the whole space a parameter explains. PED-ANOVA: how much "
        "it decides whether a trial is among the best tenth."
    )
    if any(len(material.having(path)) < len(material.valued) for path in material.paths):
        text += (
            " A parameter that not all trials have is compared among those that have it, and counts by their share of "
            f"all trials; it has no bar where fewer than {FEWEST_TRIALS} trials have it."
        )
    return Section(slug=slug, title=title, text=text, drawings=drawings)


def parallel(material: Material, order: Sequence[str]) -> Section | None:
    """Parallel coordinates. Not Optuna's figure, which leaves out every trial that lacks one of the parameters.

    Args:
        material: The sweep.
        order: Paths, the most important first.
    """
    trials = material.ranked
    if not trials or not material.paths:
        return None
    if len(trials) > LINES:
        best = trials[: LINES // 10]
        trials = [*best, *evenly(trials[len(best) :], LINES - len(best))]
    record = material.record
    values = [values_of(trial)[0] for trial in trials]
    limits = robust_range(values, record.mode) or (min(values), max(values))
    axes = [
        _axis(
            material.names[path], distribution_of(material, path), [trial.params.get(path, _ABSENT) for trial in trials]
        )
        for path in order[:AXES]
    ]
    for index, metric in enumerate(record.metrics):
        of = [values_of(trial)[index] for trial in trials]
        axes.append({"label": metric, "values": of, "range": robust_range(of, record.modes[index])})
    worst_first = slice(None, None, -1)  # lines that come later lie above: the best ones
    for axis in axes:
        axis["values"] = axis["values"][worst_first]
    figure = go.Figure(
        go.Parcoords(
            dimensions=axes,
            labelangle=-18,
            labelside="top",
            tickfont={"size": 11},
            line={
                "color": values[worst_first],
                "colorscale": VALUE_SCALE,
                "reversescale": record.mode == "max",
                "cmin": limits[0],
                "cmax": limits[1],
                "showscale": True,
                "colorbar": {"title": {"text": record.metric, "side": "right"}, "thickness": 12},
            },
            unselected={"line": {"color": "#d1d5db", "opacity": 0.15}},
        )
    )
    polish(figure)
    left = max((len(text) for text in axes[0].get("ticktext", [])), default=0)  # of the first axis, beside it
    figure.update_layout(margin={"l": max(70, 20 + 7 * left), "r": 30, "t": 110, "b": 24})
    text = "A line is a trial; the darkest are the best. Drag along an axis to choose trials, click it to undo that."
    if any(set(order[:AXES]) - set(trial.params) for trial in trials):
        text += " “absent”: the trial does not have the parameter."
    if len(order) > AXES:
        text += f" The {AXES} most important of {len(order)} parameters."
    if len(material.valued) > LINES:
        text += f" {LINES:,} of {len(material.valued):,} trials, the best among them."
    drawing = Drawing(figure=figure, height=480, min_width=92 * len(axes) + 120)
    return Section(slug="parallel", title="Parallel coordinates", text=text, drawings=[drawing])


def slices(material: Material, order: Sequence[str]) -> Section | None:
    """The first objective against each parameter on its own, by Optuna."""
    if not material.valued or not material.paths:
        return None
    study = build_study(material, material.thinned(SLICE_TRIALS))
    record = material.record
    values = [values_of(trial)[0] for trial in material.valued]
    limits = robust_range(values, record.mode)
    drawings = []
    for path in order[:MOST_SLICES]:
        name = material.names[path]
        figure = plot_slice(study, params=[name], target=lambda trial: trial.values[0], target_name=record.metric)
        figure.update_traces(marker={"size": 6, "line": {"width": 0}, "showscale": False, "colorscale": SLICE_SCALE})
        _without_quotes(figure)
        _real_ticks(figure, material, [path])
        _whole_range(figure, distribution_of(material, path))
        polish(figure, showlegend=False)
        figure.update_layout(margin={"l": 56, "r": 12, "t": 8, "b": 40})
        figure.update_yaxes(title=None, range=limits)
        figure.update_xaxes(title=None)
        drawings.append(Drawing(figure=figure, label=path, height=240))
    first = ", the most important first" if len(material.valued) >= FEWEST_TRIALS else ""
    text = f"{record.metric} against each parameter{first}; the darker, the later."
    if len(order) > MOST_SLICES:
        text += f" {MOST_SLICES} of {len(order)} parameters."
    if len(material.valued) > SLICE_TRIALS:
        text += f" {SLICE_TRIALS} of {len(material.valued):,} trials, the best among them."
    return Section(slug="slices", title="Slices", text=text, drawings=drawings, layout="grid")


def contours(material: Material, order: Sequence[str]) -> Section | None:
    """The first objective over pairs of the most important parameters, by Optuna."""
    if len(material.valued) < FEWEST_TRIALS:
        return None
    study, record = build_study(material, material.thinned(CONTOUR_TRIALS)), material.record
    drawings = []
    for pair in contour_pairs(material, order):
        names = [material.names[path] for path in pair]
        values = [trial.values[0] for trial in study.trials if all(name in trial.params for name in names)]
        # Optuna skips the trials in which one of the two does not exist.
        figure = plot_contour(study, params=names, target=lambda trial: trial.values[0], target_name=record.metric)
        limits = robust_range(values, record.mode) or (min(values), max(values))
        figure.update_traces(
            colorscale=VALUE_SCALE,
            reversescale=record.mode == "max",
            contours={
                "coloring": "fill",
                "start": limits[0],
                "end": limits[1],
                "size": (limits[1] - limits[0]) / 12 or 1.0,
            },
            colorbar={"title": {"text": record.metric, "side": "right"}, "thickness": 12},
            selector={"type": "contour"},
        )
        figure.update_traces(marker={"color": "white", "size": 5}, selector={"type": "scatter"})
        polish(figure, showlegend=False)
        _real_ticks(figure, material, pair)
        drawings.append(Drawing(figure=figure, label=f"{names[0]} and {names[1]}", height=460))
    if not drawings:
        return None
    text = f"{record.metric} over two parameters, interpolated between trials (the points)."
    if len(material.valued) > CONTOUR_TRIALS:
        text += f" From {CONTOUR_TRIALS} of {len(material.valued):,} trials, the best among them."
    return Section(slug="contours", title="Contours", text=text, drawings=drawings)


_ABSENT = object()


def _without_quotes(figure: go.Figure) -> None:
    """Optuna shows choices as Python writes them."""
    if figure.layout.xaxis.type == "category":
        figure.for_each_trace(lambda trace: trace.update(x=[text.strip("'") for text in trace.x]))
        figure.update_xaxes(categoryarray=[text.strip("'") for text in figure.layout.xaxis.categoryarray])


def _real_ticks(figure: go.Figure, material: Material, paths: Sequence[str]) -> None:
    """Numbers as people write them on logarithmic axes: plotly's own ticks are 2, 5 and prefixes of units."""
    for path, update in zip(paths, (figure.update_xaxes, figure.update_yaxes), strict=False):
        distribution = distribution_of(material, path)
        if getattr(distribution, "log", False):
            places, texts = Scale(distribution).ticks()
            update(tickvals=[10**place for place in places], ticktext=texts)


def _whole_range(figure: go.Figure, distribution: BaseDistribution) -> None:
    """All that could be tried, not only what was."""
    if not isinstance(distribution, CategoricalDistribution):
        low, high = Scale(distribution).ends
        margin = 0.05 * (high - low) or 0.5
        figure.update_xaxes(range=(low - margin, high + margin))


def _axis(name: str, distribution: BaseDistribution, values: Sequence[Any]) -> dict[str, Any]:
    """An axis of parallel coordinates: numbers as they are, or their logarithms; choices at whole numbers; and below
    all, if a trial does not have the parameter, a place for that."""
    scale = Scale(distribution)
    low, high = scale.ends
    below = low - 0.12 * (high - low or 1.0)
    absent = any(value is _ABSENT for value in values)
    ticks, texts = scale.ticks()
    if absent:
        ticks, texts = [below, *ticks], ["absent", *texts]
    return {
        "label": name,
        "values": [below if value is _ABSENT else scale.place(label(value)) for value in values],
        "range": (below if absent else low, high if high > low else low + 1),
        "tickvals": ticks,
        "ticktext": texts,
    }


def _importance(study: optuna.Study, evaluator: Any, index: int, names: list[str]) -> Importance:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of parameters that few trials have
        try:
            found = get_param_importances(
                study, evaluator=evaluator, params=names, target=lambda trial: trial.values[index]
            )
        except (ValueError, RuntimeError):  # all trials are equal, or share no parameter
            return {}
    return {name: float(share) for name, share in found.items() if share == share}  # noqa: PLR0124 - no NaN


def contour_pairs(material: Material, order: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs to look at, the most important first: of numbers, or of a number and a choice that a plane can show."""
    numbers = {path for path in order if not isinstance(distribution_of(material, path), CategoricalDistribution)}
    chosen = [path for path in order if path in numbers][:CONTOUR_PARAMETERS]
    chosen += [path for path in order if path not in numbers][:1]
    pairs = [
        pair
        for pair in itertools.combinations(sorted(chosen, key=order.index), 2)
        if numbers.intersection(pair) and _spread(material, pair)
    ]
    return sorted(pairs, key=lambda pair: (len(numbers.intersection(pair)) < 2, sum(map(order.index, pair))))


def _spread(material: Material, pair: tuple[str, str]) -> bool:
    """Whether enough trials have both, do not lie on a line, and differ: otherwise there is nothing to interpolate."""
    trials = [trial for trial in material.valued if set(pair) <= set(trial.params)]
    if len(trials) < FEWEST_TRIALS or len({values_of(trial)[0] for trial in trials}) < 2:
        return False
    columns = []
    for path in pair:
        scale = Scale(distribution_of(material, path))
        columns.append([scale.part(scale.place(label(trial.params[path]))) for trial in trials])
    places = np.array(columns)
    several = all(len(set(column)) >= 3 for column in columns)
    return several and int(np.linalg.matrix_rank(places - places.mean(axis=1, keepdims=True), tol=1e-6)) == 2
