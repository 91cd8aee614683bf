"""Private names of Hugging Face Accelerate."""

from __future__ import annotations

import sys
from typing import Any

STATES = ("PartialState", "AcceleratorState", "GradientState")


def settings() -> dict[str, dict[str, Any]]:
    """Return the settings that Accelerate keeps for its process, which the next ``Accelerator()`` takes; none if it was
    not imported."""
    state = sys.modules.get("accelerate.state")
    return {} if state is None else {name: dict(getattr(state, name)._shared_state) for name in STATES}


def restore_settings(before: dict[str, dict[str, Any]]) -> None:
    """Restore what ``settings`` returned."""
    for name in settings():
        kept = getattr(sys.modules["accelerate.state"], name)._shared_state
        kept.clear()
        kept.update(before.get(name, {}))
