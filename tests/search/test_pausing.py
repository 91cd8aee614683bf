"""Whole sweeps whose trials are paused, resumed, and continue from each other's state: two gloo workers a trial."""

from __future__ import annotations

import itertools
import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from running import Done, ended, run, start, verb
from waiting import wait_until

from sweeps.constants import NUMBER
from sweeps.runtime.checkpoint_layout import checkpoint_folders
from sweeps.runtime.events import Report
from sweeps.runtime.report_log import read_report_log
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps_train.checkpoints.checkpoint import read_training_config

pytestmark = pytest.mark.timeout(300)

SMALL = (
    *("space=none", "model=vision_transformer", "train.max_steps=9", "train.eval_every=3", "train.log_every=1"),
    *("train.lr=tag(log,interval(1e-4,1e-1))", "train.momentum=interval(0.8,0.95)", "search/sampler=random"),
    *("train.schedule=constant", "search.metric=eval/loss", "search.mode=min", "cluster.num_cpus=2"),
)
"""Settings of trials that take a second, one at a time."""
UNLIKE = "search.points=[{train.lr: 0.1, train.momentum: 0.9}, {train.lr: 0.002, train.momentum: 0.9}]"
"""Points of which one diverges at once and the other learns: one is better at every step."""


def ran(folder: Path, *tokens: str) -> Done:
    """A sweep that has ended as it should."""
    done = run(folder, *tokens)
    assert done.status == 0, done.err
    return done


def history(done: Done, trial: int, metric: str) -> dict[int, float]:
    """Values by step. Each is recorded once, or again after the trial went back to another trial's earlier step."""
    points = done.client.get_metric_history(done.trials()[trial].info.run_id, metric)
    for step, count in Counter(point.step for point in points).items():
        went_back = sum(who == trial and origin < step for who, _, origin in exploits(done))
        assert count <= 1 + went_back, f"step {step} is recorded {count} times"
    return {point.step: point.value for point in sorted(points, key=lambda point: point.timestamp)}


def exploits(done: Done) -> list[tuple[int, int, int]]:
    """Exploits: trial, donor, and step of the donor."""
    found = re.findall(r"trial (\d{4}) continues from trial (\d{4})'s step (\d+)", done.err)
    return [(int(trial), int(donor), int(step)) for trial, donor, step in found]


def study(done: Done) -> optuna.Study:
    name = done.document["sweep"]
    storage = JournalStorage(JournalFileBackend(str(done.folder / "outputs" / name / "optuna.log")))
    return optuna.load_study(study_name=name, storage=storage)


