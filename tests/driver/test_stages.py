"""Points that a stage of a search hands on, its agreement with what followed, and what a sweep counts meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pydantic import TypeAdapter

from sweeps.config.space import Distribution
from sweeps.constants import TAG_STAGES
from sweeps.driver.early_end import Shutdown
from sweeps.driver.stage_searches import StageWatch, end_stage, is_over, record_stages, results_of, stage_results
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.plan.plan import Plan, make_plan
from sweeps.plan.searcher_options import searcher_options
from sweeps.plan.stage import rescaled
from sweeps.runtime.trainable import TrialContext
from sweeps.runtime.trials_at_once import fit
from sweeps.search.rank_agreement import agreement
from sweeps.search.samplers.saved_trials import save_earlier
from sweeps.search.samplers.transfer import WarmStartSampler
from sweeps.search.study_search import StudySearch
from sweeps.search.trial_ids import trial_id, trial_number, trial_stage
from sweeps.space.distributions import contains
from sweeps.space.space import Space
from sweeps.tracking.stage_results import StageResult
from sweeps.tracking.values import read_list

STAGES = (
    "search.stages=[{overrides: ['train.max_steps=20'], num_trials: 6, keep: 3}, "
    "{overrides: ['train.max_steps=40'], num_trials: 4, keep: 2}]"
)
TOKENS = ("conf=digits", "space=none", "train.lr=interval(0.001, 1)", "train.max_steps=80", "train.eval_every=20")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A sweep for the highest accuracy, with two stages."""
    more = (f"output_dir={tmp_path}", "search.points=[{train.lr: 0.7}]", "search.num_trials=5")
    plan = make_plan([*TOKENS, STAGES, *more], [], "s", "")
    plan.folder.mkdir(parents=True)
    return plan


@pytest.fixture
def state(plan: Plan) -> SweepState:
    """Its first stage has ended, and three trials of the second."""
    nothing: Any = None
    state = SweepState("s", plan.composition, nothing, 2, Shutdown(nothing))
    for stage, number, lr, value, end in (
        (1, 0, 0.1, 0.4, "finished"),
        (1, 1, 0.2, 0.6, "finished"),
        (1, 2, 0.3, 0.5, "pruned"),
        (1, 3, 0.4, 0.9, "failed"),
        (1, 4, 0.5, None, "finished"),
        (1, 5, 0.6, 0.3, "finished"),
        (2, 0, 0.2, 0.7, "finished"),
        (2, 1, 0.3, 0.8, "finished"),
        (2, 2, 0.1, 0.6, "running"),
    ):
        trial = trial_id(number, stage)
        parameters = {"train.max_steps": 20 * stage, "train.lr": lr}
        values: Any = None if value is None else (value,)
        state.trials[trial] = TrialStatus(trial, parameters, end, values=values, stage=stage)  # type: ignore[arg-type]
    return state


def test_trials_of_a_stage_have_ids_of_their_own() -> None:
    assert [trial_id(7), trial_id(7, 2), trial_number("0007"), trial_number("s2-0007")] == ["0007", "s2-0007", 7, 7]
    assert [trial_stage("0007"), trial_stage("s12-0007")] == [None, 12]


def test_a_stage_hands_on_its_points_without_its_changes_and_the_best_first(plan: Plan, state: SweepState) -> None:
    found = results_of(state, plan.space, plan.stages[0])
    assert found.points == [{"train.lr": 0.2}, {"train.lr": 0.3}, {"train.lr": 0.1}, {"train.lr": 0.6}]
    assert found.values == [0.6, 0.5, 0.4, 0.3]


def test_the_agreement_is_that_of_points_trained_to_the_end_in_both(plan: Plan, state: SweepState) -> None:
    """The scheduler stopped one in its stage at a step at which both are the same training: that says nothing."""

    def found() -> tuple[int, float | None]:
        of_first = stage_results(plan, state)[0].agreement
        assert of_first is not None
        return of_first.points, of_first.tau

    assert found() == (1, None)
    state.trials["s1-0002"].state = "finished"
    assert found() == (2, -1)
    first, second = stage_results(plan, state)
    assert (first.ended, first.best, first.value) == (6, "s1-0001", 0.6)
    assert second.agreement is None  # the search has not begun
    state.trials["s2-0002"].state = "finished"
    assert found() == (3, pytest.approx(1 / 3))


