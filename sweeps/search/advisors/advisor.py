"""Interface of the advisors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import optuna


class Advisor(Protocol):
    """Sets values of the next point before it is sampled, and may refuse the point afterwards."""

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """Return values to set in the next point; the sampler chooses the others.

        Args:
            study: The study, with all trials so far.
            number: Number of the trial that the point is for.

        Returns:
            Values by path; empty to set none.
        """
        return {}

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """Return the reason why a point is not worth training; None if it is.

        The study is told that a refused point failed, and the sampler is asked for another. If several points are
        refused one after another, the last one is trained anyway.

        Args:
            study: The study, with all trials so far.
            point: The point.
        """
        return None
