"""Shell completion: the verb ``completion``, and the types that complete arguments and options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, add_completion_class, shell_complete

from sweeps.cli.app import PROGRAM, verb
from sweeps.completion.candidate import Candidate

if TYPE_CHECKING:
    from sweeps.completion.conf_names import ConfNames

VARIABLE = "_SWEEPS_COMPLETE"
"""Environment variable by which a shell's script asks for candidates."""
SERVICE_VERBS = ("serve", "schedule", "token")
"""Verbs whose ``key=value`` arguments belong to the service's config."""

Complete = Callable[[click.Context, str], Iterable[Candidate]]


class Completed(click.ParamType):  # type: ignore[type-arg] # generic in newer releases of click
    """Type of an argument or option that the shell completes."""

    name = "text"

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the candidates that begin with the typed text."""
        found = self._complete(ctx, incomplete)
        return [CompletionItem(each.text, help=each.help) for each in found if each.text.startswith(incomplete)]


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes verbs, options, confs, keys and sweeps in a shell.

    bash: eval "$(python -m sweeps completion bash)", in ~/.bashrc; zsh: the same after compinit, in ~/.zshrc; fish:
    python -m sweeps completion fish > ~/.config/fish/conf.d/sweeps.fish
    """
    from sweeps.completion.shells import SHELLS

    click.echo(SHELLS[shell](click.Group(), {}, PROGRAM, VARIABLE).source(), nl=False)


def answer(group: click.Group, instruction: str) -> int:
    """Answer a shell's completion script; return the exit status. A mistake on the line must not print a message, which
    the shell would take for candidates."""
    from sweeps.completion.shells import SHELLS

    for shell in SHELLS.values():
        add_completion_class(shell)  # instead of click's own
    complete_arguments(group)
    try:
        return shell_complete(group, {}, PROGRAM, VARIABLE, instruction)
    except Exception:  # noqa: BLE001 - such as an unknown verb: the line is not complete yet, and nothing is offered
        return 0


def complete_arguments(group: click.Group, path: tuple[str, ...] = ()) -> None:
    """Set the parameter types of all verbs that let the shell complete their arguments and options."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            complete_arguments(command, (*path, name))
            continue
        for parameter in command.params:
            complete = _completions((*path, name)).get(parameter.name or "")
            if complete is not None:
                parameter.type = Completed(complete)


def _completions(verbs: tuple[str, ...]) -> Mapping[str, Complete]:
    """Return the completion of each parameter of a verb, by name."""
    found: dict[str, Complete] = {
        "sweep": _sweeps,
        "trial": _trials,
        "tokens": _service_tokens if verbs[0] in SERVICE_VERBS else _tokens,
    }
    match verbs:
        case ("compare" | "clean",):
            found["names"] = _sweeps
        case ("reproduce",):
            found["run"] = _sweeps
        case ("conf",):
            found["group"] = _groups
        case ("init",):
            found["kind"] = _kinds
        case ("schedule", "run" | "nights"):
            found["name"] = _schedules
    return found


def _names(context: click.Context) -> ConfNames:
    from sweeps.completion.conf_names import ConfNames

    return ConfNames([Path(each) for each in context.params.get("config_dirs") or ()])


def _tokens(context: click.Context, typed: str) -> Iterable[Candidate]:
    from sweeps.completion.token_candidates import complete_token

    before = [str(token) for token in context.params.get("tokens") or ()]
    return complete_token(typed, before, _names(context), wants_conf=context.info_name == "run")


def _service_tokens(context: click.Context, typed: str) -> Iterable[Candidate]:
    from sweeps.completion.token_candidates import complete_service_token

    return complete_service_token(typed, _names(context))


def _sweeps(context: click.Context, _: str) -> Iterable[Candidate]:
    from sweeps.completion.sweep_names import sweep_names

    return sweep_names(context.params.get("tracking_uri"))


def _trials(context: click.Context, _: str) -> Iterable[Candidate]:
    from sweeps.completion.shells import typed_words
    from sweeps.completion.sweep_names import sweep_names, trial_ids

    # click parses nothing of a line that ends in an option without its value.
    uri, words = context.params.get("tracking_uri"), typed_words()
    sweep = next((each.text for each in sweep_names(uri) if each.text in words), None)
    return trial_ids(uri, sweep)


def _groups(context: click.Context, _: str) -> Iterable[Candidate]:
    return [Candidate(group) for group in ("conf", *_names(context).groups())]


def _schedules(context: click.Context, _: str) -> Iterable[Candidate]:
    return [Candidate(name, header) for name, header in _names(context).described("schedule").items()]


def _kinds(_: click.Context, __: str) -> Iterable[Candidate]:
    from sweeps.scaffold.kinds import KINDS

    return [Candidate(kind.name, kind.title) for kind in KINDS.values()]