def test_the_agreement_is_recorded_while_trials_train(plan: Plan, state: SweepState) -> None:
    session = MagicMock()
    session.state = state
    watch = StageWatch(plan, session)

    def recorded() -> list[int | None]:
        """Points of the first stage's agreement in each record."""
        tags = [call.args[1][TAG_STAGES] for call in session.recorder.attach.call_args_list]
        firsts = [read_list(tag, StageResult.from_json)[0] for tag in tags]
        return [first.agreement.points for first in firsts if first.agreement is not None]

    watch.look()
    watch.look()
    assert recorded() == [1]
    watch._next_at = 0.0
    watch.look()
    assert recorded() == [1], "nothing has changed"
    state.trials["s2-0002"].state, watch._next_at = "finished", 0.0
    watch.look()
    assert recorded() == [1, 2]


def test_a_sweep_without_stages_records_none(tmp_path: Path, state: SweepState) -> None:
    session = MagicMock()
    session.state = state
    plan = make_plan([*TOKENS, f"output_dir={tmp_path}"], [], "none", "")
    assert record_stages(plan, session) == ()
    assert not session.recorder.attach.called


def test_the_first_stage_begins_with_a_persons_points_and_the_others_with_what_was_kept(
    plan: Plan, state: SweepState
) -> None:
    assert plan.in_stage(1).first_points() == [{"train.lr": 0.001}, {"train.lr": 0.7}]
    assert not is_over(plan, plan.stages[0])
    save_earlier(plan.folder, [results_of(state, plan.space, plan.stages[0])], plan.stages[0].results_file)
    assert is_over(plan, plan.stages[0])
    kept = [{"train.lr": lr} for lr in (0.2, 0.3, 0.1)]
    assert plan.in_stage(2).first_points() == [{"train.lr": 0.001}, *kept]
    save_earlier(plan.folder, [results_of(state, plan.space, plan.stages[1])], plan.stages[1].results_file)
    assert plan.first_points() == [{"train.lr": 0.001}, {"train.lr": 0.3}, {"train.lr": 0.2}]


def test_the_sampler_learns_from_all_stages_before(plan: Plan, state: SweepState) -> None:
    assert not isinstance(searcher_options(plan)["sampler"], WarmStartSampler)
    for stage in plan.stages:
        save_earlier(plan.folder, [results_of(state, plan.space, stage)], stage.results_file)
    assert [each.name for each in plan.results_of_stages] == ["stage 2", "stage 1"]
    assert [each.name for each in plan.in_stage(2).results_of_stages] == ["stage 1"]
    assert isinstance(searcher_options(plan)["sampler"], WarmStartSampler)


def test_values_of_a_stage_are_rescaled_by_how_its_sizes_change(tmp_path: Path, state: SweepState) -> None:
    stages = (
        "search.stages=["
        "{overrides: ['model.channels=4'], num_trials: 6, keep: 3, rescale: {train.lr: {model.channels: -1}}}, "
        "{overrides: ['model.channels=8'], num_trials: 4, keep: 2, rescale: {train.lr: 0.25}}]"
    )
    plan = make_plan([*TOKENS, stages, f"output_dir={tmp_path}", "model.channels=16"], [], "r", "")
    plan.folder.mkdir(parents=True)
    assert [stage.factors for stage in plan.stages] == [{"train.lr": 0.5}, {"train.lr": 0.25}]
    for stage in plan.stages:
        save_earlier(plan.folder, [results_of(state, plan.space, stage)], stage.results_file)
    assert plan.in_stage(2).first_points() == [{"train.lr": lr} for lr in (0.001, 0.1, 0.3, 0.15)]
    assert plan.first_points() == [{"train.lr": lr} for lr in (0.001, 0.075, 0.05)]
    second, first = plan.results_of_stages
    assert second.points == [{"train.lr": lr} for lr in (0.075, 0.05, 0.025)]
    assert first.points == [{"train.lr": lr} for lr in (0.025, 0.0375, 0.0125, 0.075)]  # by both
    # Points are the same in two stages where one has the other's rescaled value.
    assert stage_results(plan, state)[0].agreement == agreement([0.3], [0.8])
    for trial, lr in (("s2-0000", 0.1), ("s2-0001", 0.3)):
        state.trials[trial].parameters["train.lr"] = lr
    assert stage_results(plan, state)[0].agreement == agreement([0.6, 0.3], [0.7, 0.8])


