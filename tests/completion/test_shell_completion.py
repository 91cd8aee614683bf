"""Shell completion: the words that are offered, how quickly, and in real shells."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from composing import composed
from processes import run_python
from recording import record_small_sweep

from sweeps.cli import app, completion
from sweeps.completion import sweep_names
from sweeps.completion.conf_names import ConfNames

NOT_LOADED = ("ray", "torch", "mlflow", "transformers", "optuna", "hydra", "pandas")
Ask = Callable[..., list[str]]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Words that are offered for a line, in this process."""

    def ask(line: str, shell: str = "zsh") -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        assert completion.answer(app, f"{shell}_complete") == 0
        answers = [answer.split("\t") for answer in capsys.readouterr().out.splitlines() if answer]
        return [word or kind for kind, word, _ in answers]

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sweeps li", ["list"]),
        ("python -m sweeps schedule n", ["next", "nights"]),
        ("/usr/bin/python3 -m sweeps run --d", ["--debug", "--dry-run", "--detach"]),
        ("sweeps run ", ["conf="]),
        ("sweeps run c", ["conf="]),
        ("sweeps run conf=dig", ["conf=digits"]),
        ("sweeps run conf=digits mod", ["model=", "model."]),
        ("sweeps run conf=digits search/sampler=n", ["search/sampler=nsga2", "search/sampler=nsga3"]),
        ("sweeps run conf=digits search/sa", ["search/sampler="]),
        ("sweeps run conf=digits +model=con", ["+model=conv_net"]),
        ("sweeps run conf=digits train.l", ["train.lr=", "train.log_every="]),
        ("sweeps run conf=digits 'train.mom", ["train.momentum="]),
        ("sweeps run conf=digits checkpoint.k", ["checkpoint.keep="]),
        ("sweeps run conf=digits search.stop.pl", ["search.stop.plateau."]),
        (
            "sweeps run conf=digits train.optimizer=a",
            ["train.optimizer=adamw", "train.optimizer=adam", "train.optimizer=adamw_8bit"],
        ),
        ("sweeps run conf=digits train.compile=", ["train.compile=true", "train.compile=false"]),
        ("sweeps run conf=digits data._t", ["data._target_="]),
        ("sweeps run conf=digits space.train.l", ["space.train.lr."]),
        ("sweeps run conf=digits ~space.train.l", ["~space.train.lr."]),
        ("sweeps run conf=digits space.train.lr.h", ["space.train.lr.high="]),
        ("sweeps run conf=ray_train_function task.arguments.h", ["task.arguments.hidden="]),
        ("sweeps extend first search.num", ["search.num_trials="]),
        ("sweeps serve service=l", ["service=local"]),
        ("sweeps serve ho", ["host="]),
        ("sweeps schedule run n", ["nightly"]),
        ("sweeps init --kind l", ["lightning", "lora"]),
        ("sweeps conf sca", ["scaling"]),
        ("sweeps completion z", ["zsh"]),
        ("sweeps run conf=digits --config-dir ", ["file"]),
        ("sweeps nonsense conf=", []),
        ("sweeps run 'conf=dig", ["conf=digits"]),
        ("sweeps run conf=nowhere task.arguments.x", []),
    ],
)
def test_what_is_offered_for_a_line(offered: Ask, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_confs_keys_and_options_of_a_users_folder_are_offered(offered: Ask, working_folder: Path) -> None:
    (working_folder / "mine" / "model").mkdir(parents=True)
    (working_folder / "mine" / "model" / "convex.yaml").write_text("# Mine.\nkind: custom\n")
    (working_folder / "mine" / "my_base.yaml").write_text("task: {arguments: {lr: 1, inner: {width: 2}}}\n")
    (working_folder / "mine" / "my_conf.yaml").write_text("# My own.\ndefaults: [my_base, _self_]\nspace: {a.b: 1}\n")
    (working_folder / "mine" / "my_broken.yaml").write_text("a: [")
    begin = "sweeps run --config-dir mine "
    assert offered(f"{begin}conf=my_c") == ["conf=my_conf"]
    assert offered(f"{begin}conf=my_conf task.arguments.") == ["task.arguments.lr=", "task.arguments.inner."]
    assert offered(f"{begin}conf=my_conf task.arguments.inner.") == ["task.arguments.inner.width="]
    assert offered(f"{begin}conf=mine/my_conf.yaml task.arguments.l") == ["task.arguments.lr="]
    assert offered(f"{begin}conf=my_conf space.") == ["space.a.b."]
    assert offered(f"{begin}model=conv") == ["model=convex", "model=conv_net"]
    assert offered(f"{begin}conf=my_broken train.lr") == ["train.lr="]
    assert offered("sweeps run conf=./mine/my_c") == []
    assert offered("sweeps run conf=mine/my_c") == ["conf=mine/my_conf.yaml"]


def test_sweeps_and_their_trials_are_offered(offered: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = [{"sweeps.sweep": "first", "sweeps.trial": f"000{number}", "sweeps.state": "finished"} for number in (1, 0)]
    monkeypatch.setattr(sweep_names, "list_sweeps", lambda uri: [SimpleNamespace(sweep="first", conf="a", status="b")])
    monkeypatch.setattr(sweep_names, "fetch_runs", lambda uri, wanted: [SimpleNamespace(tags=each) for each in tags])
    assert offered("sweeps show f") == ["first"]
    assert offered("sweeps stop first --trial ") == ["0000", "0001"]
    assert offered("sweeps stop other --trial ") == []


@pytest.mark.slow
def test_sweeps_and_their_trials_are_offered_from_the_record(offered: Ask, uri: str) -> None:
    assert offered("sweeps show ") == []
    record_small_sweep(uri, "digits-1")
    assert offered("sweeps show d") == ["digits-1"]
    assert offered("sweeps compare digits-1 d") == ["digits-1"]
    assert offered("sweeps stop digits-1 --trial ") == ["0", "1", "2", "3"]
    assert offered("sweeps stop nothing --trial ") == []
    assert offered(f"sweeps show --tracking-uri {uri} d") == ["digits-1"]
    assert offered("sweeps show --tracking-uri http://127.0.0.1:9 d") == []


def test_bash_gets_what_follows_the_last_sign_that_breaks_words(offered: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'@><=;|&(:")
    assert offered("sweeps run conf=dig", "bash") == ["digits"]
    assert offered("sweeps run conf=digits train.l", "bash") == ["train.lr=", "train.log_every="]
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n")
    assert offered("sweeps run conf=dig", "bash") == ["conf=digits"]


@pytest.mark.parametrize(
    ("line", "slow"),
    [("sweeps run conf=digits train.l", NOT_LOADED), ("sweeps show x", (*NOT_LOADED, "pydantic", "sweeps.config"))],
)
def test_an_answer_loads_nothing_slow(line: str, slow: tuple[str, ...]) -> None:
    code = (
        "import json, sys; from sweeps.cli import app, completion; completion.answer(app, 'zsh_complete');"
        f"print(json.dumps([name for name in {slow} if name in sys.modules]))"
    )
    done = run_python("-c", code, environment={"COMP_LINE": line})
    assert json.loads(done.stdout.splitlines()[-1]) == []


def in_a_shell(command: list[str], lines: list[str], wanted: str, environment: dict[str, str]) -> str:
    """Text on a terminal after typing lines, the last of which is not ended."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment)
        os.execvp(command[0], command)
    shown = b""

    def read_until(text: str, seconds: float) -> None:
        nonlocal shown
        end = time.monotonic() + seconds
        while text.encode() not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)

    try:
        read_until(environment["PS1"], 1)  # fish has a prompt of its own
        for line in lines[:-1]:
            os.write(terminal, f"{line}; echo re''ady\n".encode())
            read_until("ready", 30)
            shown = b""
        os.write(terminal, lines[-1].encode())
        read_until(wanted, 30)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return shown.decode(errors="replace")


SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
BEFORE = {"bash": "true", "zsh": "autoload -Uz compinit; compinit -u", "fish": "true"}
LOAD = {"bash": 'eval "$({})"', "zsh": 'eval "$({})"', "fish": "{} | source"}


@pytest.mark.parametrize(
    ("shell", "program"),
    [
        ("bash", "python -m sweeps"),
        pytest.param("bash", "sweeps", marks=pytest.mark.slow),
        *(
            pytest.param(shell, program, marks=pytest.mark.slow)
            for shell in ("zsh", "fish")
            for program in ("sweeps", "python -m sweeps")
        ),
    ],
)
def test_tab_completes_in_a_real_shell(shell: str, program: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: apt-get install -y {shell}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("sweeps", " -m sweeps"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "xterm", "PS1": "$ "}
    loading = LOAD[shell].format(f"{program} completion {shell}")
    shown = in_a_shell(
        SHELLS[shell], [BEFORE[shell], loading, f"{program} run conf=ray_t\t"], "rain_function", environment
    )
    assert "rain_function" in shown


def test_the_scripts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        app(["completion", shell], standalone_mode=False)
        assert "_SWEEPS_COMPLETE" in capsys.readouterr().out


def test_the_options_that_a_conf_chooses_are_known_without_composing_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [digits, {override model: tiny_llama}, _self_]\nname: mine\n")
    chosen = ConfNames([tmp_path]).chosen("digits")
    options = composed("digits").options
    assert {group: options[group] for group in chosen} == chosen
    assert {"search/sampler", "search/scheduler", "task"} <= set(chosen)
    assert ConfNames([tmp_path]).chosen("mine") == {**chosen, "model": "tiny_llama"}