@pytest.fixture(scope="module")
def hyperband(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("hyperband")
    return ran(folder, "conf=digits", "search/scheduler=hyperband", "search.num_trials=3", *SMALL, "--name=hyperband")


@pytest.fixture(scope="module")
def undisturbed(hyperband: Done, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A sweep of the trial that trained to its end, without a scheduler."""
    (best,) = [trial for trial in hyperband.document["trials"] if trial["state"] == "finished"]
    points = [f"++search.points=[{{{','.join(f'{path}: {value!r}' for path, value in best['params'].items())}}}]"]
    folder = tmp_path_factory.mktemp("undisturbed")
    alone = ("search/scheduler=none", "search.num_trials=1", "search.default_first=false")
    return ran(folder, "conf=digits", *SMALL, *alone, *points, "--name=undisturbed")


def test_tune_saves_nothing_of_a_trial_itself_so_its_actor_needs_no_folder_of_the_driver(hyperband: Done) -> None:
    files = hyperband.folder / "outputs" / "hyperband" / "tune"
    assert files.is_dir()
    assert not [*files.rglob("checkpoint_*")]


@pytest.mark.slow
def test_every_trial_of_hyperband_ends_and_only_the_best_of_a_rung_goes_on(hyperband: Done) -> None:
    assert hyperband.document["counts"] == {"finished": 1, "pruned": 2, "failed": 0, "running": 0, "stopped": 0}
    trials = hyperband.document["trials"]
    at_rung = [history(hyperband, number, "eval/loss")[3] for number in range(3)]
    for trial, loss in zip(trials, at_rung, strict=True):
        assert trial["steps"] == (9 if loss == min(at_rung) else 3)
        assert trial["attempts"] == 1  # a pause is no attempt
    states = {trial.state.name for trial in study(hyperband).get_trials()}
    assert states == {"COMPLETE", "PRUNED"}
    assert len(re.findall(r"trial \d{4} started", hyperband.err)) == 3


@pytest.mark.slow
def test_a_trial_that_was_paused_is_the_same_to_the_last_bit_as_one_that_was_not(
    hyperband: Done, undisturbed: Done
) -> None:
    number = next(int(trial["trial"]) for trial in hyperband.document["trials"] if trial["state"] == "finished")
    for metric, steps in (("eval/loss", {3, 6, 9}), ("train/loss", set(range(1, 10))), ("train/lr", set(range(1, 10)))):
        paused = history(hyperband, number, metric)
        assert set(paused) == steps  # none lost, none doubled
        assert paused == history(undisturbed, 0, metric)


@pytest.mark.slow
def test_train_time_leaves_out_what_a_trial_waited(hyperband: Done) -> None:
    time = hyperband.document["time"]
    assert 0 < time["train_s"] < time["wall_s"]


@pytest.mark.slow
@pytest.mark.parametrize("search", ["sweeps", "auto"])
def test_our_own_search_runs_two_trials_at_once_and_finishes_the_best(search: str, tmp_path: Path) -> None:
    tokens = [token for token in SMALL if not token.startswith(("search/sampler", "train.max_steps"))]
    two = (f"search={search}", "search.num_trials=8", "scaling.num_workers=1", "train.max_steps=27", "--name=own")
    done = ran(tmp_path, "conf=digits", *tokens, *two)
    trials, counts = done.document["trials"], done.document["counts"]
    assert counts["finished"] >= 1
    assert counts["finished"] + counts["pruned"] == len(trials) == 8
    assert {trial["attempts"] for trial in trials} == {1}
    events = [event for _, event in DecisionLog(study(done)).events]
    assert any(event.get("pauses") for event in events)
    chosen = [event["reason"] for event in events if event["event"] == "chosen"]
    assert len(chosen) == (search == "auto")
    assert any(event.get("start_cost", -1) >= 0 for event in events)
    assert all(f"search.scheduler.kind=auto: {reason}" in done.err for reason in chosen)
    for number, trial in enumerate(trials):
        assert set(history(done, number, "eval/loss")) == set(range(3, trial["steps"] + 1, 3))
    best = min(trials, key=lambda trial: trial["value"])
    assert done.document["best"]["trial"] == best["trial"]
    assert best["state"] == "finished"
    assert verb(tmp_path, "replay", "own", "--json").document["differences"] == []


@pytest.mark.slow
def test_finished_trials_of_a_sweep_with_longer_ones_wait_at_their_old_end_until_their_turn_or_are_pruned_there(
    tmp_path: Path,
) -> None:
    tokens = [token for token in SMALL if not token.startswith("train.max_steps")]
    short = ("train.max_steps=3", "search/scheduler=freeze_thaw", "search.num_trials=5", "--name=grown")
    before = ran(tmp_path, "conf=digits", *tokens, *short)
    assert before.document["counts"]["finished"] == 5
    document = verb(tmp_path, "extend", "grown", "train.max_steps=27", "--json").document
    ends = [(trial["state"], trial["steps"], trial["attempts"]) for trial in document["trials"]]
    assert ("finished", 27, 2) in ends
    assert ends.count(("pruned", 3, 1)) >= 2
    assert [trial["params"] for trial in document["trials"]] == [each["params"] for each in before.document["trials"]]
    for number, (_, steps, _) in enumerate(ends):
        assert set(history(before, number, "eval/loss")) == set(range(3, steps + 1, 3))


@pytest.mark.slow
def test_programs_without_checkpoints_are_stopped_once_others_promise_more_and_an_interruption_changes_nothing(
    tmp_path: Path,
) -> None:
    program = ("conf=command", "~task.checkpoints", "~task.options", "search.num_trials=12", "cluster.num_cpus=2")
    process = start(tmp_path, "run", *program, "tracking.report=false", "--name=own", "--json")
    wait_until(lambda: len([*tmp_path.glob("outputs/own/trials/*/reports.jsonl")]) >= 4)
    process.send_signal(signal.SIGINT)
    interrupted = ended(tmp_path, process, status=130)
    assert "scheduler freeze_thaw without pauses, since the program saves no checkpoints" in interrupted.err
    done = verb(tmp_path, "resume", "own", "--json")
    assert done.document["counts"]["finished"] + done.document["counts"]["pruned"] == 12
    assert done.document["best"]["trial"] in {
        each["trial"] for each in done.document["trials"] if each["state"] == "finished"
    }
    judged = [event for _, event in DecisionLog(study(done)).events if event["event"] == "arrived"]
    assert {event["stops"] for event in judged if "worth" in event} >= {True}
    assert not any(event["pauses"] for event in judged)
    assert verb(tmp_path, "replay", "own", "--json").document["differences"] == []


@pytest.fixture(scope="module")
def pbt(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("pbt")
    changes = ("search/scheduler=pbt", "search.scheduler.quantile=0.5", "search.num_trials=2")
    return ran(folder, "conf=digits", *SMALL, *changes, UNLIKE, "search.default_first=false", "--name=pbt")


@pytest.mark.slow
def test_in_a_population_the_worse_goes_on_from_the_better_ones_checkpoint_with_other_values(pbt: Done) -> None:
    assert pbt.document["counts"]["finished"] == 2
    assert exploits(pbt)[0][:2] == (0, 1)
    for trial, donor, step in exploits(pbt):
        attributes = study(pbt).get_trials()[trial].user_attrs
        origins = [value for name, value in attributes.items() if name.startswith("sweeps:origin:")]
        assert {"trial": f"{donor:04}", "step": step} in [
            {name: origin[name] for name in ("trial", "step")} for origin in origins
        ]
        changed = [name for name in pbt.trials()[trial].data.metrics if name.startswith("param/")]
        assert changed
        for name in changed:
            (path,) = [path for path in ("train.lr", "train.momentum") if name == f"param/{path}"]
            assert step in history(pbt, trial, name)
            # MLflow's parameters cannot change, and stay the first ones.
            assert float(pbt.trials()[trial].data.params[path]) == pbt.document["trials"][trial]["params"][path]


@pytest.mark.slow
def test_a_trial_that_took_over_anothers_state_trains_with_its_new_values(pbt: Done) -> None:
    trial, _, step = exploits(pbt)[-1]
    rates = history(pbt, trial, "train/lr")
    assert set(rates) == set(range(1, 10))
    assert rates[step + 1] == history(pbt, trial, "param/train.lr")[step]
    (last,) = (pbt.folder / "outputs" / "pbt" / "trials" / f"{trial:04}").glob("lineage-*/step-00000009")
    assert read_training_config(last).train.lr == rates[9]


@pytest.mark.slow
def test_a_population_loses_no_report_and_records_none_twice(pbt: Done) -> None:
    for number in range(2):
        assert set(history(pbt, number, "eval/loss")) == {3, 6, 9}
        assert set(history(pbt, number, "train/loss")) == set(range(1, 10))
        assert pbt.document["trials"][number]["attempts"] == 1


@pytest.mark.slow
def test_the_value_of_every_trial_of_a_population_is_of_what_it_measured_itself(pbt: Done) -> None:
    assert_values_agree(pbt, "eval/loss")


def assert_values_agree(done: Done, metric: str) -> None:
    """Assert that MLflow, the study and the command name the same values, which the trials have measured themselves."""
    begun = [trial for trial in study(done).get_trials() if NUMBER in trial.user_attrs]
    for shown, studied in zip(done.document["trials"], begun, strict=True):
        measured = []
        folder = done.folder / "outputs" / done.document["sweep"] / "trials" / shown["trial"]
        for number, each in enumerate(checkpoint_folders(folder.parent, shown["trial"])):
            logs = [log for log in read_report_log(str(each)) if isinstance(log, Report) and metric in log.metrics]
            origin = studied.user_attrs[f"sweeps:origin:{number}"]["step"] if number else 0
            assert all(log.step > origin for log in logs), "the other trial has reported that step"
            measured += [log.metrics[metric] for log in logs]
        recorded = [point.value for point in done.client.get_metric_history(shown["run_id"], metric)]
        assert shown["value"] == studied.value == min(recorded) == min(measured)


@pytest.mark.slow
def test_nothing_stays_pinned_after_the_end(pbt: Done) -> None:
    assert not list((pbt.folder / "outputs" / "pbt" / "trials").glob("*/pinned"))


# --- all of them ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["bohb", "gp", "cmaes", "nsga3", "qmc", "brute_force"])
def test_every_sampler_that_no_other_whole_sweep_has_runs_one(sampler: str, tmp_path: Path) -> None:
    """``curves`` is the usual one, ``random`` that of this module; ``tpe``, ``nsga2`` and ``grid`` run in
    ``plan/test_resume_and_extend.py``, ``driver/test_sweep.py`` and ``runtime/test_worker_group.py``."""
    tokens = [token for token in SMALL if not token.startswith(("search/sampler", "train.lr", "train.momentum"))]
    space: dict[str, Any] = {
        "train.lr": {"type": "float", "low": 0.001, "high": 0.011, "step": 0.005},
        "train.optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
    }
    if sampler != "brute_force":
        space["train.lr"] = {"type": "float", "low": 0.001, "high": 0.1, "log": True}
    tokens += [f"search/sampler={sampler}", f"++space={json.dumps(space).replace(chr(34), '')}"]
    done = ran(tmp_path, "conf=digits", *tokens, "search/scheduler=asha", "search.num_trials=5", "--name=all")
    counts = done.document["counts"]
    assert counts["finished"] + counts["pruned"] == len(done.document["trials"]) == 5
    points = [tuple(sorted(trial["params"].items())) for trial in done.document["trials"]]
    assert len(set(points)) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "resource"),
    [
        ("hyperband", "epochs"),
        ("freeze_thaw", "samples"),
        ("pbt", "steps"),
        ("pb2", "evaluations"),
        *itertools.product(("asha", "hyperband", "freeze_thaw", "pbt"), ["seconds"]),  # which are measured, not counted
        ("none", "evaluations"),  # it counts nothing
    ],
)
def test_every_scheduler_runs_a_sweep_and_each_of_its_resources_is_counted(
    scheduler: str, resource: str, tmp_path: Path
) -> None:
    one = {"evaluations": 1, "steps": 3, "epochs": 3 * 32 / 1437, "samples": 96, "seconds": 0.02}[resource]
    options = [] if scheduler == "none" else [f"search.scheduler.resource={resource}"]
    if scheduler in ("asha", "hyperband", "freeze_thaw"):
        options.append(f"search.scheduler.grace={one}")
    if scheduler == "hyperband":
        options.append(f"search.scheduler.longest={3 * one}")
    if scheduler in ("pbt", "pb2"):
        options += [f"search.scheduler.interval={one}", "search.scheduler.quantile=0.5", UNLIKE, "train.max_steps=15"]
    options.append("train.global_batch_size=32")
    done = ran(
        tmp_path, "conf=digits", *SMALL, f"search/scheduler={scheduler}", *options, "search.num_trials=4", "--name=all"
    )
    counts = done.document["counts"]
    assert counts["finished"] + counts["pruned"] == 4
    if scheduler in ("asha", "hyperband"):
        assert counts["pruned"] >= 1
    if scheduler in ("pbt", "pb2"):
        assert exploits(done)
        assert counts["pruned"] == 0
    for number in range(4):
        assert history(done, number, "eval/loss")


FUNCTION = (
    *("task.arguments.epochs=6", "task.arguments.hidden=16", "task.arguments.batch_size=32", "cluster.num_cpus=2"),
    *("space.task.arguments.lr.high=10", "search.default_first=false", "search.metric=loss", "search.mode=min"),
    "search.points=[{task.arguments.lr: 3.0}, {task.arguments.lr: 0.01}, {task.arguments.lr: 0.001}]",
)


@pytest.mark.slow
def test_a_users_function_that_hyperband_pauses_goes_on_from_what_it_saved(tmp_path: Path) -> None:
    scheduler = ("search/scheduler=hyperband", "search.scheduler.grace=2", "search.scheduler.longest=6")
    done = ran(tmp_path, "conf=ray_train_function", *FUNCTION, *scheduler, "search.num_trials=3", "--name=all")
    assert [trial["attempts"] for trial in done.document["trials"]] == [1, 1, 1]
    losses = [history(done, number, "loss") for number in range(3)]
    assert sorted(map(len, losses)) == [2, 2, 6]
    assert {tuple(each) for each in losses} == {(1, 2), (1, 2, 3, 4, 5, 6)}


@pytest.mark.slow
def test_a_users_function_goes_on_from_what_another_trial_saved(tmp_path: Path) -> None:
    scheduler = ("search/scheduler=pbt", "search.scheduler.interval=2", "search.scheduler.quantile=0.5")
    scheduler += ("search/sampler=random", "search.scheduler.mutate=[task.arguments.lr]", "scaling.isolation=warm")
    done = ran(tmp_path, "conf=ray_train_function", *FUNCTION, *scheduler, "search.num_trials=2", "--name=all")
    assert done.document["counts"]["finished"] == 2
    losses = [history(done, number, "loss") for number in range(2)]
    assert all(set(each) == set(range(1, 7)) for each in losses)
    assert_values_agree(done, "loss")
    trial, donor, step = exploits(done)[0]
    assert (trial, donor) == (0, 1)
    # What follows is nearer to what the donor had reached than to where the trial itself was.
    assert abs(losses[0][step + 1] - losses[1][step]) < abs(losses[0][step + 1] - losses[0][step])


@pytest.mark.slow
def test_a_language_model_is_stopped_by_the_tokens_that_it_has_seen(tmp_path: Path) -> None:
    tokens = ["train.max_steps=8", "train.eval_every=2", "train.log_every=2", "data.max_eval_documents=8"]
    tokens += ["space=none", "train.lr=tag(log, interval(1e-4, 10))", "search.default_first=false"]
    tokens += ["search.points=[{train.lr: 0.003}, {train.lr: 5.0}]", "cluster.num_cpus=2", "search.num_trials=2"]
    tokens += ["search/scheduler=asha", "search.scheduler.resource=tokens", "search.scheduler.grace=500"]
    done = ran(tmp_path, "conf=llm_lora", *tokens, "search.scheduler.eta=2", "--name=tokens")
    assert [(trial["state"], trial["steps"]) for trial in done.document["trials"]] == [("finished", 8), ("pruned", 2)]
