"""Checks of a schedule's ``nights`` against its sweep."""

from __future__ import annotations

from sweeps.config.nights import Nights
from sweeps.errors import ConfigError, UserError
from sweeps.plan.plan import Plan
from sweeps.registry.model_names import check_registration


def check_nights(settings: Nights, plan: Plan) -> None:
    """Raise ``ConfigError`` if a sweep does not allow the settings of its nights."""
    champion = settings.champion
    if champion is None:
        return
    try:
        check_registration(plan.config, champion.model, champion.alias, merged=False)
    except UserError as error:
        raise ConfigError(f"nights.champion.model={champion.model}: {error}") from None
    if len(plan.config.search.metrics) > 1:
        raise ConfigError(
            f"nights.champion: with several objectives ({', '.join(plan.config.search.metrics)}) none alone determines "
            "the better model; name one search.metric, or remove the champion"
        )
