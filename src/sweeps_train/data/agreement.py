"""Check that all workers of a training have the same samples in the same order."""

from __future__ import annotations

import hashlib

from sweeps_train.data.sample_order import Samples
from sweeps_train.workers.distributed import Workers

_COMPARED = 16
"""Minimum number of samples, spread evenly, whose contents are compared; all samples of a smaller data set."""


def check_same_samples(workers: Workers, train: Samples, held_out: Samples, *, contents: bool) -> None:
    """Raise ``ValueError`` on all workers of a training if their data differ; every worker must call it.

    Workers with different files, or different versions of a data set, would wait for each other forever: those with the
    longer epoch make a step that the others do not make. The contents of samples are compared in addition to their
    number, unless reading a sample draws random numbers (``contents`` is false).
    """
    if workers.size == 1:
        return
    fingerprint = _fingerprint(train, held_out) if contents else 0
    found = workers.all_gather([len(train), len(held_out), fingerprint])
    if len(set(map(tuple, found))) > 1:
        lines = "; ".join(f"worker {rank}: {_described(*values)}" for rank, values in enumerate(found))
        raise ValueError(
            f"data: the workers of this trial have read different data. {lines}. Give all nodes the same files, a "
            "data.revision and a model.revision, and remove stale files from the cache (SWEEPS_CACHE)"
        )


def _described(train: float, held_out: float, fingerprint: float) -> str:
    samples = f"{train:.0f} training and {held_out:.0f} held-out samples"
    return f"{samples} (fingerprint {int(fingerprint):x})" if fingerprint else samples


def _fingerprint(*splits: Samples) -> int:
    digest = hashlib.blake2b(digest_size=6)  # which a float64 has exactly
    for samples in splits:
        compared = samples.batch(range(0, len(samples), max(1, len(samples) // _COMPARED)))
        for name, tensor in sorted(compared.items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest())
