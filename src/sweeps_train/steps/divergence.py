"""Divergence of a training: losses and gradients that are not finite, and spikes of the gradients' norm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable

import torch
from torch import nn

from sweeps_train.compat.torch import local_shard
from sweeps_train.config import Train

SPIKE = 10.0
"""Ratio of a gradient's norm to the usual one above which it is a spike."""
KNOWN_AFTER = 5
"""Number of logs after which the usual norm is known."""
SMOOTHING = 0.1
"""Weight of the latest steps in the usual norm, which is an exponential moving average."""
MOST_NORMS = 256
"""Number of stored tensors of norms after which they are joined into one."""
MOST_SKIPPED = 10
"""Maximum number of successive skipped steps before the training counts as diverged."""
MOST_RESTORED = 3
"""Maximum number of times that a training returns to a checkpoint."""


class Diverged(Exception):
    """Raised to continue a training from its last checkpoint, with the samples after those at which it diverged."""

    def __init__(self, samples: int):
        super().__init__(f"the training diverged before sample {samples}")
        self.samples = samples
        """Position in the order of the data at which to continue."""


class DivergenceGuard:
    """Watches the training loss and the norm of each step's gradients. All workers see the same values."""

    def __init__(self, train: Train, note: Callable[[str], None], weights: Iterable[torch.Tensor] = ()):
        """
        Args:
            train: Settings of the training.
            note: Tells the user something.
            weights: Trained weights, before the first step.
        """
        self._reaction, self._note = train.on_divergence, note
        is_checked = train.max_grad_norm is None and train.on_divergence != "continue"
        self._weights = [each for each in weights if _are_finite([each])] if is_checked else []
        """Weights to check, since without clipping no gradient norm is computed; without those that are never finite,
        such as a mask."""
        self._usual, self._logs = 0.0, 0
        self._skipped = self._skipped_in_succession = 0
        self._is_scaled = self._has_applied_infinite = False
        self._norms: list[torch.Tensor] = []
        """Norms since the last log, in tensors of one dimension. They stay on the device and are read at the log: one
        device operation for each would take a hundredth of the step time of a small model."""

    def keeps(self, norm: torch.Tensor, scaler: torch.amp.GradScaler) -> bool:
        """Check the norm of a step's gradients, of all workers and before clipping; return whether to take the step.
        With an enabled scaler the answer is always true, since it skips steps with infinite gradients itself."""
        self._is_scaled = scaler.is_enabled()
        self._norms.append(norm.detach().view(1))
        if len(self._norms) >= MOST_NORMS:
            self._norms = [torch.cat(self._norms)]
        if self._reaction != "skip" or math.isfinite(norm):
            self._skipped_in_succession = 0
            return True
        self._skipped += 1
        # Above a scale of 1 the scaler may only be searching for the largest one that does not overflow.
        if not scaler.is_enabled() or scaler.get_scale() <= 1:
            self._skipped_in_succession += 1
        return scaler.is_enabled()

    def weights_vote(self) -> float:
        """Return 1 if this worker has weights that are not finite, else 0; 0 also if gradient norms are checked
        instead."""
        return float(not _are_finite(self._weights))

    def metrics(self, step: int, weights_votes: float = 0.0) -> dict[str, float]:
        """Return the mean and maximum of the gradient norm since the last call, and the number of all skipped steps,
        given the sum of all workers' ``weights_vote``."""
        norms = torch.cat(self._norms).tolist() if self._norms else []
        self._norms.clear()
        finite = [norm for norm in norms if math.isfinite(norm)]
        self._has_applied_infinite = weights_votes > 0 or (len(finite) < len(norms) and not self._is_scaled)
        skipped = {"train/skipped_steps": float(self._skipped)} if self._skipped else {}
        if not finite:
            return skipped
        mean, largest = statistics.fmean(finite), max(finite)
        if self._logs >= KNOWN_AFTER and largest > SPIKE * self._usual:  # a spike does not count towards the usual norm
            times = f"{largest / self._usual:.0f} times the usual one" if self._usual else "after none"
            self._note(f"step {step} or shortly before: a spike of the gradients' norm, {largest:.3g}, {times}")
        else:
            self._logs += 1
            self._usual += (mean - self._usual) * max(SMOOTHING, 1 / self._logs)
        return {"train/grad_norm": mean, "train/grad_norm_max": largest, **skipped}

    def has_diverged(self, loss: float) -> bool:
        """Whether the training has diverged, given its loss on all workers since the last log; false if the config
        ignores it. To be called after ``metrics``."""
        if self._reaction == "skip":
            return self._skipped_in_succession >= MOST_SKIPPED
        # Weights are NaN then, which the loss shows only at the next step: too late for a checkpoint.
        return self._reaction != "continue" and (self._has_applied_infinite or not math.isfinite(loss))

    def tell_end(self, step: int, samples: int, times_restored: int) -> None:
        """Tell the user that a diverged training, which has gone back to a checkpoint ``times_restored`` times, ends at
        this step and position in the data.

        Raises:
            Diverged: The training must return to its last checkpoint instead.
        """
        found = f"step {step}: the training loss or its gradients are not finite"
        if self._reaction == "restore" and times_restored < MOST_RESTORED:
            self._note(f"{found}; the training goes back to its last checkpoint and leaves these samples out")
            raise Diverged(samples)
        self._note(f"{found}; the training ends (train.on_divergence={self._reaction})")


def _are_finite(weights: Iterable[torch.Tensor]) -> bool:
    """Whether this worker's parts of all weights are finite."""
    shards = [local_shard(each.detach()) for each in weights]
    shards = [each for each in shards if each.numel()]
    return not shards or bool(nn.utils.get_total_norm(shards, math.inf).isfinite())
