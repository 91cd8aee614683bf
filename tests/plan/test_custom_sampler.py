"""A user's own sampler is made before anything starts, as its mistakes show only when it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli import run_command

SAMPLER = ("run", "conf=digits", "search/sampler=custom")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            ("search.sampler._target_=optuna.samplers.TPESampler", "search.sampler.arguments={foo: 3}"),
            ["search.sampler._target_=optuna.samplers.TPESampler", "arguments={'foo': 3}", "correct the arguments"],
        ),
        (("search.sampler._target_=os.getcwd",), ["makes a str", "must make an optuna.samplers.BaseSampler"]),
        (("search.sampler._target_=mine.Sampler",), ["cannot be called", "KeyError('rate')"]),
        (("search.sampler._target_=broken.Sampler",), ["cannot be imported (ZeroDivisionError('division by zero'))"]),
    ],
)
def test_a_custom_sampler_that_cannot_be_made_is_refused_by_the_dry_run_and_before_ray_starts(
    tokens: tuple[str, ...], words: list[str], working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray has started"))
    (working_folder / "mine.py").write_text("def Sampler():\n    return {}['rate']\n")
    (working_folder / "broken.py").write_text("1 / 0\nclass Sampler: pass\n")
    planned = run_command((*SAMPLER, *tokens, "--dry-run"))
    assert planned[0] == 2
    for word in words:
        assert word in (planned[1] or ""), planned
    assert run_command((*SAMPLER, *tokens, "--name=mine")) == planned
    assert not (working_folder / "outputs" / "mine").exists()


def test_a_custom_sampler_that_can_be_made_passes_the_dry_run() -> None:
    target = "search.sampler._target_=optuna.samplers.TPESampler"
    status, message = run_command((*SAMPLER, target, "search.sampler.arguments={n_startup_trials: 3}", "--dry-run"))
    assert status == 0, message
