"""Suggestions for distributions in the notation of other tools (Ray Tune, Optuna, W&B, hyperopt)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_LENGTH = 300
"""Maximum characters of a value in which a distribution is searched."""
_INNERMOST_CALL = re.compile(r"(?<![\w.])(?P<name>[A-Za-z_][\w.]*+)\((?P<inside>[^()]*+)\)")
_WITH_LOG = re.compile(r"\blog\s?=\s?true\b|\bsampling\s?=\s?['\"]log\b", re.IGNORECASE)
_NAMES = re.compile(r"(name|label)\s?=")
"""Arguments that name the parameter."""
_CHOICES_BY_NAME = re.compile(r"(values|choices|options|categories)\s?=\s?")
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)
_MODULES = re.compile(r"^(ray|tune|hp|trial|optuna|distributions|np|numpy|random|stats|scipy)\.")


@dataclass(frozen=True)
class _Form:
    """Distribution in our notation: as an override, in YAML, and a note on the difference."""

    override: str
    yaml: str
    note: str = ""


_REAL = _Form("interval({low}, {high})", "{{type: float, low: {low}, high: {high}}}")
_REAL_LOG = _Form("tag(log, interval({low}, {high}))", "{{type: float, low: {low}, high: {high}, log: true}}")
_STEPS = _Form("", "{{type: float, low: {low}, high: {high}, step: {step}}}")
_WHOLE = _Form("int(interval({low}, {high}))", "{{type: int, low: {low}, high: {high}}}", "both ends are included")
_WHOLE_LOG = _Form(
    "tag(log, int(interval({low}, {high})))", "{{type: int, low: {low}, high: {high}, log: true}}", _WHOLE.note
)
_CHOICE = _Form("choice({choices})", "{{type: categorical, choices: [{choices}]}}")
_NORMAL = _Form(
    "",
    "{{type: float, low: LOW, high: HIGH, prior: {{value: {low}, confidence: 0.6}}}}",
    "there is no normal distribution; a prior says where you expect the best value",
)

_FORMS = {
    _REAL: ("uniform", "double", "float", "floatuniform", "uniformfloat", "floatdistribution", "uniformdistribution"),
    _REAL_LOG: (
        *("loguniform", "loguniformvalues", "reciprocal", "invloguniform", "log10uniform"),
        *("qloguniform", "loguniformdistribution", "logfloat", "floatlog"),
    ),
    _STEPS: ("quniform", "discreteuniform", "quniformfloat", "uniformq"),
    _WHOLE: ("randint", "qrandint", "int", "intuniform", "uniformint", "integer", "intdistribution", "randrange"),
    _WHOLE_LOG: ("lograndint", "qlograndint", "intloguniform", "logint"),
    _CHOICE: ("choice", "choices", "categorical", "grid", "gridsearch", "values", "samplefrom", "list", "pchoice"),
    _NORMAL: ("normal", "qnormal", "randn", "qrandn", "lognormal", "qlognormal", "gaussian"),
}
_BY_NAME = {name: form for form, names in _FORMS.items() for name in names}

_KEYS = {
    "distribution": "type",
    "dist": "type",
    "min": "low",
    "lower": "low",
    "start": "low",
    "max": "high",
    "upper": "high",
    "end": "high",
    "stop": "high",
    "values": "choices",
    "options": "choices",
    "q": "step",
    "categories": "choices",
    "condition": "when",
    "default": "prior",
}
"""Our name of each key that distributions have in other tools."""


def hint_for_override(token: str) -> str | None:
    """Return our notation for an override such as ``train.lr=loguniform(1e-5, 1e-2)``; None for an unknown one."""
    key, _, value = token.partition("=")
    found = _INNERMOST_CALL.search(value[:MAX_LENGTH])
    if found is None:
        return None
    name, arguments = found["name"], [each.strip() for each in found["inside"].split(",") if each.strip()]
    form = _form(name, log="log" in value[: found.start()] or _WITH_LOG.search(found["inside"]) is not None)
    if form is None:
        return None
    has_name = "suggest" in name or (name.startswith("hp.") and "=" not in "".join(arguments[:1]))
    if has_name:  # of the parameter, as the first argument
        del arguments[:1]
    arguments = [each for each in arguments if _NAMES.match(each) is None]
    listed = _CHOICES_BY_NAME.sub("", ", ".join(arguments), count=1)
    path, is_space = key.strip().lstrip("+").removeprefix("space."), key.startswith("space.")
    ours = form.yaml if is_space or not form.override or "null" in arguments else form.override
    text = ours.format(**_bounds(arguments), choices=_without_brackets(listed) or "A, B")
    return f"write '{'space.' if ours == form.yaml else ''}{path}={text}'{f' ({form.note})' if form.note else ''}"


def _without_brackets(choices: str) -> str:
    """Return the items of choices that are given as one list."""
    outside = re.sub(r"\[[^][]*+\]", "", choices[1:-1])
    return choices[1:-1] if choices[:1] == "[" and choices[-1:] == "]" and "]" not in outside else choices


def _bounds(arguments: Sequence[str]) -> dict[str, str]:
    order = {"low": 0, "lower": 0, "high": 1, "upper": 1}  # Optuna prints high before low
    arguments = sorted(
        arguments, key=lambda each: order.get(each.partition("=")[0].strip(), 0 if "=" not in each else 2)
    )
    values = [each.rpartition("=")[2].strip() for each in arguments]
    numbers = [each for each in values if _NUMBER.fullmatch(each)]
    return dict(zip(("low", "high", "step"), (numbers + ["LOW", "HIGH", "STEP"][len(numbers) :])[:3], strict=True))


def hint_for_type(name: str) -> str | None:
    """Return our notation for a distribution type such as ``loguniform``; None for an unknown one."""
    form = _form(name)
    if form is None:
        return None
    text = form.yaml.format(low="LOW", high="HIGH", step="STEP", choices="A, B")
    return f"write {text}{f' ({form.note})' if form.note else ''}"


def is_distribution_elsewhere(value: Mapping[str, Any]) -> bool:
    """Whether a mapping has only keys that distributions have in other tools: ``{min: 1, max: 2}``."""
    return _KEYS.keys() >= value.keys() and not any(isinstance(each, Mapping) for each in value.values())


def hint_for_key(name: str) -> str | None:
    """Return the key of Sweeps for a key that distributions have in other tools, such as ``min``."""
    return _KEYS.get(name)


def _form(name: str, *, log: bool = False) -> _Form | None:
    while (shorter := _MODULES.sub("", name)) != name:
        name = shorter
    form = _BY_NAME.get(name.removeprefix("suggest_").replace("_", "").replace("-", "").lower())
    if log:
        return _REAL_LOG if name == "interval" else {_REAL: _REAL_LOG, _WHOLE: _WHOLE_LOG}.get(form or _CHOICE, form)
    return form
