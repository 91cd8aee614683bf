"""The doctor: checks everything that sweeps of a config would use, before they run."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.config import SweepConfig
from sweeps.doctor.finding import Finding
from sweeps.doctor.machine_findings import check_packages, check_tracking, expected_versions, marked
from sweeps.errors import UserError
from sweeps.runtime.cluster import connected
from sweeps.storage.location import is_remote

if TYPE_CHECKING:
    from sweeps.doctor.probes import Node

COMPARED_WITH = 3
"""Maximum number of other nodes that the nodes of a failed trial are compared with."""
SLOWNESS = ("speed", "network")
"""Checks whose warnings mean that a node is slow."""


def examine(config: SweepConfig) -> Iterator[Finding]:
    """Yield findings as soon as they are known: packages, tracking, storage, then all nodes of the cluster.

    Args:
        config: Provides ``cluster``, ``tracking`` and ``output_dir``.
    """
    yield from check_packages()
    yield from check_tracking(config.tracking)
    folder = config.output_dir
    folder = folder if is_remote(folder) else str(Path(folder).expanduser().absolute())
    try:
        with marked(folder) as marker:
            yield Finding("storage", "ok", "", f"output_dir={folder} can be written")
            yield from _examine_cluster(config, folder, marker)
    except OSError as error:
        fix = "set output_dir to a folder that can be written"
        yield Finding("storage", "failed", "", f"output_dir={folder}: {error.strerror or error}", fix)
    except UserError as error:
        yield Finding("storage", "failed", "", str(error))


def _examine_cluster(config: SweepConfig, folder: str, marker: str) -> Iterator[Finding]:
    try:
        with connected(config):
            from sweeps.doctor.probes import cluster_nodes

            yield from _examine_nodes(config, folder, marker, cluster_nodes())
    except UserError as error:
        yield Finding("cluster", "failed", "", str(error))


def _examine_nodes(config: SweepConfig, folder: str, marker: str, nodes: Sequence[Node]) -> Generator[Finding]:
    from sweeps.doctor.cluster_findings import check_nodes
    from sweeps.doctor.node_state import TEMPORARY, Look
    from sweeps.doctor.probes import Probes

    expected = expected_versions()
    uri = config.tracking.uri
    wanted = Look(
        packages=[name for name in expected if name != "python"],
        folder=folder,
        marker=marker,
        folders={
            **({} if is_remote(folder) else {"output_dir": folder}),
            TEMPORARY: tempfile.gettempdir(),
        },
        server=uri if uri.startswith(("http://", "https://")) else None,
    )
    probes = Probes(nodes)
    try:
        yield from check_nodes(probes, wanted, expected)
    finally:
        probes.close()


def unfit_nodes(config: SweepConfig, folder: str, only: Collection[str] | None = None) -> dict[str, Finding]:
    """Return nodes of the connected cluster that should not train, by id, each with its first finding: those where a
    check fails, and those that compute or communicate slowly. The checks end when each node of ``only`` has a finding.

    Args:
        config: Config of the sweep.
        folder: Path or URI of a folder that all nodes should share.
        only: Ids of the nodes to check while trials train on other nodes, a few of which are measured for comparison;
            default: all nodes.

    Raises:
        OSError: The folder cannot be written.
    """
    from sweeps.doctor.probes import cluster_nodes

    nodes = asked = cluster_nodes()
    if len(nodes) < 2:
        return {}
    if only is not None:
        asked = [node for node in nodes if node.id in only]
        nodes = asked + [node for node in nodes if node.id not in only][:COMPARED_WITH]
    unfit: dict[str, Finding] = {}
    with (
        marked(folder) as marker,
        closing(_examine_nodes(config, folder, marker, nodes)) as findings,
    ):
        for finding in findings:
            if finding.verdict == "failed" or (finding.verdict == "warning" and finding.check in SLOWNESS):
                unfit.setdefault(finding.where, finding)
            if only is not None and all(node.name in unfit for node in asked):
                break  # enough: a trial waits for this answer
    return {node.id: unfit[node.name] for node in asked if node.name in unfit}
