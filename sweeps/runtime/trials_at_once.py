"""Computation of how many trials run at once on the cluster's nodes, in which pools, and with which resources."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sweeps.config import SweepConfig
from sweeps.config.cluster import Cluster
from sweeps.config.scaling import Scaling, WorkerRange
from sweeps.config.search import Stop
from sweeps.errors import DoesNotFit
from sweeps.runtime.node_resources import LABEL, NODE_ID_LABEL, NodeResources, Resources, accelerator, label, node_id
from sweeps.runtime.reservation import cpus_beside_a_gpu, data_cpus_of, reserved_per_worker
from sweeps.texts.wording import counted

MIB = 2**20
MOST_TRIALS = 10**9
"""Stand-in for an unlimited number of trials while the room of each pool is computed."""


@dataclass(frozen=True)
class Fit:
    """Resources of one trial, and the number of trials at a time."""

    use_gpu: bool
    per_worker: dict[str, float]
    num_workers: int
    concurrent: int
    places: int = 0
    """Total number of workers for which the nodes have room, regardless of trials."""
    most_workers: int = 0
    """Number of workers of the largest trial that fits."""
    excluded_nodes: tuple[str, ...] = ()
    """Ids of the nodes on which no worker is placed."""
    data_cpus: float = 0.0
    """CPUs that Ray Data needs for each trial in addition to its workers."""
    workers_per_node: int = 1
    """Maximum number of workers that run on one node at a time."""
    cpus_per_gpu: float = 1.0
    """CPUs reserved per GPU of a worker, unless the config sets them."""
    lanes: int = 1
    """Number of trials that one worker group trains at a time, or its maximum."""
    finds_lanes: bool = False
    """Whether the number of lanes is found while trials train."""
    groups: int = 1
    """Number of worker groups at a time."""
    is_elastic: bool = False
    """Whether a trial may temporarily have more than ``num_workers`` workers."""
    may_grow: bool = False
    """Whether some trials may have to wait for nodes that the cluster's autoscaler adds."""
    pools: Mapping[str, Fit] = field(default_factory=dict)
    """Resources of a trial in each pool of the config in which trials run; empty without pools."""
    evaluation: Mapping[str, Fit] = field(default_factory=dict)
    """Resources of an evaluation in the pool for evaluations; empty if a trial's workers evaluate."""

    def of(self, pool: str | None) -> Fit:
        return self if pool is None else self.pools[pool]

    def leaving_out(self, nodes: Collection[str]) -> Fit:
        """Return a copy that avoids further nodes, given by their ids, in each pool."""
        pools, evaluation = (
            {name: each.leaving_out(nodes) for name, each in own.items()} for own in (self.pools, self.evaluation)
        )
        return replace(self, excluded_nodes=(*self.excluded_nodes, *nodes), pools=pools, evaluation=evaluation)

    def avoided(self) -> dict[str | None, tuple[str, ...]]:
        """Return the ids of the nodes that the workers of each pool avoid; without pools, of the nodes that all workers
        avoid."""
        if not self.pools:
            return {None: self.excluded_nodes}
        return {name: each.excluded_nodes for name, each in (*self.pools.items(), *self.evaluation.items())}

    @property
    def needs(self) -> str:
        """Describe the resources of one trial."""
        if self.pools:
            return "; ".join(f"in pool {name} {each.needs}" for name, each in self.pools.items())
        needs = ", ".join(f"{amount:g} {name}" for name, amount in self.per_worker.items())
        data = f", and {self.data_cpus:g} CPU for its datasets" if self.data_cpus else ""
        least = "at least " if self.is_elastic else ""
        workers = f"{least}1 worker" if self.num_workers == 1 else f"{least}{self.num_workers} workers"
        if self.finds_lanes:
            workers = f"as many trials as train fastest together, up to {self.lanes}, on each group of {workers}"
        elif self.lanes > 1:
            workers = f"up to {self.lanes} trials on each group of {workers}"
        return f"{workers} of {needs}{data}"

    def describe(self) -> str:
        if self.pools:
            evaluated = [f"evaluations in pool {name}: {each.describe()}" for name, each in self.evaluation.items()]
            return "; ".join([*(f"pool {name}: {each.describe()}" for name, each in self.pools.items()), *evaluated])
        shared = f" share {self.places} workers" if self.is_elastic else ""
        number = counted(self.groups, "group") if self.finds_lanes else self.concurrent
        return f"{self.needs}; {number} at once{shared}"


