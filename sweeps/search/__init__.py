"""How the next trial is chosen, and which trials go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.search.searcher import OptunaSearcher as OptunaSearcher

__all__ = ["OptunaSearcher"]


def __getattr__(name: str) -> Any:
    if name == "OptunaSearcher":  # late: it imports ray and optuna
        from sweeps.search.searcher import OptunaSearcher

        return OptunaSearcher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
