"""Work of earlier sweeps, from which the form for a new one estimates time and money."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import Engine

from sweeps.errors import UnknownName
from sweeps.service.auth.permissions import Principal
from sweeps.service.record_cache import RecordCache


class StaleRecords(RecordCache):
    """Records of a service whose list of a user's sweeps is older than the removal of one of them."""

    def sweeps(self, principal: Principal) -> Any:
        summary = SimpleNamespace(sweep="taken-over", conf="digits", status="finished", wall_s=10.0)
        return SimpleNamespace(content=[SimpleNamespace(summary=summary)])

    def check_exists(self, principal: Principal, name: str) -> None:
        if principal.role != "admin":
            raise UnknownName(f"there is no sweep {name!r}")

    def sweep(self, principal: Principal, name: str) -> Any:
        self.check_exists(principal, name)
        raise AssertionError("another user's sweep was read")


def test_a_sweep_of_a_list_that_is_old_is_read_only_where_the_user_may_see_it_now() -> None:
    bob = cast(Any, SimpleNamespace(role="run", user="bob"))
    assert StaleRecords(cast(Engine, None), "").past_sweeps(bob, "digits") == []