def describe_unknown(cluster: Cluster) -> str:
    """Describe the resources of trials on a cluster whose nodes are not known yet."""
    return f"depends on the cluster's nodes, which are read at the start (cluster.address={cluster.address})"


@dataclass(frozen=True)
class Workers:
    """Workers of one trial that are to be placed on nodes."""

    number: int
    reserved: dict[str, float]
    """Resources of each worker."""
    placement: str = "PACK"
    """Ray's ``placement_strategy``."""
    accelerator_type: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that a node must have."""
    pool: str | None = None
    """Name of the workers' pool; None without pools."""

    def fit_on(self, nodes: Sequence[Resources]) -> bool:
        """Whether all of the workers fit on nodes with these free resources at the same time."""
        try:
            suitable = _labelled(self.labels, nodes)
            return _concurrent(self.number, self.placement, [fits_on(self.reserved, node) for node in suitable]) > 0
        except DoesNotFit:
            return False


def fit(
    config: SweepConfig,
    scalings: Sequence[Scaling],
    nodes: Sequence[Resources],
    *,
    all_pools: bool = True,
    lanes_found: int = 1,
    before: Fit | None = None,
) -> Fit:
    """Compute how many trials run at a time on these nodes.

    Args:
        config: Config of the sweep.
        scalings: Scaling of every kind of trial in the space; the largest one counts.
        nodes: Resources of each node.
        all_pools: Whether each pool of the config must have a node; otherwise pools without a node are left out.
        lanes_found: Trials that one worker group trains at a time, if that number is found while trials train.
        before: Fit at the start of the session, whose CPUs per GPU all of its workers reserve.

    Raises:
        DoesNotFit: Not even one trial could ever be placed.
    """
    if not nodes:
        raise DoesNotFit("the cluster has no usable node")
    if config.scaling.pools:
        return _fit_pools(config, scalings, nodes, all_pools=all_pools, before=before)
    data_cpus = data_cpus_of(config)
    # Datasets need CPUs that no worker has reserved.
    beside_a_gpu = 1.0 if data_cpus else cpus_beside_a_gpu(nodes)
    cpus_per_gpu = beside_a_gpu if before is None else before.cpus_per_gpu
    fits = [_fit_one(scaling, nodes, cpus_per_gpu) for scaling in scalings]
    tightest = min(fits, key=lambda each: each.concurrent)
    if data_cpus:
        largest = max(fits, key=_cpus)
        tightest = replace(tightest, concurrent=min(tightest.concurrent, _with_data(largest, data_cpus, nodes)))
    finds_lanes = config.scaling.trials_per_group == "auto"
    at_most = tightest.concurrent * (lanes_found if finds_lanes else config.scaling.lanes)
    concurrent = min(at_most, config.search.num_trials, config.search.max_concurrent or at_most)
    groups = min(tightest.concurrent, concurrent)
    _check_largest(config, tightest.places)
    at_once = tightest.places if config.scaling.is_elastic else groups * tightest.num_workers
    per_node = min(at_once, max(fits_on(tightest.per_worker, node) for node in nodes))
    return replace(
        tightest,
        concurrent=concurrent,
        lanes=config.scaling.lanes,
        finds_lanes=finds_lanes,
        groups=groups,
        data_cpus=data_cpus,
        workers_per_node=per_node,
    )


