"""Worker processes that a fork server makes, asked by the script that Ray runs for each of them."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from composing import composed_digits
from waiting import wait_until

from sweeps.runtime import local_worker_script
from sweeps.runtime.cluster import fork_server
from sweeps.runtime.fork_server import ADDRESS, RAY_MODULES, ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux only")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
TELLS = """
import json, os, sys
told = {"parent": os.getppid(), "group": os.getpgid(0) == os.getpid(), "has numpy": "numpy" in sys.modules}
import numpy, time
told |= {"draws": numpy.random.random(), "arguments": sys.argv[1:], "asked": os.environ.get("MLFLOW_ASKED")}
print(json.dumps(told | {"folder": os.getcwd(), "beside": sys.path[0], "name": __name__}), flush=True)
time.sleep(float(os.environ.get("MLFLOW_SLEEPS", "0")))
"""


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """Script of a worker that tells about its process."""
    script = tmp_path / "default_worker.py"
    script.write_text(TELLS, encoding="utf-8")
    return script


@contextmanager
def running() -> Iterator[ForkServer]:
    """A running fork server that imports numpy."""
    with ForkServer(["numpy"], [], ENVIRONMENT) as forks:
        maps = Path(f"/proc/{forks.process.pid}/maps")
        wait_until(lambda: "numpy" in maps.read_text(encoding="utf-8"))  # it answers when the import has ended
        yield forks


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    """One for all tests that leave it as it is."""
    with running() as forks:
        yield forks


def start(forks: ForkServer, worker: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a worker's script as Ray does."""
    command = [sys.executable, local_worker_script.__file__, str(worker), "--node=1", "--language=PYTHON"]
    environment = {**ENVIRONMENT, ADDRESS: forks.address, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=worker.parent)


def told(forks: ForkServer, worker: Path, **variables: str) -> Any:
    """Return what the worker tells."""
    return json.loads(start(forks, worker, **variables).communicate()[0])


def test_a_worker_is_a_fork_that_has_the_imports_and_all_that_its_own_python_would_have(
    forks: ForkServer, worker: Path
) -> None:
    answer = told(forks, worker, MLFLOW_ASKED="yes")
    assert answer.pop("parent") == forks.process.pid
    assert 0 <= answer.pop("draws") < 1
    assert answer == {
        "group": True,
        "has numpy": True,
        "arguments": ["--node=1"],
        "asked": "yes",
        "folder": str(worker.parent),
        "beside": str(worker.parent),
        "name": "__main__",
    }


def test_a_fork_has_the_limit_of_files_and_the_score_of_the_kernel_that_ray_has_set(
    forks: ForkServer, worker: Path
) -> None:
    worker.write_text(
        "import json, resource\n"
        "score = open('/proc/self/oom_score_adj').read()\n"
        "print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), score]))",
        encoding="utf-8",
    )
    limits = "-n 200; echo 700 >/proc/self/oom_score_adj"
    command = [
        "sh",
        "-c",
        f'ulimit -S {limits}; exec "$@"',
        "sh",
        sys.executable,
        local_worker_script.__file__,
        str(worker),
    ]
    environment = {**ENVIRONMENT, ADDRESS: forks.address}
    asked = [*command, "--language=PYTHON"]
    done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, cwd=worker.parent, check=True)
    assert json.loads(done.stdout) == [[200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]], "700\n"]


def test_the_measurements_of_a_fork_are_its_own(worker: Path) -> None:
    worker.write_text(
        "import json, torch\n"
        "from sweeps_train.devices.system import system_metrics\n"
        "held = torch.ones(50 * 2**20)\n"
        "print(json.dumps(system_metrics(torch.device('cpu'))))",
        encoding="utf-8",
    )
    with ForkServer(["sweeps_train.devices.system"], [], ENVIRONMENT) as forks:
        wait_until(lambda: "libtorch_python" in Path(f"/proc/{forks.process.pid}/maps").read_text(encoding="utf-8"))
        measured = told(forks, worker)
        (memory,) = (each.memory_info().rss for each in [psutil.Process(forks.process.pid)])
    assert measured["system/memory_mib"] > memory / 2**20 + 100
    assert measured["system/cpu_percent"] >= 0


