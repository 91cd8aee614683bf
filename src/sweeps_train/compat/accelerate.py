"""Private names of Hugging Face Accelerate."""

from __future__ import annotations

import sys


def forget_settings() -> None:
    """Forget the settings that Accelerate keeps for its process, which the next ``Accelerator()`` would take."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
