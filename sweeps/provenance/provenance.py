"""The provenance of a sweep, and its differences from the current state when the sweep is run again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.provenance.code import checkout
from sweeps.provenance.machine import hardware, packages, user
from sweeps.provenance.redaction import redacted
from sweeps_train.config import CommandConfig, EstimatorConfig, FunctionConfig, TrainingConfig

Training = TrainingConfig | FunctionConfig | CommandConfig | EstimatorConfig

SHOWN_ENVIRONMENT = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"),
    *("CUBLAS_WORKSPACE_CONFIG", "TORCH_DETERMINISTIC", "HF_HUB_OFFLINE", "HF_HOME", "SWEEPS_CACHE", "RAY_ADDRESS"),
    *("NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME", "SLURM_JOB_ID"),
)
"""Environment variables that are recorded because they can change a training. Any other variable might contain a
secret."""


@dataclass(frozen=True)
class Provenance:
    """The code, packages, data, machine and command that a sweep is started with."""

    command: str
    """The command line, with secrets hidden."""
    working_folder: str
    user: str
    python: str
    seed: int
    commit: str | None
    branch: str
    remote: str
    changes: str
    """SHA-256 of the changes since the commit; empty if there are none, or no checkout."""
    changes_are_cut: bool
    data: dict[str, str | None]
    """Digest of each source of data; None if its contents could not be read. Empty until ``with_data`` adds them."""
    hardware: dict[str, Any]
    packages: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def data_fingerprint(self) -> str | None:
        """One digest of all sources, short enough for a tag; None if the digest of a source is unknown."""
        if not self.data or None in self.data.values():
            return None
        return hashlib.sha256(json.dumps(self.data, sort_keys=True).encode()).hexdigest()[:16]

    def with_data(self, trainings: Iterable[Training], only: Training | None = None) -> Provenance:
        """Add the digests of the data, which may take minutes. The configs of every kind of trial name the data;
        ``only`` limits them to those of one trial."""
        from sweeps_train.data.fingerprint import data_fingerprints

        return replace(self, data=data_fingerprints(*trainings, only=only))

    def as_json(self) -> str:
        """Return the text of the artifact ``origin/origin.json``."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        return cls(**json.loads(text))

    def differences(self, now: Provenance) -> dict[str, str]:
        """Return descriptions of changes that can affect a training, by kind."""
        found: dict[str, str] = {}
        if self.commit != now.commit:
            found["commit"] = f"{_commit(self)}, now {_commit(now)}"
        elif self.changes != now.changes:
            found["changes"] = "other changes on top of the commit"
        if packages_changed := _changed(self.packages, now.packages):
            found["packages"] = _listed(packages_changed)
        if self.python != now.python:
            found["python"] = f"{self.python}, now {now.python}"
        unknown = [name for name, digest in now.data.items() if digest is None or self.data.get(name) is None]
        other = [name for name in now.data if name not in unknown and self.data[name] != now.data[name]]
        if other:
            found["data"] = f"other contents of {', '.join(other)}"
        elif unknown:
            found["data"] = f"unknown contents of {', '.join(unknown)}"
        for part in ("processor", "gpus"):
            if self.hardware.get(part) != now.hardware.get(part):
                found[part] = f"{_words(self.hardware.get(part))}, now {_words(now.hardware.get(part))}"
        if variables := _changed(self.environment, now.environment):
            found["environment"] = _listed(variables)
        return found


def collect_provenance(command: str, seed: int) -> tuple[Provenance, str]:
    """Collect the current provenance without the data, which takes about a second; return it, and the changes since the
    commit as a diff."""
    code = checkout()
    diff = code.diff if code is not None else ""
    provenance = Provenance(
        command=redacted(command),
        working_folder=str(Path.cwd()),
        user=user(),
        python=platform.python_version(),
        seed=seed,
        commit=code.commit if code is not None else None,
        branch=code.branch if code is not None else "",
        remote=code.remote if code is not None else "",
        changes=hashlib.sha256(diff.encode()).hexdigest() if diff else "",
        changes_are_cut=code is not None and code.is_cut,
        data={},
        hardware=hardware(),
        packages=packages(),
        environment={name: redacted(os.environ[name]) for name in SHOWN_ENVIRONMENT if name in os.environ},
    )
    return provenance, diff


def requirements(provenance: Provenance) -> str:
    """Return the packages in the format of ``pip install -r``, without labels of builds such as ``+cu126``: PyPI has
    none, and a build with a label is accepted, too."""
    return "".join(f"{name}=={version.partition('+')[0]}\n" for name, version in provenance.packages.items())


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = sorted(before.keys() | now.keys(), key=str.lower)
    return [
        f"{name} {before.get(name, 'absent')}, now {now.get(name, 'absent')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _listed(changes: list[str], most: int = 8) -> str:
    more = f"; and {len(changes) - most} more" if len(changes) > most else ""
    return "; ".join(changes[:most]) + more


def _commit(provenance: Provenance) -> str:
    if provenance.commit is None:
        return "no git checkout"
    return provenance.commit[:12] + (" with changes" if provenance.changes else "")


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value or "unknown")
