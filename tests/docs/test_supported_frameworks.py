"""docs/bring_your_own.md, "What works in each framework": each row is tested."""

from __future__ import annotations

import ast
from pathlib import Path

FUNCTION, TRAINER, LIGHTNING, SCRIPT, PROGRAM = (
    "Ray Train function",
    "Hugging Face `Trainer`",
    "Lightning",
    "script",
    "program",
)
BEST_OF_A_TRAINER = (
    "test_huggingface.py::"
    "test_the_trial_keeps_the_best_checkpoint_of_a_trainer_that_would_do_so_itself_and_may_stop_early"
)
TESTS = {
    "callbacks": {
        TRAINER: ["test_huggingface.py::test_a_killed_trainer_resumes_from_its_own_checkpoint"],
        LIGHTNING: ["test_lightning.py::test_the_users_callbacks_early_stopping_and_loggers_work"],
    },
    "early stopping of its own": {
        FUNCTION: ["test_function.py::test_a_function_is_searched_stopped_and_retried_like_any_task"],
        TRAINER: [BEST_OF_A_TRAINER],
        LIGHTNING: ["test_lightning.py::test_the_users_callbacks_early_stopping_and_loggers_work"],
        SCRIPT: ["test_script.py::test_a_script_that_fails_is_started_again_and_resumes_from_its_checkpoint"],
        PROGRAM: ["test_command.py::test_a_program_that_fails_is_started_again_with_its_newest_complete_checkpoint"],
    },
    "resume": {
        FUNCTION: ["test_function.py::test_a_retry_resumes_from_the_files_of_all_workers_and_a_new_trial_from_nothing"],
        TRAINER: ["test_huggingface.py::test_a_killed_trainer_resumes_from_its_own_checkpoint"],
        LIGHTNING: [
            "test_lightning.py::test_a_killed_module_resumes_from_its_own_checkpoint_and_a_worse_one_is_stopped"
        ],
        SCRIPT: ["test_script.py::test_a_script_that_fails_is_started_again_and_resumes_from_its_checkpoint"],
        PROGRAM: [
            "test_command.py::test_a_program_that_fails_is_started_again_with_its_newest_complete_checkpoint",
            "test_command.py::test_a_program_that_looks_for_its_own_checkpoint_continues_from_it",
        ],
    },
    "own loggers": {
        FUNCTION: [
            "test_mlflow_runs.py::test_what_a_function_logs_to_mlflow_is_read_and_no_run_stays_open_or_elsewhere"
        ],
        TRAINER: [
            "test_huggingface.py::test_what_a_trainer_and_its_function_log_to_mlflow_is_the_trials_and_no_run_of_its_own"
        ],
        LIGHTNING: ["test_lightning.py::test_the_users_callbacks_early_stopping_and_loggers_work"],
        SCRIPT: ["test_own_folder.py::test_two_trials_at_once_that_write_the_same_name_do_not_read_each_others_file"],
        PROGRAM: [
            "test_command_metrics.py::test_metrics_that_a_program_logs_to_mlflow_are_read_from_its_store",
            "test_command_metrics.py::test_tensorboards_events_are_read_by_step_from_any_depth",
        ],
    },
    "best model": {
        FUNCTION: ["test_function.py::test_mlflow_has_exactly_the_files_that_the_function_saved"],
        TRAINER: [
            BEST_OF_A_TRAINER,
            "test_huggingface.py::test_transformers_reads_a_trainers_checkpoint",
        ],
        LIGHTNING: ["test_lightning.py::test_lightning_reads_a_modules_checkpoint"],
        SCRIPT: ["test_script.py::test_a_script_that_fails_is_started_again_and_resumes_from_its_checkpoint"],
        PROGRAM: ["test_command.py::test_its_checkpoint_is_the_trials_and_is_in_mlflow"],
    },
    "multi-GPU": {
        FUNCTION: ["test_function.py::test_a_retry_resumes_from_the_files_of_all_workers_and_a_new_trial_from_nothing"],
        TRAINER: ["test_huggingface.py::test_a_killed_trainer_resumes_from_its_own_checkpoint"],
        LIGHTNING: ["test_lightning.py::test_the_shards_of_every_node_are_reported_by_one_of_its_workers"],
        SCRIPT: ["test_script.py::test_a_script_that_dies_on_another_worker_than_the_first_fails_the_trial_at_once"],
        PROGRAM: ["test_command.py::test_every_worker_starts_its_own_process_in_torchruns_environment"],
    },
}
"""Tests by row and column; a cell without one says that the code is the user's own. The page names their files."""


def test_each_row_is_tested(checkout: Path) -> None:
    text = (checkout / "docs/bring_your_own.md").read_text(encoding="utf-8")
    table = text.split("## What works in each framework", 1)[1].split("\n\n", 2)[1]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    assert head[1:] == [FUNCTION, TRAINER, LIGHTNING, SCRIPT, PROGRAM, "`tests/sweeps_train/test_...`"]
    assert [row[0] for row in rows] == list(TESTS)
    for row in rows:
        of_row = TESTS[row[0]]
        for column, cell in zip(head[1:-1], row[1:-1], strict=True):
            assert cell == "the code is yours" or column in of_row, f"{row[0]}, {column}"
        files = {name.partition("::")[0] for names in of_row.values() for name in names}
        assert {f"test_{each.strip('`')}.py" for each in row[-1].split(", ")} == files, row[0]


def test_the_tests_of_the_rows_exist(checkout: Path) -> None:
    named = {name for row in TESTS.values() for cell in row.values() for name in cell}
    for file in {name.partition("::")[0] for name in named}:
        tree = ast.parse((checkout / "tests/sweeps_train" / file).read_text(encoding="utf-8"))
        known = {f"{file}::{node.name}" for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert {name for name in named if name.startswith(f"{file}::")} <= known
