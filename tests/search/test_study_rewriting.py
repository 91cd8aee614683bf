"""The file of a study: truncated, damaged, lost, and rewritten for a wider space."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
from killed_anywhere import all_kills
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from spaces import sampler_of

from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.config.space import CategoricalDistribution, FloatDistribution, OrdinalDistribution
from sweeps.constants import CURVE_MODELS, NUMBER, REASON
from sweeps.driver.optuna_searcher import OptunaSearcher
from sweeps.driver.startup import adapt_study
from sweeps.plan.plan import Plan, make_plan
from sweeps.plan.saved_sweep import save, saved
from sweeps.search.point_source import GIVEN, POINT
from sweeps.search.samplers.build_sampler import build_sampler
from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.search.samplers.reseeded import ReseededSampler
from sweeps.search.samplers.saved_trials import save_earlier
from sweeps.search.study_file import open_study_storage
from sweeps.search.study_rewriting import FAILED_FOR_GOOD, clear_half_sampled, rebuild_trial, rewrite_in_space
from sweeps.search.study_search import StudySearch
from sweeps.search.study_version import STUDY_FILE
from sweeps.space.space import Space

SPACE = Space(
    {
        "lr": FloatDistribution(type="float", low=1e-4, high=1e-1, log=True),
        "kind": CategoricalDistribution(type="categorical", choices=["a", "b"]),
        "size": OrdinalDistribution(type="ordinal", choices=[8, 16]),
        "width": FloatDistribution(type="float", low=0.0, high=1.0, when={"kind": "b"}),
    }
)
WIDER = Space(
    {
        "lr": FloatDistribution(type="float", low=1e-5, high=1.0, log=True),
        "kind": CategoricalDistribution(type="categorical", choices=["c", "a", "b"]),
        "size": OrdinalDistribution(type="ordinal", choices=[4, 8, 16, 32]),
        "width": FloatDistribution(type="float", low=0.0, high=2.0, when={"kind": "b"}),
    }
)


def lookup(path: str) -> Any:
    return None


def searcher(folder: Path, space: Space = SPACE, **options: Any) -> OptunaSearcher:
    storage, _ = open_study_storage(folder / STUDY_FILE)
    sampler = TPESampler(seed=0, n_startup_trials=2)
    return OptunaSearcher(space, metric="loss", mode="min", storage=storage, study_name="s", sampler=sampler, **options)


def result(loss: float, step: int, **flags: bool) -> dict[str, Any]:
    return {"loss": loss, "step": step, "training_iteration": step, **flags}


def search(folder: Path) -> OptunaSearcher:
    """Study of seven trials: finished, pruned, failed, finished, left running; two are enqueued."""
    opened = searcher(folder, points=[{"size": 16}, {"kind": "b", "size": 16}])
    for number in range(7):
        point = opened.suggest(f"t{number}")
        assert isinstance(point, dict)
        losses = [1.0 + point["lr"], 0.5 + point["lr"]][: 1 if number == 1 else 2]
        for step, loss in enumerate(losses, start=1):
            opened.on_trial_result(f"t{number}", result(loss, step))
        if number < 6:
            last = result(losses[-1], len(losses), sweeps_completed=number != 1)
            opened.on_trial_complete(f"t{number}", last, error=number == 2)
    opened.study.enqueue_trial({"size": 1})
    return opened


def trials(folder: Path) -> list[FrozenTrial]:
    storage, _ = open_study_storage(folder / STUDY_FILE)
    return optuna.load_study(study_name="s", storage=storage).get_trials()


def told(trial: FrozenTrial) -> tuple[Any, ...]:
    """Remove what is noted of an enqueued point and not used once it was suggested."""
    attributes = {name: value for name, value in trial.user_attrs.items() if name not in (POINT, GIVEN)}
    return trial.state, trial.values, trial.params, trial.intermediate_values, attributes


def test_half_a_line_at_the_end_of_a_study_is_cut_off_and_the_next_change_is_whole(tmp_path: Path) -> None:
    search(tmp_path)
    before = [told(trial) for trial in trials(tmp_path)]
    file = tmp_path / STUDY_FILE
    size = file.stat().st_size
    with file.open("ab") as journal:
        journal.write(b'{"op_code":4,"worker_id":"x","study')  # it was killed here
    (tmp_path / f"{STUDY_FILE}.lock").symlink_to(file)  # and held Optuna's lock
    storage, wrong = open_study_storage(file)
    assert wrong is not None
    assert f"up to byte {size:,} of" in wrong
    study = optuna.load_study(study_name="s", storage=storage)
    study.add_trial(optuna.trial.create_trial(state=TrialState.FAIL))
    assert [told(trial) for trial in trials(tmp_path)][:-1] == before
    assert open_study_storage(file)[1] is None


def test_trials_that_a_study_has_lost_are_what_they_were_when_they_are_taken_in_again(tmp_path: Path) -> None:
    search(tmp_path)
    before = [trial for trial in trials(tmp_path) if NUMBER in trial.user_attrs]
    file = tmp_path / STUDY_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:10], b"\0" * 40 + b"\n", *lines[11:]]))
    opened = searcher(tmp_path)
    assert (tmp_path / f"{STUDY_FILE}.damaged").is_file()
    known = {trial.user_attrs[NUMBER] for trial in opened.study.get_trials() if NUMBER in trial.user_attrs}
    assert len(known) < 4
    for trial in before:
        number = trial.user_attrs[NUMBER]
        if number not in known:
            results = [result(loss, step) for step, loss in trial.intermediate_values.items()]
            opened.restore_trial(
                rebuild_trial(
                    SPACE,
                    lookup,
                    Objectives(("loss",), ("min",), {}),
                    number=number,
                    point=SPACE.sample(trial, lookup),
                    results=results,
                    state=trial.state,
                    reason=trial.user_attrs.get("sweeps:reason"),
                )
            )
    after = {trial.user_attrs[NUMBER]: told(trial) for trial in trials(tmp_path) if NUMBER in trial.user_attrs}
    lost = [trial for trial in before if trial.user_attrs[NUMBER] not in known]
    assert [after[trial.user_attrs[NUMBER]] for trial in lost] == [told(trial) for trial in lost]
    assert [unfinished.number for unfinished in opened.unfinished] == [0, 6]  # the first one's end was lost, too
    opened.suggest("first")
    opened.suggest("again")
    opened.suggest("new")
    assert opened.number("new") == 7


@pytest.mark.parametrize("sampled", range(5))
def test_a_driver_that_dies_while_it_asks_for_values_changes_no_suggestion(sampled: int, tmp_path: Path) -> None:
    def reopened() -> OptunaSearcher:
        storage, _ = open_study_storage(tmp_path / STUDY_FILE)
        if clear_half_sampled(tmp_path / STUDY_FILE, storage, "s"):
            storage, _ = open_study_storage(tmp_path / STUDY_FILE)
        seeded = ReseededSampler(lambda seed: RandomSampler(seed=seed), 0)
        return OptunaSearcher(SPACE, metric="loss", mode="min", storage=storage, study_name="s", sampler=seeded)

    sampler = ReseededSampler(lambda seed: RandomSampler(seed=seed), 0)
    never_died = OptunaSearcher(SPACE, metric="loss", mode="min", sampler=sampler)
    undisturbed = [never_died.suggest(name) for name in "abc"]
    first = reopened()
    assert first.suggest("a") == undisturbed[0]
    half = first.study.ask()
    Space(dict(list(SPACE.distributions.items())[:sampled])).sample(half, lookup)  # and there it died
    second = reopened()
    assert [second.suggest(name) for name in "abc"] == undisturbed
    assert [second.number(name) for name in "abc"] == [0, 1, 2]
    assert len(second.study.trials) == 3


@pytest.mark.parametrize("after", [SPACE, WIDER])
def test_models_of_curves_and_cma_es_begin_anew_in_a_wider_space(tmp_path: Path, after: Space) -> None:
    opened = searcher(tmp_path)
    opened.study.sampler = build_sampler(sampler_of("cmaes"), 0, SPACE)
    for number in range(10):
        opened.suggest(f"t{number}")
        opened.on_trial_complete(f"t{number}", result(number, 1, sweeps_completed=True))
    opened.suggest("a")
    trial = opened.study.get_trials()[-1]
    opened.study._storage.set_trial_system_attr(trial._trial_id, CURVE_MODELS, {"count": 1})
    half = opened.study.ask()  # its driver died while it was sampled, after CMA-ES had noted its state
    Space({"lr": SPACE["lr"]}).sample(half, lookup)
    opened.study._storage.set_trial_system_attr(half._trial_id, "cma:optimizer:0", "00")
    rewrite_in_space(tmp_path, "s", SPACE, after, lookup)
    kept = {key.partition(":optimizer:")[0] for trial in trials(tmp_path) for key in trial.system_attrs}
    assert kept == ({CURVE_MODELS, "cma", "cma:generation"} if after is SPACE else set())


def test_what_a_study_knows_it_knows_of_a_wider_space_too(tmp_path: Path) -> None:
    search(tmp_path)
    before = trials(tmp_path)
    rewrite_in_space(tmp_path, "s", SPACE, WIDER, lookup)
    after = trials(tmp_path)
    assert [trial.number for trial in after] == [trial.number for trial in before]
    for old, new in zip(before, after, strict=True):
        assert (old.state, old.values, old.user_attrs) == (new.state, new.values, new.user_attrs)
        assert (old.intermediate_values, old.datetime_start) == (new.intermediate_values, new.datetime_start)
        if old.state != TrialState.WAITING:
            assert SPACE.sample(old, lookup) == WIDER.sample(new, lookup)
            assert new.distributions["kind"] == optuna.distributions.CategoricalDistribution(["c", "a", "b"])
    assert before[-1].system_attrs["fixed_params"] == {"size": 1}
    assert after[-1].system_attrs["fixed_params"] == {"size": 2}  # 16 is the third choice now
    opened = searcher(tmp_path, WIDER)
    space = opened.study.sampler.infer_relative_search_space(opened.study, after[-1])
    assert {"lr", "kind", "size"} <= set(space)  # none is left to be sampled by itself
    assert space["lr"] == optuna.distributions.FloatDistribution(1e-5, 1.0, log=True)
    points = [opened.suggest(f"n{number}") for number in range(12)]
    assert all(isinstance(point, dict) for point in points)
    assert [unfinished.number for unfinished in opened.unfinished] == []
    assert opened.number("n0") == 6
    assert opened.number("n11") == 17


def test_finished_trials_that_become_longer_are_the_first_to_go_on(tmp_path: Path) -> None:
    search(tmp_path)
    rewrite_in_space(tmp_path, "s", SPACE, SPACE, lookup, reopen={TrialState.COMPLETE})
    states = [trial.state.name for trial in trials(tmp_path) if NUMBER in trial.user_attrs]
    assert states == ["RUNNING", "PRUNED", "FAIL", "RUNNING", "RUNNING", "RUNNING", "RUNNING"]
    opened = searcher(tmp_path)
    assert [unfinished.number for unfinished in opened.unfinished] == [0, 3, 4, 5, 6]
    point = opened.suggest("again")
    assert isinstance(point, dict)
    opened.on_trial_result("again", result(0.1, 3))
    opened.on_trial_complete("again", result(0.2, 4, sweeps_completed=True))
    trial = next(trial for trial in trials(tmp_path) if trial.user_attrs.get(NUMBER) == 0)
    assert (trial.state, trial.value, list(trial.intermediate_values)) == (TrialState.COMPLETE, 0.1, [1, 2, 3, 4])


def test_a_value_that_is_no_number_is_told_from_an_error_that_names_one() -> None:
    found = [FAILED_FOR_GOOD.fullmatch(each) is not None for each in ("val loss=nan", "a:b=-inf", "ValueError: x=nan")]
    assert found == [True, True, False]


def test_failed_trials_go_on_unless_a_person_has_stopped_them_or_they_have_diverged(tmp_path: Path) -> None:
    opened = searcher(tmp_path)
    for number, (loss, flags) in enumerate([(math.nan, {}), (0.5, {"sweeps_stopped": True}), (0.5, {})]):
        opened.suggest(f"t{number}")
        opened.on_trial_result(f"t{number}", result(0.5, 1))
        opened.on_trial_complete(f"t{number}", result(loss, 2, **flags), error=number == 2)
    rejected = opened.study.ask()
    SPACE.sample(rejected, lookup)
    opened.study.tell(rejected, state=TrialState.FAIL)
    rewrite_in_space(tmp_path, "s", SPACE, SPACE, lookup, reopen={TrialState.FAIL})
    states = [trial.state.name for trial in trials(tmp_path)]
    assert states == ["FAIL", "FAIL", "RUNNING", "FAIL"]
    again = searcher(tmp_path)
    again.suggest("t2")
    again.on_trial_complete("t2", result(0.4, 3, sweeps_completed=True))
    trial = trials(tmp_path)[2]
    assert (trial.state, trial.value, REASON in trial.user_attrs) == (TrialState.COMPLETE, 0.4, False)


def test_a_trial_that_becomes_longer_may_violate_a_limit_later(tmp_path: Path) -> None:
    limits = {"memory": Limit(max=1)}
    opened = searcher(tmp_path, limits=limits)
    opened.suggest("t0")
    opened.on_trial_complete("t0", {**result(0.5, 1, sweeps_completed=True), "memory": 0.5})
    rewrite_in_space(tmp_path, "s", SPACE, SPACE, lookup, reopen={TrialState.COMPLETE})
    longer = searcher(tmp_path, limits=limits)
    longer.suggest("t0")
    longer.on_trial_complete("t0", {**result(0.4, 2, sweeps_completed=True), "memory": 3.0})
    assert trials(tmp_path)[0].constraints == {"memory <= 1": 2.0}


def test_a_study_is_written_anew_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(tmp_path)
    before = (tmp_path / STUDY_FILE).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(optuna.Study, "add_trial", full)
    with pytest.raises(OSError, match="No space"):
        rewrite_in_space(tmp_path, "s", SPACE, WIDER, lookup)
    assert (tmp_path / STUDY_FILE).read_bytes() == before
    assert json.loads(before.splitlines()[0])


def test_a_driver_that_is_killed_while_it_widens_a_study_changes_no_point(tmp_path: Path) -> None:
    def plan_of(optimizers: str, sizes: str) -> Plan:
        searched = (f"train.optimizer=choice({optimizers})", f"train.global_batch_size=tag(ordinal, choice({sizes}))")
        return make_plan(["conf=digits", "space=none", *searched], [], "mine", "")

    before, after = plan_of("sgd, adamw", "32, 64"), plan_of("adamw, sgd, adam", "16, 32, 64")
    folder, kept = before.folder, tmp_path / "kept"
    folder.mkdir(parents=True)
    save(before)
    storage, _ = open_study_storage(folder / STUDY_FILE)
    opened = StudySearch(before.space, metric="loss", mode="min", storage=storage, study_name="mine")
    points = [opened.next_trial() for _ in range(4)]
    folder.rename(kept)

    def restore(source: Path = kept) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)

    def extend() -> None:
        adapt_study(after)
        save(after)

    for number in all_kills(extend, restore):
        left = shutil.copytree(folder, tmp_path / f"left-{number}")
        for continues in ("resume", "extend"):
            restore(left)
            plan = after if continues == "extend" or saved(after).config == after.config else before
            adapt_study(plan)
            storage, _ = open_study_storage(folder / STUDY_FILE)
            again = StudySearch(plan.space, metric="loss", mode="min", storage=storage, study_name="mine").unfinished
            expected = [each.point for each in points if each]
            assert [each.point for each in again] == expected, f"{continues}: killed before {number}"


@pytest.mark.parametrize("is_over", [False, True])
def test_failed_trials_of_a_stage_go_on_if_the_search_has_ended_in_it(is_over: bool, tmp_path: Path) -> None:
    stages = "search.stages=[{overrides: ['train.max_steps=5'], num_trials: 2, keep: 1}]"
    before, after = (
        make_plan(["conf=digits", stages, f"search.max_retries={retries}"], [], "staged", "") for retries in (0, 1)
    )
    before.folder.mkdir(parents=True)
    save(before)
    stage = before.stages[0]
    storage, _ = open_study_storage(before.folder / stage.study_file)
    opened = StudySearch(before.space, metric="loss", mode="min", storage=storage, study_name="staged")
    opened.next_trial()
    opened.end(0, error="KeyError: 'a bug'")
    if is_over:
        save_earlier(before.folder, [EarlierSweep("stage 1", [], [])], stage.results_file)
    (before.folder / STUDY_FILE).touch()  # its driver was killed before it made the study
    adapt_study(after)
    storage, _ = open_study_storage(before.folder / stage.study_file)
    again = StudySearch(after.space, metric="loss", mode="min", storage=storage, study_name="staged")
    assert [each.number for each in again.unfinished] == ([] if is_over else [0])
