"""Mistakes in ``output_dir`` as an address are found on the driver."""

from __future__ import annotations

import pytest
from test_search_checks import mistakes

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep import compose_sweep
from sweeps.config.service import Service
from sweeps.validate.storage import storage_notes


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("output_dir='s3://me:s3cret@bucket/sweeps'",), ["output_dir=s3://me:***@bucket", "AWS_ACCESS_KEY_ID", "env"]),
        (
            ("output_dir=s3://bucket/sweeps", "search/scheduler=pbt", "search/sampler=random"),
            ["output_dir=s3://bucket/sweeps", "search.scheduler.kind=pbt", "a folder that all nodes share"],
        ),
    ],
)
def test_a_mistake_names_key_value_and_fix(tokens: tuple[str, ...], words: list[str]) -> None:
    lines = mistakes(*tokens)
    assert len(lines) == 1
    assert all(word in lines[0] for word in words), lines
    assert "s3cret" not in lines[0]


def test_the_credentials_that_nodes_need_are_noted() -> None:
    given = ["output_dir=s3://bucket/sweeps", "cluster=auto"]
    (note,) = storage_notes(compose_sweep("digits", given, ConfSearchPath()).config)
    assert "cluster.env" in note
    assert not [*storage_notes(compose_sweep("digits", [*given, "cluster.env=['AWS_*']"], ConfSearchPath()).config)]


def test_a_service_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="output_dir=s3://bucket/sweeps: a service needs a folder of its machine"):
        Service(output_dir="s3://bucket/sweeps")