@pytest.mark.parametrize(
    ("distribution", "value", "factor", "expected"),
    [
        ({"type": "float", "low": 0.1, "high": 1.0}, 0.5, 4.0, 1.0),
        ({"type": "float", "low": 0.1, "high": 1.0}, 0.5, 0.1, 0.1),
        ({"type": "float", "low": 0.0, "high": 1.0, "step": 0.25}, 0.5, 1.4, 0.75),
        ({"type": "int", "low": 1, "high": 64}, 10, 0.27, 3),
        ({"type": "int", "low": 1, "high": 64, "step": 4}, 9, 10.0, 61),
    ],
)
def test_a_rescaled_value_is_the_nearest_one_of_the_range(
    distribution: dict[str, Any], value: float, factor: float, expected: float
) -> None:
    space = Space({"x": TypeAdapter[Any](Distribution).validate_python(distribution)})
    point = rescaled({"x": value, "other": "same"}, {"x": factor, "absent": 2.0}, space)
    assert point == {"x": pytest.approx(expected), "other": "same"}
    assert type(point["x"]) is type(value)
    assert contains(space["x"], point["x"])


def test_random_points_of_the_search_are_not_those_of_its_stages(plan: Plan) -> None:
    def first_random(of: Plan) -> dict[str, Any]:
        options = searcher_options(of)
        first = StudySearch(of.space, **{**options, "points": []}).next_trial()
        return {} if first is None else first.point

    points = [first_random(each) for each in (plan, plan.in_stage(1), plan.in_stage(2))]
    assert len({point["train.lr"] for point in points}) == 3
    assert first_random(plan) == points[0]


def test_a_sweep_counts_and_judges_its_own_trials_alone(plan: Plan, state: SweepState) -> None:
    assert (state.trials_of(), state.front(), sum(state.counts().values())) == ([], [], 0)
    state.stage = plan.stages[1]
    assert (state.progress, state.planned_now) == ("stage 2: 2/4", 4)
    assert state.unfinished_count(is_over=False) == 2
    state.stage = None
    assert state.progress == "0/5"
    assert state.unfinished_count(is_over=False) == 5


def test_a_wider_search_after_its_stages_keeps_them(plan: Plan) -> None:
    wider = plan.composition.changed({"search.num_trials": 9})
    assert wider.stages == plan.composition.stages
    assert wider.in_stage(2).config.search.num_trials == 4


def test_trials_of_a_stage_with_another_base_have_workers_and_a_number_of_lanes_of_their_own(tmp_path: Path) -> None:
    stages = [f"{{overrides: ['{each}'], num_trials: 4}}" for each in ("data.sequence_length=64", "train.max_steps=20")]
    overrides = ("conf=llm_lora", "scaling.trials_per_group=auto", f"search.stages=[{', '.join(stages)}]")
    plan = make_plan([*overrides, f"output_dir={tmp_path}"], [], "lanes", "")
    trials, session, nothing = fit(plan.config, plan.scalings, [{"CPU": 4.0}]), MagicMock(), cast("Any", None)
    context = TrialContext(plan.composition, str(tmp_path), None, None, trials, broker=nothing)
    first, second, own = (context.workers(each.config, trials, None, ()) for each in plan.compositions)
    assert (first == second, second == own) == (False, True)
    session.state = state = SweepState("s", plan.composition, nothing, 2, Shutdown(nothing), fit=trials)
    for stage, expected in zip(plan.stages, ((1, False), (16, True)), strict=True):
        state.lanes_found, state.has_found_lanes = 16, True
        end_stage(plan, session, stage, None)
        assert (state.lanes_found, state.has_found_lanes) == expected
    session.broker.forget_lanes.assert_called_once_with()
