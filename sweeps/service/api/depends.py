"""Parameters of routes: the service, and names and numbers within the limits of every database and store."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from sweeps.config.sweep_name import SweepName
from sweeps.errors import UserError
from sweeps.service.api.response_documents import Document
from sweeps.service.app_context import AppContext
from sweeps.service.auth.auth import Reader, Runner, authenticated
from sweeps.service.auth.permissions import Principal
from sweeps.service.queue.job_requests import TRIAL
from sweeps.service.user_operations import UserOperations
from sweeps.texts.suggestions import did_you_mean


def _service(request: Request) -> AppContext:
    service: AppContext = request.app.state.service
    return service


Serving = Annotated[AppContext, Depends(_service)]


def _of_reader(service: Serving, principal: Reader) -> UserOperations:
    return service.operations(principal)


def _of_runner(service: Serving, principal: Runner) -> UserOperations:
    return service.operations(principal)


Reads = Annotated[UserOperations, Depends(_of_reader)]
"""Operations of a user with read access."""
Runs = Annotated[UserOperations, Depends(_of_runner)]
"""Operations of a user who may start and change sweeps."""
Name = Annotated[SweepName, Path(description="Name of a sweep.")]
Number = Annotated[int, Path(description="Number of a job.", ge=1, lt=2**31)]
_WORD = r"^[^\x00-\x1f]*$"
User = Annotated[str | None, Query(description="Only those of this user.", pattern=_WORD, max_length=250)]
InProject = Annotated[str | None, Query(description="Only those of this project.", pattern=_WORD, max_length=250)]
OfSchedule = Annotated[str | None, Query(description="Only those of this schedule.", pattern=_WORD, max_length=250)]
Metric = Annotated[
    str | None, Query(description="Name of a metric; default: the first objective.", pattern=_WORD, max_length=250)
]
Limit = Annotated[int, Query(description="Maximum number of items.", ge=1, le=1000)]
Offset = Annotated[int, Query(description="Number of items to skip.", ge=0, lt=2**31)]
Before = Annotated[int | None, Query(description="Only jobs with a lower number, for the next page.", ge=1, lt=2**31)]
Trial = Annotated[str | None, Query(description="Number of a trial; default: the best.", pattern=TRIAL)]


async def check_parameters(request: Request, _: Annotated[Principal, Depends(authenticated)]) -> None:
    """Refuse a query parameter that the route does not have, such as a misspelt one, which would have no effect.

    Raises:
        UserError: Names the parameter.
    """
    known = {each.alias for each in request.scope["route"].dependant.query_params}
    for name in request.query_params.keys() - known:
        raise UserError(f"query.{name}: there is no such parameter{did_you_mean(name, known)}")


class Problem(Document):
    """Error message, as the command line prints it."""

    detail: str
    """The message."""
