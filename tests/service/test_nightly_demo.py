"""`make nightly-demo` as it is: a service, three firings of its schedule, real sweeps, a registry and reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from processes import run_python

from sweeps.service.database.engine import open_database
from sweeps.service.nights.night import of_schedule


@pytest.mark.slow
def test_three_nights_promote_a_champion_and_tell_a_regression(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = checkout / "demos" / "nightly" / "demo.py"
    done = run_python(demo, "--folder", folder, environment={"SWEEPS_CACHE": str(tmp_path / "cache")}, within_s=840)
    with open_database(f"sqlite:///{folder}/outputs/service.db").connect() as connection:
        nights = of_schedule(connection, "digits_nightly")
    assert [night.verdict for night in nights][::2] == ["promoted", "regression"]
    assert nights[1].verdict in ("promoted", "kept")
    assert all(night.champion is not None for night in nights)
    champion = MlflowClient(f"sqlite:///{folder}/mlflow.db").get_model_version_by_alias("digits", "champion")
    assert str(champion.version) == nights[-1].version
    report = folder / "outputs" / nights[-1].sweep / "report"
    assert (report / "nights.png").stat().st_size > 10_000
    assert "The nights of digits_nightly: each night" in (report / "report.html").read_text()
    assert "promoted" in done.stdout
    assert "regression" in done.stdout
