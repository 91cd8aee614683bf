"""Contract with the private names of Hydra that Sweeps uses: a failure here says which of them has moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigSource
from omegaconf import OmegaConf

from sweeps.compat.hydra import FileSource, compose_options, open_config_loader, set_values


class Source(FileSource):
    """Source with a scheme of its own."""

    @staticmethod
    def scheme() -> str:
        return "tested"


@pytest.fixture(autouse=True)
def _cleared() -> Iterator[None]:
    GlobalHydra.instance().clear()
    yield
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
    (tmp_path / "a.yaml").write_text("defaults: [net: small, _self_]\nrate: 1\nhalf: ${net.width}\n")
    open_config_loader(Source, [tmp_path])
    overrides = ["net=large", "rate=3", "+more=[1,2]"]
    whole = hydra.compose("a", overrides=overrides, return_hydra_config=True)
    for _ in range(2):  # composed, and known
        config, choices, values = compose_options("a", overrides)
        set_values(config, values)
        # Hydra's own part has the time of day, which may differ from one reading to the next.
        assert dict(config) == {name: whole[name] for name in whole if name != "hydra"}
        assert choices == {"net": "large"}
        assert choices.items() <= whole.hydra.runtime.choices.items()
    config, _, values = compose_options("a", ["ratio=3"])
    with pytest.raises(Exception, match="ratio"):
        set_values(config, values)


def test_a_config_is_composed_anew_once_one_of_its_files_is_not_what_it_was(tmp_path: Path) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    for folder in (first / "net", last / "net"):
        folder.mkdir(parents=True)
    (last / "a.yaml").write_text("defaults: [net: small, optional net@more: wide, _self_]\n")
    (last / "net" / "small.yaml").write_text("width: 2\n")

    def composed() -> object:
        GlobalHydra.instance().clear()
        open_config_loader(Source, [first, last])
        return OmegaConf.to_container(compose_options("a", [])[0])

    assert composed() == composed() == {"net": {"width": 2}}
    (last / "net" / "small.yaml").write_text("width: 3\n")  # changed
    assert composed() == {"net": {"width": 3}}
    (first / "net" / "small.yaml").write_text("width: 4\n")  # in a folder that comes first
    assert composed() == {"net": {"width": 4}}
    (last / "net" / "wide.yaml").write_text("width: 5\n")  # an option that need not be there
    assert composed() == {"net": {"width": 4}, "more": {"width": 5}}
    (first / "net" / "small.yaml").unlink()
    assert composed() == {"net": {"width": 3}, "more": {"width": 5}}


def test_a_config_is_composed_anew_if_an_environment_variable_chooses_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "small.yaml").write_text("width: 2\n")
    (tmp_path / "net" / "large.yaml").write_text("width: 4\n")
    (tmp_path / "a.yaml").write_text("defaults: [{net: '${oc.env:NET}'}, _self_]\n")
    open_config_loader(Source, [tmp_path])
    for option, width in (("small", 2), ("large", 4)):
        monkeypatch.setenv("NET", option)
        assert compose_options("a", [])[0].net.width == width
