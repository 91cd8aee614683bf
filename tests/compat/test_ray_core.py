"""Contract with the private names of Ray Core that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

import inspect
import logging

import pytest
from ray._private import ray_constants, worker

from sweeps.compat.ray_core import LISTEN_ON_ALL, listening_on_loopback, log_instead_of_printing


def test_ray_reads_the_switch_for_loopback_from_ray_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LISTEN_ON_ALL, "0")
    before = ray_constants.ENABLE_RAY_CLUSTER
    with listening_on_loopback(enabled=True):
        assert ray_constants.ENABLE_RAY_CLUSTER is False
    assert before is ray_constants.ENABLE_RAY_CLUSTER
    assert ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR == LISTEN_ON_ALL, "Ray's variable for loopback has another name"


def test_ray_prints_through_print_to_stdstream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    original = worker.print_to_stdstream
    assert list(inspect.signature(original).parameters) == ["data", "ignore_prefix"], "it takes other arguments"
    monkeypatch.setattr(worker, "print_to_stdstream", original)
    log_instead_of_printing()
    with caplog.at_level(logging.DEBUG, "ray"):
        worker.print_to_stdstream({"lines": ["a worker died"]}, ignore_prefix=True)
    assert "a worker died" in caplog.text
    assert capsys.readouterr().out == ""
