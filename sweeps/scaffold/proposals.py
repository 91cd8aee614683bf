"""Proposes a distribution for an option, from its name, type and default."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from sweeps.scaffold.option import MISSING, Option

Distribution = dict[str, Any]

LARGEST_DECAY = 0.5
"""Largest default of a decay that is subtracted; a larger one is a factor."""
NOT_SEARCHED = re.compile(
    r"seed|epoch|steps?$|iter|worker|device|gpu|cpu|rank|port|path|dir|file|folder|log|save|eval|valid|test|resume|"
    r"checkpoint|ckpt|name|project|run|interval|every|freq|verbose|debug|patience|split|data|cache|num_classes|"
    r"max_len|seq_len|precision|dtype|backend|output|world|local|master|host|url|key|token|thread|process|prefetch"
)
"""Names of options for the duration, device, seed and paths of a training; a search over them would compare different
problems."""

SEARCHED_CHOICES = re.compile(r"optim|sched|activation|nonlin|norm|loss|init|kernel|pool|solver|penalty|criterion")
"""Names of options whose choices are worth a search."""


def propose(option: Option) -> Distribution | None:
    """Return a distribution that may be worth searching; None if the option should keep its value."""
    if option.excluded is not None:
        return None
    name = option.name.rpartition(".")[2].lower().replace("-", "_")
    if len(option.choices) > 1:
        is_plain = all(isinstance(each, int | float | str | None) for each in option.choices)
        is_searched = is_plain and SEARCHED_CHOICES.search(name)
        return {"type": "categorical", "choices": list(dict.fromkeys(option.choices))} if is_searched else None
    if option.kind not in ("float", "int"):
        return None
    for pattern, distribution in _RULES:
        if re.search(pattern, name):
            return distribution(option)
    return None


def _number(option: Option, otherwise: float) -> float:
    default = option.default
    is_number = default is not MISSING and isinstance(default, int | float) and not isinstance(default, bool)
    return float(default) if is_number and math.isfinite(default) else otherwise


def _decades(otherwise: float, up: float = 10.0, down: float = 10.0) -> Callable[[Option], Distribution | None]:
    """Return a rule that proposes a logarithmic range around the default, by a factor in each direction."""

    def propose_decades(option: Option) -> Distribution | None:
        value = _number(option, otherwise)
        if option.kind != "float":
            return None
        if value <= 0:
            value = otherwise
        return {"type": "float", "low": _rounded(value / down), "high": _rounded(value * up), "log": True}

    return propose_decades


def _between(low: float, high: float) -> Callable[[Option], Distribution | None]:
    """Return a rule that proposes a fixed range, widened to include the default."""

    def propose_range(option: Option) -> Distribution | None:
        value = _number(option, low)
        if option.kind != "float":
            return None
        return {"type": "float", "low": min(low, value), "high": max(high, value)}

    return propose_range


def _decay(option: Option) -> Distribution | None:
    """Propose a range for a decay: linear if the default is zero, which has no logarithm; none for a factor, such as
    that of an average of weights (0.999), which must stay below 1."""
    if _number(option, 0.0) > LARGEST_DECAY:
        return None
    return _between(0.0, 0.1)(option) if _number(option, 0.0) <= 0 else _decades(1e-4)(option)


def _doublings(otherwise: int) -> Callable[[Option], Distribution | None]:
    """Return a rule that proposes the default, its half if that is whole, and its double."""

    def propose_doublings(option: Option) -> Distribution | None:
        value = round(_number(option, otherwise))
        if option.kind != "int" or value < 1:
            return None
        half = [] if value % 2 else [value // 2]
        return {"type": "ordinal", "choices": [*half, value, 2 * value]}

    return propose_doublings


def _width(option: Option) -> Distribution | None:
    value = round(_number(option, 64))
    if option.kind != "int" or value < 2:
        return None
    return {"type": "int", "low": max(1, value // 2), "high": value * 4, "log": True}


def _depth(option: Option) -> Distribution | None:
    value = round(_number(option, 2))
    return {"type": "int", "low": max(1, value // 2), "high": max(2, value * 2)} if option.kind == "int" else None


def _nothing(_: Option) -> None:
    return None


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


_RULES: list[tuple[str, Callable[[Option], Distribution | None]]] = [
    (r"(^|_)(test|eval|val|valid|validation)(_|$)|^min_lr$|^lr_min$", _nothing),
    (r"lr_(noise|cycle|k)_|layer_decay|bn_momentum", _nothing),  # factors of the schedule, of the layers, of averages
    (r"(^|_)(lr|learning_rate)($|_(?!sched|decay|step|gamma|type|warm|end|min))|^eta$", _decades(1e-3)),
    (r"weight_decay|^wd$|(^|_)l2($|_)|(^|_)decay$", _decay),
    (r"dropout|drop_rate|drop_path|^drop$", _between(0.0, 0.5)),
    (r"momentum|beta_?1", _between(0.8, 0.99)),
    (r"beta_?2", _between(0.9, 0.999)),
    (r"label_smoothing|warmup_(ratio|fraction|frac|proportion)", _between(0.0, 0.2)),
    (r"grad_norm|clip", _decades(1.0)),
    (r"temperature", _decades(1.0, up=4.0, down=4.0)),
    (r"batch_?size|^bs$|^batch$", _doublings(32)),
    (r"^(lora_)?(r|rank)$|lora_rank", _doublings(8)),
    (r"lora_alpha|^alpha$", lambda option: _doublings(16)(option) if option.kind == "int" else None),
    (r"(^|_)n?(um)?_?heads?$", _doublings(4)),
    (NOT_SEARCHED.pattern, _nothing),
    (r"(^|_)(in|input|img|image|obs|state|action|vocab)_", _nothing),  # sizes that follow from the data
    (r"layers?$|depth|blocks$", _depth),
    (r"hidden|width|channels|filters|units|(^|_)dim($|_)|embed|d_model|ffn", _width),
]
"""Rules by pattern; the first pattern that a name matches decides."""
