"""Contract with the private names of Hydra that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigSource

from sweeps.compat.hydra import FileSource, compose_without_hydra, open_config_loader


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


def test_a_composition_without_hydras_own_config_is_the_same_as_with_it(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "small.yaml").write_text("width: 2\n")
    (tmp_path / "net" / "large.yaml").write_text("width: 4\n")
    (tmp_path / "of_small.yaml").write_text("kind: usual\n")
    (tmp_path / "of_large.yaml").write_text("kind: huge\n")
    (tmp_path / "a.yaml").write_text("defaults: [net: small, 'of_${net}', _self_]\nrate: 1\nhalf: ${net.width}\n")
    open_config_loader(Source, [tmp_path])
    overrides = ["net=large", "rate=3", "+more=[1,2]"]
    whole = hydra.compose("a", overrides=overrides, return_hydra_config=True)
    config, choices = compose_without_hydra("a", overrides)
    # Hydra's own part has the time of day, which may differ from one reading to the next.
    assert dict(config) == {name: whole[name] for name in whole if name != "hydra"}
    assert (choices, config.kind) == ({"net": "large"}, "huge")
    assert choices.items() <= whole.hydra.runtime.choices.items()
    with pytest.raises(Exception, match="ratio"):
        compose_without_hydra("a", ["ratio=3"])
