"""What may help a sampler from outside: a say in the next point before it is sampled, and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import optuna


class Advisor(Protocol):
    """Something that is known beside the study's own values: a prior, what failed, earlier sweeps."""

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """Values by path to set in the next point, of which the sampler chooses the rest; empty: none.

        Args:
            study: All trials so far.
            number: Of the trial that the point is for: how many were started before.
        """

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """Why a point is not worth training; None if it is. It is then told as failed, and another one asked; when
        one after the other is refused, the last one is trained after all."""
