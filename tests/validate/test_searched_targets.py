"""Import paths among the choices of a space."""

from __future__ import annotations

from pathlib import Path

import pytest
from composing import planned

from sweeps.errors import ConfigError

CUSTOM = ["conf=digits", "space=none", "model=custom"]
MODEL = [*CUSTOM, "model._target_=net.A"]
DATA = ["conf=digits", "space=none", "data=custom", "data._target_=net.A"]
FUNCTION = ["conf=ray_train_function", "~space", "task._target_=net.A"]
OPTIMIZER = ["conf=digits", "space=none", "train.optimizer={_target_: net.A}"]


@pytest.fixture(autouse=True)
def _net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("net.py").write_text("def A(*given, **named): ...\nclass Another: ...\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("tokens", "path"),
    [
        (MODEL, "model._target_"),
        (DATA, "data._target_"),
        (FUNCTION, "task._target_"),
        (OPTIMIZER, "train.optimizer._target_"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("wrong", "words"), [("net.B", "the module net has no 'B'"), ("nett.A", "there is no module 'nett'")]
)
def test_a_choice_that_does_not_exist_is_refused_before_anything_starts(
    tokens: list[str], path: str, wrong: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{path}={wrong}: {words}"):
        planned(*tokens, f"{path}=choice(net.A, {wrong})")
    with pytest.raises(ConfigError, match=f"{path}={wrong}: {words}"):
        planned(*tokens, f"space.{path}={{type: categorical, choices: [net.A, {wrong}]}}")


@pytest.mark.parametrize(
    ("target", "path"),
    [("net.py", "net.NAME"), ("src/net.py", "src.net.NAME"), ("./net.py", "net.NAME"), ("net:A", "net.A")],
)
def test_a_file_in_place_of_an_import_path_is_told_as_one(target: str, path: str) -> None:
    with pytest.raises(ConfigError, match=f"^task._target_={target}: must be an import path such as {path}$"):
        planned("conf=ray_train_function", f'task._target_="{target}"')


def test_a_function_of_the_own_script_or_notebook_is_told_to_be_put_in_a_file() -> None:
    with pytest.raises(ConfigError, match=r"^task._target_=__main__.train: .*put train in a file, .*give mine.train$"):
        planned("conf=ray_train_function", "task._target_=__main__.train")


def test_a_package_whose_own_code_fails_is_named() -> None:
    Path("broken").mkdir()
    Path("broken/__init__.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^broken\.net: its package cannot be imported \(ZeroDivisionError"):
        planned(*CUSTOM, "model._target_=broken.net.A")


def test_a_method_is_no_name_of_its_module() -> None:
    text = "class A:\n    def forward(self): ...\ntry:\n    def B(): ...\nexcept ImportError: ...\n"
    text += "def load():\n    global C\n    C = B\n"
    Path("net.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^model\._target_=net\.forward: the module net has no 'forward'"):
        planned(*CUSTOM, "model._target_=net.forward")
    for name in "BC":
        assert planned(*CUSTOM, f"model._target_=net.{name}")


def test_a_module_that_is_imported_is_no_name_to_give_instead() -> None:
    Path("net.py").write_text("import os.path\nimport json as train\ndef load(): ...\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^model\._target_=net\.path: the module net has no 'path'; use load$"):
        planned(*CUSTOM, "model._target_=net.path")


def test_a_name_that_a_module_finds_by_getattr_is_not_refused() -> None:
    Path("lazy.py").write_text("def __getattr__(name): ...\n", encoding="utf-8")
    assert planned(*CUSTOM, "model._target_=lazy.Net")


def test_a_value_that_must_be_given_is_given_by_its_choices() -> None:
    plan = planned(*CUSTOM, "model._target_=choice(net.A, net.Another)")
    assert plan.first_points() == [{"model._target_": "net.A"}]
    with pytest.raises(ConfigError, match=r"^model\._target_=net\.B: the module net has no 'B'"):
        planned(*CUSTOM, "model._target_=choice(net.A, net.B)")


def test_choices_that_exist_pass() -> None:
    assert len(planned(*MODEL, "model._target_=choice(net.A, net.Another)").space) == 1


def test_a_plain_value_is_no_target() -> None:
    Path("net.py").write_text("x = 3\nA = make = lambda config: None\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^task._target_=net.x: is a plain value in \S+net.py; give the path of a"):
        planned(*FUNCTION, "task._target_=net.x")
    planned(*FUNCTION)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("async def A(config): ...\n", "is async, .* call asyncio.run in it"),
        ("def A(config):\n    def b(): return config\n    yield b()\n", "is a generator, .* remove its yield"),
    ],
)
def test_a_function_whose_call_runs_nothing_is_refused(source: str, words: str) -> None:
    Path("net.py").write_text(source, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^task\._target_=net\.A: {words}"):
        planned(*FUNCTION)
    Path("net.py").write_text("def A(config):\n    def b(): yield config\n    return [*b()]\n", encoding="utf-8")
    planned(*FUNCTION)


def test_a_function_without_arguments_is_one_mistake_for_all_values_of_the_space() -> None:
    Path("net.py").write_text("def A(): ...\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^task._target_=net.A: takes no arguments.*") as caught:
        planned(*FUNCTION, "task.arguments.lr=choice(0.1, 0.2, 0.3)")
    assert "\n" not in str(caught.value)
