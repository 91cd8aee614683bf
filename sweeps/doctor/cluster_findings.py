"""Checks of the nodes of a cluster: what is installed, clocks, disks, the shared folder, and speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median_low

from sweeps.doctor.finding import Finding, Verdict
from sweeps.doctor.node_state import TEMPORARY, Look, NodeState
from sweeps.doctor.probes import Probes
from sweeps.doctor.slow_nodes import slow_among, suspects
from sweeps.storage.location import is_remote

CLOCK_WARNS_S, CLOCK_FAILS_S = 1.0, 30.0
"""Seconds that a node's clock may differ before a warning (times of trials would be wrong) and a failure (tokens and
certificates may be rejected)."""
DISK_WARNS_GIB, DISK_FAILS_GIB = 10.0, 1.0
DISK_WARNS_SHARE = 0.05
"""Minimum free share of the disk with temporary files; Ray stops writing objects to one with less."""
IF_SLOW = "see what else runs there, or leave it out with `run --check-nodes`"
GIB = 2**30


def check_nodes(probes: Probes, wanted: Look, expected: Mapping[str, str | None]) -> Iterator[Finding]:
    """Yield the findings on each node and between nodes.

    Args:
        probes: Processes on the nodes.
        wanted: Settings of the checks.
        expected: Versions of the driver's packages, and of Python under ``python``.
    """
    states = probes.look(wanted)
    for name, why in probes.failures.items():
        fix = "install ray-sweeps there" if "installed" in why else "look at its logs with `ray logs`, and restart it"
        yield Finding("nodes", "failed", name, why, fix)
    if not states:
        return
    yield Finding("nodes", "ok", "", f"{len(states)} answer")
    for name, state in states.items():
        yield from _versions(name, state, expected)
        yield from _storage(name, state, wanted)
        yield from _server(name, state)
    yield from _disks(states)
    yield from _accelerators(states)
    yield from _clocks(probes)
    yield from check_speed(probes)


def check_speed(probes: Probes) -> Iterator[Finding]:
    """Yield the nodes that compute or communicate slowly, or not at all."""
    for name in probes.busy:
        found = "its devices are in use, or a process takes long to start there, so it was not measured"
        yield Finding("devices", "warning", name, found, "run the check again when the node is idle")
    before = set(probes.failures)
    seconds = {name: taken for name, taken in probes.matrix_products().items() if name not in probes.busy}
    if in_doubt := slow_among(seconds):  # something else may have run there for a moment
        again = probes.matrix_products(in_doubt)
        seconds |= {name: min(taken, seconds[name]) for name, taken in again.items()}
    for name in set(probes.failures) - before:
        yield Finding(
            "speed", "failed", name, f"a matrix product {probes.failures[name]}", "take it out of the cluster"
        )
    slow = slow_among(seconds)
    for name, factor in slow.items():
        found = f"a matrix product takes {seconds[name] * 1000:.0f} ms, {factor:.1f} times the usual"
        yield Finding("speed", "warning", name, found, IF_SLOW)
    if seconds and not slow:
        usual, longest = (f"{taken * 1000:.0f} ms" for taken in (median_low(seconds.values()), max(seconds.values())))
        most = f", on the slowest node {longest}" if len(seconds) > 1 else ""
        yield Finding("speed", "ok", "", f"a matrix product takes {usual}{most}")
    yield from _communication(probes)


def _communication(probes: Probes) -> Iterator[Finding]:
    nodes = probes.measurable()
    if len(nodes) < 2:
        return
    broken, slow = suspects(nodes, probes.all_reduces)
    for name in sorted(broken):
        fix = "open the ports between the nodes, name the network with NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"
        yield Finding("network", "failed", name, "an all-reduce with another node fails", fix)
    for name in sorted(slow):
        yield Finding("network", "warning", name, "an all-reduce with another node is slow", IF_SLOW)
    if not broken and not slow:
        yield Finding("network", "ok", "", f"an all-reduce in pairs works between all {len(nodes)} nodes")


def _versions(name: str, state: NodeState, expected: Mapping[str, str | None]) -> Iterator[Finding]:
    have = {"python": state.python, **state.versions}
    other = {each: have.get(each) for each, wanted in expected.items() if have.get(each) != wanted}
    if other:
        found = ", ".join(f"{each} {version or 'missing'}, here {expected[each]}" for each, version in other.items())
        yield Finding("packages", "failed", name, found, "install the same versions on every node")


def _disks(states: Mapping[str, NodeState]) -> Iterator[Finding]:
    short = False
    for name, state in states.items():
        for purpose, (free, total) in state.disks.items():
            if free >= max(DISK_WARNS_GIB * GIB, DISK_WARNS_SHARE * total if purpose == TEMPORARY else 0.0):
                continue
            short = True
            verdict: Verdict = "failed" if free / GIB < DISK_FAILS_GIB else "warning"
            found = f"{free / GIB:.1f} GiB of {total / GIB:.1f} free for {purpose}"
            yield Finding("disk", verdict, name, found, "free some, or use a larger disk")
    if not short:
        least = min(free for state in states.values() for free, _ in state.disks.values())
        yield Finding("disk", "ok", "", f"at least {least / GIB:.0f} GiB free everywhere")


def _storage(name: str, state: NodeState, wanted: Look) -> Iterator[Finding]:
    folder = wanted.folder
    if not state.sees_marker:
        fix = "set output_dir to a folder that all nodes mount; checkpoints written there would be lost"
        yield Finding("storage", "failed", name, f"does not share output_dir={folder}", fix)
    elif state.write_error and is_remote(folder):
        fix = "give the node access to the store, and its variables, by `ray start` there or by cluster.env"
        yield Finding("storage", "failed", name, state.write_error, fix)
    elif state.write_error:
        yield Finding("storage", "failed", name, f"cannot write output_dir={folder}: {state.write_error}", "grant it")


def _server(name: str, state: NodeState) -> Iterator[Finding]:
    if state.server_error:
        found = f"does not reach the tracking server: {state.server_error}"
        fix = "trials are recorded from the driver's machine, but runs that a train function logs itself would fail"
        yield Finding("tracking", "warning", name, found, fix)


def _accelerators(states: Mapping[str, NodeState]) -> Iterator[Finding]:
    for name, state in states.items():
        if state.gpus:
            extra = ", ".join(filter(None, (f"driver {state.driver}", state.nccl and f"NCCL {state.nccl}")))
            yield Finding("devices", "ok", name, f"{len(state.gpus)} x {state.gpus[0]}; {extra}")
        elif state.driver:
            found = f"NVIDIA's driver {state.driver} is installed, but torch sees no GPU"
            yield Finding(
                "devices", "warning", name, found, "install a build of torch for CUDA, or check Ray's num_gpus"
            )
    for what, versions in (
        ("drivers", {state.driver for state in states.values() if state.gpus}),
        ("versions of NCCL", {state.nccl for state in states.values() if state.gpus}),
    ):
        if len(versions) > 1:
            found = f"nodes have different {what}: {', '.join(sorted(versions))}"
            yield Finding("devices", "warning", "", found, "install the same on every node")
    if not any(state.gpus or state.driver for state in states.values()):
        yield Finding("devices", "ok", "", "no GPUs; trials train on CPUs")


def _clocks(probes: Probes) -> Iterator[Finding]:
    offsets = probes.clock_offsets()
    for name, (offset, doubt) in offsets.items():
        wrong = abs(offset) - doubt
        if wrong > CLOCK_WARNS_S:
            verdict: Verdict = "failed" if wrong > CLOCK_FAILS_S else "warning"
            found = f"its clock is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
            yield Finding("clock", verdict, name, found, "synchronise it, with NTP or chrony")
    if offsets and all(abs(offset) - doubt <= CLOCK_WARNS_S for offset, doubt in offsets.values()):
        yield Finding("clock", "ok", "", f"clocks agree within {CLOCK_WARNS_S:g} s")
