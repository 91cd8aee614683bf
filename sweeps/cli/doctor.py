"""The verb that checks machines, storage and tracking: ``doctor``."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path

import click
from rich.text import Text

from sweeps.cli.app import as_json, stdout, verb
from sweeps.cli.exit_status import NO_SUCCESS, exits_with
from sweeps.cli.output import print_json

DEFAULT_CONF = "conf=digits"
SYMBOLS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "failed": ("FAILED", "bold red")}


@verb("doctor")
@click.argument("tokens", nargs=-1, metavar="[conf=NAME] [key=value ...]")
@as_json
def doctor(tokens: tuple[str, ...], as_json: bool, config_dirs: tuple[Path, ...]) -> None:
    """Check what sweeps need: packages, devices, storage, tracking, clocks, disks, and the speed of all nodes.

    It looks where a run of the same arguments would run: python -m sweeps doctor cluster=auto tracking.uri=URL

    The exit status is 1 if a check failed; warnings do not count.
    """
    from sweeps.compose.hydra_composition import compose_tokens

    is_chosen = any(token.startswith("conf=") for token in tokens)
    config = compose_tokens(tokens if is_chosen else [DEFAULT_CONF, *tokens], config_dirs).config
    from sweeps.doctor.doctor import examine

    findings = []
    for finding in examine(config):
        findings.append(finding)
        if finding.verdict == "failed":
            exits_with(NO_SUCCESS)
        if as_json:
            continue
        with contextlib.suppress(BrokenPipeError):  # the other checks go on: one of them may fail
            word, style = SYMBOLS[finding.verdict]
            line = Text.assemble(
                (f"{word:8}", style), f"{finding.check:9} ", f"{finding.where}: " if finding.where else ""
            )
            stdout.print(line, finding.found, sep="", soft_wrap=True, highlight=False)
            if finding.fix and finding.verdict != "ok":
                stdout.print(f"{'':18}-> {finding.fix}", soft_wrap=True, highlight=False)
    if as_json:
        is_healthy = all(finding.verdict != "failed" for finding in findings)
        print_json({"healthy": is_healthy, "findings": [asdict(finding) for finding in findings]})
