"""Mistakes in a schedule's ``nights``, as far as its sweep shows them."""

from __future__ import annotations

from sweeps.config.nights import Nights
from sweeps.errors import ConfigError, UserError
from sweeps.plan.plan import Plan
from sweeps.registry.names import check_registration


def check_nights(settings: Nights, plan: Plan) -> None:
    """
    Raises:
        ConfigError: Nights of such a sweep cannot have what is asked.
    """
    champion = settings.champion
    if champion is None:
        return
    try:
        check_registration(plan.config, champion.model, champion.alias, merged=False)
    except UserError as error:
        raise ConfigError(f"nights.champion.model={champion.model}: {error}") from None
    if len(plan.config.search.metrics) > 1:
        raise ConfigError(
            f"nights.champion: of several objectives ({', '.join(plan.config.search.metrics)}) none alone says who is "
            "better; name one search.metric, or leave the champion out"
        )
