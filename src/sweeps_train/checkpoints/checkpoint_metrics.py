"""The metrics in a checkpoint: those that were reported at its step."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path

from sweeps_train.checkpoints.integrity import read_sealed
from sweeps_train.files.atomic_write import atomic_write

METRICS_FILE = "metrics.json"
"""File in a checkpoint with the metrics that were reported at its step; it contains null if none were."""
EVALUATION_FILE = "evaluation.json"
"""File with the metrics of a checkpoint that was evaluated after it was sealed."""
CHECKSUM = "crc32"
"""Key in ``EVALUATION_FILE`` under which the CRC-32 of the metrics is stored."""
OF_ANOTHER_TRAINING = b"{}\n"
"""Content of ``METRICS_FILE`` in a checkpoint that was copied from another training. The training that continues from
the copy neither repeats the report nor counts the copy as its best checkpoint."""


def read_metrics(path: Path) -> dict[str, float] | None:
    """Return the metrics that were reported at a checkpoint's step; None if there are none or they are damaged; empty
    if another training reported them."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return _read_evaluation(path / EVALUATION_FILE)
    with contextlib.suppress(FileNotFoundError, ValueError):
        metrics: dict[str, float] | None = json.loads(read_sealed(path, METRICS_FILE))
        return metrics
    return None


def write_evaluation(path: Path, metrics: dict[str, float]) -> None:
    """Write the metrics of a sealed checkpoint into it, whole or not at all."""
    content = metrics | {CHECKSUM: zlib.crc32(json.dumps(metrics).encode())}
    with atomic_write(path / EVALUATION_FILE) as file:
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_evaluation(file: Path) -> dict[str, float]:
    """Return the metrics in an ``EVALUATION_FILE``.

    Raises:
        ValueError: The file is damaged.
    """
    metrics: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    checksum = metrics.pop(CHECKSUM, None)  # none in those of earlier releases
    if checksum not in (None, zlib.crc32(json.dumps(metrics).encode())):
        raise ValueError(f"{file} does not match its checksum")
    return metrics
