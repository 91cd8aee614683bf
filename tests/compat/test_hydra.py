"""Contract with the private names of Hydra that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigSource

from sweeps.compat.hydra import FileSource, open_config_loader


class Source(FileSource):
    """Source with a scheme of its own."""

    @staticmethod
    def scheme() -> str:
        return "tested"


@pytest.fixture(autouse=True)
def _cleared() -> None:
    GlobalHydra.instance().clear()


def test_the_source_of_files_finds_the_yaml_behind_a_name(tmp_path: Path) -> None:
    source = Source("tests", f"tested://{tmp_path}")
    assert isinstance(source, ConfigSource)
    assert source.file("digits") == tmp_path / "digits.yaml"


def test_a_composition_reads_its_files_from_the_first_folder_that_has_them(tmp_path: Path) -> None:
    for folder, names in (("first", "a"), ("last", "ab")):
        for name in names:
            path = tmp_path / folder / f"{name}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"folder: {folder}\n")
    loader = open_config_loader(Source, [tmp_path / "first", tmp_path / "last"])
    found = {name: loader.load_configuration(name, [], run_mode=None).folder for name in "ab"}  # type: ignore[arg-type]
    assert found == {"a": "first", "b": "last"}
    assert {"a", "b"} < set(loader.get_group_options(""))
