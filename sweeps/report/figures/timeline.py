"""Figures of the workers' time: the trials of each worker, the share of workers that train, and the activities that
took the time of the sweep and of each trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeps.report.figures.section import Image, Section, SectionFigure, style_figure
from sweeps.report.figures.style import STARTING_COLOUR, STATE_COLOURS, time_unit
from sweeps.report.formatting import duration
from sweeps.report.report_data import ReportData
from sweeps.tracking.record import SweepRecord, SweepTime, TrialRecord, ended_spans, last_update
from sweeps.tracking.time_account import NAMES, WORDS, TimeAccount, describe_rest
from sweeps.tracking.trial_history import Span

MOST_BARS = 4000
MOST_ROWS = 64
"""Maximum number of workers with a row each; with more, a row stands for all workers of a trial."""
BINS = 240
LABELLED = 60
"""Maximum number of bars that show the trial's number."""
MOST_TRIALS = 30
"""Maximum number of trials with a bar of their own: those that used the most time."""
COLOURS = {
    "training": "#2563c9",
    "start": STARTING_COLOUR,
    "data_wait": "#d9892b",
    "communication": "#178f8f",
    "checkpoint": "#7d55c7",
    "evaluation": "#4d7c0f",
    "lost": "#c93a3a",
    "other": "#6b7280",
    "waiting": "#92400e",
    "idle_tail": "#a21caf",
}


@dataclass(frozen=True)
class Bar:
    """A worker's time with one trial, or with several short ones in succession.

    Times are seconds since the sweep began, without the pauses between its drivers.
    """

    row: str
    trial: str
    state: str
    held: float
    trained: float
    ended: float
    count: int = 1
    """Number of trials in the bar."""


def bars(data: ReportData) -> list[Bar]:
    """Bar for each worker of each trial. A row is a GPU; on hosts without GPUs, it is a worker slot of the host."""
    record = data.record
    spans = [(trial, *each) for trial in record.all_trials for each in _spans(record, trial)]
    spans.sort(key=lambda each: each[1].held)
    workers = {worker for _, span, _ in spans for worker in span.workers}
    by_trial = sum(len(span.workers) for _, span, _ in spans) > 4 * MOST_BARS
    rows = _Rows(one_host=len({worker.partition("/")[0] for worker in workers}) <= 1)
    found: list[Bar] = []
    for trial, span, ended in spans:
        for worker in (span.workers or ("",))[: 1 if by_trial else None]:
            row = rows.take(worker, span.held, ended)
            held, trained, until = map(record.elapsed, (span.held, span.trained, ended))
            found.append(Bar(row, trial.trial, trial.state, held, trained, until))
    if len({bar.row for bar in found}) > MOST_ROWS:
        found = [next(same) for _, same in itertools.groupby(found, key=lambda bar: (bar.trial, bar.held))]
    return found


def timeline(data: ReportData) -> Section | None:
    """Section with the figures; None if no trial has started."""
    found = bars(data)
    if not found:
        return None
    rows = sorted({bar.row for bar in found}, key=natural)
    drawn = merged(found)
    span = max(bar.ended for bar in found)
    unit, name = time_unit(span)
    height = max(120, min(900, 26 * len(rows) + 40))
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=40 / (height + 160), row_heights=[height, 120]
    )
    _add_bars(figure, drawn, unit)
    of_training = _covered([(bar.row, bar.trained, bar.ended) for bar in found])
    times, training = _training(of_training, span)
    share = [count / len(rows) for count in training]
    line = {"color": STATE_COLOURS["finished"], "width": 1.5, "shape": "hv"}
    area = go.Scatter(x=[time / unit for time in times], y=share, mode="lines", line=line, fill="tozeroy")
    area.update(showlegend=False, hovertemplate="%{y:.0%} train<extra></extra>")
    figure.add_trace(area, row=2, col=1)
    style_figure(figure, barmode="overlay", bargap=0.15, hovermode="closest")
    figure.update_layout(uniformtext={"minsize": 9, "mode": "hide"})
    figure.update_xaxes(title=f"{name} since the start", row=2, col=1)
    figure.update_yaxes(categoryorder="array", categoryarray=rows[::-1], row=1, col=1)
    figure.update_yaxes(title="training", range=(0, 1.02), tickformat=".0%", row=2, col=1)
    held = sum(end - start for start, end in _covered([(bar.row, bar.held, bar.ended) for bar in found]))
    trained = sum(end - start for start, end in of_training)
    text = (
        f"{_goodput(data.record.time)} Trials held their workers for {held / max(1e-9, span * len(rows)):.0%} of the "
        f"time, and started in {_share(held - trained, trained)} of that (grey)."
    )
    if len(drawn) < len(found):
        text += " Short trials that follow each other on a worker are drawn as one bar."
    figures = [SectionFigure(figure=figure, label="workers", height=height + 180, min_width=480)]
    shares = time_shares(data)
    if shares is not None:
        label, shares_height = "what the time was spent on", 150 + 24 * len(shares.data[0].y)
        figures.append(SectionFigure(figure=shares, label=label, height=shares_height, min_width=480))
    images = [each.figure for each in figures]
    pixels = 40 + sum(each.height for each in figures)
    image = Image(name="timeline", figures=images, size=(10, pixels / 100))
    return Section(slug="timeline", title="Timeline", text=text, figures=figures, image=image)


