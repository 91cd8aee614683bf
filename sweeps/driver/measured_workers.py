"""Choice of a sweep's workers by measurement (``scaling.measure_workers``): before the search, the config's own values
are trained with each arrangement of workers that the nodes allow, and the fastest arrangement is used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.driver.changing_capacity import current_fit
from sweeps.driver.driver_progress import STARTS_WITHIN_S, expect_progress
from sweeps.driver.sweep_state import View
from sweeps.errors import ConfigError, DoesNotFit
from sweeps.plan.plan import Plan, all_scalings
from sweeps.runtime.lane_number import GAIN, fastest
from sweeps.runtime.shared_folder import SharedFolder
from sweeps.runtime.trials_at_once import Fit
from sweeps.texts.wording import counted
from sweeps.validate.config_checks import check_sweep

SHARES = (1 / 2, 1 / 4)
"""Fractions of a GPU per worker that are measured."""


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Candidate arrangement of a sweep's workers."""

    plan: Plan
    """Plan of the sweep with these workers."""
    fit: Fit
    """Resources of these workers, and the number of worker groups at a time."""

    def __str__(self) -> str:
        share = self.fit.per_worker.get("GPU", 1.0)
        part = f" with {share:g} GPU" if share < 1 else ""
        return f"{counted(self.fit.groups, 'group')} of {counted(self.fit.num_workers, 'worker')}{part}"


def with_measured_workers(plan: Plan, trials: Fit, view: View) -> tuple[Plan, Fit, str | None]:
    """Choose a sweep's workers by measurement, if its config asks for that. If nothing can be measured, the workers of
    the config are used, and the first trial will show the error.

    Returns:
        The plan with the chosen workers, its fit, and a description of the measurements; None if there are no
        measurements.
    """
    if not plan.config.scaling.measure_workers:
        return plan, trials, None
    from ray.exceptions import RayError

    from sweeps.runtime.driver_side import DriverSide
    from sweeps.runtime.measured_trainings import MeasuredTrainings, NotMeasured  # import ray.tune
    from sweeps.runtime.trainable import TrialContext

    def fit_of(planned: Plan) -> Fit:
        return replace(current_fit(planned, trials, trials.excluded_nodes), may_grow=trials.may_grow)

    shared, measured = SharedFolder.marked(plan.folder), dict[Arrangement, Mapping[int, float]]()
    for each in arrangements(plan, trials, fit_of):
        view.starting(f"{plan.name}: measures {each}")
        broker = DriverSide(max_restarts=0)  # nothing is left to measure when it has died
        context = TrialContext(each.plan.composition, str(plan.folder), None, shared, each.fit, broker.of_trials)
        try:
            measured[each] = MeasuredTrainings(context, broker, expect_progress, view.starting).rates()
        except (NotMeasured, RayError) as error:
            view.starting(f"{plan.name}: could not measure {each}: {error}")
    expect_progress(STARTS_WITHIN_S)
    if not measured:
        return _with_workers(plan, {"scaling.measure_workers": False}), trials, None
    chosen, lanes = best([*measured.values()])
    arrangement = [*measured][chosen]
    found = f"{counted(lanes, 'trial')} a worker group, in {arrangement}: {describe(measured)}"
    view.starting(f"{plan.name}: {found}")
    values = {"scaling.trials_per_group": lanes, "scaling.measure_workers": False}
    plan = _with_workers(arrangement.plan, values)
    return plan, fit_of(plan), found


def best(measured: Sequence[Mapping[int, float]]) -> tuple[int, int]:
    """Choose the fastest arrangement and number of lanes. A later arrangement must be faster by at least the factor
    ``GAIN``.

    Args:
        measured: Steps per second of all trainings in each arrangement, by the number of lanes, ascending.

    Returns:
        Index of the arrangement, and its number of lanes.
    """
    chosen, highest = 0, 0.0
    for index, rates in enumerate(measured):
        if (rate := rates[fastest(rates)]) >= GAIN * highest:
            chosen, highest = index, rate
    return chosen, fastest(measured[chosen])


def describe(measured: Mapping[Arrangement, Mapping[int, float]]) -> str:
    """Describe the measurements of all arrangements, in the form that ``--lane-rates`` takes: ``1 group of 2 workers
    1=5.01,2=8.02; 2 groups of 1 worker 1=4.03 (trials in each group=steps per second of all)``."""
    rates = {each: ",".join(f"{lanes}={rate:.3g}" for lanes, rate in found.items()) for each, found in measured.items()}
    texts = "; ".join(f"{each} {found}" for each, found in rates.items())
    return f"{texts} (trials in each group=steps per second of all)"


def arrangements(plan: Plan, trials: Fit, fit_of: Callable[[Plan], Fit]) -> Iterator[Arrangement]:
    """Yield the arrangements that the nodes allow, the config's own first: groups of 1, 2, 4, ... workers; on GPUs also
    groups of one worker with a part of a GPU, unless the config sets the GPUs of a worker."""
    own, number, yielded = plan.config.scaling, 1, set()
    choices: list[dict[str, Any]] = [{"scaling.num_workers": own.min_workers}]
    while number <= trials.places:
        choices.append({"scaling.num_workers": number})
        number *= 2
    if trials.use_gpu and "GPU" not in own.resources_per_worker:
        choices += [{"scaling.num_workers": 1, "scaling.resources_per_worker.GPU": share} for share in SHARES]
    for values in choices:
        with contextlib.suppress(ConfigError, DoesNotFit):
            arranged = _with_workers(plan, values)
            if (key := str(arranged.config.scaling)) not in yielded:
                yielded.add(key)
                yield Arrangement(arranged, fit_of(arranged))


def _with_workers(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """Return the plan with other values of ``scaling``.

    Raises:
        ConfigError: The sweep's trials cannot use these workers.
    """
    composition = plan.composition.changed(values)
    check_sweep(composition, is_new=False)
    return replace(plan, composition=composition, scalings=all_scalings(composition, plan.space))
