"""Translates Hydra's messages about a composition to our command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import GrammarParseError

from sweeps.compose.composition import first_line
from sweeps.compose.config_source import explain_grammar
from sweeps.compose.hydra_settings import is_of_hydra, refusal_in
from sweeps.compose.overrides import parse_values
from sweeps.compose.schema_errors import section_like
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config import SweepConfig
from sweeps.errors import ConfigError, UnknownName
from sweeps.texts.suggestions import did_you_mean

MERGING = "Error merging override "
"""Beginning of Hydra's message about an override of another form."""
TWICE = re.compile(r"(?:Multiple values for )?(\S+?)(?: appears more than once in the final|\. To override a value)")
"""Hydra's messages about a group that is chosen twice."""


def explain(conf: str, error: Exception, search_path: ConfSearchPath) -> ConfigError | UnknownName:
    """Return Hydra's message, reduced to the part that helps to fix the mistake."""
    text = str(error)
    if isinstance(error, RecursionError):
        return ConfigError(f"conf={conf}: its defaults, or a YAML anchor (&a), refer to themselves; remove one")
    if isinstance(error, MissingConfigException) and "Could not load" in text:
        inside = text.partition("'")[2].partition("'")[0]
        return UnknownName(
            f"{inside}.yaml: its defaults name {error.missing_cfg_file}, and there is no such conf"
            f"{did_you_mean(str(error.missing_cfg_file), search_path.confs())}"
        )
    if "Could not find" in text and "Available options" in text:
        missing = text.split("Could not find '", 1)[1].split("'", 1)[0]
        if is_of_hydra(missing):
            return refusal_in(conf, missing.rpartition("/")[0], missing)
        group, _, option = missing.rpartition("/")
        listed = text.split("Available options", 1)[1].split("Config search path", 1)[0]
        options = [line.strip() for line in listed.splitlines()[1:] if line.strip()]
        return UnknownName(
            f"{group}={option}: there is no such option{did_you_mean(option, options, count=5, listed=len(options))}"
        )
    return _of_lines(conf, text, error, search_path)


def _of_lines(conf: str, text: str, error: Exception, search_path: ConfSearchPath) -> ConfigError:
    lines = [line.strip() for line in text.strip().splitlines()] or [type(error).__name__]
    message = " ".join(lines[:2]) if lines[0].endswith("while composing config:") else lines[0]
    inside, message = re.fullmatch(r"(?:In '([^']*)': )?(.*)", message, re.DOTALL).groups()  # type: ignore[union-attr]
    where = f"conf={inside or conf}: "
    if (found := re.search(r"Could not override '([^']*)'|'\+{0,2}([\w/]+)=", message)) is not None and (
        "Could not override" in message or "force-add" in message
    ):
        return ConfigError(where + _of_group(found[1] or found[2], search_path))
    if (found := TWICE.match(message)) is not None:
        return ConfigError(
            f"{where}chooses the group {found[1]} twice; write `override {found[1]}: OPTION` in the defaults of the "
            f"one that extends the other, and {found[1]}=OPTION without a + on the command line"
        )
    if (found := re.match(r"Could not delete (?:from config\. )?'([^']*)'", message)) is not None:
        return ConfigError(
            f"{where}~{found[1]}: there is nothing of this name to remove{_nearest(found[1], search_path)}"
        )
    if message.startswith(MERGING):
        return ConfigError("\n".join(_of_override(message, error)))
    if "Cannot merge" in message and (mistakes := list(_of_file(inside or conf, error, search_path))):
        return ConfigError("\n".join(where + each for each in mistakes))
    if (unset := re.search(r"'\$\{oc\.env:([^},]+)\}'", message)) is not None:
        name = unset[1]
        message = f"the environment has no {name}; set it, or write a default, as in ${{oc.env:{name},OPTION}}"
    advice = next((line for line in lines[1:] if line.startswith("To append")), "")
    return ConfigError(f"{where}{message}{f' ({advice})' if advice else ''}")


def _of_file(name: str, error: Exception, search_path: ConfSearchPath) -> Iterator[str]:
    """Yield a mistake for each key of a file with a list in place of the composed config's section, or the other way
    round."""
    file, composed = search_path.file(name), getattr(error.__context__, "parent_node", None)
    if file is not None and isinstance(composed, DictConfig):
        given: Any = OmegaConf.to_container(OmegaConf.load(file))
        for group in reversed(name.split("/")[:-1]):
            given = {group: given}
        if isinstance(given, dict):
            yield from _of_other_form(OmegaConf.to_container(composed), given)


def _of_override(message: str, error: Exception) -> Iterator[str]:
    """Yield a mistake for each list that an override gives for a section, or the other way round; for any other
    override that cannot be merged, the reason."""
    token, reason = message.removeprefix(MERGING).lstrip("+"), error.__context__
    composed = getattr(reason, "parent_node", None)
    mistakes: list[str] = []
    if isinstance(composed, DictConfig | ListConfig):
        for path, given in parse_values([token]).items():
            mistakes += _of_other_form({path: OmegaConf.to_container(composed)}, {path: given})
    yield from mistakes
    if not mistakes and isinstance(reason, Exception):
        yield f"{token}: {explain_grammar(reason) if isinstance(reason, GrammarParseError) else first_line(reason)}"


def _of_other_form(composed: Any, given: Any, owner: str = "") -> Iterator[str]:
    """Yield a mistake for each list given for a section, and each section given for a list."""
    for key in (each for each in given if each in composed):
        path, before, value = f"{owner}{key}", composed[key], given[key]
        if isinstance(before, dict) and isinstance(value, dict):
            yield from _of_other_form(before, value, f"{path}.")
        elif isinstance(before, dict) and isinstance(value, list):
            yield f"{path}={value}: must have keys of its own, as in {section_like(path)}"
        elif isinstance(before, list) and isinstance(value, dict):
            yield f"{path}={value}: must be a list, as in [VALUE, VALUE]"


def _of_group(group: str, search_path: ConfSearchPath) -> str:
    """Explain why the option of a group cannot be replaced."""
    name = group.partition("@")[0]
    if group == "space":
        return (
            "its space is written in the config itself, so there is no option of the group space to replace; ~space on "
            "the command line removes the whole space, and `PATH: null` below `space:` removes one path"
        )
    if search_path.is_group(group):
        return f"has no option of the group {group} to replace; +{group}=OPTION adds one"
    if search_path.is_group(name):
        return f"chooses no option of {name} for {group.partition('@')[2]}; write {name}=OPTION"
    return f"there is no group {group}{did_you_mean(group, search_path.groups(), listed=0)}"


def _nearest(name: str, search_path: ConfSearchPath) -> str:
    return did_you_mean(name, [*search_path.groups(), *(field.name for field in fields(SweepConfig))], listed=0)
