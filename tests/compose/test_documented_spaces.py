"""Every example of docs/search_space.md composes, and its ranges on the command line equal their YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from sweeps.compose import Composition
from sweeps.compose.expressions import FUNCTIONS
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.space import Distribution
from sweeps.folders.conf_folders import conf_folder
from sweeps.validate.config_checks import check_sweep

READ: TypeAdapter[Distribution] = TypeAdapter(Distribution)
TEXT = (Path(__file__).parents[2] / "docs" / "search_space.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"## ([^\n]+)\n(?:(?!\n## ).)*?```yaml\n(.*?)```", TEXT, flags=re.DOTALL))
ROWS = [
    row for row in re.findall(r"^\| `([^`]+)` \| `(\{[^`]+\})` \|$", TEXT, flags=re.MULTILINE) if "..." not in row[1]
]


def composed(folder: Path, snippet: str) -> Composition:
    """The digits sweep without a space of its own, and the snippet's keys."""
    document = yaml.safe_load((conf_folder() / "digits.yaml").read_text(encoding="utf-8"))
    document["defaults"] = [{"space": "none"} if "space" in each else each for each in document["defaults"]]
    for section, values in yaml.safe_load(snippet).items():
        document[section] = {**document.get(section, {}), **values}
    (folder / "documented.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    composition = compose_sweep("documented", (), ConfSearchPath([folder]))
    check_sweep(composition)
    return composition


@pytest.mark.parametrize("title", SNIPPETS)
def test_a_documented_example_composes_and_passes_all_checks(tmp_path: Path, title: str) -> None:
    composition = composed(tmp_path, SNIPPETS[title])
    if title == "Constraints":
        assert len(composition.config.search.constraints) == 3
    else:
        assert len(composition.config.space) >= 1


def test_every_heading_with_an_example_is_tested() -> None:
    assert list(SNIPPETS) == [
        "Distributions",
        "Conditions",
        "Whole config groups",
        "Constraints",
        "Derived values",
    ]
    assert len(ROWS) == 13


def test_the_documented_derived_values_follow(tmp_path: Path) -> None:
    composition = composed(tmp_path, SNIPPETS["Derived values"])
    for batch, steps in ((32, 200), (64, 100)):
        train = composition.trial({"train.global_batch_size": batch}).train
        assert (train.max_steps, train.eval_every) == (steps, steps)


@pytest.mark.parametrize(("token", "distribution"), ROWS, ids=[row[0] for row in ROWS])
def test_a_range_on_the_command_line_means_the_same_as_its_yaml(token: str, distribution: str) -> None:
    composition = compose_sweep("digits", ["space=none", token], ConfSearchPath())
    path = token.partition("=")[0]
    expected: Any = READ.validate_python(yaml.safe_load(distribution.replace("1e-", "1.0e-")))
    assert composition.config.space == {path: expected}


def test_every_function_of_expressions_is_documented() -> None:
    assert [name for name in FUNCTIONS if f"`{name}`" not in TEXT] == []
