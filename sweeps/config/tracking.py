"""Schema of the recording of a sweep in MLflow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainSerializer
from pydantic.dataclasses import dataclass

from sweeps.texts.uri_passwords import redact_uri
from sweeps_train.config import STRICT, PositiveFloat
from sweeps_train.config.fields import NonEmpty
from sweeps_train.config.reach import Flag, Reach


@dataclass(config=STRICT, kw_only=True)
class Tracking:
    """Recording in MLflow."""

    uri: Annotated[NonEmpty, PlainSerializer(redact_uri, when_used="json"), Reach.STORE] = "sqlite:///mlflow.db"
    """Tracking server or store. A password in it is never written to a file or a log."""
    experiment: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """MLflow experiment; default: the name of the config."""
    checkpoints: Literal["copy", "reference", "none"] = "copy"
    """``copy``: copy a trial's checkpoints to the artifacts of its run; ``reference``: only tag the run with their
    paths in the sweep's folder, which must then be kept; or ``none``."""
    patience_s: PositiveFloat = 60.0
    """Seconds that a sweep waits at its end for an unresponsive tracking server. Undelivered records stay in the
    sweep's folder, and ``resume`` delivers them."""
    report: Flag = True
    """Whether to write the report (see ``python -m sweeps report``) at the end, and attach it to the sweep's run."""
