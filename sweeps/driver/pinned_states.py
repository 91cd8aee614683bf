"""Pinned checkpoints, from which other trials of a population continue."""

from __future__ import annotations

import logging
from pathlib import Path

from sweeps.config.objectives import Objectives
from sweeps.runtime.checkpoint_layout import Origin, is_pinned, pin, release, take_over
from sweeps.search.schedulers.pbt import SavedStates
from sweeps.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)


class PinnedStates(SavedStates):
    """Checkpoints that were pinned so that other trials can continue from them."""

    def __init__(self, trials: Path | ObjectStore, objectives: Objectives):
        """
        Args:
            trials: Folder of all trials' checkpoints.
            objectives: Objectives of the sweep, by which a trial keeps its own best checkpoint.
        """
        self._trials, self._objectives = trials, objectives.pairs

    def keep(self, trial: str, num_exploits: int, step: int) -> bool:
        try:
            return is_pinned(self._trials, Origin(trial, step, num_exploits)) or pin(
                self._trials, trial, num_exploits, step
            )
        except OSError as error:
            logger.warning("no trial can continue from trial %s's step %s: %s", trial, step, error)
            return False

    def take_over(self, trial: str, origin: Origin) -> bool:
        try:
            if not is_pinned(self._trials, origin):
                return False
            take_over(self._trials, trial, origin, self._objectives)
        except OSError as error:
            logger.warning("trial %s does not continue from trial %s's state: %s", trial, origin.trial, error)
            return False
        return True

    def release(self, trial: str) -> None:
        release(self._trials, trial)
