"""Requests that are run as jobs: a document for each verb, and its command line.

A driver is the command line itself, in a process of its own, so that a sweep from the service is the same as one from a
terminal. No part of a request can become an option of that line: no word may begin with a dash. The fields are those
of the bodies in ``sweeps.service.api.sweeps``, which describe them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sweeps.config.sweep_name import SweepName
from sweeps.errors import ConfigError

Word = Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"^[^-\x00][^\x00]*$")]
TRIAL = r"^(s[0-9]{1,2}-)?[0-9]{1,9}(r[0-9]{1,2})?$"
"""Pattern of the ids of trials: ``0003``, a repeat ``0003r1``, or a trial of a stage ``s1-0003``."""
TrialId = Annotated[str, Field(pattern=TRIAL)]
ModelName = Annotated[str, Field(pattern=r"^[^-/:\x00][^/:\x00]*$", max_length=200)]
Alias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=200)]
Hours = Annotated[float, Field(gt=0, le=100_000)]
ConfName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=120)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    max_hours: Hours | None = None


class Run(_Request):
    """Run a sweep."""

    verb: Literal["run"] = "run"
    conf: ConfName
    overrides: list[Word] = Field(default_factory=list)
    name: SweepName | None = None

    def arguments(self) -> list[str]:
        """Return the arguments of ``python -m sweeps``."""
        return ["run", f"conf={self.conf}", *self.overrides, *_option("name", self.name)]


class Resume(_Request):
    """Resume a sweep that was interrupted or stopped."""

    verb: Literal["resume"] = "resume"
    sweep: SweepName

    def arguments(self) -> list[str]:
        return ["resume", self.sweep]


class Extend(_Request):
    """Extend a sweep, for instance by more trials."""

    verb: Literal["extend"] = "extend"
    sweep: SweepName
    changes: Annotated[list[Word], Field(min_length=1)]

    def arguments(self) -> list[str]:
        return ["extend", self.sweep, *self.changes]


class Retrain(_Request):
    """Train one trial of a sweep with its full budget, and register it."""

    verb: Literal["retrain"] = "retrain"
    sweep: SweepName
    trial: TrialId | None = None
    overrides: list[Word] = Field(default_factory=list)
    name: SweepName | None = None
    register_as: ModelName | None = Field(default=None, alias="register")
    alias: Alias | None = "champion"
    merged: bool = False
    no_register: bool = False

    def arguments(self) -> list[str]:
        options = [*_option("trial", self.trial), *_option("name", self.name)]
        if self.no_register:
            options.append("--no-register")
        else:
            options += [*_option("register", self.register_as), f"--alias={self.alias or ''}"]
            options += ["--merged"] if self.merged else []
        return ["retrain", self.sweep, *self.overrides, *options]


class Reproduce(_Request):
    """Run a sweep, or one of its trials, again with the same config and seed."""

    verb: Literal["reproduce"] = "reproduce"
    sweep: SweepName
    trial: TrialId | None = None
    name: SweepName | None = None

    def arguments(self) -> list[str]:
        return ["reproduce", self.sweep, *_option("trial", self.trial), *_option("name", self.name)]


Request = Run | Resume | Extend | Retrain | Reproduce
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="verb")])


def read_request(document: Mapping[str, Any]) -> Request:
    """Return the request of a job's row, or raise ``ConfigError`` if the document is none."""
    try:
        return _REQUEST.validate_python(document)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [f"--{name}={value}"]
