"""Learning curves of a running sweep as a small SVG image, written as text without a plotting library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from markupsafe import Markup

from sweeps.report.figures.style import BEST_COLOUR, MUTED, STATE_COLOURS, value_range
from sweeps.texts.wording import counted

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 26, 24
MOST_CURVES = 60

Curve = Sequence[tuple[float, float]]


def curves_image(
    curves: Mapping[str, Curve], states: Mapping[str, str], best: str | None, metric: str, mode: str
) -> Markup:
    """Return an image element with the curves; an empty string if there are none.

    Args:
        curves: Steps and values by trial, in order. The best and the last ones are drawn if there are many.
        states: State of each trial, which gives the colour.
        best: Id of the best trial, which is drawn above the others.
        metric: Name of the values.
        mode: ``min`` or ``max``; values that are much worse than the others are outside the image.
    """
    shown = dict(list(curves.items())[-MOST_CURVES:])
    if best is not None and best in curves:
        shown.pop(best, None)
        shown[best] = curves[best]
    values = [value for curve in shown.values() for _, value in curve]
    if not values:
        return Markup()
    low, high = value_range(values, mode)
    last = max(step for curve in shown.values() for step, _ in curve) or 1.0
    margin = 0.05 * (high - low) or abs(high) or 1.0
    lines = [
        _line(curve, last, low - margin, high + margin, *_look(states.get(trial, ""), is_best=trial == best))
        for trial, curve in shown.items()
    ]
    svg = "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
            f' font-family="sans-serif" font-size="11" fill="{MUTED}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<path d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="{MUTED}"/>',
            _text(LEFT - 6, _y(high, low - margin, high + margin) + 4, f"{high:.4g}", "end"),
            _text(LEFT - 6, _y(low, low - margin, high + margin) + 4, f"{low:.4g}", "end") if high > low else "",
            _text(LEFT, HEIGHT - 8, "0", "start"),
            _text(WIDTH - RIGHT, HEIGHT - 8, f"{counted(round(last), 'step')}", "end"),
            _text(LEFT, TOP - 10, metric, "start"),
            *lines,
            "</svg>",
        ]
    )
    data = base64.b64encode(svg.encode()).decode()
    text = f"{metric} by step of {counted(len(shown), 'trial')}"
    return Markup('<p><img alt="{}" src="data:image/svg+xml;base64,{}"></p>').format(text, data)


def _look(state: str, *, is_best: bool) -> tuple[str, float]:
    """Colour and width of a curve."""
    return (BEST_COLOUR, 2.5) if is_best else (STATE_COLOURS.get(state, MUTED), 1.2)


def _line(curve: Curve, last: float, low: float, high: float, colour: str, width: float) -> str:
    points = [(LEFT + step / last * (WIDTH - LEFT - RIGHT), _y(value, low, high)) for step, value in curve]
    if len(points) == 1:
        return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="{1.5 * width:g}" fill="{colour}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _y(value: float, low: float, high: float) -> float:
    share = (min(max(value, low), high) - low) / (high - low)
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
