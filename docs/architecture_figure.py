"""Draws docs/images/architecture.svg: the packages of Sweeps, and which of them import which, read from the sources.

Run:
    python docs/architecture_figure.py

An arrow points from a package to one that it imports; one that follows from others is left out.
tests/test_architecture.py fails when the committed figure differs from the sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FIGURE = CHECKOUT / "docs" / "images" / "architecture.svg"
SHARED = "shared modules"
"""Box of the modules at the top level of ``sweeps/`` and of ``SHARED_PACKAGES``, which every package may import."""
SHARED_PACKAGES = ("compat", "files", "folders", "storage", "texts")
TRAINING = "sweeps_train"
PURPOSES = {
    "cli": "verbs of the command line",
    "api": "functions of `import sweeps`",
    "service": "queue, schedules, REST API, pages",
    "operations": "what a person does, here or over HTTP",
    "driver": "runs one sweep",
    "doctor": "checks machines, storage, tracking",
    "completion": "completion in the shell",
    "report": "tables, figures, the report page",
    "registry": "models in MLflow's registry",
    "cleaning": "removal of old checkpoints",
    "simulate": "searches on recorded curves",
    "launch": "jobs of Ray, Slurm, Kubernetes",
    "plan": "checked plan of a sweep",
    "validate": "finds mistakes before the start",
    "search": "samplers, schedulers, stop rules",
    "warm_start": "trials of earlier searches",
    "runtime": "trials and their workers on Ray",
    "tracking": "records in MLflow",
    "provenance": "code, packages, data, machine",
    "space": "distributions, constraints, points",
    "convert": "configs from other tools' searches",
    "scaffold": "files of a new project",
    "compose": "YAML and overrides to a config",
    "config": "typed schema",
    SHARED: "errors, files, compat, storage, ...",
    TRAINING: "training library, runs on workers",
}
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 220, 46, 26, 42, 20
SIDE = 70
"""Space on either side for arrows that pass boxes between."""

Graph = dict[str, set[str]]


def imports() -> Graph:
    """Return the boxes that each box imports."""
    graph: Graph = {}
    for folder in (CHECKOUT / "sweeps", CHECKOUT / "src" / TRAINING):
        for path in sorted(folder.rglob("*.py")):
            box = _box(".".join(path.relative_to(folder.parent).with_suffix("").parts))
            if box is not None:
                graph.setdefault(box, set()).update(_imported_boxes(path) - {box})
    return graph


def _imported_boxes(path: Path) -> set[str]:
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {box for name in names if (box := _box(name)) is not None}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below a node: a small part of what ``ast.walk`` looks at."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _statements(child)


def _box(module: str) -> str | None:
    """Return the box of a module; None if it is not ours, or is one of the entry points ``sweeps`` and ``__main__``."""
    root, _, rest = f"{module}.".partition(".")
    part = rest.partition(".")[0]
    if root == TRAINING:
        return TRAINING
    if root != "sweeps" or part in ("", "__init__", "__main__"):
        return None
    if part in SHARED_PACKAGES or (CHECKOUT / "sweeps" / f"{part}.py").exists():
        return SHARED
    return part if (CHECKOUT / "sweeps" / part).is_dir() else None


def levels(graph: Graph) -> dict[str, int]:
    """Return the height of each box: one above the highest box that it imports."""
    found: dict[str, int] = {}

    def level(box: str) -> int:
        if box not in found:
            found[box] = 1 + max((level(each) for each in graph[box]), default=-1)
        return found[box]

    for box in graph:
        level(box)
    return found


def direct(graph: Graph) -> Graph:
    """Return the graph without imports that follow from others."""

    @cache
    def reachable(box: str) -> set[str]:
        return graph[box].union(*map(reachable, graph[box]))

    return {
        box: {each for each in targets if not any(each in reachable(other) for other in targets)}
        for box, targets in graph.items()
    }


def rows(graph: Graph) -> list[list[str]]:
    """Return the boxes of each level, the highest level first, each box near those that import it."""
    heights = levels(graph)
    found: list[list[str]] = []
    position: dict[str, float] = {}
    for height in range(max(heights.values()), -1, -1):
        row = [box for box in sorted(graph) if heights[box] == height]
        above = {box: [position[each] for each in position if box in graph[each]] for box in row}
        row.sort(key=lambda box: (sum(above[box]) / len(above[box]) if above[box] else 0.0, box))
        position |= {box: (index + 0.5) / len(row) for index, box in enumerate(row)}
        found.append(row)
    return found


def svg(graph: Graph) -> str:
    """Return the figure."""
    edges = direct(graph)
    lines = rows(edges)
    width = 2 * SIDE + max(len(row) * (WIDTH + GAP_X) - GAP_X for row in lines)
    height = 2 * MARGIN + len(lines) * (HEIGHT + GAP_Y) - GAP_Y
    places: dict[str, tuple[float, float]] = {}
    for index, row in enumerate(lines):
        left = (width - len(row) * (WIDTH + GAP_X) + GAP_X) / 2
        for column, box in enumerate(row):
            places[box] = left + column * (WIDTH + GAP_X), MARGIN + index * (HEIGHT + GAP_Y)
    arrows = [_arrow(places, box, target, edges) for box in sorted(edges) for target in sorted(edges[box])]
    boxes = [_rectangle(box, *places[box]) for row in lines for box in row]
    size = f'width="{width:g}" height="{height:g}"'
    head = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {size} role="img">',
            "<style>text { font-family: system-ui, sans-serif }</style>",
            "<title>Packages of Sweeps and their imports</title>",
            f'<defs><marker id="head" {head}><path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>',
            f'<rect {size} fill="#ffffff"/>',
            *arrows,
            *boxes,
            "</svg>",
            "",
        ]
    )


def _arrow(places: Mapping[str, tuple[float, float]], box: str, target: str, edges: Graph) -> str:
    """Return a curve from a box to one that it imports: between their edges, or past the boxes between them."""
    start, end = places[box], places[target]
    if end[1] - start[1] > HEIGHT + GAP_Y:
        return _side_arrow(start, end, min(x for x, _ in places.values()), max(x for x, _ in places.values()) + WIDTH)
    x1, y1 = start[0] + WIDTH * _share(target, places, edges[box]), start[1] + HEIGHT
    importers = {each for each, targets in edges.items() if target in targets}
    x2, y2 = end[0] + WIDTH * _share(box, places, importers), end[1] - 1
    bend = 0.6 * (y2 - y1)
    return _curve((x1, y1), (x1, y1 + bend), (x2, y2 - bend), (x2, y2))


def _side_arrow(start: tuple[float, float], end: tuple[float, float], left: float, right: float) -> str:
    """Return a curve on the left or right of the figure, between the sides of two boxes."""
    on_left = end[0] + WIDTH / 2 < (left + right) / 2
    x1, x2 = (start[0], end[0] - 1) if on_left else (start[0] + WIDTH, end[0] + WIDTH + 1)
    y1, y2 = start[1] + HEIGHT / 2, end[1] + HEIGHT / 2
    outside = left - SIDE if on_left else right + SIDE
    return _curve((x1, y1), (outside, y1), (outside, y2), (x2, y2))


def _curve(*points: tuple[float, float]) -> str:
    start, *others = (f"{x:.0f} {y:.0f}" for x, y in points)
    return (
        f'<path d="M{start}C{" ".join(others)}" fill="none" stroke="#94a3b8" stroke-width="1.4" '
        'marker-end="url(#head)"/>'
    )


def _share(other: str, places: Mapping[str, tuple[float, float]], others: Iterable[str]) -> float:
    """Return where along a box's edge the arrow to another one begins, so that arrows do not overlap."""
    ordered = sorted(others, key=lambda each: (places[each][0], each))
    return (ordered.index(other) + 1) / (len(ordered) + 1)


def _rectangle(box: str, x: float, y: float) -> str:
    colours = {SHARED: ("#f1f5f9", "#64748b"), TRAINING: ("#fef3c7", "#b45309")}
    fill, stroke = colours.get(box, ("#e0f2fe", "#0369a1"))
    middle = x + WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{middle:g}" y="{y + 19:g}" text-anchor="middle" font-size="14" font-weight="600" fill="#0f172a">'
        f"{escape(box)}</text>"
        f'<text x="{middle:g}" y="{y + 36:g}" text-anchor="middle" font-size="11" fill="#334155">'
        f"{escape(PURPOSES.get(box, ''))}</text>"
    )


if __name__ == "__main__":
    FIGURE.write_text(svg(imports()), encoding="utf-8")
