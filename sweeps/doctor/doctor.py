"""The doctor: looks at everything that sweeps of a config would use, before they do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.config import SweepConfig
from sweeps.doctor.finding import Finding
from sweeps.doctor.machine import check_packages, check_tracking, expected_versions, make_marker
from sweeps.errors import UserError
from sweeps.runtime.cluster import connected

if TYPE_CHECKING:
    from sweeps.doctor.probes import Node

SLOWNESS = ("speed", "network")
"""Checks whose warnings say that a node is slow."""


def examine(config: SweepConfig) -> Iterator[Finding]:
    """Yield what is found, as soon as it is known: packages, tracking, storage, then all nodes of the cluster.

    Args:
        config: Its sections ``cluster`` and ``tracking`` and its ``output_dir`` are used.
    """
    yield from check_packages()
    yield from check_tracking(config.tracking)
    folder = Path(config.output_dir).absolute()
    try:
        marker = make_marker(folder)
    except OSError as error:
        fix = "set output_dir to a folder that can be written"
        yield Finding("storage", "failed", "", f"output_dir={folder}: {error.strerror}", fix)
        return
    try:
        yield Finding("storage", "ok", "", f"output_dir={folder} can be written")
        yield from _examine_cluster(config, marker)
    finally:
        marker.unlink(missing_ok=True)


def _examine_cluster(config: SweepConfig, marker: Path) -> Iterator[Finding]:
    try:
        with connected(config):
            from sweeps.doctor.probes import cluster_nodes

            yield from _examine_nodes(config, marker, cluster_nodes())
    except UserError as error:
        yield Finding("cluster", "failed", "", str(error))


def _examine_nodes(config: SweepConfig, marker: Path, nodes: Sequence[Node]) -> Iterator[Finding]:
    from sweeps.doctor.cluster import check_nodes
    from sweeps.doctor.node_state import Look
    from sweeps.doctor.probes import Probes

    expected = expected_versions()
    uri = config.tracking.uri
    wanted = Look(
        packages=[name for name in expected if name != "python"],
        marker=marker,
        folders={"output_dir": str(marker.parent), "temporary files": tempfile.gettempdir()},
        server=uri if uri.startswith(("http://", "https://")) else None,
    )
    probes = Probes(nodes)
    try:
        yield from check_nodes(probes, wanted, expected)
    finally:
        probes.close()


def unfit_nodes(config: SweepConfig, folder: Path) -> dict[str, Finding]:
    """Nodes of the connected cluster that should not train, by id, each with its first finding: those where a check
    fails, and those that compute or communicate slowly.

    Args:
        config: Config of the sweep.
        folder: Folder that all nodes should share.

    Raises:
        OSError: The folder cannot be written.
    """
    from sweeps.doctor.probes import cluster_nodes

    nodes = cluster_nodes()
    if len(nodes) < 2:
        return {}
    marker = make_marker(folder)
    try:
        findings = list(_examine_nodes(config, marker, nodes))
    finally:
        marker.unlink(missing_ok=True)
    unfit: dict[str, Finding] = {}
    for finding in findings:
        if finding.verdict == "failed" or (finding.verdict == "warning" and finding.check in SLOWNESS):
            unfit.setdefault(finding.where, finding)
    return {node.id: unfit[node.name] for node in nodes if node.name in unfit}
