"""Divergence of a training: losses and gradients that are not finite, and spikes of the gradients' norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from sweeps_train.config import Train
from sweeps_train.device import sum_type

SPIKE = 10.0
"""A gradient is a spike if its norm is so many times the usual one."""
KNOWN_AFTER = 5
"""Number of logs after which the usual norm is known."""
SMOOTHING = 0.1
"""Weight of the latest steps in the usual norm, which is an exponential moving average."""
MOST_NORMS = 256
"""Largest number of norms that are kept before they are summed up."""
MOST_SKIPPED = 10
"""Largest number of steps that are left out in succession before the training counts as diverged."""
MOST_RESTORED = 3
"""Largest number of times that a training goes back to a checkpoint."""


class Diverged(Exception):
    """The training is to continue from its last checkpoint, with the samples after those with which it diverged."""

    def __init__(self, samples: int):
        """
        Args:
            samples: Position in the order of the data at which to continue.
        """
        super().__init__(f"the training diverged before sample {samples}")
        self.samples = samples


class DivergenceGuard:
    """Watches the norm of each step's gradients, and the training loss. All workers see the same values."""

    def __init__(self, train: Train, device: torch.device, note: Callable[[str], None]):
        """
        Args:
            train: The config: what is done when a training diverges.
            device: Device of the gradients, on which their norms stay, so that nothing waits for them.
            note: Tells the user something.
        """
        self._reaction, self._note = train.on_divergence, note
        self._usual, self._logs = 0.0, 0
        self._skipped = self._skipped_in_succession = 0
        self._norms: list[torch.Tensor] = []
        """Norms since the last log. They are summed up when they are many, since an operation for each would take a
        hundredth of the time of a small model's step."""
        self._totals = torch.zeros(3, dtype=sum_type(device), device=device)
        """Sum of the norms before these, the largest, and their number."""

    def keeps(self, norm: torch.Tensor, *, is_scaled: bool) -> bool:
        """Take the norm of a step's gradients; return whether the step is made.

        Args:
            norm: Norm of all gradients of all workers before clipping, a scalar.
            is_scaled: Whether a gradient scaler leaves out steps by itself.
        """
        self._norms.append(norm.detach())
        if len(self._norms) >= MOST_NORMS:
            self._sum_up()
        if self._reaction != "skip" or is_scaled or norm.isfinite():
            self._skipped_in_succession = 0
            return True
        self._skipped, self._skipped_in_succession = self._skipped + 1, self._skipped_in_succession + 1
        return False

    def _sum_up(self) -> None:
        if not self._norms:
            return
        norms = torch.stack(self._norms).to(self._totals)
        self._norms.clear()
        is_finite = norms.isfinite()
        counted = torch.where(is_finite, norms, 0.0)
        total, largest, number = self._totals
        self._totals = torch.stack(
            [total + counted.sum(), torch.maximum(largest, counted.max()), number + is_finite.sum()]
        )

    def metrics(self, step: int) -> dict[str, float]:
        """Mean and largest norm of the gradients since the last call, and the number of all steps that were left out.

        Args:
            step: Number of optimizer steps done.
        """
        self._sum_up()
        total, largest, number = self._totals.tolist()
        self._totals = torch.zeros_like(self._totals)
        skipped = {"train/skipped_steps": float(self._skipped)} if self._skipped else {}
        if not number:
            return skipped
        mean = total / number
        if self._logs >= KNOWN_AFTER and largest > SPIKE * self._usual:  # and so not part of what is usual
            times = f"{largest / self._usual:.0f} times the usual one" if self._usual else "after none"
            self._note(f"step {step} or shortly before: a spike of the gradients' norm, {largest:.3g}, {times}")
        else:
            self._logs += 1
            self._usual += (mean - self._usual) * max(SMOOTHING, 1 / self._logs)
        return {"train/grad_norm": mean, "train/grad_norm_max": largest, **skipped}

    def has_diverged(self, loss: float) -> bool:
        """Whether the training should not go on.

        Args:
            loss: Training loss of all workers since the last log.
        """
        if self._reaction == "skip":
            return self._skipped_in_succession >= MOST_SKIPPED
        return self._reaction != "continue" and not math.isfinite(loss)

    def tell_end(self, step: int, samples: int, times_restored: int) -> None:
        """Tell that a training that has diverged ends with a step.

        Args:
            step: Number of optimizer steps done.
            samples: Samples consumed.
            times_restored: Number of times that the training has gone back to a checkpoint.

        Raises:
            Diverged: It is to go back to its last checkpoint instead.
        """
        found = f"step {step}: the training loss or its gradients are not finite"
        if self._reaction == "restore" and times_restored < MOST_RESTORED:
            self._note(f"{found}; the training goes back to its last checkpoint and leaves these samples out")
            raise Diverged(samples)
        self._note(f"{found}; the training ends (train.on_divergence={self._reaction})")
