"""Our environment variables for Ray's processes are set only while Ray starts; its dashboard is one that answers."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from composing import composed_digits
from processes import run_python
from recording import free_port
from small_http import Handler, serving_http
from waiting import wait_until

from sweeps.errors import RayNotStarted, UserError
from sweeps.runtime import cluster
from sweeps.runtime.cluster import _environment, _quiet_libraries, _started_here, answering_dashboard, connected


def test_variables_for_ray_are_taken_back_and_those_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "1")
    monkeypatch.delenv("RAY_CHDIR_TO_TRIAL_DIR", raising=False)
    with _environment({"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_CHDIR_TO_TRIAL_DIR": "0"}):
        assert os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "1"
        assert os.environ["RAY_CHDIR_TO_TRIAL_DIR"] == "0"
    assert os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "1"
    assert "RAY_CHDIR_TO_TRIAL_DIR" not in os.environ


def test_ray_tune_and_optuna_speak_again_after_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", raising=False)
    monkeypatch.setenv("TUNE_WARN_THRESHOLD_S", "3")
    pytest.importorskip("ray")  # it sets its levels when it is imported
    loggers = [logging.getLogger(name) for name in ("ray", "ray.tune", "optuna")]
    before = {**os.environ}, [logger.level for logger in loggers]
    with _quiet_libraries():
        assert os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] == "1"
        assert os.environ["TUNE_WARN_THRESHOLD_S"] == "3"
        assert not any(logger.isEnabledFor(logging.ERROR) for logger in loggers)
    assert ({**os.environ}, [logger.level for logger in loggers]) == before


WITH_TWO_HOMES = """
import os, sys
from sweeps.runtime.cluster import connected
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.hydra_composition import compose_sweep

for home in sys.argv[1:]:
    os.environ["HOME"] = home
    with connected(compose_sweep("digits", ["cluster.num_cpus=1"], ConfSearchPath()).config) as connection:
        print(len(connection.nodes))
"""


@pytest.mark.slow
def test_a_process_starts_ray_again_after_the_token_in_its_home_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
    for name in [name for name in os.environ if name.startswith("RAY_AUTH")]:
        monkeypatch.delenv(name)
    done = run_python("-c", WITH_TWO_HOMES, *homes, within_s=200)
    assert done.stdout.split() == ["1", "1"]


WITHIN_A_SESSION = """
import ray
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import UserError
from sweeps.runtime.cluster import connected

ray.init("local", num_cpus=1, include_dashboard=False)
kept = ray.put("kept")
for address in ("local", "auto"):
    config = compose_sweep("digits", ["cluster.num_cpus=1", f"cluster.address={address}"], ConfSearchPath()).config
    try:
        with connected(config):
            print("connected")
    except UserError as error:
        print(error)
print(ray.get(kept))
"""


@pytest.mark.slow
def test_a_sweep_leaves_a_session_of_ray_that_is_alive_in_its_process() -> None:
    done = run_python("-c", WITHIN_A_SESSION, within_s=200)
    local, auto, kept = done.stdout.splitlines()
    assert local == auto
    assert "Ray is already in use in this process" in local
    assert "call ray.shutdown() first" in local
    assert kept == "kept"


class WantsAToken(Handler):
    """As Ray's dashboard answers by default."""

    def answer(self) -> None:
        self.send_error(401)


@pytest.fixture
def dashboard() -> Iterator[str]:
    with serving_http(WantsAToken) as address:
        yield address.removeprefix("http://")