def _goodput(time: SweepTime) -> str:
    if time.account is None:
        return f"Goodput {time.goodput:.0%}: the share of the available trial time in which trials trained."
    text = f"Goodput {time.goodput:.0%}: the share of the workers' time in which they computed steps that were kept."
    return f"{text} The rest: {rest}." if (rest := describe_rest(time.account)) else text


class _Rows:
    """Assigns workers to rows: each GPU has its own; other workers take the first free row of their host."""

    def __init__(self, *, one_host: bool):
        self._one_host = one_host
        self._free_from: dict[str, list[float]] = {}

    def take(self, worker: str, held: float, ended: float) -> str:
        host, _, gpu = worker.partition("/")
        if gpu:
            return f"GPU {gpu}" if self._one_host else f"{host} GPU {gpu}"
        free = self._free_from.setdefault(host, [])
        index = next((index for index, since in enumerate(free) if since <= held), len(free))
        if index == len(free):
            free.append(0.0)
        free[index] = ended
        return f"worker {index + 1}" if self._one_host else f"{host} {index + 1}"


def _spans(record: SweepRecord, trial: TrialRecord) -> list[tuple[Span, float]]:
    """Recorded spans of a trial and their ends, or one from its start to its end if an older version recorded none."""
    if trial.spans or trial.started is None:
        return ended_spans(record, trial)
    return [(Span(held=trial.started, trained=trial.started), trial.ended or last_update(record))]


def merged(found: Sequence[Bar]) -> list[Bar]:
    """Reduce bars to ``MOST_BARS``: neighbours on a row with the same state are merged, across increasing gaps."""
    span = max(bar.ended for bar in found)
    gap, drawn = span / 4000, list(found)
    while len(drawn) > MOST_BARS:
        drawn = _merge_within(drawn, gap)
        gap *= 2
    return drawn


def _merge_within(found: Sequence[Bar], gap: float) -> list[Bar]:
    latest: dict[tuple[str, str], Bar] = {}
    done: list[Bar] = []
    for bar in found:
        row = bar.row, bar.state
        before = latest.get(row)
        if before is not None and bar.held - before.ended <= gap:
            trained = before.trained if before.count == 1 else before.held
            ended, count = max(bar.ended, before.ended), before.count + bar.count
            latest[row] = replace(before, trained=trained, ended=ended, count=count)
            continue
        if before is not None:
            done.append(before)
        latest[row] = bar
    return sorted([*done, *latest.values()], key=lambda bar: bar.held)


def _add_bars(figure: go.Figure, drawn: Sequence[Bar], unit: float) -> None:
    starting = [bar for bar in drawn if bar.trained - bar.held > 0 and bar.count == 1]
    if starting:
        _add_trace(figure, starting, "starting", STARTING_COLOUR, [(bar.held, bar.trained) for bar in starting], unit)
    for state, colour in STATE_COLOURS.items():
        of_state = [bar for bar in drawn if bar.state == state]
        if of_state:
            _add_trace(figure, of_state, state, colour, [(bar.trained, bar.ended) for bar in of_state], unit)


