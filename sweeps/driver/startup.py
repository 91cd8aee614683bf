"""Steps of a sweep's start: announce it, connect to the cluster and the tracking server, open its record, estimate
memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.config.objectives import Objectives
from sweeps.constants import TAG_SWEEP
from sweeps.driver.sweep_state import View
from sweeps.errors import ConfigError, DoesNotFit, TrackingUnreachable
from sweeps.plan.extend import is_longer
from sweeps.plan.plan import Plan
from sweeps.plan.planned_memory import gpu_room, machine_room
from sweeps.plan.preflight import Preflight
from sweeps.plan.saved_sweep import saved
from sweeps.plan.stage import study_file
from sweeps.runtime.autoscaler import describe_nodes, describe_resources, nodes_to_come
from sweeps.runtime.cluster import Connection
from sweeps.runtime.gpu_memory import cluster_gpu_memory
from sweeps.runtime.node_resources import without_nodes
from sweeps.runtime.trials_at_once import Fit, fit, memory_per_worker
from sweeps.space.space import Space
from sweeps.texts.wording import counted
from sweeps.tracking.store import fetch_metrics
from sweeps.tracking.uris import sqlite_path
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.hub_checks import ANSWER_WITHIN_S, hub_mistakes

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweeps.search.advisors.memory import MemoryEstimate
    from sweeps.tracking.recorder import Recorder

MAX_NOTES = 4
"""Maximum number of notes on the config that are shown when the sweep starts."""
ANSWER_ON_CLUSTER_WITHIN_S = ANSWER_WITHIN_S + 20.0
"""Maximum seconds for a process on the cluster to start and get an answer from the hub."""


def announce_start(plan: Plan, view: View, *, resumed: bool = False) -> None:
    """Show what is about to start, before the cluster is known."""
    if not resumed:
        search, fit_here = plan.config.search, plan.local_fit
        placement = "" if fit_here is None else f"; {fit_here.describe()}"
        trials = counted(plan.num_trials, "trial")
        view.starting(f"{plan.name}: {trials}, {search.objectives}{placement}; {plan.search_summary}")
        for stage in plan.stages:
            view.starting(f"{plan.name}: before them {stage.describe()}")
        notes = plan.notes
        for note in notes[:MAX_NOTES]:
            view.starting(f"note: {note}")
        if len(notes) > MAX_NOTES:
            view.starting(f"note: {len(notes) - MAX_NOTES} more; --dry-run shows all")
    address = plan.config.cluster.address
    ray = "starting Ray" if address == "local" else f"joining the Ray cluster (cluster.address={address})"
    view.starting(f"{plan.name}: {ray} and connecting to MLflow")


def place(plan: Plan, view: View, cluster: Connection, *, resumed: bool = False) -> Fit:
    """Compute how many trials run at a time; leave out unfit nodes if ``cluster.check_nodes`` is set.

    Raises:
        DoesNotFit: Not even one trial could be placed.
    """
    config, nodes = plan.config, cluster.nodes
    unfit = {}
    if config.cluster.check_nodes:
        from sweeps.doctor.doctor import unfit_nodes

        unfit = unfit_nodes(config, str(plan.folder.parent) if plan.uri is None else config.output_dir)
        nodes = without_nodes(nodes, unfit)
    for finding in unfit.values():
        view.starting(f"{plan.name}: leaves out {finding.where}: {finding.found}")
    coming = nodes_to_come(config.cluster, nodes)
    if coming:
        has = f"{describe_resources(nodes)} on {counted(len(nodes), 'node')}"
        view.starting(f"{plan.name}: the cluster has {has}; its autoscaler may add {describe_nodes(coming)}")
    try:
        trials = fit(config, plan.scalings, [*nodes, *coming])
    except DoesNotFit as error:
        grown = f"; this counts the nodes that its autoscaler may add: {describe_nodes(coming)}" if coming else ""
        fixed = (
            f"; a sweep that continues cannot change this: resume {plan.name} where it fits, or change it in a new "
            f"sweep with search.warm_start=[{plan.name}]"
        )
        raise DoesNotFit(f"{error}{grown}{fixed if resumed else ''}") from None
    return replace(trials.leaving_out(unfit), may_grow=bool(coming))


def check_datasets(plan: Plan) -> Callable[[], list[str]]:
    """Start making the datasets of the first trial on the cluster, to find mistakes in the functions that make them."""
    from sweeps.runtime import dataset_check

    _, first = next(configs_of_trials(plan.composition, plan.space, plan.points.lookup))
    return dataset_check.check_datasets(first)


def check_hub_on_cluster(plan: Plan) -> Callable[[], None]:
    """Start a request to the Hugging Face hub from a process of a running cluster, whose nodes may have another token.

    Returns:
        A function that waits for the answer, and raises ``ConfigError`` if workers may not load what trials need.
    """
    import ray

    names = plan.hub_names if plan.config.cluster.address != "local" else []
    answer: Any = ray.remote(num_cpus=0, max_retries=0)(hub_mistakes).remote(names) if names else None

    def wait() -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # without an answer the sweep starts
            if answer is not None and (mistakes := ray.get(answer, timeout=ANSWER_ON_CLUSTER_WITHIN_S)):
                raise ConfigError("\n".join(mistakes))

    return wait


def memory_lines(plan: Plan, preflight: Preflight, trials: Fit, nodes: Sequence[dict[str, float]]) -> list[str]:
    """Return the expected memory of a worker, and the part of the space that does not fit."""
    if trials.use_gpu:
        stated = plan.config.cluster.gpu_memory_gib is not None
        room = gpu_room(plan, None if stated else cluster_gpu_memory(nodes))
    else:
        room = machine_room(trials, min((node["memory"] for node in nodes if "memory" in node), default=math.inf))
    report = preflight.memory(room if room is not None and math.isfinite(room) else None)
    return [f"memory: {report.summary}", *report.notes]


def connect_in_background(uri: str) -> Future[MlflowClient]:
    """Connect to MLflow, which takes seconds to import, while Ray starts.

    Raises:
        TrackingUnreachable: A server does not answer; raised by this call, before anything starts.
    """
    from sweeps.tracking.client import connect

    pool = ThreadPoolExecutor(1)
    client = pool.submit(connect, uri)
    pool.shutdown(wait=False)
    if sqlite_path(uri) is None:
        client.result()
    return client


def open_recorder(plan: Plan, copy: Callable[[], bool] | None, *, resume: bool = False) -> Recorder:
    """Open the record of a sweep in MLflow.

    Args:
        plan: The sweep.
        copy: Copies the sweep's folder into its object store, if it is in one.
        resume: Whether to continue an existing record.
    """
    from sweeps.tracking.recorder import Recorder
    from sweeps.tracking.sweep_run import SweepInfo

    tracking, conf = plan.config.tracking, plan.composition.conf
    sweep = SweepInfo(
        name=plan.name,
        conf=conf,
        objectives=Objectives.of(plan.config.search),
        folder=plan.folder,
        uri=plan.uri,
        copy=copy,
        config_yaml=plan.composition.as_yaml(),
        planned=plan.num_trials,
        points=plan.points.num_points,
        command=plan.command,
        tags=plan.tags,
    )
    # Checkpoints in an object store can be loaded from any machine.
    checkpoints = "reference" if plan.uri is not None and tracking.checkpoints == "copy" else tracking.checkpoints
    return Recorder.open(tracking.uri, tracking.experiment or conf, sweep, checkpoints=checkpoints, resume=resume)


def adapt_study(plan: Plan) -> None:
    """Rewrite the study of a sweep that was extended: its trials become points of the wider space, finished trials are
    reopened if the extended sweep trains longer, and failed ones if it tries them more often. An earlier driver may
    have been killed while doing this."""
    from optuna.trial import TrialState

    from sweeps.search.study_rewriting import recorded_space, rewrite_in_space

    before = saved(plan)
    longer = is_longer(before, plan.composition)
    tried_again = plan.config.search.max_retries > before.config.search.max_retries
    for stage in (*plan.stages, None):
        file = study_file(stage)
        if not (plan.folder / file).exists():  # that of the sweep itself while its first stage is trained
            continue
        space = recorded_space(plan.folder / file) or before.config.space
        reopen = {TrialState.COMPLETE} if longer and stage is None else set()
        if tried_again and (stage is None or not (plan.folder / stage.results_file).exists()):
            reopen.add(TrialState.FAIL)
        if reopen or space != plan.config.space:
            spaces = Space(space), plan.space, plan.points.lookup
            rewrite_in_space(plan.folder, plan.name, *spaces, reopen=reopen, file=file)


def estimate_memory(
    plan: Plan, trials: Fit, nodes: Sequence[Mapping[str, float]], recorder: Recorder
) -> MemoryEstimate:
    """Estimate the memory of trials from the recorded trials of this sweep and of the sweeps that it learns from."""
    from sweeps.search.advisors.memory import MemoryEstimate

    config = plan.config
    memory = MemoryEstimate(plan.space, config.search.limits, {} if trials.pools else memory_per_worker(trials, nodes))
    for sweep in (each for each in plan.warm_start if each.runs):
        try:
            metrics = fetch_metrics(config.tracking.uri, {TAG_SWEEP: sweep.name})
        except TrackingUnreachable:  # the estimate begins without them: training does not wait for tracking
            break
        for run, point in zip(sweep.runs, sweep.points, strict=True):
            memory.observe(run, point, metrics.get(run, {}))
    if recorder.earlier is not None:
        for trial in [*recorder.earlier.trials, *recorder.earlier.repeats]:  # not those of stages, which may need less
            memory.observe(trial.trial, trial.params, recorder.earlier_metrics.get(trial.trial, {}))
    return memory