def test_modules_of_the_working_folder_are_none_of_the_servers(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (worker.parent / "calendar.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.chdir(worker.parent)
    with ForkServer(["calendar"], [], ENVIRONMENT) as forks:
        assert told(forks, worker)["parent"] == forks.process.pid


def test_nonsense_and_scripts_that_end_in_the_middle_leave_nothing_behind(forks: ForkServer, worker: Path) -> None:
    for message in (b"", b"5\n", b"{\n", b"[1, 2]\n", b'[[], {}, "/", 5, "0"]\n'):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(forks.address)
            socket.send_fds(client, [b"."], [0, 1, 2])
            client.sendall(message)
    assert told(forks, worker)["parent"] == forks.process.pid
    assert psutil.Process(forks.process.pid).num_fds() == 4


def test_forks_draw_different_random_numbers(forks: ForkServer, worker: Path) -> None:
    assert told(forks, worker)["draws"] != told(forks, worker)["draws"]


def test_a_worker_with_another_environment_imports_everything_itself(forks: ForkServer, worker: Path) -> None:
    answer = told(forks, worker, HF_HOME=str(worker.parent))
    assert answer["parent"] == os.getpid()
    assert not answer["has numpy"]


def test_a_worker_with_another_setting_of_ray_imports_everything_itself(worker: Path) -> None:
    with running() as forks:
        assert told(forks, worker, RAY_DEDUP_LOGS="0", RAY_JOB_ID="01000000")["parent"] == forks.process.pid
        assert told(forks, worker, RAY_DEDUP_LOGS="0", RAY_JOB_ID="02000000")["parent"] == forks.process.pid
        assert told(forks, worker, RAY_DEDUP_LOGS="1")["parent"] == os.getpid()


def test_forks_have_ray_with_the_settings_of_the_first_and_random_identifiers_of_their_own(worker: Path) -> None:
    worker.write_text(
        "import json, os, sys\n"
        "has_ray = 'sweeps.runtime.trainable' in sys.modules\n"
        "import ray\n"
        "from ray._private.ray_constants import RAY_DEDUP_LOGS\n"
        "told = {'parent': os.getppid(), 'has ray': has_ray, 'settings': RAY_DEDUP_LOGS}\n"
        "print(json.dumps(told | {'id': ray.ObjectID.from_random().hex()}))",
        encoding="utf-8",
    )
    with ForkServer([], RAY_MODULES, ENVIRONMENT) as forks:
        first, second = (told(forks, worker, RAY_DEDUP_LOGS="0") for _ in range(2))
    assert first.pop("id") != second.pop("id")
    assert first == second == {"parent": forks.process.pid, "has ray": True, "settings": False}


def test_forks_are_of_no_job_until_they_are_used_also_if_the_first_was_started_for_one(worker: Path) -> None:
    (worker.parent / "reads_job.py").write_text("import os\njob = os.environ['RAY_JOB_ID']", encoding="utf-8")
    worker.write_text(
        "import json, os, reads_job\nprint(json.dumps([os.getppid(), reads_job.job, os.environ['RAY_JOB_ID']]))",
        encoding="utf-8",
    )
    path = {"PYTHONPATH": str(worker.parent)}
    with ForkServer([], ["reads_job"], ENVIRONMENT | path) as forks:
        for job in ("01000000", "02000000"):
            assert told(forks, worker, **path, RAY_JOB_ID=job) == [forks.process.pid, "ffffffff", job]


def test_workers_start_without_the_server_and_forks_outlive_it(worker: Path) -> None:
    with running() as forks:
        first = start(forks, worker, MLFLOW_SLEEPS="60")
        assert first.stdout is not None
        assert json.loads(first.stdout.readline())["parent"] == forks.process.pid
        (fork,) = psutil.Process(forks.process.pid).children()
        forks.process.kill()
        forks.process.communicate()
        assert fork.is_running()
        assert told(forks, worker)["parent"] == os.getpid()
        fork.kill()
        first.communicate()


def test_a_script_that_waits_too_long_runs_its_own_python_and_its_fork_ends(
    forks: ForkServer, worker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    impatient = tmp_path / "impatient.py"
    text = Path(local_worker_script.__file__).read_text(encoding="utf-8")
    impatient.write_text(text.replace("FORKED_WITHIN_S = 20.0", "FORKED_WITHIN_S = 0.5"), encoding="utf-8")
    monkeypatch.setattr(local_worker_script, "__file__", str(impatient))
    forks.process.send_signal(signal.SIGSTOP)
    own = start(forks, worker)
    assert own.stdout is not None
    assert json.loads(own.stdout.readline())["parent"] == os.getpid()
    forks.process.send_signal(signal.SIGCONT)
    own.communicate()
    assert told(forks, worker)["parent"] == forks.process.pid
    wait_until(lambda: not psutil.Process(forks.process.pid).children())


def test_the_server_ends_with_its_driver(worker: Path) -> None:
    driver = (
        "from sweeps.runtime.fork_server import ForkServer; import os, time\n"
        "with ForkServer([], [], dict(os.environ)) as forks:\n"
        "    print(forks.process.pid, forks.address, flush=True)\n"
        "    time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, address = process.stdout.readline().split()
    server, folder = psutil.Process(int(pid)), Path(address).parent
    process.kill()
    process.communicate()
    wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("overrides", "variables", "has_one"),
    [
        ([], {}, True),
        ([], {ADDRESS: ""}, False),
        ([], {"TMPDIR": "/" + "x" * 70}, False),
        (["cluster.address=auto"], {}, False),
    ],
)
def test_a_sweep_has_one_for_its_task_where_it_starts_ray_and_there_can_and_shall_be_one(
    overrides: list[str], variables: dict[str, str], has_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", variables.get("TMPDIR"))
    with fork_server(composed_digits(*overrides).config) as forks:
        assert (forks is not None) == has_one
        if forks is not None:
            command = psutil.Process(forks.process.pid).cmdline
            wait_until(lambda: "sweeps_train.tasks.image_classification" in " ".join(command()))
