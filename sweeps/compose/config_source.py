"""Source of YAML files for Hydra, whose errors name the file, the line and the fix."""

from __future__ import annotations

import pickle
import re
import unicodedata
from pathlib import Path

import yaml
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException
from omegaconf.grammar_parser import parse

from sweeps.compat.hydra import FileSource
from sweeps.compose.composition import first_line
from sweeps.compose.derived import IN_QUOTES
from sweeps.compose.distribution_kinds import remove_foreign_keys
from sweeps.errors import ConfigError
from sweeps.folders.conf_folders import conf_folder

_OTHER_BLANK = re.compile(r"^ *(- +)*([\w.]+:)? *[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]")
"""Pattern of a line with a non-ASCII space at the beginning of its indent or of the value after its key."""
_BOOLEAN_WORD = re.compile(r"[\[,-]\s*(on|off|yes|no)\s*($|[\],#])", re.IGNORECASE | re.MULTILINE)
_WORD_AS_KEY = re.compile(r"(^|[{,?-])\s*(on|off|yes|no|true|false|null|~)\s*:", re.IGNORECASE | re.MULTILINE)
_BASE_60 = re.compile(r"[0-9]:[0-9]")
_OCTAL = re.compile(r"(?<![\w.])0(?=[0_]*+[1-7])[0-7_]++(?![\w.])")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_MEANT = {"tag:yaml.org,2002:bool": "a boolean", "tag:yaml.org,2002:null": "null"}

_shipped: dict[Path, tuple[bytes, bytes]] = {}
"""Content of the files that come with Sweeps, and the parsed result, pickled: Hydra changes the objects that it gets,
and a deep copy takes four times as long. Reading them again takes a third of a composition; a sweep over groups needs
one composition for each combination of options, a service one for each plan."""

EXAMPLE = "begin a config as in `defaults: [digits, _self_]`"


class CheckedFiles(FileSource):
    """Hydra's source of YAML files, with errors that name the file and the line."""

    @staticmethod
    def scheme() -> str:
        return "conf"

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a YAML file and check it.

        Raises:
            ConfigError: The file cannot be read, is not YAML, or is not a mapping.
        """
        file = self.file(config_path)
        if not file.is_relative_to(conf_folder()):
            return self._load(file, config_path)
        content, loaded = _shipped.get(file, (b"", b""))
        if not loaded or not file.is_file() or file.read_bytes() != content:
            loaded = pickle.dumps(self._load(file, config_path))
            _shipped[file] = file.read_bytes(), loaded
        result: ConfigResult = pickle.loads(loaded)  # noqa: S301 - of this process
        return result

    def _load(self, file: Path, config_path: str) -> ConfigResult:
        try:
            _check_text(file)
            loaded: ConfigResult = super().load_config(config_path)
        except GrammarParseError as error:
            raise ConfigError(f"{_display_path(file)}: {_place_of(file)}{explain_grammar(error)}") from None
        except (UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException, OSError) as error:
            raise ConfigError(f"{_display_path(file)}: {explain(error)}") from None
        _check_mapping(file, loaded.config, is_sweep="/" not in config_path)
        if isinstance(loaded.config, DictConfig) and not OmegaConf.is_interpolation(loaded.config, "space"):
            space = loaded.config if config_path.startswith("space/") else loaded.config.get("space")
            if isinstance(space, DictConfig):
                remove_foreign_keys(space)
        return loaded


def _check_text(file: Path) -> None:
    """Raise ``ConfigError`` for text that YAML misreads: a non-ASCII space as a letter, a word in a list as a boolean,
    16:9 as a number, or 010 as eight."""
    text = file.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if (found := _OTHER_BLANK.match(line)) is not None:
            blank = line[found.end() - 1]
            raise ConfigError(
                f"{_display_path(file)}: line {number}, column {found.end()}: has the character U+{ord(blank):04X} "
                f"({unicodedata.name(blank)}), which YAML does not treat as a space; replace it with a normal space"
            )
    if any(pattern.search(text) is not None for pattern in (_BOOLEAN_WORD, _WORD_AS_KEY, _BASE_60, _OCTAL)):
        _check_words(file, yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _check_words(file: Path, node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _check_key(file, key)
            _check_words(file, value)
    if isinstance(node, yaml.SequenceNode):
        words = [each for each in node.value if _is_boolean_word(each)]
        for word in words if len(node.value) > 2 or len(words) < len(node.value) else ():
            meant = "true" if word.value.lower() in ("on", "yes") else "false"
            raise ConfigError(
                f"{_display_path(file)}: line {word.start_mark.line + 1}, column {word.start_mark.column + 1}: "
                f"{word.value} is {meant} to YAML; for the text write '{word.value}' in quotes, else {meant}"
            )
        for each in node.value:
            _check_words(file, each)
    if isinstance(node, yaml.ScalarNode) and not node.style and node.tag in _NUMBERS:
        _check_number(file, node)


def _check_number(file: Path, node: yaml.ScalarNode) -> None:
    if ":" in node.value and file.parent.name != "schedule":  # there it is read as a time
        how = "counts in sixties"
    elif _OCTAL.fullmatch(node.value.lstrip("+-")):
        how = "takes a number that begins with 0 as octal"
    else:
        return
    raise ConfigError(
        f"{_display_path(file)}: line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: "
        f"{node.value} is {yaml.safe_load(node.value)} to YAML, which {how}; for the text write '{node.value}' in "
        "quotes, else the number"
    )


def _check_key(file: Path, node: yaml.Node) -> None:
    meant = _MEANT.get(node.tag) if isinstance(node, yaml.ScalarNode) and not node.style else None
    if meant is not None:
        raise ConfigError(
            f"{_display_path(file)}: line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: the key "
            f"{node.value} is {meant} to YAML; write '{node.value}' in quotes"
        )


def _is_boolean_word(node: yaml.Node) -> bool:
    is_plain = isinstance(node, yaml.ScalarNode) and not node.style and node.tag == "tag:yaml.org,2002:bool"
    return is_plain and node.value.lower() in ("on", "off", "yes", "no")


def explain(error: Exception) -> str:
    """Return the message for an error in a YAML file, with the line."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not written in UTF-8 (byte {error.start} is {error.object[error.start]:#04x}); save it as UTF-8"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        context = "" if error.context is None or not error.context.startswith("while") else f" {error.context}"
        return f"{where}{error.problem or 'is not YAML'}{context}{_advice(str(error.problem))}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"has the character {error.character:#04x} at {error.position}, which YAML does not allow; remove it"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    if "Invalid loaded object type" in str(error):
        return f"must have `key: value` lines, not one plain value; {EXAMPLE}"
    return str(error).strip().partition("\n")[0]


def explain_grammar(error: Exception) -> str:
    """Return the message for a text with ``${`` that is no interpolation."""
    return f"is no interpolation ({first_line(error)}); {IN_QUOTES}, and ${{ as \\${{ where it is a part of a text"


def _place_of(file: Path) -> str:
    """Return the line and the text of the first value in a file that is no interpolation."""
    nodes = [yaml.compose(file.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    seen = set()
    for node in nodes:
        if id(node) in seen:  # of an anchor
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode) and "${" in node.value:
            try:
                parse(node.value)
            except GrammarParseError:
                return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {node.value} "
        elif isinstance(node, yaml.MappingNode):
            nodes.extend(each for pair in node.value for each in pair)
        elif isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
    return ""


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
        raise ConfigError(f"{_display_path(file)}: must have `key: value` lines, not a list; {EXAMPLE}")
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
