"""Nodes that should not train, from the findings of the doctor."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from composing import composed

from sweeps.doctor import doctor, probes
from sweeps.doctor.finding import Finding
from sweeps.doctor.probes import Node

SEES_NOTHING = Finding("storage", "failed", "host b", "does not share output_dir=/x")
SLOW = Finding("speed", "warning", "host b", "a matrix product takes 3 times the usual")
OTHER = Finding("speed", "failed", "host a", "a matrix product fails")


@pytest.mark.parametrize(
    ("only", "expected", "looks_at"),
    [
        (None, {"b": SEES_NOTHING, "a": OTHER}, ["ok", "storage", "speed", "speed", "end"]),
        (["b"], {"b": SEES_NOTHING}, ["ok", "storage", "end"]),  # a trial waits for the result
        (["a", "b"], {"b": SEES_NOTHING, "a": OTHER}, ["ok", "storage", "speed", "speed", "end"]),
        (["c"], {}, ["ok", "storage", "speed", "speed", "end"]),
    ],
)
def test_each_unfit_node_has_its_first_finding_and_the_check_of_some_ends_when_all_of_them_are_unfit(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    only: list[str] | None,
    expected: dict[str, Finding],
    looks_at: list[str],
) -> None:
    looked: list[str] = []

    def examined(*_: Any, **__: Any) -> Generator[Finding]:
        try:
            for finding in (Finding("ok", "ok", "", "3 answer"), SEES_NOTHING, SLOW, OTHER):
                looked.append(finding.check)
                yield finding
        finally:
            looked.append("end")

    monkeypatch.setattr(probes, "cluster_nodes", lambda: [Node(each, f"host {each}", "", 0) for each in "abc"])
    monkeypatch.setattr(doctor, "_examine_nodes", examined)
    config = composed("digits").config
    assert doctor.unfit_nodes(config, str(tmp_path), only) == expected
    assert looked == looks_at


def test_an_error_of_an_object_store_is_told_though_it_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def marked(_: str) -> None:
        raise OSError("slow down")

    monkeypatch.setattr(doctor, "marked", marked)
    monkeypatch.setattr(doctor, "check_packages", list)
    monkeypatch.setattr(doctor, "check_tracking", lambda _: [])
    (finding,) = doctor.examine(composed("digits", "output_dir=s3://bucket/sweeps").config)
    assert finding.found == "output_dir=s3://bucket/sweeps: slow down"