def _fit_pools(
    config: SweepConfig,
    scalings: Sequence[Scaling],
    nodes: Sequence[Resources],
    *,
    all_pools: bool,
    before: Fit | None,
) -> Fit:
    """Compute the fit of each pool, and how many trials run at a time in all of them together; see ``fit``."""
    members = nodes_of_pools(config.scaling, nodes)
    whole = replace(config, search=replace(config.search, max_concurrent=None, num_trials=MOST_TRIALS, stop=Stop()))
    earlier = {} if before is None else before.pools
    found: dict[str, list[Fit]] = {}
    for scaling in scalings:
        refusal: DoesNotFit | None = None
        names = [scaling.pool] if scaling.pool is not None else scaling.trial_pools
        for name in names:
            try:
                own = _fit_pool(name, whole, scaling.in_pool(name), members[name], nodes, earlier.get(name))
                found.setdefault(name, []).append(own)
            except DoesNotFit as error:
                refusal = error
                if all_pools and not members[name]:
                    raise
        if refusal is not None and not found.keys() & set(names):
            raise refusal
    outside = {
        name: tuple(filter(None, (node_id(node) for node in nodes if node not in own))) for name, own in members.items()
    }
    pools = {
        name: replace(
            min(fits, key=lambda each: each.concurrent),
            most_workers=max(each.num_workers for each in fits),
            excluded_nodes=outside[name],
        )
        for name, fits in found.items()
    }
    evaluation = _fit_evaluations(whole, members, nodes, outside, required=all_pools)
    together = sum(each.concurrent for each in pools.values())
    at_once = min(together, config.search.num_trials, config.search.max_concurrent or together)
    return replace(
        next(iter(pools.values())), concurrent=at_once, pools=pools, evaluation=evaluation, excluded_nodes=()
    )


def _fit_evaluations(
    config: SweepConfig,
    members: Mapping[str, Sequence[Resources]],
    nodes: Sequence[Resources],
    outside: Mapping[str, tuple[str, ...]],
    *,
    required: bool,
) -> dict[str, Fit]:
    """Compute how many evaluations run at a time in the pool for evaluations; empty without this pool, or while it has
    no node."""
    name = config.scaling.evaluation_pool
    if name is None or not (members[name] or required):
        return {}
    placed = replace(config.scaling.in_pool(name), num_workers=1, placement="PACK")
    own = _fit_pool(name, config, placed, members[name], nodes)
    return {name: replace(own, excluded_nodes=outside[name])}


def _fit_pool(
    name: str,
    config: SweepConfig,
    placed: Scaling,
    members: Sequence[Resources],
    nodes: Sequence[Resources],
    before: Fit | None = None,
) -> Fit:
    """Compute the fit of one pool, given its own nodes and all nodes; see ``fit``.

    Raises:
        DoesNotFit: The pool has no node or no room; the message names the pool.
    """
    try:
        if not members:
            raise _no_node(placed, nodes)
        return fit(replace(config, scaling=placed), [placed], members, before=before)
    except DoesNotFit as error:
        raise DoesNotFit(f"scaling.pools.{name}: {error.reason}", error.larger) from None


def nodes_of_pools(scaling: Scaling, nodes: Sequence[NodeResources]) -> dict[str, list[NodeResources]]:
    """Return the nodes of each pool: a node belongs to the first pool whose labels and GPUs it has."""
    members: dict[str, list[NodeResources]] = {name: [] for name in scaling.pools}
    for node in nodes:
        suitable = (name for name in members if _belongs(node, scaling.in_pool(name)))
        if (first := next(suitable, None)) is not None:
            members[first].append(node)
    return members


def _belongs(node: Resources, pool: Scaling) -> bool:
    per_worker = reserved_per_worker(pool, use_gpu=pool.use_gpu is True)
    return all(name in node for name in _marks(pool)) and fits_on(per_worker, node) > 0


