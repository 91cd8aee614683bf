"""Reference of the Python packages: every public function and class, from its docstring and its annotations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import griffe

from reference.page import code, heading, prose, slug, table

PACKAGES = ("sweeps", "sweeps.search", "sweeps_train")


def pages() -> dict[str, str]:
    """Return one page for each package."""
    return {f"reference/python/{name.replace('.', '_')}.md": _package(name) for name in PACKAGES}


def public_objects(package: str) -> Iterator[griffe.Object]:
    """Yield the public objects of a package in the order of ``__all__``, read from the sources without importing
    them."""
    module = _loaded(package)
    for name in sorted(str(each) for each in module.exports or []):
        found = module[name]
        yield found.final_target if found.is_alias else found


def _loaded(package: str) -> Any:
    root, _, inner = package.partition(".")
    return _root(root)[inner] if inner else _root(root)


@cache
def _root(name: str) -> Any:
    loader = griffe.GriffeLoader(docstring_parser=griffe.Parser.google)
    root = loader.load(name)
    loader.resolve_aliases(implicit=True)
    return root


def _package(name: str) -> str:
    module = _loaded(name)
    found = list(public_objects(name))
    functions = [each for each in found if each.is_function]
    others = [each for each in found if not each.is_function]
    parts = [
        f"# Python: `{name}`\n",
        prose(module.docstring.value if module.docstring else "").partition("\n>>>")[0] + "\n",
    ]
    for title, objects in (("Functions", functions), ("Classes and constants", others)):
        if objects:
            rows = [(f"[{code(each.name)}](#{slug(f'{name} {each.name}')})", _summary(each)) for each in objects]
            parts += [f"## {title}\n", table(("name", "does" if objects is functions else "is"), rows)]
            for each in objects:
                parts += _object(name, each)
    return "\n".join(parts)


def _summary(found: griffe.Object) -> str:
    text = prose(found.docstring.value if found.docstring else "")
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."


def _object(package: str, found: Any) -> Iterator[str]:
    yield heading(3, code(found.name), f"{package}-{found.name}")
    if found.is_function:
        yield f"```python\n{_signature(found)}\n```\n"
    yield from _docstring(found)
    if found.is_class:
        rows = [
            (
                code(member.name),
                code(str(member.annotation)) if member.annotation else "",
                prose(member.docstring.value),
            )
            for member in _own_members(found)
            if member.is_attribute
        ]
        if rows:
            yield table(("attribute", "type", "meaning"), rows)
        for member in _own_members(found):
            if member.is_function:
                yield heading(4, code(f"{found.name}.{member.name}"), f"{package}-{found.name}-{member.name}")
                yield f"```python\n{_signature(member)}\n```\n"
                yield from _docstring(member)


def _own_members(found: Any) -> list[Any]:
    """Return the public members that have a docstring; the others repeat a base class."""
    members = [each for each in found.members.values() if not each.is_alias]
    return [each for each in members if each.docstring and (not each.name.startswith("_") or each.name == "__init__")]


def _signature(function: Any) -> str:
    parameters = [each for each in function.parameters if each.name not in ("self", "cls")]
    shown, keyword_only = [], False
    for each in parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            keyword_only = True
            if not any(other.kind is griffe.ParameterKind.var_positional for other in parameters):
                shown.append("*")
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
        default = f" = {each.default}" if each.default is not None and not star else ""
        shown.append(
            f"{star}{each.name}: {each.annotation}{default}" if each.annotation else f"{star}{each.name}{default}"
        )
    answer = f" -> {function.annotation}" if function.annotation else ""
    line = f"{function.name}({', '.join(shown)}){answer}"
    if len(line) <= 100:
        return line
    return f"{function.name}(\n    " + ",\n    ".join(shown) + f",\n){answer}"


def _docstring(found: Any) -> Iterator[str]:
    if found.docstring is None:
        return
    for section in found.docstring.parse("google", warnings=False):
        yield from _parsed(section)


def _parsed(section: Any) -> Iterator[str]:
    match section.kind:
        case griffe.DocstringSectionKind.text:
            yield prose(section.value) + "\n"
        case griffe.DocstringSectionKind.parameters:
            rows = [(code(each.name), prose(each.description)) for each in section.value]
            yield table(("argument", "meaning"), rows)
        case griffe.DocstringSectionKind.returns:
            yield "**Returns:** " + " ".join(prose(each.description) for each in section.value) + "\n"
        case griffe.DocstringSectionKind.raises:
            rows = [(code(str(each.annotation)), prose(each.description)) for each in section.value]
            yield table(("raises", "when"), rows)
        case griffe.DocstringSectionKind.examples:
            for kind, text in section.value:
                yield text + "\n" if kind is griffe.DocstringSectionKind.text else f"```pycon\n{text}\n```\n"
        case griffe.DocstringSectionKind.admonition:
            yield f"**{section.title}:** {prose(section.value.description)}\n"
