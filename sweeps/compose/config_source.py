"""Source of YAML files for Hydra, whose errors name the file, the line and the fix."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import yaml
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

from sweeps.compat.hydra import FileSource
from sweeps.conf_folders import conf_folder
from sweeps.errors import ConfigError

_shipped: dict[Path, tuple[bytes, ConfigResult]] = {}
"""Content of the files that come with Sweeps, and what was read from them. To read them again takes a third of a
composition, of which a sweep over groups needs one for each combination of options, and a service one for each plan."""

EXAMPLE = "`defaults: [digits, _self_]` begins one"


class CheckedFiles(FileSource):
    """Hydra's source of YAML files, with errors that name the file and the line."""

    @staticmethod
    def scheme() -> str:
        return "conf"

    def load_config(self, config_path: str) -> ConfigResult:
        """
        Raises:
            ConfigError: The file cannot be read, is no YAML, or is no mapping.
        """
        file = self.file(config_path)
        if not file.is_relative_to(conf_folder()):
            return self._load(file, config_path)
        content, loaded = _shipped.get(file, (b"", None))
        if loaded is None or not file.is_file() or file.read_bytes() != content:
            loaded = self._load(file, config_path)
            _shipped[file] = file.read_bytes(), loaded
        return deepcopy(loaded)  # since Hydra changes it

    def _load(self, file: Path, config_path: str) -> ConfigResult:
        try:
            loaded: ConfigResult = super().load_config(config_path)
        except (UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException, OSError) as error:
            raise ConfigError(f"{_display_path(file)}: {explain(error)}") from None
        _check_mapping(file, loaded.config, is_sweep="/" not in config_path)
        return loaded


def explain(error: Exception) -> str:
    """Return the message for an error in a YAML file, with the line."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not written in UTF-8 (byte {error.start} is {error.object[error.start]:#04x}); save it as UTF-8"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        context = "" if error.context is None or not error.context.startswith("while") else f" {error.context}"
        return f"{where}{error.problem or 'is no YAML'}{context}{_advice(str(error.problem))}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"has the character {error.character:#04x} at {error.position}, which YAML does not allow; remove it"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    if "Invalid loaded object type" in str(error):
        return f"is one plain value, and not `key: value` lines; {EXAMPLE}"
    return str(error).strip().partition("\n")[0]


def _advice(problem: str) -> str:
    if "'\\t'" in problem:
        return "; indent with spaces, and not with tabs"
    if "duplicate key" in problem:
        return "; keep one of them"
    if "mapping values are not allowed" in problem:
        return "; check the indentation, and quote a value that has a colon"
    return ""


def _check_mapping(file: Path, config: object, *, is_sweep: bool) -> None:
    if isinstance(config, ListConfig):
        raise ConfigError(f"{_display_path(file)}: is a list, and not `key: value` lines; {EXAMPLE}")
    if not isinstance(config, DictConfig):
        return
    if is_sweep and not config:
        raise ConfigError(f"{_display_path(file)}: is empty; {EXAMPLE}")
    if "defaults" not in config or isinstance(config["defaults"], ListConfig):
        return
    raise ConfigError(f"{_display_path(file)}: defaults must be a list, as in `defaults: [digits, _self_]`")


def _display_path(file: Path) -> str:
    """Return the file's path, relative if it is below the working folder."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