def _marks(pool: Scaling) -> list[str]:
    """Return the names of the resources that only a pool's nodes have: labels and the type of accelerator."""
    kind = [accelerator(pool.accelerator_type)] if pool.accelerator_type is not None else []
    return [label(name, value) for name, value in pool.labels.items()] + kind


def _no_node(pool: Scaling, nodes: Sequence[Resources]) -> DoesNotFit:
    marks = ", ".join(name.removeprefix(LABEL) for name in _marks(pool)) or "what its workers reserve"
    known = sorted({name for node in nodes for name in node if name.startswith((LABEL, accelerator("")))})
    has = ", ".join(name.removeprefix(LABEL) for name in known if NODE_ID_LABEL not in name) or "none of such"
    return DoesNotFit(
        f"no node of the cluster has {marks} (there are: {has}), or an earlier pool has taken them; give nodes labels "
        "with `ray start --labels`, or remove the pool"
    )


def _cpus(trial: Fit) -> float:
    return trial.per_worker.get("CPU", 0.0) * trial.num_workers


def _with_data(trial: Fit, data_cpus: float, nodes: Sequence[Resources]) -> int:
    """Return the number of trials at a time with which CPUs remain for their datasets. Workers keep their CPUs until a
    trial ends, so a dataset whose tasks find no free CPU would wait forever, without an error.

    Raises:
        DoesNotFit: Not even one trial fits.
    """
    total = sum(node.get("CPU", 0) for node in nodes)
    at_once = int(total / (_cpus(trial) + data_cpus) + 1e-9)
    if at_once < 1:
        raise DoesNotFit(
            f"task.dataset_config.num_cpus={data_cpus:g}: Ray Data needs this many CPUs in addition to the "
            f"{_cpus(trial):g} of a trial's workers, and the cluster has {total:g}; lower scaling.num_workers or "
            "scaling.resources_per_worker.CPU",
            f"raise cluster.num_cpus to {math.ceil(_cpus(trial) + data_cpus)} (logical CPUs) or join a larger cluster "
            "with cluster.address",
        )
    return at_once


def memory_per_worker(trials: Fit, nodes: Sequence[Resources]) -> dict[str, float]:
    """Return the memory in MiB for each worker while all workers run, on the node that has least per worker, by the
    metric that reports the use of memory. Workers report the memory of their GPUs themselves.

    Args:
        nodes: Resources of each node, among them Ray's ``memory`` in bytes.
    """
    holding = [(node["memory"], fits_on(trials.per_worker, node)) for node in nodes if "memory" in node]
    at_once = (trials.groups if trials.lanes > 1 else trials.concurrent) * trials.num_workers
    shares = [memory / min(workers, at_once) for memory, workers in holding if workers]
    return {"system/memory_mib": min(shares) / MIB} if shares else {}


def _fit_one(scaling: Scaling, nodes: Sequence[Resources], cpus_per_gpu: float) -> Fit:
    has_gpu = any(node.get("GPU", 0) > 0 for node in nodes)
    use_gpu = has_gpu if scaling.use_gpu == "auto" else scaling.use_gpu
    per_worker = reserved_per_worker(scaling, use_gpu=use_gpu, cpus_per_gpu=cpus_per_gpu)
    if not any(per_worker.values()):
        raise DoesNotFit(
            "scaling.resources_per_worker: a worker must reserve something, since otherwise any number of workers "
            "would fit; set scaling.resources_per_worker.CPU=1, for example"
        )
    nodes = _labelled(scaling.labels, nodes)
    workers_by_node = [fits_on(per_worker, node) for node in nodes]
    placed = sum(workers_by_node)
    if placed < scaling.min_workers:
        total = {name: sum(node.get(name, 0) for node in nodes) for name in per_worker}
        has = ", ".join(f"{amount:g} {name}" for name, amount in total.items())
        needs = ", ".join(f"{amount:g} {name}" for name, amount in per_worker.items())
        key = "scaling.num_workers.min" if scaling.is_elastic else "scaling.num_workers"
        fix = f"lower {key} to {placed}" if placed else "lower scaling.resources_per_worker"
        larger = "raise cluster.num_cpus or join a larger cluster"
        if total.get("GPU") == 0:
            fix, larger = "set scaling.use_gpu=false", "join a cluster that has GPUs"
        for name in scaling.resources_per_worker:
            if not total.get(name) and (of_ray := name.upper().removesuffix("S")) in {"CPU", "GPU"} - {name}:
                raise DoesNotFit(f"scaling.resources_per_worker.{name}: no node has this resource; Ray's is {of_ray}")
        raise DoesNotFit(
            f"{key}={scaling.min_workers}: the cluster can place {placed} workers of {needs} (it has {has}); {fix}",
            f"{larger} with cluster.address",
        )
    at_once = _concurrent(scaling.min_workers, scaling.placement, workers_by_node)
    return Fit(
        use_gpu,
        per_worker,
        scaling.min_workers,
        at_once,
        placed,
        cpus_per_gpu=cpus_per_gpu,
        is_elastic=scaling.is_elastic,
    )