def _add_trace(
    figure: go.Figure, drawn: Sequence[Bar], name: str, colour: str, times: Sequence[tuple[float, float]], unit: float
) -> None:
    labels = [f"trial {bar.trial}" if bar.count == 1 else f"{bar.count} trials from {bar.trial} on" for bar in drawn]
    seconds = [f"{end - start:,.1f} s" for start, end in times]
    trace = go.Bar(
        y=[bar.row for bar in drawn],
        base=[start / unit for start, _ in times],
        x=[(end - start) / unit for start, end in times],
        orientation="h",
        name=name,
        marker={"color": colour, "line": {"color": "white", "width": 0.5 if len(drawn) < 500 else 0}},
        customdata=list(zip(labels, seconds, strict=True)),
        hovertemplate="%{customdata[0]}: " + name + " %{customdata[1]}<extra></extra>",
    )
    if name != "starting" and len(drawn) <= LABELLED:
        trace.update(text=[bar.trial for bar in drawn], textposition="inside", insidetextanchor="middle")
        trace.update(textfont={"color": "white", "size": 11}, textangle=0, constraintext="inside")
    figure.add_trace(trace, row=1, col=1)


def _covered(times: Iterable[tuple[str, float, float]]) -> list[tuple[float, float]]:
    """Merge the overlapping intervals of each row, since trials may share a GPU."""
    found: list[tuple[str, float, float]] = []
    for row, start, end in sorted(times):
        if found and found[-1][0] == row and start <= found[-1][2]:
            found[-1] = (row, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((row, start, end))
    return [(start, end) for _, start, end in found]


def _training(training_times: Sequence[tuple[float, float]], span: float) -> tuple[list[float], list[float]]:
    """Start of each of ``BINS`` intervals, and the average number of rows that trained in it."""
    width = span / BINS or 1.0
    training = [0.0] * BINS
    for start, end in training_times:
        first, last = max(0, math.floor(start / width)), min(BINS - 1, math.floor(end / width))
        for index in range(first, last + 1):
            inside = min(end, (index + 1) * width) - max(start, index * width)
            training[index] += max(0.0, inside) / width
    times = [index * width for index in range(BINS + 1)]
    return times, [*training, training[-1]]


def _share(part: float, rest: float) -> str:
    return f"{part / (part + rest):.0%}" if part + rest else "none"


def natural(row: str) -> tuple[object, ...]:
    """Sort key that puts ``worker 10`` after ``worker 9``."""
    return tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in row.split())


def time_shares(data: ReportData) -> go.Figure | None:
    """Figure of what the workers' time was spent on; None if the sweep has not recorded it."""
    account = data.record.time.account
    if account is None or not account.total:
        return None
    trials = [(trial.trial, trial.account) for trial in data.record.all_trials if trial.account is not None]
    trials.sort(key=lambda each: each[1].total, reverse=True)
    rows = [("sweep", account), *((f"trial {trial}", each) for trial, each in sorted(trials[:MOST_TRIALS]))]
    figure = go.Figure()
    reached = [0.0] * len(rows)
    for part in NAMES:
        shares = [each.shares()[part] for _, each in rows]
        if any(shares):
            _add_part(figure, part, rows, reached, shares)
        reached = [before + share for before, share in zip(reached, shares, strict=True)]
    style_figure(figure, barmode="overlay", bargap=0.25, hovermode="closest")
    figure.update_xaxes(title="share of the workers' time", range=(0, 1), tickformat=".0%")
    figure.update_yaxes(categoryorder="array", categoryarray=[name for name, _ in rows][::-1])
    return figure


def _add_part(
    figure: go.Figure, part: str, rows: list[tuple[str, TimeAccount]], begin: list[float], shares: list[float]
) -> None:
    trace = go.Bar(
        y=[name for name, _ in rows],
        base=begin,
        x=shares,
        orientation="h",
        name=WORDS.get(part, part),
        marker={"color": COLOURS[part]},
        customdata=[duration(asdict(account)[part]) for _, account in rows],
        hovertemplate="%{y}: " + WORDS.get(part, part) + " %{x:.1%}, %{customdata} of all workers<extra></extra>",
    )
    figure.add_trace(trace)