def test_a_dashboard_is_there_if_it_answers(dashboard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answering_dashboard(dashboard) == f"http://{dashboard}"
    assert answering_dashboard(f"127.0.0.1:{free_port()}") is None
    assert answering_dashboard("") is None
    for overridden in ("nowhere.invalid/user/me/proxy", "me:secret@nowhere.invalid"):
        assert answering_dashboard(overridden) is None, "of RAY_OVERRIDE_DASHBOARD_URL"
    assert answering_dashboard(None) is None
    monkeypatch.setattr(cluster, "DASHBOARD_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert answering_dashboard(f"127.0.0.1:{silent.getsockname()[1]}") is None


@pytest.mark.parametrize(("key", "address"), [("cluster.address", "ray://head:10001"), ("RAY_ADDRESS", "auto")])
def test_an_address_of_ray_client_is_refused_with_what_to_give_instead(
    key: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    config = composed_digits(f"cluster.address='{address}'").config
    with pytest.raises(UserError, match=rf"^{key}=ray://head:10001: .*HOST:6379"), connected(config):
        pass


def test_a_local_start_that_fails_once_is_tried_again_and_a_second_failure_is_one_message() -> None:
    starts: list[int] = []

    def start(failures: int) -> str:
        starts.append(failures)
        if len(starts) <= failures:
            raise Exception("The current node timed out during startup.\nmore")  # noqa: TRY002 - as Ray does
        return "started"

    assert _started_here(lambda: start(1)) == "started"
    starts.clear()
    with pytest.raises(RayNotStarted, match=r"failed twice to start on this machine \(The current node timed out"):
        _started_here(lambda: start(2))


WITH_A_LIMIT = """
import resource, sys
import ray
from sweeps.errors import UserError
from sweeps.runtime.cluster import _started_here
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
try:
    _started_here(lambda: ray.init(address="local", num_cpus=1, include_dashboard=False))
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("limit", "number", "said"),
    [
        ("RLIMIT_AS", 4 << 30, r"ulimit -v: a process may use 4.0 GiB of addresses, and one of Ray's needs [\d.]+ GiB"),
        ("RLIMIT_FSIZE", 400 << 20, r"ulimit -f: a file may have 0.4 GiB, and that of Ray's objects has [\d.]+ GiB"),
    ],
)
def test_a_limit_under_which_ray_hangs_or_does_not_start_is_named(limit: str, number: int, said: str) -> None:
    done = run_python("-c", WITH_A_LIMIT, limit, str(number), within_s=100)
    assert re.fullmatch(rf"{said} here; raise it, as in `ulimit -. unlimited`", done.stdout.strip())


HANGS = """
import sys
from sweeps.cli import run_command
from sweeps.runtime import start_watch
start_watch.STARTS_WITHIN_S = 20
sys.exit(run_command(sys.argv[1:])[0])
"""
CRASHES = """
import os, sys
if any("default_worker" in argument for argument in sys.orig_argv):
    os._exit(7)
"""


@pytest.mark.slow
def test_ray_whose_first_workers_crash_does_not_wait_for_ever(
    tmp_path: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CRASHES, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SWEEPS_FORK_SERVER", "")
    command = ("run", "conf=digits", "cluster.num_cpus=2", "--name=hangs")
    done = run_python("-c", HANGS, *command, folder=working_folder, status=-signal.SIGKILL, within_s=200)
    wait_until(lambda: not processes_with("PYTHONPATH", str(tmp_path)))
    assert re.search(
        r"Ray has waited 20 s for its first worker processes, .* see worker-\*.err and raylet.out", done.stderr
    )


def processes_with(variable: str, text: str) -> list[psutil.Process]:
    """Return the running processes with this text in a variable of their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            found += [process] if text in process.environ().get(variable, "") else []
    return found


WATCHED = """
import os, sys, time
from sweeps.runtime import start_watch
start_watch.STARTS_WITHIN_S = int(sys.argv[1])
with start_watch.killed_if_ray_hangs("/tmp"):
    if sys.argv[2] == "forks":
        os.fork()
    print("waits", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("errors", ["2>/dev/full", "2>&-", "2> >(exit)"])
def test_ray_that_hangs_is_killed_though_nobody_can_be_told(errors: str) -> None:
    script = f'sleep 1; exec "$0" "$@" {errors}'
    command = ["bash", "-c", script, sys.executable, "-c", WATCHED, "1", ""]
    assert subprocess.run(command, capture_output=True, check=False, timeout=100).returncode == -signal.SIGKILL


def test_the_watchdog_of_a_driver_that_was_killed_ends_though_a_fork_of_the_driver_remains() -> None:
    command = [sys.executable, "-c", WATCHED, "600", "forks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(2)] == ["waits\n"] * 2
        family = psutil.Process(driver.pid).children()
        driver.kill()
        try:
            (fork,) = (each for each in family if "-c" in each.cmdline())
            (watchdog,) = (each for each in family if each != fork)
            wait_until(lambda: not watchdog.is_running() or watchdog.status() == psutil.STATUS_ZOMBIE, 60)
            assert fork.is_running()
        finally:
            for each in family:
                each.kill()


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_FSIZE"])
def test_a_limit_is_high_enough_for_what_ray_takes_here_and_not_for_a_share_of_all_memory(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(100 << 20))
    code = (
        "import resource, sys\n"
        "from sweeps.runtime.process_limits import ADDRESSES, check_limits\n"
        "resource.setrlimit(getattr(resource, sys.argv[1]), (ADDRESSES + (200 << 20),) * 2)\n"
        "check_limits()\n"
    )
    if limit == "RLIMIT_FSIZE":
        code = code.replace("ADDRESSES + ", "")
    run_python("-c", code, limit, within_s=100).check_returncode()


@pytest.mark.parametrize("limit", ["130", "200"])
def test_a_limit_of_processes_under_which_ray_aborts_the_driver_is_named(limit: str) -> None:
    as_user = ["unshare", "--user", "--map-user=54321"]
    if subprocess.run([*as_user, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces")
    command = [*as_user, sys.executable, "-c", WITH_A_LIMIT, "RLIMIT_NPROC", limit]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.startswith(
        f"ulimit -u: a user may have {limit} processes and threads, and Ray needs more than 200;"
    )


def test_a_folder_for_temporary_files_that_is_too_long_for_sockets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(folder))
    with pytest.raises(UserError, match=rf"TMPDIR={folder}: is too long for the sockets .*, as in TMPDIR=/tmp"):
        _started_here(lambda: ray.init(address="local", num_cpus=1, include_dashboard=False))


def test_a_home_folder_in_which_ray_cannot_keep_its_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    for name in [name for name in os.environ if name.startswith("RAY_AUTH")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/dev/null/me")
    with pytest.raises(UserError, match=r"HOME=/dev/null/me: Ray cannot keep its token there .*, or RAY_AUTH_TOKEN="):
        _started_here(lambda: ray.init(address="local", num_cpus=1, include_dashboard=False))