def _check_largest(config: SweepConfig, places: int) -> None:
    """Check that a trial can grow to its maximum number of workers on a cluster that cannot grow itself.

    Raises:
        DoesNotFit: A trial cannot grow to its maximum.
    """
    workers = config.scaling.num_workers
    if isinstance(workers, WorkerRange) and config.cluster.address == "local" and workers.max > places:
        fix = f"lower it to {places}" if places > workers.min else f"give scaling.num_workers={places}"
        raise DoesNotFit(
            f"scaling.num_workers.max={workers.max}: the cluster can place {places} workers, and a local "
            f"cluster does not grow; {fix}, raise cluster.num_cpus, or join a larger cluster with cluster.address"
        )


def _labelled(labels: Mapping[str, str], nodes: Sequence[Resources]) -> Sequence[Resources]:
    wanted = [label(name, value) for name, value in labels.items()]
    suitable = [node for node in nodes if all(each in node for each in wanted)]
    if not suitable:
        known = sorted({each for node in nodes for each in node if each.startswith(LABEL)})
        has = ", ".join(each.removeprefix(LABEL) for each in known) or "none"
        raise DoesNotFit(
            f"scaling.labels={labels}: no node of the cluster has these labels (there are: {has}); give nodes "
            "labels with `ray start --labels`, or drop them"
        )
    return suitable


def _concurrent(number: int, placement: str, workers_by_node: Sequence[int]) -> int:
    """Return the number of trials at a time on nodes with room for these numbers of workers.

    Raises:
        DoesNotFit: No trial can be placed as ``scaling.placement`` requires.
    """
    most = max(workers_by_node)
    if placement == "STRICT_PACK":
        at_once = sum(each // number for each in workers_by_node)
        if not at_once:
            raise DoesNotFit(
                f"scaling.placement=STRICT_PACK: no node has room for {number} workers, and the largest has "
                f"room for {most}; use PACK, or lower scaling.num_workers to {most}"
            )
        return at_once
    total = sum(workers_by_node)
    if placement == "STRICT_SPREAD":
        possible = (n for n in range(1, total + 1) if sum(min(each, n) for each in workers_by_node) >= n * number)
        at_once = max(possible, default=0)
        if not at_once:
            nodes = sum(1 for each in workers_by_node if each)
            raise DoesNotFit(
                f"scaling.placement=STRICT_SPREAD: {number} workers need as many nodes, and {nodes} have room for one; "
                f"use SPREAD, or lower scaling.num_workers to {nodes}"
            )
        return at_once
    return total // number


def fits_on(worker: Resources, node: Resources) -> int:
    """Return the number of workers with the given resources for which a node has room."""
    return min(int(node.get(name, 0) / amount + 1e-9) for name, amount in worker.items() if amount > 0)
