"""Finds slow or broken nodes from measurements of groups of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_low

SLOW_FACTOR = 2.0
"""A node is slow if it takes this many times the median of all (DLRover's rule). For an even number, the lower median
is used, so that one of two nodes can be slow."""

Group = tuple[str, ...]
Times = Mapping[Group, float | None]
"""Seconds that each group of nodes took; None for a group that failed."""


def slow_among(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the nodes that take ``SLOW_FACTOR`` times the median or more, with their ratio to it."""
    if len(seconds) < 2:
        return {}
    usual = median_low(seconds.values())
    factors = {name: taken / usual for name, taken in seconds.items()}
    return {name: factor for name, factor in factors.items() if factor >= SLOW_FACTOR}


def in_pairs(nodes: Sequence[str]) -> list[Group]:
    """Return pairs of neighbouring nodes; for an odd number, the last three form one group."""
    groups = [tuple(nodes[index : index + 2]) for index in range(0, len(nodes), 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    return [group for group in groups if len(group) > 1]


def suspects(nodes: Sequence[str], measure: Callable[[Sequence[Group]], Times]) -> tuple[set[str], set[str]]:
    """Find nodes that are broken and nodes that are slow when they communicate.

    All nodes are measured in pairs. Each node of a pair that failed or was slow is then paired with a node of a good
    pair: it is at fault if that pair fails or is slow, too. If no pair was good, all nodes of bad pairs are returned,
    since nothing tells them apart.

    Args:
        nodes: Names of nodes, at least two.
        measure: Measures groups at the same time; none of them shares a node with another.
    """
    first = measure(in_pairs(nodes))
    broken, slow = _bad_groups(first)
    good = {group: taken for group, taken in first.items() if group not in broken | slow}
    trusted = _nodes_of(good)
    if not trusted:
        return set(_nodes_of(broken)), set(_nodes_of(slow))
    in_doubt = _nodes_of(group for group in first if group not in good)
    failed, lagging = set(), set()
    for start in range(0, len(in_doubt), len(trusted)):
        pairs = list(zip(in_doubt[start : start + len(trusted)], trusted, strict=False))
        broken, slow = _bad_groups({**good, **measure(pairs)})
        failed |= {node for node, _ in broken.intersection(pairs)}
        lagging |= {node for node, _ in slow.intersection(pairs)}
    return failed, lagging


def _nodes_of(groups: Iterable[Group]) -> list[str]:
    return [node for group in groups for node in group]


def _bad_groups(times: Times) -> tuple[set[Group], set[Group]]:
    """Return the groups that failed, and the groups that are slow."""
    taken = {group: seconds for group, seconds in times.items() if seconds is not None}
    usual = median_low(taken.values()) if taken else 0.0
    slow = {group for group, seconds in taken.items() if len(taken) > 1 and seconds >= SLOW_FACTOR * usual}
    return set(times) - set(taken), slow
