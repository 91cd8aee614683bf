"""HTML of tables for notebooks: plain elements without scripts or styles, since each viewer (Jupyter, nbconvert,
GitHub) removes some scripts and styles and has its own style for tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

NO_FORMULAS = Markup('class="tex2jax_ignore mathjax_ignore"')
"""Classes of elements in which notebooks show dollar signs as they are, in the older and newer releases of MathJax."""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table. Text in its cells is escaped unless it is ``Markup``."""
    head = Markup().join(Markup("<th>{}</th>").format(name) for name in columns)
    lines = [Markup().join(Markup("<td>{}</td>").format(cell) for cell in row) for row in rows]
    body = Markup().join(Markup("<tr>{}</tr>").format(line) for line in lines)
    table = Markup("<table {}><thead><tr>{}</tr></thead><tbody>{}</tbody></table>")
    return table.format(NO_FORMULAS, head, body)


def paragraphs(*texts: object) -> Markup:
    """Return a paragraph for each non-empty text."""
    return Markup().join(Markup("<p {}>{}</p>").format(NO_FORMULAS, text) for text in texts if text)
