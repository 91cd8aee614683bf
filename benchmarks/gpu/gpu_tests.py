"""The tests marked ``gpu``: those that have not passed yet first, each with its result as soon as it has ended."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from gpu.results import Results, run_part, say

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = CHECKOUT / "tests"
FILES = ("sweeps_train/test_gpu.py", "sweeps_train/test_snapshots_after_kills.py")
WITH_RAY = ("runtime/test_spare_processes.py",)
FIRST = (
    "test_a_thread_may_lock_memory_for_a_batch_while_a_graph_is_recorded",
    "test_steps_that_are_replayed_as_cuda_graphs_have_the_losses_of_others",
    "test_a_model_that_waits_for_the_gpu_trains_without_cuda_graphs",
    "test_a_compiled_model_trains_as_one_that_is_not",
    "test_a_snapshot_of_a_gpu_is_copied_to_locked_memory_and_has_the_bytes_of_a_checkpoint_written_at_once",
    "test_memory_that_is_locked_already_leaves_no_error_behind",
    "test_documents_kept_apart_by_variable_length_attention_have_the_losses_of_a_mask",
)
"""Tests that failed or were skipped on a GPU, or whose code has changed since they passed."""
LONGEST_REASON = 500


class Recorded:
    """A plugin of pytest that orders the tests and writes each result."""

    def __init__(self, results: Results):
        self._results = results

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the first tests first."""
        order = {name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: order.get(getattr(item, "originalname", item.name), len(FIRST)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins."""
        say(_name(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test that has run, was skipped, or whose fixtures failed."""
        if report.when == "call" or not report.passed:
            reason = " ".join(_reason(report).split())[-LONGEST_REASON:].replace(str(CHECKOUT), ".")
            self._results.add(
                "test", name=_name(report.nodeid), result=report.outcome, seconds=report.duration, reason=reason
            )


def _name(node: str) -> str:
    return node.rpartition("::")[2].removeprefix("test_").replace("_", " ")


def _reason(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[-1])
    return report.longreprtext if report.failed else ""


def measure(results: Results, tiny: bool) -> None:
    """Run the tests; with ``tiny`` those that also run on a CPU."""
    files = FILES[:1] if tiny else [*FILES, *(WITH_RAY if importlib.util.find_spec("ray") else ())]
    marks = "slow and not gpu" if tiny else "gpu"
    os.chdir(CHECKOUT)
    say("collecting tests")
    plain = ["-p", "no:benchmark", "-p", "no:cacheprovider", "-q", "--no-header", "--tb=short"]
    status = pytest.main([*plain, "-m", marks, *(str(TESTS / file) for file in files)], plugins=[Recorded(results)])
    raise SystemExit(int(status))


if __name__ == "__main__":
    run_part("gpu_tests", measure)
