"""Lists of configs, and operations of admins: cleaning and tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field

from sweeps.config.sweep_name import SweepName
from sweeps.operations.local import Local
from sweeps.report.choices import choices_document
from sweeps.report.plain_console import printed_text
from sweeps.service.api.depends import Limit, Serving
from sweeps.service.api.response_documents import Body, Document
from sweeps.service.audit import Entry
from sweeps.service.auth import tokens
from sweeps.service.auth.auth import Admin, Reader, admin
from sweeps.service.auth.permissions import Principal, Role
from sweeps.service.auth.request_validation import OPERATORS
from sweeps.service.auth.tokens import Token
from sweeps.service.database.engine import writing

router = APIRouter(tags=["operations"])

Group = Annotated[str, Path(description="Name of a group of configs, or conf.", pattern=r"^[A-Za-z0-9_/-]{1,100}$")]
AuditWords = Annotated[str, Query(description="Only entries in which all these words occur.", max_length=200)]
AuditPosition = Annotated[int | None, Query(description="`next` of the previous page.", ge=0, lt=2**60)]
Person = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}$")]


class CleanBody(Body):
    """Body of ``clean``."""

    sweeps: Annotated[list[SweepName], Field(max_length=1000)] = Field(default_factory=list)
    """Names of sweeps; default: all."""
    older_than: Annotated[str, Field(max_length=50)] | None = None
    """Age, such as ``30d``."""
    keep_last: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Number of newest sweeps to keep."""
    max_size: Annotated[str, Field(max_length=50)] | None = None
    """Size, such as ``50GiB``."""
    keep_best: Annotated[int, Field(ge=1, lt=2**31)] = 1
    """Number of best trials of each sweep to keep."""
    runs: bool = False
    """Whether to delete the trials' MLflow runs as well."""
    unfinished: bool = False
    """Whether to include interrupted and stopped sweeps."""
    dry_run: bool = True
    """Whether to only list the removals, without carrying them out."""


class Cleaned(Document):
    """Items that were removed (with ``dry_run``: would be removed), as a document and as text."""

    cleaning: dict[str, Any]
    """The document of ``clean --json``."""
    text: str
    """Text that ``clean`` prints without ``--json``."""


class TokenBody(Body):
    """Body of ``token create``."""

    user: Person
    """Name of the user."""
    role: Role
    """metrics: only numbers for Prometheus; read: read sweeps; run: also start and change sweeps; admin: everything."""
    projects: Annotated[list[Person], Field(max_length=100)] = Field(default_factory=list)
    """Projects that the user may see and use."""
    label: Annotated[str, Field(max_length=200)] = ""
    """Note for the users."""
    lasts_s: Annotated[float, Field(gt=0, lt=1e10)] | None = None
    """Seconds until the token expires; null: never."""


class NewToken(Token):
    """A new token, which is shown only once."""

    token: str
    """The token itself."""


@router.get("/confs")
def confs(service: Serving, principal: Reader) -> dict[str, dict[str, str]]:
    """Configs of sweeps and options of groups, with a line about each; only admins see the options of the operator's
    own groups."""
    return choices_document(service.config_dirs, None, _hidden(principal))


@router.get("/confs/{group:path}")
def conf(service: Serving, principal: Reader, group: Group) -> dict[str, dict[str, str]]:
    """Options of one group, with a line about each."""
    return choices_document(service.config_dirs, group, _hidden(principal))


def _hidden(principal: Principal) -> tuple[str, ...]:
    return () if principal.may("admin") else OPERATORS


@router.post("/clean")
def clean(service: Serving, principal: Admin, body: CleanBody) -> Cleaned:
    """Remove checkpoints of ended trials, except those of the best ones."""
    document, show = Local(service.config.tracking_uri).clean(**body.model_dump())
    if not body.dry_run:
        service.audit.note(principal, "cleaned", sweeps=", ".join(body.sweeps) or "all")
    return Cleaned(cleaning=document, text=printed_text(show))


@router.get("/tokens", dependencies=[Depends(admin)])
def list_tokens(service: Serving) -> list[Token]:
    """All tokens, including revoked and expired ones."""
    with service.database.connect() as connection:
        return tokens.list_tokens(connection)


@router.post("/tokens", status_code=201)
def create_token(service: Serving, principal: Admin, body: TokenBody) -> NewToken:
    """Create a token, which is shown only once."""
    with writing(service.database) as connection:
        options = body.model_dump(exclude={"user", "role"})
        token, secret = tokens.create(connection, body.user, body.role, service.clock.now(), **options)
    service.audit.note(principal, "token made", **token.told())
    return NewToken(**vars(token), token=secret)


@router.delete("/tokens/{number}")
def revoke_token(
    service: Serving, principal: Admin, number: Annotated[int, Path(description="Number of a token.", ge=1, lt=2**31)]
) -> Token:
    """Revoke a token with immediate effect."""
    with writing(service.database) as connection:
        token = tokens.revoke(connection, number, service.clock.now())
    service.audit.note(principal, "token revoked", **token.told())
    return token


class AuditPage(Document):
    """A page of the audit log."""

    entries: list[Entry]
    """The entries, newest first."""
    next: int | None
    """Value of ``before`` for the next page; null on the last one."""


@router.get("/audit", dependencies=[Depends(admin)])
def audit(service: Serving, q: AuditWords = "", before: AuditPosition = None, limit: Limit = 100) -> AuditPage:
    """Changes that users have made, as recorded by the services of this machine: who, what, when and from where."""
    entries, following = service.audit.read(limit, before, q)
    return AuditPage(entries=entries, next=following)
