"""Reference of the REST API: every route, parameter and field, from the service's OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.page import code, heading, prose, slug, table
from sweeps.service.api.app import PREFIX, openapi_document

INTRODUCTION = (
    f"Routes of `python -m sweeps serve`, below its address: `http://127.0.0.1:8642{PREFIX}/sweeps`. Requests and "
    "answers are JSON. With tokens, a request has the header `Authorization: Bearer TOKEN` "
    '([security](../security.md)). Errors have a document `{"detail": "..."}` with the message of the command line: '
    "401 no valid token, 403 not allowed, 404 unknown, 409 not possible now, 422 a wrong request, 429 too many "
    "requests, 503 the storage or MLflow does not answer, 504 a plan took too long. "
    f"`{PREFIX}/openapi.json` is the same reference for programs.\n"
)
TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
METHODS = ("get", "post", "patch", "delete", "put")


def pages() -> dict[str, str]:
    """Return the page of all routes."""
    document = openapi_document()
    routes = list(all_routes(document))
    parts = [
        "# REST API\n",
        INTRODUCTION,
        table(
            ("route", "does"),
            [
                (f"[{code(f'{method.upper()} {_short(path)}')}](#{_anchor(method, path)})", _first(route))
                for method, path, route in routes
            ],
        ),
    ]
    for method, path, route in routes:
        parts += _route(document, method, path, route)
    parts.append("## Documents\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += [heading(3, code(name), f"document-{name}"), prose(schema.get("description")) + "\n"]
        if fields := schema.get("properties"):
            parts.append(_fields(fields))
    return {"reference/rest.md": "\n".join(parts)}


def all_routes(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the method, path and description of each route."""
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield method, path, methods[method]


def _short(path: str) -> str:
    return path.removeprefix(PREFIX)


def _anchor(method: str, path: str) -> str:
    return slug(f"{method} {_short(path)}")


def _first(route: dict[str, Any]) -> str:
    return " ".join(prose(route.get("description")).split()).partition(". ")[0].rstrip(".") + "."


def _route(document: dict[str, Any], method: str, path: str, route: dict[str, Any]) -> Iterator[str]:
    yield heading(3, code(f"{method.upper()} {_short(path)}"), _anchor(method, path))
    yield prose(route.get("description")) + "\n"
    rows = []
    for parameter in route.get("parameters", []):
        need = "required" if parameter.get("required") else _default(parameter["schema"])
        rows.append(
            (
                code(parameter["name"]),
                f"{parameter['in']}, {_type(parameter['schema'])}",
                need,
                parameter.get("description", ""),
            )
        )
    body = route.get("requestBody")
    if body is not None:
        content = body["content"]["application/json"]["schema"]
        schema = _resolved(document, content)
        if schema is not None:
            for name, field in schema.get("properties", {}).items():
                need = "required" if name in schema.get("required", []) else _default(field)
                rows.append((code(name), f"body, {_type(field)}", need, _text(field)))
    if rows:
        yield table(("parameter", "where and type", "default", "meaning"), rows)
    yield f"Answer: {_answer(route)}\n"


def _answer(route: dict[str, Any]) -> str:
    for status, response in route["responses"].items():
        if status.startswith("2"):
            contents = response.get("content", {})
            shown = [
                _type(content["schema"]) if kind == "application/json" and content.get("schema") else code(kind)
                for kind, content in contents.items()
            ]
            return f"{status}, {' or '.join(shown)}." if shown else f"{status}."
    return "none."


def _fields(fields: dict[str, Any]) -> str:
    rows = [(code(name), _type(field), _text(field)) for name, field in fields.items()]
    return table(("field", "type", "meaning"), rows)


def _text(field: dict[str, Any]) -> str:
    return prose(field.get("description"))


def _default(field: dict[str, Any]) -> str:
    return (
        code(str(field["default"]).lower() if isinstance(field["default"], bool) else str(field["default"]))
        if field.get("default") not in (None, "")
        else ""
    )


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    for each in schema.get("anyOf", [schema]):
        if "$ref" in each:
            found: dict[str, Any] = document["components"]["schemas"][each["$ref"].rpartition("/")[2]]
            return found
    return None


def _type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return f"[{code(name)}](#{slug(f'document {name}')})"
        case {"anyOf": list(members)}:
            return " or ".join(map(_type, members))
        case {"enum": list(values)}:
            return ", ".join(code(str(value)) for value in values)
        case {"const": value}:
            return code(str(value))
        case {"type": "array"}:
            return f"list of: {_type(schema.get('items', {}))}"
    return {"object": "mapping", **TYPES}.get(schema.get("type", ""), "any value")
