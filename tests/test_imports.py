"""Who may import whom, held by reading the sources; and what the quick commands must not load."""

from __future__ import annotations

import ast
import graphlib
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.metadata import packages_distributions
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import run_python
from recording import record_small_sweep
from syntax import statements

# The parts of `sweeps` (a module, or a folder with all in it), lowest first. A part imports its own and lower
# layers, and parts of one layer import none of each other's. A new part joins the lowest layer that can do its work.
LAYERS: list[set[str]] = [
    {
        "compat",
        "constants",
        "errors",
        "texts",
        "worker_error",
    },
    {"files"},
    {"storage"},
    {"folders", "scaffold"},
    {"config"},
    {"compose"},
    {"convert"},
    {"space"},
    {"provenance"},
    {"tracking"},
    {"runtime"},
    {"search"},
    {"warm_start"},
    {"validate"},
    {"plan"},
    {"completion", "doctor", "launch", "registry", "report", "cleaning"},
    {"driver", "simulate"},
    {"operations"},
    {"service"},
    {"api"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]

# Who may import `sweeps_train`: those who run training, look at its data or load its models all of it, those who
# check a config its torch-free schema, and what reads files and tables, which is as free of it.
TRAINING = {"doctor", "plan", "provenance", "registry", "runtime"}
TRAINING_SCHEMA = {"config", "storage", "validate"}
SCHEMA = (
    "sweeps_train.config",
    "sweeps_train.files.cache_folder",
    "sweeps_train.data.data_files",
    "sweeps_train.checkpoints.integrity",
    "sweeps_train.reports.reported_metrics",
    "sweeps_train.tables",
    *(f"sweeps_train.command.{name}" for name in ("command_line", "config_files", "output", "placeholders")),
    "sweeps_train.estimators.construct",
)

NOT_FOR_WORKERS = ("sweeps", "hydra", "omegaconf", "mlflow", "optuna", "ray.tune")

# Seconds to import, each of them.
SLOW = {"ray", "torch", "mlflow", "transformers", "optuna", "datasets", "sklearn", "pandas", "plotly", "matplotlib"}


class Sources:
    """The modules of one package and what each imports, at its top or inside of functions."""

    def __init__(self, folder: Path) -> None:
        self.package = folder.name
        self.paths = {self._module_name(folder, path): path for path in sorted(folder.rglob("*.py"))}

    @staticmethod
    def _module_name(folder: Path, path: Path) -> str:
        parts = path.relative_to(folder.parent).with_suffix("").parts
        # `sweeps/__init__.py` keeps its full name, so that the package's own code is a part like any other.
        return ".".join(parts if len(parts) == 2 else [part for part in parts if part != "__init__"])

    @cached_property
    def imports(self) -> list[tuple[str, str]]:
        """Pairs of a module and the full name of something it imports: `ray.tune` for `from ray import tune`."""
        return list(self._imports())

    def _imports(self) -> Iterator[tuple[str, str]]:
        for module, path in self.paths.items():
            for node in statements(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
                if isinstance(node, ast.Import):
                    yield from ((module, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    assert node.level == 0, f"{path}:{node.lineno}: a relative import; write out the package's name"
                    yield from ((module, f"{node.module}.{alias.name}") for alias in node.names)

    def graph(self) -> dict[str, set[str]]:
        """The package's modules and those of its modules that each imports."""
        edges: dict[str, set[str]] = {module: set() for module in self.paths}
        for module, imported in self.imports:
            if is_within(imported, self.package):
                edges[module].add(self._defining_module(imported))
        return edges

    def _defining_module(self, name: str) -> str:
        while name not in self.paths and "." in name:
            name = name.rpartition(".")[0]
        return name if name in self.paths else f"{self.package}.__init__"


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def part_of(module: str) -> str:
    return module.split(".")[1]


def circle_in(graph: dict[str, set[str]]) -> str | None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return None


@pytest.fixture(scope="module")
def service(checkout: Path) -> Sources:
    return Sources(checkout / "sweeps")


@pytest.fixture(scope="module")
def training(checkout: Path) -> Sources:
    return Sources(checkout / "src" / "sweeps_train")


def lines(found: Iterable[tuple[str, str]]) -> list[str]:
    return sorted({f"{module} imports {imported}" for module, imported in found})


def test_every_part_of_the_service_has_its_layer_and_every_layer_names_parts_that_exist(service: Sources) -> None:
    parts = {part_of(module) for module in service.paths}
    assert parts ^ set().union(*LAYERS) == set(), "give each new part its layer in LAYERS of this file"


def test_imports_go_down_the_layers_only(service: Sources) -> None:
    height = {part: level for level, layer in enumerate(LAYERS) for part in layer}
    upward = [
        (module, imported)
        for module, targets in service.graph().items()
        for imported in targets
        if part_of(imported) != part_of(module) and height[part_of(imported)] >= height[part_of(module)]
    ]
    assert lines(upward) == []


@pytest.mark.parametrize("package", ["sweeps", "src/sweeps_train"])
def test_no_module_imports_itself_through_others(package: str, service: Sources, training: Sources) -> None:
    circle = circle_in({"sweeps": service, "src/sweeps_train": training}[package].graph())
    assert circle is None


def test_no_part_of_the_service_imports_itself_through_others(service: Sources) -> None:
    parts: dict[str, set[str]] = {}
    for module, targets in service.graph().items():
        part = part_of(module)
        parts.setdefault(part, set()).update({part_of(target) for target in targets} - {part})
    circle = circle_in(parts)
    assert circle is None


def test_only_what_runs_training_imports_the_training_library(service: Sources) -> None:
    wrong = [
        (module, imported)
        for module, imported in service.imports
        if is_within(imported, "sweeps_train")
        and part_of(module) not in TRAINING
        and not (part_of(module) in TRAINING_SCHEMA and any(is_within(imported, each) for each in SCHEMA))
    ]
    assert lines(wrong) == []


def test_the_training_library_knows_nothing_of_the_search(training: Sources) -> None:
    wrong = [
        (module, imported)
        for module, imported in training.imports
        if any(is_within(imported, package) for package in NOT_FOR_WORKERS)
    ]
    assert lines(wrong) == []


def test_the_search_knows_neither_what_runs_its_trials_nor_where_they_are_recorded(service: Sources) -> None:
    modules = [module for module in service.paths if is_within(module, "sweeps.search")]
    wrong = [
        (module, imported)
        for module, imported in service.imports
        if module in modules and any(is_within(imported, library) for library in ("ray", "mlflow"))
    ]
    assert lines(wrong) == []
    assert loaded_libraries("-c", f"import {', '.join(modules)}") & {"ray", "mlflow"} == set()


def test_every_library_imported_is_asked_for(checkout: Path, service: Sources, training: Sources) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    extras = [line for extra, asked in project["optional-dependencies"].items() if extra != "dev" for line in asked]
    asked_for = {canonicalize_name(Requirement(line).name) for line in project["dependencies"] + extras}
    distributions = packages_distributions()
    missing = [
        (module, imported)
        for module, imported in [*service.imports, *training.imports]
        if (root := imported.partition(".")[0]) not in sys.stdlib_module_names | {"sweeps", "sweeps_train"}
        and not asked_for & {canonicalize_name(name) for name in distributions.get(root, [root])}
    ]
    assert lines(missing) == [], "add what they belong to to the dependencies in pyproject.toml"


def test_listing_sweeps_loads_neither_the_schema_of_configs_nor_anything_slow(uri: str) -> None:
    record_small_sweep(uri)
    loaded = loaded_libraries("-m", "sweeps", "list", f"--tracking-uri={uri}")
    assert loaded & (SLOW | {"pydantic"}) == set()


def test_a_mistake_is_answered_before_anything_slow_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    command = ("-m", "sweeps", "replay", "nosuch")
    assert loaded_libraries(*command, mistake="there is no sweep 'nosuch'") & SLOW == set()


def test_a_table_that_does_not_fit_is_answered_without_ray_and_optuna(tmp_path: Path) -> None:
    table = tmp_path / "curves.parquet"
    pd.DataFrame({"step": [1]}).to_parquet(table)
    command = ["-m", "sweeps", "run", "conf=digits", f"--simulate={table}"]
    assert loaded_libraries(*command, mistake="no column config_id") & SLOW == {"pandas"}


PROCESSES = {
    "the driver before Ray": ("sweeps.driver.run", set()),
    "the broker": ("sweeps.runtime.broker", {"ray"}),
    "the Tune actor of a trial": ("sweeps.runtime.trainable", {"ray", "pandas"}),  # Tune itself imports pandas
    "the driver": ("sweeps.driver.tuner, sweeps.driver.stage_searches", {"ray", "pandas", "optuna"}),
}
"""Modules of each process that does not train, and the slow libraries that it needs: beside those of the process above
it, so that one process can import them in turn."""


def test_a_process_that_does_not_train_loads_no_torch_and_nothing_slow_that_it_does_not_need() -> None:
    told = "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    code = "\n".join(["import sys", *(f"import {modules}; {told}" for modules, _ in PROCESSES.values())])
    loaded = [set(ast.literal_eval(line)) for line in run_python("-c", code, within_s=120).stdout.splitlines()]
    found = {name: each & (SLOW | {"scipy"}) for name, each in zip(PROCESSES, loaded, strict=True)}
    assert found == {name: needed for name, (_, needed) in PROCESSES.items()}


def test_the_scripts_that_ray_runs_in_place_of_its_own_load_only_what_every_python_has() -> None:
    plain = loaded_libraries("-c", "import json, socket, sweeps")
    scripts = "import sweeps.runtime.local_worker_script, sweeps.runtime.local_agent_script"
    assert loaded_libraries("-c", scripts) <= plain


def loaded_libraries(*command: str, mistake: str | None = None) -> set[str]:
    """Top-level packages that Python loads for a command, or for the message about a mistake in it."""
    done = run_python("-X", "importtime", *command, status=None, within_s=60)
    # A line is `import time: self [us] | cumulative | name`, with the name indented by its depth.
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    messages = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == (0 if mistake is None else 2), "\n".join(messages)
    assert mistake is None or mistake in messages[-1]
    assert any(is_within(module, "sweeps") for module in loaded)
    return {module.partition(".")[0] for module in loaded}
